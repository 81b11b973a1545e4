package integration

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// stallingRelay is a relay to a node. A message with a certain word waits, with everything behind
// it on its connection, until open is called.
type stallingRelay struct {
	address string
	node    string
	word    []byte
	held    chan struct{} // closed when such a message waits
	opened  chan struct{}
	once    sync.Once

	mu      sync.Mutex
	conns   []net.Conn
	running sync.WaitGroup
}

// newStallingRelay listens until the test ends.
func newStallingRelay(t *testing.T, node, word string) *stallingRelay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.2.253:0")
	require.NoError(t, err)
	g := &stallingRelay{address: ln.Addr().String(), node: node, word: []byte(word), held: make(chan struct{}), opened: make(chan struct{})}
	g.running.Go(func() { g.accept(ln) })
	t.Cleanup(func() {
		_ = ln.Close()
		g.open()
		g.mu.Lock()
		for _, c := range g.conns {
			_ = c.Close()
		}
		g.mu.Unlock()
		g.running.Wait()
	})
	return g
}

// open has the relay pass everything.
func (g *stallingRelay) open() { g.once.Do(func() { close(g.opened) }) }

func (g *stallingRelay) accept(ln net.Listener) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		node, err := net.Dial("tcp", g.node)
		if err != nil {
			_ = client.Close()
			continue
		}
		g.mu.Lock()
		g.conns = append(g.conns, client, node)
		g.mu.Unlock()
		g.running.Go(func() { g.pass(node, client); _ = node.Close() })
		g.running.Go(func() { _, _ = io.Copy(client, node); _ = client.Close() })
	}
}

// pass copies what a client sends; messages are small and arrive in one piece.
func (g *stallingRelay) pass(node, client net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		if bytes.Contains(b[:n], g.word) && !g.isOpen() {
			close(g.held) // a test sends one
			<-g.opened
		}
		if _, err := node.Write(b[:n]); err != nil {
			return
		}
	}
}

func (g *stallingRelay) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}
