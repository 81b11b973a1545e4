package frontend

import (
	"encoding/hex"
	"net"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/wire"
)

// reasons are failures of replicas, each with a reason of its own.
func reasons(addresses ...string) (all []*primitive.FailureReason) {
	for i, a := range addresses {
		all = append(all, &primitive.FailureReason{Endpoint: net.ParseIP(a), Code: primitive.FailureCode(i)})
	}
	return all
}

// failures are the two errors that name replicas.
func failures(addresses ...string) []message.Message {
	n := int32(len(addresses))
	return []message.Message{
		&message.ReadFailure{
			ErrorMessage: "Operation failed", Consistency: primitive.ConsistencyLevelQuorum, Received: 1, BlockFor: 2, NumFailures: n,
			FailureReasons: reasons(addresses...), DataPresent: true,
		},
		&message.WriteFailure{
			ErrorMessage: "Operation failed", Consistency: primitive.ConsistencyLevelAll, Received: 1, BlockFor: 2, NumFailures: n,
			FailureReasons: reasons(addresses...), WriteType: primitive.WriteTypeBatchLog,
		},
	}
}

// Addresses that Cassandra names, and what a client is told: home, two nodes with a proxy (of IPv4 and IPv6), two without.
func namedReplicas() (nodes, proxies []string) {
	return []string{"10.0.0.1", "10.0.0.2", "fd00::3", "10.0.0.9", "fd00::9"}, []string{"192.0.2.7", "192.0.2.2", "192.0.2.3", "0.0.0.1", "0.0.0.2"}
}

// An error that names replicas names the proxies that stand for them.
func TestFailuresNameProxies(t *testing.T) {
	nodes, proxies := namedReplicas()
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t, withTwoNodes, func(o *Options) { o.Locks = leasedLocks{left: time.Minute} })
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
		client, backend := r.login(d)
		for i, failure := range failures(nodes...) {
			for stream, ask := range []message.Message{
				query("SELECT a FROM b.c"), &message.Prepare{Query: "SELECT a FROM b.c"}, query("SELECT peer FROM system.peers"),
				query("SELECT a FROM bank.accounts WHERE id = 'x' USING LOCK 7"),
			} {
				client.send(int16(stream), ask)
				backend.answer(int16(stream))
				backend.send(int16(stream), failure)
				got := client.answer(int16(stream))
				want := failures(proxies...)[i]
				if d.version < v5 {
					want = failure // without addresses
				}
				assert.Equal(t, shownFailure(t, d, want), shownFailure(t, d, got), "%v", ask)
			}
		}
	})
}

// shownFailure is an error as it looks on the wire.
func shownFailure(t *testing.T, d dialect, m message.Message) string {
	t.Helper()
	return hex.EncodeToString(dialect{version: d.version}.envelope(t, 1, m))
}

// In one segment with other answers, or cut into several, and with all that may stand before an error.
func TestFailuresAmongOtherAnswers(t *testing.T) {
	nodes, proxies := namedReplicas()
	for _, d := range []dialect{{v5, ""}, {v5, primitive.CompressionLz4}} {
		t.Run(d.String(), func(t *testing.T) {
			r := newRig(t, withTwoNodes)
			client, backend := r.login(d)
			for stream := range int16(4) {
				client.send(stream, query("SELECT a FROM b.c"))
				backend.answer(stream)
			}
			first, last := backend.envelope(t, 0, rows([]byte("a"))), backend.envelope(t, 3, &message.Invalid{ErrorMessage: "no"})
			named := failures(nodes...)
			trace := &primitive.UUID{7}
			dress := func(f *frame.Frame) {
				f.Header.Flags = f.Header.Flags.Add(primitive.HeaderFlagTracing)
				f.Body.TracingId = trace
				f.SetWarnings([]string{"one", "and another"})
			}
			backend.write(backend.framed(first, backend.envelope(t, 1, named[0]), last))
			backend.write(backend.parts(t, backend.envelope(t, 2, named[1], dress), 20))

			assert.IsType(t, rows(nil), client.answer(0))
			assert.Equal(t, shownFailure(t, d, failures(proxies...)[0]), shownFailure(t, d, client.answer(1)))
			assert.IsType(t, &message.Invalid{}, client.answer(3))
			f := client.next()
			assert.Equal(t, int16(2), f.Header.StreamId)
			assert.Equal(t, shownFailure(t, d, failures(proxies...)[1]), shownFailure(t, d, f.Body.Message))
			assert.Equal(t, trace, f.Body.TracingId)
			assert.Equal(t, []string{"one", "and another"}, f.Body.Warnings)
			relayed(client, backend, 2, query("SELECT a FROM b.c"), &message.VoidResult{}) // all streams are free again
			relayed(client, backend, 1, query("SELECT a FROM b.c"), &message.VoidResult{})
		})
	}
}

// What is no such error, or none that can be read, stays as it was received.
func TestFailuresThatCannotBeRead(t *testing.T) {
	d := dialect{v5, ""}
	r := newRig(t, withTwoNodes)
	client, backend := r.login(d)
	whole := backend.envelope(t, 1, failures("10.0.0.1", "fd00::3")[0])
	for _, size := range []int{wire.HeaderSize, wire.HeaderSize + 3, len(whole) - 30, len(whole) - 5} {
		client.send(1, query("SELECT a FROM b.c"))
		backend.answer(1)
		short := append([]byte(nil), whole[:size]...)
		h := wire.ReadHeader(short)
		h.Length = uint32(size - wire.HeaderSize)
		h.AppendTo(short[:0])
		backend.write(backend.framed(short))
		client.expect(client.framed(short))
	}
	require.Empty(t, failures()[0].(*message.ReadFailure).FailureReasons)
	empty := backend.envelope(t, 1, failures()[0])
	client.send(1, query("SELECT a FROM b.c"))
	backend.answer(1)
	backend.write(backend.framed(empty))
	client.expect(client.framed(empty))
}
