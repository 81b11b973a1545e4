package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"music/frontend"
	"music/musiccore"
)

// arrivals is a listener whose connections the test makes.
type arrivals struct {
	net.Listener
	next net.Conn
}

// Accept implements net.Listener.
func (a *arrivals) Accept() (net.Conn, error) {
	if a.next == nil {
		return nil, errors.New("nobody")
	}
	return a.next, nil
}

// arrival is a connection from an address.
type arrival struct {
	net.Conn
	from   string
	closed bool
}

// RemoteAddr implements net.Conn.
func (a *arrival) RemoteAddr() net.Addr { return doorAddress(a.from) }

// Close implements net.Conn.
func (a *arrival) Close() error {
	a.closed = true
	return nil
}

// Whoever comes, is known or goes, in whatever order: there are never more strangers than are borne, of all nor of one address, nor more
// friends; the newest always gets in; a friend is never sent away for others; and every place is given back once.
func TestCrowdIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bears := crowdBounds{strangers: 8, each: 3, known: 4}
		ln := &arrivals{}
		c := newCrowd(ln, bears)
		var all []*guest
		friends := map[*guest]bool{}
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			event := rapid.IntRange(0, 4).Draw(t, "event")
			if event < 3 || len(all) == 0 {
				a := &arrival{from: rapid.SampledFrom([]string{
					"10.0.0.1:5", "10.0.0.2:5", "10.0.0.3:5", "[::ffff:10.0.0.3]:6", "10.0.0.4:9", "[2001:db8::1]:7", "[2001:db8::2]:8", "odd",
				}).Draw(t, "from")}
				ln.next = a
				conn, err := c.Accept()
				if err != nil || a.closed {
					t.Fatal("the newest gets in")
				}
				all = append(all, conn.(*guest))
			} else if g := rapid.SampledFrom(all).Draw(t, "guest"); event == 3 {
				was := friends[g]
				if g.welcome() {
					friends[g] = true
				} else if was {
					t.Fatal("a friend stays one")
				}
			} else {
				_ = g.Close()
				delete(friends, g)
			}
			from, strangers := map[string]int{}, 0
			for _, g := range all {
				closed := g.Conn.(*arrival).closed
				switch {
				case friends[g] && closed:
					t.Fatal("a friend was sent away")
				case !friends[g] && !closed:
					strangers++
					from[g.from.String()]++
				}
			}
			if strangers > bears.strangers || strangers != len(c.strangers) || len(friends) > bears.known || len(friends) != c.known {
				t.Fatalf("%d strangers, counted as %d; %d friends, counted as %d", strangers, len(c.strangers), len(friends), c.known)
			}
			for address, n := range from {
				if n > bears.each {
					t.Fatalf("%d strangers from %s", n, address)
				}
			}
		}
	})
}

// However many strangers there are, that say nothing or what they may not, a proxy gets its answers, and what was refused is not kept.
func TestStrangersDoNotLockProxiesOut(t *testing.T) {
	const secret = "a secret that nobody guesses"
	c := newCluster()
	a := startStation(t, c, secretly(secret))
	k := keyOf("x")
	ref := a.held(k)
	before := startStation(t, c, secretly(secret))
	before.put(k, ref)
	for i := range 1100 {
		conn, err := net.Dial("tcp", a.address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if i%4 > 0 {
			_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%s: %d\r\nContent-Length: 2\r\n\r\n{}", askBegin, headerVersion, i%4)
		}
	}
	before.put(k, ref)
	after := startStation(t, c, secretly(secret))
	after.put(k, ref)
}

// A question that is refused ends its connection: whoever asks it has to come again.
func TestRefusalEndsTheConnection(t *testing.T) {
	a := startStation(t, newCluster(), secretly("a secret that nobody guesses"))
	for _, version := range []string{peerVersion, "0"} {
		conn, err := net.Dial("tcp", a.address)
		require.NoError(t, err)
		_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%s: %s\r\nContent-Length: 2\r\n\r\n{}", askBegin, headerVersion, version)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		_, err = io.Copy(io.Discard, conn)
		assert.NoError(t, err, "it is closed, and not only answered")
		_ = conn.Close()
	}
}

// Whatever one proxy has asked another, who has listened cannot ask it again.
func TestQuestionsAreNotReplayed(t *testing.T) {
	const secret = "a secret that nobody guesses"
	c := newCluster()
	a, b := startStation(t, c, secretly(secret)), startStation(t, c, secretly(secret))
	type sent struct {
		header http.Header
		body   []byte
	}
	heard := map[string]sent{}
	b.peers.client.Transport = tampered{RoundTripper: b.peers.client.Transport, request: func(r *http.Request, body []byte) []byte {
		heard[r.URL.Path] = sent{r.Header.Clone(), body}
		return body
	}}
	k := keyOf("x")
	ref := a.held(k)
	b.put(k, ref)
	b.lock(k, musiccore.Request{Ref: ref})
	b.List(k)
	b.unlock(k, ref)
	ref = a.held(k)
	b.Force(k, frontend.Force{Who: "anna", Reason: "stuck"}, func(musiccore.Answer) {})
	require.Eventually(t, func() bool { return errors.Is(a.begin(k, ref, musiccore.Put).Err, musiccore.ErrLost) }, 20*time.Second, time.Millisecond)
	ref = a.held(k)
	for path, s := range heard {
		status, told := send(t, a, http.MethodPost, path, s.header, string(s.body))
		assert.Equal(t, http.StatusUnauthorized, status, "%s: %s", path, told)
	}
	for _, path := range []string{askLock, askUnlock, askBegin, askEnd, askForce, askList} {
		assert.Contains(t, heard, path)
	}
	a.put(k, ref)
}

// FORCE by the word of another proxy ends the tenure that it names, whenever it comes, and never the next one.
func TestForceNamesItsReference(t *testing.T) {
	a, b := two(t)
	k := keyOf("x")
	first := a.held(k)
	a.unlock(k, first)
	second := a.held(k)
	told := a.server.force(t.Context(), question{Key: toWire(k), Ref: first, Reason: "late"})
	require.NoError(t, told.err())
	assert.False(t, told.Grant.Applied)
	a.put(k, second)
	told = a.server.force(t.Context(), question{Key: toWire(k), Ref: second, Reason: "in time"})
	assert.True(t, told.Grant.Applied)
	assert.ErrorIs(t, a.begin(k, second, musiccore.Put).Err, musiccore.ErrLost)
	third := a.held(k)
	forced := answered(t, func(done func(musiccore.Answer)) { b.Force(k, frontend.Force{Who: "anna", Reason: "stuck"}, done) })
	require.NoError(t, forced.Err)
	assert.Equal(t, third, forced.Grant.Ref)
}

// A request is known again for longer than it is believed, whatever came between.
func TestNonces(t *testing.T) {
	var n nonces
	start := time.Now()
	for step := range 200 {
		now := start.Add(time.Duration(step) * time.Second)
		assert.True(t, n.first(fmt.Sprint(step), now))
		for ago := 0; ago <= min(step, int(2*sealFor/time.Second)); ago++ {
			assert.False(t, n.first(fmt.Sprint(step-ago), now))
		}
		assert.LessOrEqual(t, len(n.now)+len(n.before), 4*int(sealFor/time.Second)+4)
	}
}
