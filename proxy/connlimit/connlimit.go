// Package connlimit bounds the number of a listener's connections, so that a client that opens many
// does not keep others out.
package connlimit

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Limits bound the numbers of open connections.
type Limits struct {
	Untrusted  int           // untrusted connections
	PerAddress int           // untrusted connections of one address
	Trusted    int           // trusted connections
	Patience   time.Duration // for a connection to become trusted; 0 = no limit
}

// Listener bounds the connections that it accepts. A connection is untrusted until [Trust] is
// called for it. If there are too many untrusted ones, in all or of one address, the oldest is
// closed for the newest, so that a client that authenticates at once can always connect. Trusted
// connections are counted apart and never closed for others.
type Listener struct {
	net.Listener
	limits Limits

	mu        sync.Mutex
	untrusted []*conn // the oldest first
	trusted   int
}

// conn is an accepted connection.
type conn struct {
	net.Conn
	of    *Listener
	from  netip.Prefix
	timer *time.Timer // closes it after Patience; nil if there is no such limit
	state state       // guarded by the listener's mutex
}

// state is the state of a connection.
type state uint8

const (
	stateUntrusted state = iota
	stateTrusted
	stateClosed
)

// New returns a listener that bounds the connections of ln.
func New(ln net.Listener, limits Limits) *Listener { return &Listener{Listener: ln, limits: limits} }

// Accept blocks until the next connection, and closes another for it if there are too many.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // http.Server expects the listener's own error
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

// surplus returns the connection to close if one more comes from an address; nil if there is room.
// It is called with the mutex held.
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

// remove removes a connection from the untrusted ones. It is called with the mutex held.
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

// trust makes the connection trusted. It returns false if there are too many trusted ones, or the
// connection is closed.
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

// Close closes the connection and no longer counts it.
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
	return c.Conn.Close() //nolint:wrapcheck // as that of any connection
}

// origin returns the prefix that counts as one address: in IPv6 the /64 network.
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

// contextKey is the key of a request's connection in its context.
type contextKey struct{}

// ConnContext is to be used as http.Server.ConnContext, so that Trust finds the connection of a
// request, also under TLS.
func ConnContext(ctx context.Context, accepted net.Conn) context.Context {
	if wrapped, ok := accepted.(interface{ NetConn() net.Conn }); ok {
		accepted = wrapped.NetConn()
	}
	c, _ := accepted.(*conn)
	return context.WithValue(ctx, contextKey{}, c)
}

// Trust makes the connection of a request trusted. If it returns false, because there are too many
// trusted ones, the caller must close the connection. A connection of another listener is always
// trusted.
func Trust(ctx context.Context) bool {
	c, _ := ctx.Value(contextKey{}).(*conn)
	return c == nil || c.trust()
}

// Trusted reports whether [Trust] has been called for the connection of a request.
func Trusted(ctx context.Context) bool {
	c, _ := ctx.Value(contextKey{}).(*conn)
	if c == nil {
		return true
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.state == stateTrusted
}
