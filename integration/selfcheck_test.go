package integration

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// relay is a bare TCP relay, which may change what the server says.
type relay struct {
	address string
	target  string
	change  func([]byte) []byte

	mu      sync.Mutex
	clients map[net.Conn]bool
}

// startRelayOf starts a relay, which is closed at the end of the test.
func startRelayOf(t *testing.T, target string, change func([]byte) []byte) *relay {
	t.Helper()
	r := &relay{address: needEnvironment(t).address(), target: target, change: change, clients: map[net.Conn]bool{}}
	l, err := net.Listen("tcp", r.address)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = l.Close()
		r.cut()
	})
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(client)
		}
	}()
	return r
}

// serve relays one connection until either side closes.
func (r *relay) serve(client net.Conn) {
	r.mu.Lock()
	r.clients[client] = true
	r.mu.Unlock()
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if _, werr := client.Write(r.change(buffer[:n])); err != nil || werr != nil {
			return
		}
	}
}

// cut closes all present connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.clients {
		_ = c.Close()
		delete(r.clients, c)
	}
}

// The comparisons see a difference: here one side is a relay that changes one word.
func TestComparisonsSeeADifference(t *testing.T) {
	direct := needEnvironment(t).direct()
	lying := startRelayOf(t, direct, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("static"), []byte("statik")) }).address
	d := withGocql2(4, "")
	found := differences(record(t, d, direct, direct), record(t, d, direct, lying))
	assert.NotEmpty(t, found, "by a driver")
	assert.Less(t, len(found), 20, "by a driver")

	want := converse(t, primitive.ProtocolVersion4, primitive.CompressionNone, direct)
	got := converse(t, primitive.ProtocolVersion4, primitive.CompressionNone, lying)
	assert.NotEmpty(t, differentMoves(want, got), "on the wire")
}

// A driver behind a relay that does not translate addresses soon dials the node itself, and the
// record of addresses shows it.
func TestAddressRecordSeesANode(t *testing.T) {
	honest := startRelayOf(t, needEnvironment(t).direct(), func(b []byte) []byte { return b })
	r := newRecorder()
	c := cluster1(honest.address, "")
	c.Dialer = r
	c.ReconnectInterval = 100 * time.Millisecond
	g := openGocql1(t, c)
	eventually(t, wireTimeout, "the driver dials the node", func() error {
		honest.cut() // the driver reads the ring when it connects again
		if g.run(statement{cql: "SELECT key FROM system.local"}); r.count(needEnvironment(t).direct()) == 0 {
			return errorf("dialled %v", r.addresses())
		}
		return nil
	})
}
