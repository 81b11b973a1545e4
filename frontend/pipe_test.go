package frontend

import (
	"net"
	"sync"
)

// pipeListener listens in memory. Its connections are pipes, which hold no bytes: a write returns when all of it has been read.
type pipeListener struct {
	dialed chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipeListener() *pipeListener {
	l := &pipeListener{dialed: make(chan net.Conn, 16), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.dialed:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.close()
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// dial returns the far end of a connection that Accept returns.
func (l *pipeListener) dial() (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.dialed <- near:
		return far, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
