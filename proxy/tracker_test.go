package proxy

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"

	"music/frontend/topology"
)

// someMember is the proxy of node k in its n-th session.
func someMember(k, n byte) member {
	return member{
		host: uuid.UUID{k}, proxy: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, k}), 9042), session: uuid.UUID{k, n}, serving: true,
	}
}

// told is an event in short: of the proxy's address only the last byte.
func told(all []peerEvent) string {
	text := ""
	for _, n := range all {
		b := n.proxy.Addr().As4()
		text += string(n.change) + string('0'+rune(b[3])) + " "
	}
	return text
}

// Drivers are told once of what lasts, and of nothing that is over before they could act on it.
func TestCensus(t *testing.T) {
	away := someMember(3, 1)
	away.serving = false
	moved := someMember(3, 2)
	moved.proxy = someMember(4, 0).proxy
	two := someMember(2, 1)
	for name, steps := range map[string][]struct {
		after   time.Duration
		members []member
		want    string
	}{
		"who is there at first is known": {{0, []member{two, someMember(3, 1)}, ""}, {time.Hour, []member{two, someMember(3, 1)}, ""}},
		"comes and goes": {
			{0, []member{two}, ""},
			{1, []member{two, someMember(3, 1)}, "NEW_NODE3 UP3 "},
			{2, []member{two, someMember(3, 1)}, ""},
			{3, []member{two, away}, ""},
			{7, []member{two, away}, ""},
			{8, []member{two, away}, "DOWN3 "},
			{99, []member{two, away}, ""},
			{100, []member{two, someMember(3, 1)}, "UP3 "},
			{101, []member{two}, "REMOVED_NODE3 "},
			{102, []member{two}, ""},
		},
		"restarts": {
			{0, []member{someMember(3, 1)}, ""},
			{1, []member{away}, ""},
			{4, []member{away}, ""},
			{5, []member{someMember(3, 2)}, "UP3 "},
			{6, []member{away}, ""},
			{10, []member{away}, ""},
			{11, []member{away}, "DOWN3 "},
		},
		"restarts between two looks": {{0, []member{someMember(3, 1)}, ""}, {1, []member{someMember(3, 2)}, "UP3 "}, {2, []member{someMember(3, 2)}, ""}},
		"not there yet at first":     {{0, []member{away}, ""}, {3, []member{someMember(3, 1)}, "UP3 "}},
		"never there":                {{0, []member{away}, ""}, {5, []member{away}, "DOWN3 "}},
		"is told of when it serves":  {{0, nil, ""}, {1, []member{away}, ""}, {2, []member{someMember(3, 1)}, "NEW_NODE3 UP3 "}},
		"another address for a node": {{0, []member{someMember(3, 1)}, ""}, {1, []member{moved}, "REMOVED_NODE3 NEW_NODE4 UP4 "}},
	} {
		t.Run(name, func(t *testing.T) {
			var c peerTracker
			start := time.Now()
			for _, step := range steps {
				got := c.update(start.Add(step.after*time.Second), step.members, func(m member) bool { return m.serving })
				assert.Equal(t, step.want, told(got), "after %d s", step.after)
			}
		})
	}
}

// Drivers are shown the nodes of the ring that have a proxy, alive or not, in one order.
func TestShownNodes(t *testing.T) {
	at := netip.MustParseAddrPort
	r := ring{home: location{host: uuid.UUID{1}}, others: map[uuid.UUID]location{
		{2}: {host: uuid.UUID{2}, internal: at("10.0.0.2:7000"), native: at("10.1.0.2:9042")},
		{3}: {host: uuid.UUID{3}, internal: at("10.0.0.3:7000"), native: at("10.1.0.3:9042")},
		{4}: {host: uuid.UUID{4}},
	}}
	dead := someMember(2, 1)
	dead.serving = false
	nodes := visibleNodes([]member{someMember(3, 1), someMember(1, 1), dead, someMember(9, 1)}, r)
	assert.Equal(t, []topology.Node{
		{HostID: [16]byte{2}, Proxy: at("192.0.2.2:9042"), Internal: at("10.0.0.2:7000"), Native: at("10.1.0.2:9042")},
		{HostID: [16]byte{3}, Proxy: at("192.0.2.3:9042"), Internal: at("10.0.0.3:7000"), Native: at("10.1.0.3:9042")},
	}, nodes)
}

// Proxies that cannot serve the same drivers are refused with the reason, but for one that takes
// the place of another.
func TestConflicts(t *testing.T) {
	m := &members{advertise: someMember(1, 1).proxy, ring: ring{home: location{host: uuid.UUID{1}}}}
	assert.NoError(t, m.conflict(someMember(2, 1)))
	for want, change := range map[string]func(*member){
		"is on port 9043":                   func(o *member) { o.proxy = netip.MustParseAddrPort("192.0.2.2:9043") },
		"says that it is at 192.0.2.1:9042": func(o *member) { o.proxy = m.advertise },
	} {
		o := someMember(2, 1)
		change(&o)
		assert.ErrorContains(t, m.conflict(o), want)
		o.host = m.ring.home.host
		assert.NoError(t, m.conflict(o), "this one takes its place")
	}
}

// A node has left the ring when it has not been there for a while.
func TestNodeThatHasLeft(t *testing.T) {
	m := &members{absent: map[uuid.UUID]time.Time{}, ring: ring{home: location{host: uuid.UUID{1}}, others: map[uuid.UUID]location{{2}: {}}}}
	for _, there := range []byte{1, 2} {
		m.absent[uuid.UUID{there}] = time.Now().Add(-time.Hour)
		assert.False(t, m.hasLeft(uuid.UUID{there}))
		assert.NotContains(t, m.absent, uuid.UUID{there}, "it has come back")
	}
	assert.False(t, m.hasLeft(uuid.UUID{3}), "perhaps for a moment only")
	m.absent[uuid.UUID{3}] = time.Now().Add(-leftAfter)
	assert.True(t, m.hasLeft(uuid.UUID{3}))
}

// A proxy on the loopback of an application's machine stays alone; one before a node on that same
// loopback does not.
func TestUnreachableProxies(t *testing.T) {
	at := netip.MustParseAddrPort
	assert.False(t, unreachable(at("192.0.2.1:9042"), at("10.0.0.1:9042")))
	assert.True(t, unreachable(at("127.0.0.1:9042"), at("10.0.0.1:9042")))
	assert.True(t, unreachable(at("[::1]:9042"), at("10.0.0.1:9042")))
	assert.False(t, unreachable(at("127.0.6.1:9042"), at("127.0.7.1:9042")))
	assert.True(t, unreachable(at("192.0.2.1:0"), at("10.0.0.1:9042")))
}
