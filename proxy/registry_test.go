package proxy

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

// proxyRows plays music.proxies: of two writes of a row the one with the higher stamp counts.
type proxyRows struct {
	mu   sync.Mutex
	rows map[uuid.UUID]asked // by the last INSERT, or DELETE
}

func (p *proxyRows) answer(a asked) message.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch a.verb() {
	case "INSERT", "DELETE":
		host := uuid.UUID(append(a.set["host_id"], a.where["host_id"]...))
		if a.stamp > p.rows[host].stamp || a.verb() == "DELETE" && a.stamp == p.rows[host].stamp {
			p.rows[host] = a
		}
		return &message.VoidResult{}
	}
	all := noRow("host_id", "address", "port", "session", "serving", "writetime(serving)")
	for host, a := range p.rows {
		if a.verb() == "INSERT" {
			all.Data = append(all.Data, message.Row{host[:], a.set["address"], a.set["port"], a.set["session"], a.set["serving"], bigint(a.stamp)})
		}
	}
	return all
}

// registered is the membership of a proxy at 192.0.2.1 with a home node.
func registered(n *cqlNode, home uuid.UUID, log zerolog.Logger) *members {
	l := &heartbeat{session: n.session, options: musiccore.Defaults()}
	l.others.dead, l.others.seen = l.options.DeadAfter, map[gocql.UUID]seenSession{}
	l.rejoin()
	return &members{
		session: n.session, heartbeat: l, log: log, advertise: netip.MustParseAddrPort("192.0.2.1:9042"),
		ring: ring{home: location{host: home}}, absent: map[uuid.UUID]time.Time{}, written: map[uuid.UUID]int64{},
	}
}

// A proxy's row was written while its machine's clock was an hour ahead. It can be corrected all the same, and removed, and is not
// hidden where its node is back.
func TestRowsOfProxiesWrittenByAFastClock(t *testing.T) {
	rows := &proxyRows{rows: map[uuid.UUID]asked{}}
	n := startCQLNode(t, rows.answer)
	own, left := uuid.UUID{1}, uuid.UUID{2}
	m := registered(n, own, zerolog.Nop())
	m.absent[left] = time.Now().Add(-time.Hour)
	fast := time.Now().Add(time.Hour).UnixMicro()
	write := func(host, session uuid.UUID, stamp int64) {
		rows.answer(asked{text: "INSERT", stamp: stamp, set: map[string][]byte{
			"host_id": host[:], "address": {192, 0, 2, host[0]}, "port": {0, 0, 35, 82}, "session": session[:], "serving": {1},
		}})
	}
	write(own, uuid.UUID{7}, fast)
	write(left, uuid.UUID{8}, fast)
	all, err := m.read(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.correctOwn(t.Context(), all, true, true))
	require.NoError(t, m.sweep(t.Context()))
	all, err = m.read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []member{{host: own, proxy: m.advertise, session: uuid.UUID(m.self()), serving: true}}, all)
	n.take()
	require.NoError(t, m.correctOwn(t.Context(), all, true, true))
	for _, a := range n.take() {
		assert.True(t, strings.HasPrefix(a.text, "SELECT"), a.text)
	}
	write(left, uuid.UUID{8}, fast+1)
	all, err = m.read(t.Context())
	require.NoError(t, err)
	assert.Len(t, all, 2, "it was removed as it was read, and no higher")
}

// Two proxies were given one address and one node, as by a copied configuration. The later one has the row; they do not take it from
// each other, and the earlier one says so.
func TestTwoProxiesWithOneIdentity(t *testing.T) {
	rows, log := &proxyRows{rows: map[uuid.UUID]asked{}}, &jsonLog{}
	n, host := startCQLNode(t, rows.answer), uuid.UUID{1}
	earlier, later := registered(n, host, zerolog.New(log)), registered(n, host, zerolog.New(log))
	both := []*members{earlier, later}
	for i, m := range both {
		m.heartbeat.others.seen[both[1-i].self()] = seenSession{beat: 1} // they live
		require.NoError(t, m.write(t.Context(), false))
	}
	look := func(m *members) uuid.UUID {
		all, err := m.read(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.correctOwn(t.Context(), all, true, true))
		all, err = m.read(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all[0].session
	}
	for range 3 {
		assert.Equal(t, uuid.UUID(later.self()), look(earlier))
		assert.Equal(t, uuid.UUID(later.self()), look(later))
	}
	assert.Len(t, log.of("another proxy stands for the same node: drivers of other proxies see that one and not this one"), 1)
	later.heartbeat.rejoin()
	assert.Equal(t, uuid.UUID(later.self()), look(later), "it is still its own row")
	earlier.heartbeat.others.seen[later.self()] = seenSession{beat: musiccore.EndedBeat}
	assert.Equal(t, uuid.UUID(earlier.self()), look(earlier))
}
