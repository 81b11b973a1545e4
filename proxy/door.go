package proxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// door is the listener that drivers come through. It can be shut and opened again: behind a shut door nobody listens, and drivers
// go to another proxy.
type door struct {
	address string       // host:port; port 0 becomes the one that is found first
	opened  *atomic.Bool // whether it is open; for health

	mu     sync.Mutex
	ln     net.Listener  // nil while it is shut
	turned chan struct{} // closed when ln changes, and then made anew
	closed bool
}

// newDoor makes one that is shut.
func newDoor(address string, opened *atomic.Bool) *door {
	return &door{address: address, opened: opened, turned: make(chan struct{})}
}

// open begins to listen; an open door stays as it is.
func (d *door) open(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ln != nil || d.closed {
		return nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", d.address)
	if err != nil {
		return fmt.Errorf("listen for drivers at %s (setting listen): %w", d.address, err)
	}
	d.address = ln.Addr().String()
	d.turn(ln)
	return nil
}

// shut ends listening; connections that have come through stay.
func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ln != nil {
		_ = d.ln.Close()
		d.turn(nil)
	}
}

// turn is called with the mutex held.
func (d *door) turn(ln net.Listener) {
	d.ln = ln
	d.opened.Store(ln != nil)
	close(d.turned)
	d.turned = make(chan struct{})
}

// isOpen tells whether drivers can come in.
func (d *door) isOpen() bool { return d.opened.Load() }

// now is the listener, nil while it is shut, and what is closed at the next turn.
func (d *door) now() (net.Listener, <-chan struct{}, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ln, d.turned, d.closed
}

// Accept waits for a client, however often the door is shut meanwhile.
func (d *door) Accept() (net.Conn, error) {
	for {
		ln, turned, closed := d.now()
		if closed {
			return nil, net.ErrClosed
		}
		if ln == nil {
			<-turned
			continue
		}
		conn, err := ln.Accept()
		if now, _, _ := d.now(); err != nil && now != ln {
			continue
		}
		return conn, err //nolint:wrapcheck // the server's own error, as from any listener
	}
}

// Close shuts the door for good.
func (d *door) Close() error {
	d.shut()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.turn(nil)
	return nil
}

// Addr is where the door is, open or shut.
func (d *door) Addr() net.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return doorAddress(d.address)
}

// doorAddress is host:port.
type doorAddress string

// Network implements net.Addr.
func (doorAddress) Network() string { return "tcp" }

// String implements net.Addr.
func (a doorAddress) String() string { return string(a) }
