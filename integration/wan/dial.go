package wan

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Dialer opens connections from inside a site, for clients that live in this process.
type Dialer struct {
	net.Dialer
	namespace string
}

// Dialer returns the Dialer of a site.
func (w *WAN) Dialer(site int) *Dialer { return &Dialer{namespace: w.Namespace(site)} }

// DialContext connects to an address, which must be numeric, since names are looked up on threads
// outside of the namespace. A socket stays in the namespace in which it was made, so only its
// creation needs a thread in there.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var c net.Conn
	err := Inside(d.namespace, func() error {
		var err error
		c, err = d.Dialer.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Inside calls f on a thread in the namespace: sockets that f makes belong to the namespace, and
// stay in it.
func Inside(namespace string, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	back, err := enter(namespace)
	if err != nil {
		return fmt.Errorf("enter %s: %w", namespace, err)
	}
	defer back()
	return f()
}

// enter moves the locked thread into a namespace, and returns the function that moves it back.
func enter(namespace string) (back func(), err error) {
	here, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	if err != nil {
		return nil, err
	}
	there, err := os.Open("/var/run/netns/" + namespace)
	if err != nil {
		return nil, err
	}
	defer func() { _ = there.Close() }()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	return func() {
		if err := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); err != nil {
			runtime.LockOSThread() // a thread that cannot go back must serve nobody else: it ends with its goroutine
		}
		_ = here.Close()
	}, nil
}
