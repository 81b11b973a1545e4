package frontend

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noise is data that does not compress, the same in every run.
func noise(n int) []byte {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(b)
	return b
}

// rows is a RESULT with one blob.
func rows(value []byte) *message.RowsResult {
	return &message.RowsResult{
		Metadata: &message.RowsMetadata{ColumnCount: 1, NewResultMetadataId: nil},
		Data:     message.RowSet{message.Row{value}},
	}
}

// pipe writes b to one peer while the other reads it, and tells that what arrives is what was sent.
func pipe(from, to *peer, b []byte, write func(net.Conn, []byte) error) {
	from.t.Helper()
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = write(from.Conn, b) })
	to.expect(b)
	wg.Wait()
	require.NoError(from.t, err)
}

func atOnce(conn net.Conn, b []byte) error {
	_, err := conn.Write(b)
	return err
}

func byteByByte(conn net.Conn, b []byte) error {
	for i := range b {
		if _, err := conn.Write(b[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// requests of every kind that is forwarded, on streams from first on.
func someRequests(p *peer, id []byte, first int16) [][]byte {
	value := primitive.NewValue([]byte(strings.Repeat("zürich ", 20)))
	list := []message.Message{
		query("SELECT * FROM bank.accounts"),
		execute(id, []byte("zurich")),
		&message.Options{},
		&message.Batch{Children: []*message.BatchChild{
			{Query: "INSERT INTO bank.accounts (id) VALUES (?)", Values: []*primitive.Value{value}},
			{Id: id, Values: []*primitive.Value{value, primitive.NewNullValue()}},
		}},
		&message.Query{Query: "SELECT * FROM bank.accounts WHERE id = ?", Options: &message.QueryOptions{
			Consistency: primitive.ConsistencyLevelQuorum, PositionalValues: []*primitive.Value{value}, PageSize: 10,
			PagingState: []byte("here"), DefaultTimestamp: new(int64),
		}},
		query("NONSENSE that only Cassandra may judge"),
	}
	var envelopes [][]byte
	for i, m := range list {
		b := p.envelope(p.t, first+int16(i), m)
		b[1] |= byte(i % 2 * int(primitive.HeaderFlagTracing)) // the library would miscount the body
		envelopes = append(envelopes, b)
	}
	if p.version >= v4 {
		envelopes = append(envelopes, p.envelope(p.t, first+100, query("SELECT a FROM b.c"), func(f *frame.Frame) {
			f.SetCustomPayload(map[string][]byte{"k": []byte("v")})
		}))
	}
	return envelopes
}

// someResponses answer someRequests.
func someResponses(p *peer, first int16, n int) [][]byte {
	list := []message.Message{
		&message.VoidResult{}, rows([]byte("value")), &message.Supported{Options: map[string][]string{"CQL_VERSION": {"3.4.7"}}},
		&message.Invalid{ErrorMessage: "no"}, rows(noise(5000)), &message.SyntaxError{ErrorMessage: "what?"}, &message.VoidResult{},
	}
	var envelopes [][]byte
	for i := range n {
		stream := first + int16(i)
		if i == 6 {
			stream = first + 100
		}
		envelopes = append(envelopes, p.envelope(p.t, stream, list[i]))
	}
	return envelopes
}

// What is forwarded arrives as the bytes sent, in both directions and however they arrive.
func TestRelayKeepsTheBytes(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		id := r.prepare(client, backend, "INSERT INTO bank.accounts (id) VALUES (?)")
		writers := map[string]func(net.Conn, []byte) error{"at once": atOnce, "byte by byte": byteByByte}
		first := int16(200)
		for name, write := range writers {
			requests := someRequests(client, id, first)
			responses := someResponses(backend, first, len(requests))
			// Each envelope in a segment of its own, then all in one; the same streams are free again after the answers.
			for _, group := range []bool{false, true} {
				up, down := joined(client, requests, group), joined(backend, responses, group)
				pipe(client, backend, up, write)
				pipe(backend, client, down, write)
			}
			assert.Zero(t, r.server.Stats.Rejected.Load(), name)
			first += 1000
		}
	})
}

// joined puts envelopes into the framing of a peer: in one segment or each in its own.
func joined(p *peer, envelopes [][]byte, oneSegment bool) []byte {
	if oneSegment {
		return p.framed(envelopes...)
	}
	var b []byte
	for _, e := range envelopes {
		b = append(b, p.framed(e)...)
	}
	return b
}

// Many requests in one write arrive in order.
func TestRelayManyInOneWrite(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		id := r.prepare(client, backend, "SELECT * FROM bank.accounts WHERE id = ?")
		var up, down []byte
		for stream := range int16(1000) {
			up = append(up, client.framed(client.envelope(t, stream, execute(id, []byte(fmt.Sprint(stream)))))...)
			down = append(down, backend.framed(backend.envelope(t, stream, rows([]byte(fmt.Sprint(stream)))))...)
		}
		pipe(client, backend, up, atOnce)
		pipe(backend, client, down, atOnce)
	})
}

