package connlimit

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// fakeListener accepts the one connection that the test gives it.
type fakeListener struct {
	net.Listener
	next net.Conn
}

// Accept implements net.Listener.
func (l *fakeListener) Accept() (net.Conn, error) {
	if l.next == nil {
		return nil, errors.New("nobody")
	}
	return l.next, nil
}

// fakeConn is a connection from an address. It is an address, too.
type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

// RemoteAddr implements net.Conn.
func (c *fakeConn) RemoteAddr() net.Addr { return address(c.from) }

// Close implements net.Conn.
func (c *fakeConn) Close() error {
	c.closed = true
	return nil
}

// address is a net.Addr of any text.
type address string

// Network implements net.Addr.
func (address) Network() string { return "tcp" }

// String implements net.Addr.
func (a address) String() string { return string(a) }

// Connections that open, become trusted or close, in whatever order, keep to the limits: there are
// never more untrusted ones than allowed, of all nor of one address, nor more trusted ones; the
// newest always gets in; a trusted one is never closed for others; and each makes room once.
func TestLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{Untrusted: 8, PerAddress: 3, Trusted: 4}
		ln := &fakeListener{}
		l := New(ln, limits)
		var all []*conn
		trusted := map[*conn]bool{}
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			event := rapid.IntRange(0, 4).Draw(t, "event")
			if event < 3 || len(all) == 0 {
				next := &fakeConn{from: rapid.SampledFrom([]string{
					"10.0.0.1:5", "10.0.0.2:5", "10.0.0.3:5", "[::ffff:10.0.0.3]:6", "10.0.0.4:9", "[2001:db8::1]:7", "[2001:db8::2]:8", "odd",
				}).Draw(t, "from")}
				ln.next = next
				accepted, err := l.Accept()
				if err != nil || next.closed {
					require.Fail(t, "the newest does not get in")
				}
				all = append(all, accepted.(*conn))
			} else if c := rapid.SampledFrom(all).Draw(t, "connection"); event == 3 {
				was := trusted[c]
				if c.trust() {
					trusted[c] = true
				} else if was {
					require.Fail(t, "a trusted connection is not any more")
				}
			} else {
				_ = c.Close()
				delete(trusted, c)
			}
			from, untrusted := map[string]int{}, 0
			for _, c := range all {
				closed := c.Conn.(*fakeConn).closed
				switch {
				case trusted[c] && closed:
					require.Fail(t, "a trusted connection was closed")
				case !trusted[c] && !closed:
					untrusted++
					from[c.from.String()]++
				}
			}
			if untrusted > limits.Untrusted || untrusted != len(l.untrusted) || len(trusted) > limits.Trusted || len(trusted) != l.trusted {
				require.Fail(t, "miscounted", "%d untrusted, counted as %d; %d trusted, counted as %d", untrusted, len(l.untrusted), len(trusted), l.trusted)
			}
			for address, n := range from {
				if n > limits.PerAddress {
					require.Fail(t, "too many untrusted", "%d from %s", n, address)
				}
			}
		}
	})
}

// A connection that is not trusted in time is closed; one that is stays.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &fakeConn{from: "10.0.0.1:5"}, &fakeConn{from: "10.0.0.2:5"}
		ln := &fakeListener{next: first}
		l := New(ln, Limits{Untrusted: 8, PerAddress: 8, Trusted: 8, Patience: time.Second})
		accepted, err := l.Accept()
		require.NoError(t, err)
		require.True(t, Trust(ConnContext(context.Background(), accepted)))
		ln.next = second
		late, err := l.Accept()
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.False(t, first.closed)
		assert.True(t, second.closed)
		assert.False(t, Trust(ConnContext(context.Background(), late)), "it is closed")
		_ = accepted.Close()
	})
}
