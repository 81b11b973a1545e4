package struck

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// relay connects one process to its store. While it is cut it keeps all bytes back, and sends them later.
type relay struct {
	target string
	listen net.Listener

	mu      sync.Mutex
	open    chan struct{} // closed while bytes pass
	conns   []net.Conn
	running sync.WaitGroup
}

// newRelay listens at an address.
func newRelay(address, target string) (*relay, error) {
	l, err := net.Listen("tcp", address) //nolint:noctx // it ends by close
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	r := &relay{target: target, listen: l, open: make(chan struct{})}
	close(r.open)
	r.running.Go(r.accept)
	return r, nil
}

// cut keeps all bytes back from now on.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = make(chan struct{})
}

// heal lets everything through.
func (r *relay) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.open)
}

// passing returns what is closed when bytes pass.
func (r *relay) passing() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// close ends all connections. The relay is not cut.
func (r *relay) close() {
	_ = r.listen.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.running.Wait()
}

func (r *relay) accept() {
	for {
		near, err := r.listen.Accept()
		if err != nil {
			return
		}
		<-r.passing()
		far, err := net.Dial("tcp", r.target) //nolint:noctx // it ends by close
		if err != nil {
			_ = near.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, near, far)
		r.mu.Unlock()
		r.running.Go(func() { r.pass(far, near) })
		r.running.Go(func() { r.pass(near, far) })
	}
}

// pass copies one direction until it ends.
func (r *relay) pass(to io.WriteCloser, from io.Reader) {
	defer func() { _ = to.Close() }()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		<-r.passing()
		if _, failed := to.Write(b[:n]); failed != nil || err != nil {
			return
		}
	}
}