// Envelopes about as large as a buffer, and far larger, arrive as the bytes sent.
func TestRelayLarge(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		id := r.prepare(client, backend, "INSERT INTO bank.accounts (id) VALUES (?)")
		for i, size := range []int{readBuffer - 100, readBuffer, 144 << 10, 1 << 20} {
			value := noise(size)
			up := client.framed(client.envelope(t, 7, execute(id, value)))
			down := backend.framed(backend.envelope(t, 7, rows(value)))
			pipe(client, backend, up, atOnce)
			pipe(backend, client, down, atOnce)
			text := "INSERT INTO bank.accounts (id) VALUES ('" + hex.EncodeToString(noise(size/2)) + "')"
			plainText := client.framed(client.envelope(t, int16(8+i), query(text)))
			if d.version == v5 {
				client.write(plainText) // held until its keyspace is known, and cut anew
				require.Equal(t, text, backend.answer(int16(8+i)).(*message.Query).Query)
				continue
			}
			pipe(client, backend, plainText, atOnce)
		}
	})
}

// heapInUse is the memory that is really in use.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// allocated is the memory that has ever been taken.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// A request is passed on while it arrives: the first 15 MiB of 16 reach Cassandra while the client has not sent the last, and
// the proxy does not hold them.
func TestRelayStreams(t *testing.T) {
	for name, d := range map[string]dialect{"v4": {v4, ""}, "v5": {v5, ""}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			client, backend := r.login(d)
			id := r.prepare(client, backend, "INSERT INTO bank.accounts (id) VALUES (?)")
			up := client.framed(client.envelope(t, 7, execute(id, noise(15<<20+900<<10))))
			sent := 15 << 20
			before := heapInUse()
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = client.Write(up[:sent]) })
			got := backend.exactly(sent - 200<<10)
			wg.Wait()
			held := int64(heapInUse()) - int64(before) - int64(cap(got))
			assert.Less(t, held, int64(2<<20), "bytes held by the proxy")
			wg.Go(func() { _, _ = client.Write(up[sent:]) })
			got = append(got, backend.exactly(len(up)-len(got))...)
			wg.Wait()
			assert.True(t, bytes.Equal(up, got))
			// The same in the other direction.
			down := backend.framed(backend.envelope(t, 7, rows(noise(5<<20))))
			wg.Go(func() { _, _ = backend.Write(down[:4<<20]) })
			client.expect(down[:4<<20-200<<10])
			wg.Wait()
			wg.Go(func() { _, _ = backend.Write(down[4<<20:]) })
			client.expect(down[4<<20-200<<10:])
			wg.Wait()
		})
	}
}

// What Cassandra says by itself goes to the client as it is.
func TestRelayEvents(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		event := backend.framed(backend.envelope(t, -1, &message.SchemaChangeEvent{
			ChangeType: primitive.SchemaChangeTypeUpdated, Target: primitive.SchemaChangeTargetTable, Keyspace: "bank", Object: "accounts",
		}))
		backend.write(event)
		client.expect(event)
	})
}

// What the proxy answers by itself never stands inside an answer of Cassandra's that is under way.
func TestRelayKeepsAnswersApart(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		client.send(1, query("SELECT a FROM b.c"))
		backend.answer(1)
		e := backend.envelope(t, 1, rows(noise(2000)))
		first, rest := e[:1000], e[1000:]
		if backend.segmented {
			first, rest = backend.segment(t, first, false), backend.segment(t, rest, false)
		}
		backend.write(first)
		client.expect(first)
		client.send(2, execute([]byte("unknown"), nil))
		client.send(3, &message.Options{})
		backend.answer(3) // so the one before it has been answered
		client.silent()
		backend.write(rest)
		client.expect(rest)
		client.failure(2)
	})
}

// Whether a request is forwarded or answered by the proxy, answers carry the client's streams and none is lost, with all
// directions busy at once.
func TestRelayInterleaved(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		id := r.prepare(client, backend, "SELECT * FROM bank.accounts WHERE id = ?")
		const n = 150
		var wg sync.WaitGroup
		wg.Go(func() {
			for stream := range int16(n) {
				known := id
				if stream%3 == 0 {
					known = []byte("unknown to proxy") // answered by the proxy
				}
				_, _ = client.Write(client.framed(client.envelope(t, stream, execute(known, noise(int(stream)*10)))))
			}
		})
		wg.Go(func() {
			for range n - (n+2)/3 {
				f, err := backend.tryNext()
				if err != nil {
					return
				}
				_, _ = backend.Write(backend.framed(backend.envelope(t, f.Header.StreamId, rows(noise(int(f.Header.StreamId)*10)))))
			}
		})
		seen := map[int16]bool{}
		for range n {
			f := client.next()
			stream := f.Header.StreamId
			require.False(t, seen[stream])
			seen[stream] = true
			if stream%3 == 0 {
				require.IsType(t, &message.Unprepared{}, f.Body.Message)
				continue
			}
			require.Equal(t, noise(int(stream)*10), f.Body.Message.(*message.RowsResult).Data[0][0])
		}
		wg.Wait()
	})
}
