package proxy

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"music/musiccore"
)

// link is the network between the proxies that ask and one that answers.
type link struct {
	net.Listener
	to string

	mu     sync.Mutex
	change *sync.Cond
	open   []net.Conn
	most   int   // how many were open at once
	sent   int64 // bytes that have arrived from who answers
	held   bool  // what the one that answers says stays on its way
	cut    bool
}

// linked returns two proxies. What b asks a goes by the link.
func linked(t *testing.T, change ...func(*musiccore.Options)) (a, b *station, between *link) {
	t.Helper()
	c := newCluster()
	a = startStation(t, c, change...)
	between = newLink(t, a.address)
	c.say(a.life.id(), 1, between.Addr().String())
	return a, startStation(t, c, change...), between
}

// newLink returns a link to an address; it ends with the test.
func newLink(t *testing.T, to string) *link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{Listener: ln, to: to}
	l.change = sync.NewCond(&l.mu)
	var carrying sync.WaitGroup
	carrying.Go(func() {
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			carrying.Go(func() { l.carry(from) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		l.hangUp()
		carrying.Wait()
	})
	return l
}

// carry carries one connection.
func (l *link) carry(from net.Conn) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("tcp", l.to)
	if err != nil || !l.add(from, to) {
		return
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		_, _ = io.Copy(to, from)
		_ = to.(*net.TCPConn).CloseWrite()
	})
	defer asking.Wait()
	defer func() { _, _ = from.Close(), to.Close() }()
	said := make([]byte, 1<<16)
	for {
		n, err := to.Read(said)
		l.mu.Lock()
		l.sent += int64(n)
		l.change.Broadcast()
		for l.held && !l.cut {
			l.change.Wait()
		}
		l.mu.Unlock()
		if _, failed := from.Write(said[:n]); err != nil || failed != nil {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range l.open {
		if c == from {
			l.open = append(l.open[:i], l.open[i+2:]...)
			break
		}
	}
}

// add counts a connection that is carried; false if the link is cut.
func (l *link) add(from, to net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		_ = to.Close()
		return false
	}
	l.open = append(l.open, from, to)
	l.most = max(l.most, len(l.open)/2)
	return true
}

// hold keeps answers on their way, until letGo. It returns how much has arrived before.
func (l *link) hold() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = true
	return l.sent
}

// arrived blocks until an answer is held.
func (l *link) arrived(before int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.sent == before {
		l.change.Wait()
	}
}

// letGo lets the answers go on.
func (l *link) letGo() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	l.change.Broadcast()
}

// hangUp closes every connection, and refuses others, until mend.
func (l *link) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for _, c := range l.open {
		_ = c.Close()
	}
	l.change.Broadcast()
}

// hangUpOnce closes every connection, with what is on its way, and lets new ones through at once.
func (l *link) hangUpOnce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		_ = c.Close()
	}
	l.held = false
	l.change.Broadcast()
}

// mend lets new connections through.
func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.held = false, false
}
