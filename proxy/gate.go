package proxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// listenerGate is the listener for drivers. It can be shut and opened again: while it is shut its
// port is closed, so that drivers use another proxy. It is safe for concurrent use.
type listenerGate struct {
	address string       // host:port; port 0 is replaced by the port that was used first
	opened  *atomic.Bool // whether it is open; read by health

	mu      sync.Mutex
	ln      net.Listener  // nil while shut
	changed chan struct{} // closed, and replaced, when ln changes
	closed  bool          // shut for good
}

// newListenerGate returns a gate that is shut. opened is set while it is open.
func newListenerGate(address string, opened *atomic.Bool) *listenerGate {
	return &listenerGate{address: address, opened: opened, changed: make(chan struct{})}
}

// open begins to listen. It does nothing if the gate is open, or closed for good.
func (g *listenerGate) open(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ln != nil || g.closed {
		return nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", g.address)
	if err != nil {
		return fmt.Errorf("listen for drivers at %s (setting listen): %w", g.address, err)
	}
	g.address = ln.Addr().String()
	g.set(ln)
	return nil
}

// shut ends listening. Accepted connections stay open.
func (g *listenerGate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ln != nil {
		_ = g.ln.Close()
		g.set(nil)
	}
}

// set replaces the listener; nil means none. It is called with the mutex held.
func (g *listenerGate) set(ln net.Listener) {
	g.ln = ln
	g.opened.Store(ln != nil)
	close(g.changed)
	g.changed = make(chan struct{})
}

// isOpen reports whether drivers can connect.
func (g *listenerGate) isOpen() bool { return g.opened.Load() }

// current returns the listener, which is nil while shut; a channel that is closed at the next
// change; and whether the gate is closed for good.
func (g *listenerGate) current() (net.Listener, <-chan struct{}, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ln, g.changed, g.closed
}

// Accept blocks until a client connects, even if the gate is shut meanwhile. After Close it returns
// net.ErrClosed.
func (g *listenerGate) Accept() (net.Conn, error) {
	for {
		ln, turned, closed := g.current()
		if closed {
			return nil, net.ErrClosed
		}
		if ln == nil {
			<-turned
			continue
		}
		conn, err := ln.Accept()
		if now, _, _ := g.current(); err != nil && now != ln {
			continue
		}
		return conn, err //nolint:wrapcheck // frontend.Server expects the listener's own error
	}
}

// Close shuts the gate for good.
func (g *listenerGate) Close() error {
	g.shut()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.set(nil)
	return nil
}

// Addr returns the address, also while the gate is shut.
func (g *listenerGate) Addr() net.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	return hostPort(g.address)
}

// hostPort is a net.Addr of the form host:port.
type hostPort string

// Network implements net.Addr.
func (hostPort) Network() string { return "tcp" }

// String implements net.Addr.
func (a hostPort) String() string { return string(a) }
