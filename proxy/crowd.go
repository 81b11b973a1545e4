package proxy

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// crowd is a listener that bears so many strangers at a time: connections that have not shown yet that they may ask anything. Where there
// are too many, of all or of one address, the oldest makes room for the newest, so that who shows himself at once always gets in. Whoever
// is known is counted apart.
type crowd struct {
	net.Listener
	bears crowdBounds

	mu        sync.Mutex
	strangers []*guest // the oldest first
	known     int
}

// crowdBounds say how many there may be.
type crowdBounds struct {
	strangers, each, known int           // each: of one address
	patience               time.Duration // for a stranger to become known; 0: for ever
}

// guest is one of the connections.
type guest struct {
	net.Conn
	crowd *crowd
	from  netip.Prefix
	late  *time.Timer
	state guestState // guarded by the crowd's mutex
}

// guestState is how far a guest has come.
type guestState uint8

const (
	stranger guestState = iota
	friend
	gone
)

// newCrowd bounds who comes in through a listener.
func newCrowd(ln net.Listener, bears crowdBounds) *crowd { return &crowd{Listener: ln, bears: bears} }

// Accept waits for the next one, and sends others away for it where there are too many.
func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // the server's own error, as from any listener
	}
	g := &guest{Conn: conn, crowd: c, from: origin(conn.RemoteAddr())}
	c.mu.Lock()
	away := c.makeRoom(g.from)
	c.strangers = append(c.strangers, g)
	if c.bears.patience > 0 {
		g.late = time.AfterFunc(c.bears.patience, g.leave)
	}
	c.mu.Unlock()
	if away != nil {
		_ = away.Close()
	}
	return g, nil
}

// makeRoom names who has to go for one more from an address, nil where there is room. The mutex is held.
func (c *crowd) makeRoom(from netip.Prefix) *guest {
	n, oldest := 0, -1
	for i, g := range c.strangers {
		if g.from == from {
			n++
			if oldest < 0 {
				oldest = i
			}
		}
	}
	switch {
	case n >= c.bears.each:
		return c.strangers[oldest]
	case len(c.strangers) >= c.bears.strangers:
		return c.strangers[0]
	}
	return nil
}

// leave ends a stranger whose time is up.
func (g *guest) leave() {
	g.crowd.mu.Lock()
	late := g.state == stranger
	g.crowd.mu.Unlock()
	if late {
		_ = g.Close()
	}
}

// welcome makes the guest known. It is false where too many are: then it is to be closed.
func (g *guest) welcome() bool {
	c := g.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.state == friend {
		return true
	}
	if g.state == gone || c.known >= c.bears.known {
		return false
	}
	c.forget(g)
	g.state = friend
	c.known++
	return true
}

// Close ends the connection and gives its place to another.
func (g *guest) Close() error {
	c := g.crowd
	c.mu.Lock()
	switch g.state {
	case stranger:
		c.forget(g)
	case friend:
		c.known--
	case gone:
	}
	g.state = gone
	c.mu.Unlock()
	if g.late != nil {
		g.late.Stop()
	}
	return g.Conn.Close() //nolint:wrapcheck // the caller's own
}

// forget takes one from the strangers; the mutex is held.
func (c *crowd) forget(g *guest) {
	if i := slices.Index(c.strangers, g); i >= 0 {
		c.strangers = slices.Delete(c.strangers, i, i+1)
	}
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

// guestKey is where a request's context has its guest.
type guestKey struct{}

// withGuest puts a connection's guest into the context of its requests, under TLS too.
func withGuest(ctx context.Context, conn net.Conn) context.Context {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = wrapped.NetConn()
	}
	g, _ := conn.(*guest)
	return context.WithValue(ctx, guestKey{}, g)
}

// welcomed makes the guest of a request known; a connection that came through no crowd is.
func welcomed(ctx context.Context) bool {
	g, _ := ctx.Value(guestKey{}).(*guest)
	return g == nil || g.welcome()
}
