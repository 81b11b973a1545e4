package frontend

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/wire"
)

// ordinaryTraffic is what a client might send after its handshake.
func ordinaryTraffic(t *testing.T, p *peer, id []byte) []byte {
	t.Helper()
	requests := someRequests(p, id, 1)
	requests = append(requests,
		p.envelope(t, 20, &message.Prepare{Query: "SELECT * FROM system.local"}),
		p.envelope(t, 21, query("SELECT * FROM system.local")),
		p.envelope(t, 23, query("UPDATE bank.accounts USING LOCK 1 SET a = 1 WHERE id = 'x'")),
		p.envelope(t, 24, &message.Register{EventTypes: []primitive.EventType{primitive.EventTypeStatusChange}}),
		p.envelope(t, 25, execute(id, noise(3000))),
	)
	return append(joined(p, requests[:4], true), joined(p, requests[4:], false)...)
}

// Traffic with something wrong in it, anywhere, ends in an answer or a close; the proxy and its other clients do not notice.
func TestCorruption(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := withCritical(t)
		other, node := r.login(dialect{version: v4})
		r.server.prepared.add(preparedID(noise(16)), &preparedStatement{}, nil)
		random := rand.New(rand.NewPCG(1, uint64(d.version)))
		for round := range 60 {
			client, backend := r.login(d)
			b := corrupt(random, ordinaryTraffic(t, client, noise(16)))
			var wg sync.WaitGroup
			wg.Go(func() {
				_, _ = client.Write(b)
				_ = client.Conn.(*net.TCPConn).CloseWrite()
			})
			wg.Go(func() { _, _ = io.Copy(io.Discard, client.Conn) })
			_, _ = io.Copy(io.Discard, backend.Conn)
			wg.Wait()
			_ = client.Close()
			_ = backend.Close()
			assert.NotEqual(t, "error", r.end()["level"], "round %d", round)
		}
		survives(other, node)
	})
}

// corrupt changes some bytes, or takes some away, or puts some in.
func corrupt(random *rand.Rand, b []byte) []byte {
	for range 1 + random.IntN(3) {
		at := random.IntN(len(b))
		switch random.IntN(4) {
		case 0:
			b[at] ^= 1 << random.IntN(8)
		case 1:
			b[at] = byte(random.IntN(256))
		case 2:
			b = append(b[:at:at], b[min(len(b), at+1+random.IntN(20)):]...)
		case 3:
			b = append(b[:at:at], append(noise(1+random.IntN(20)), b[at:]...)...)
		}
		if len(b) == 0 {
			return b
		}
	}
	return b
}

// The same from Cassandra's side, on answers that the proxy decodes.
func TestCorruptAnswers(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		random := rand.New(rand.NewPCG(2, uint64(d.version)))
		for round := range 60 {
			client, backend := r.login(d)
			requests := []message.Message{
				&message.Prepare{Query: "SELECT a FROM b.c"}, query("SELECT * FROM system.local"), query("SELECT * FROM system.peers"),
				query("DROP TABLE b.c"), query("USE b"),
			}
			answers := []message.Message{
				preparedAs(idOf("x")), systemLocal("rpc_address", "rpc_port"), systemLocal("peer_address", "data_center"),
				&message.SchemaChangeResult{ChangeType: "DROPPED", Target: "TABLE", Keyspace: "b", Object: "c"}, &message.SetKeyspaceResult{Keyspace: "b"},
			}
			i := random.IntN(len(requests))
			client.send(1, requests[i])
			backend.answer(1)
			b := backend.envelope(t, 1, answers[i], func(f *frame.Frame) {
				if d.version >= v4 {
					f.SetWarnings([]string{"a"})
				}
			})
			at := wire.HeaderSize + random.IntN(len(b)-wire.HeaderSize)
			for b[at] == 0 { // the library allocates by what a number of rows claims: Cassandra is believed that far
				at = wire.HeaderSize + random.IntN(len(b)-wire.HeaderSize)
			}
			b[at] = byte(random.IntN(256))
			backend.write(backend.framed(b))
			_ = backend.Conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, client.Conn)
			_ = client.Close()
			_ = backend.Close()
			assert.NotContains(t, fmt.Sprint(r.end()["error"]), errPanic.Error(), "round %d", round)
		}
	})
}
