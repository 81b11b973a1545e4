// Package connlimit bounds how many connections a listener holds, so that a client that opens many
// does not lock others out.
package connlimit

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Limits say how many connections there may be at a time.
type Limits struct {
	Untrusted  int           // not trusted yet
	PerAddress int           // … of one address
	Trusted    int           // trusted
	Patience   time.Duration // for a connection to become trusted; 0: no limit
}

// Listener bounds the connections that it accepts. A connection is untrusted until [Trust] is
// called for it. Where too many are untrusted, of all or of one address, the oldest is closed for
// the newest: a client that proves at once that it may ask always gets in. Trusted connections are
// counted apart, and never closed for others.
type Listener struct {
	net.Listener
	limits Limits

	mu        sync.Mutex
	untrusted []*conn // the oldest first
	trusted   int
}

// conn is one of the connections.
type conn struct {
	net.Conn
	of    *Listener
	from  netip.Prefix
	timer *time.Timer // closes it when its time to become trusted is up; nil without such a limit
	state state       // guarded by the listener's mutex
}

// state is how far a connection has come.
type state uint8

const (
	stateUntrusted state = iota
	stateTrusted
	stateClosed
)

// New bounds the connections of a listener.
func New(ln net.Listener, limits Limits) *Listener { return &Listener{Listener: ln, limits: limits} }

// Accept waits for the next connection, and closes another for it where there are too many.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // the server's own error, as from any listener
	}
	c := &conn{Conn: accepted, of: l, from: origin(accepted.RemoteAddr())}
	l.mu.Lock()
	away := l.surplus(c.from)
	l.untrusted = append(l.untrusted, c)
	if l.limits.Patience > 0 {
		c.timer = time.AfterFunc(l.limits.Patience, c.expire)
	}
	l.mu.Unlock()
	if away != nil {
		_ = away.Close()
	}
	return c, nil
}

// surplus returns the connection to be closed for one more from an address, nil where there is
// room. The mutex is held.
func (l *Listener) surplus(from netip.Prefix) *conn {
	n, oldest := 0, -1
	for i, c := range l.untrusted {
		if c.from == from {
			n++
			if oldest < 0 {
				oldest = i
			}
		}
	}
	switch {
	case n >= l.limits.PerAddress:
		return l.untrusted[oldest]
	case len(l.untrusted) >= l.limits.Untrusted:
		return l.untrusted[0]
	}
	return nil
}

// remove takes a connection from the untrusted ones; the mutex is held.
func (l *Listener) remove(c *conn) {
	if i := slices.Index(l.untrusted, c); i >= 0 {
		l.untrusted = slices.Delete(l.untrusted, i, i+1)
	}
}

// expire closes a connection that is still untrusted.
func (c *conn) expire() {
	c.of.mu.Lock()
	late := c.state == stateUntrusted
	c.of.mu.Unlock()
	if late {
		_ = c.Close()
	}
}

// trust makes the connection trusted. It reports false where too many are, or the connection is
// closed.
func (c *conn) trust() bool {
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.state == stateTrusted {
		return true
	}
	if c.state == stateClosed || l.trusted >= l.limits.Trusted {
		return false
	}
	l.remove(c)
	c.state = stateTrusted
	l.trusted++
	return true
}

// Close closes the connection and makes room for another.
func (c *conn) Close() error {
	l := c.of
	l.mu.Lock()
	switch c.state {
	case stateUntrusted:
		l.remove(c)
	case stateTrusted:
		l.trusted--
	case stateClosed:
	}
	c.state = stateClosed
	l.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	return c.Conn.Close() //nolint:wrapcheck // the caller's own
}

// origin is what counts as one address: in IPv6 the network that one machine is given.
func origin(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	from, _ := ip.Prefix(bits)
	return from
}

// contextKey is where a request's context has its connection.
type contextKey struct{}

// ConnContext is for http.Server.ConnContext: with it Trust finds the connection of a request,
// under TLS too.
func ConnContext(ctx context.Context, accepted net.Conn) context.Context {
	if wrapped, ok := accepted.(interface{ NetConn() net.Conn }); ok {
		accepted = wrapped.NetConn()
	}
	c, _ := accepted.(*conn)
	return context.WithValue(ctx, contextKey{}, c)
}

// Trust makes the connection of a request trusted, and reports false where too many are: then it is
// to be closed. A connection of another listener is always trusted.
func Trust(ctx context.Context) bool {
	c, _ := ctx.Value(contextKey{}).(*conn)
	return c == nil || c.trust()
}
