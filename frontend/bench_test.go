package frontend

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/musiccore"
	"music/rewrite"
)

// readBuffer is about as much as one read takes.
const readBuffer = 32 << 10

// BenchmarkForward is what is forwarded, there and back, as it comes from a client that has many
// requests in flight: one operation is one request and its answer, without the sockets.
func BenchmarkForward(b *testing.B) {
	for _, d := range []dialect{{v4, ""}, {v5, ""}} {
		version := d.version.String()[len("ProtocolVersion "):]
		m := newMemoryConn(b, d, false)
		_, _, _ = typical(b, d, m)
		for name, request := range map[string]message.Message{
			"EXECUTE":      execute(idOf("typical"), noise(100)),
			"QUERY, write": query("UPDATE bank.accounts SET balance = 90 WHERE branch = 'zurich' AND id = 'x'"),
			"QUERY, read":  query("SELECT balance, owner FROM bank.accounts WHERE branch = 'zurich' AND id = 'x'"),
		} {
			b.Run(name+"/"+version, func(b *testing.B) { benchWindows(b, m, d, request, rows(noise(200))) })
		}
	}
}

// benchWindows feeds windows of a request and of its answer.
func benchWindows(b *testing.B, m *memoryConn, d dialect, request, answer message.Message) {
	const window = 64
	var up, down []byte
	for stream := range int16(window) {
		up = append(up, d.envelope(b, stream, request)...)
		down = append(down, d.envelope(b, stream, answer)...)
	}
	up, down = requestBytes(b, d, up), requestBytes(b, d, down)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += window {
		if err := errors.Join(m.feed(m.up, up), m.feed(m.down, down)); err != nil {
			require.NoError(b, err)
		}
	}
	require.Zero(b, m.server.Stats.Rejected.Load())
}

// BenchmarkRelay sends EXECUTEs over loopback through a bare relay and through the proxy, many in flight and one at a time.
func BenchmarkRelay(b *testing.B) {
	for _, flight := range []int{128, 1} {
		name := map[int]string{128: "pipelined", 1: "one at a time"}[flight]
		b.Run("bare/"+name, func(b *testing.B) {
			backend := listen(b)
			address, stop := bareRelay(b, backend.Addr().String())
			defer stop()
			client, node := rawPair(b, address, backend)
			defer func() { _, _ = client.Close(), node.Close() }()
			roundTrips(b, client, node, d4().envelope(b, 1, execute(idOf("typical"), noise(100))), flight)
		})
		b.Run("proxy/"+name, func(b *testing.B) {
			r := newRig(b)
			client, backend := r.login(d4())
			id := r.prepare(client, backend, "typical")
			roundTrips(b, client.Conn, backend.Conn, client.envelope(b, 1, execute(id, noise(100))), flight)
			_ = client.Close()
		})
	}
}

func d4() dialect { return dialect{version: v4} }

// roundTrips has a client keep so many requests in flight, each answered by a node that reads in batches as the client does.
func roundTrips(b *testing.B, client, node net.Conn, request []byte, flight int) {
	response := d4().envelope(b, 1, rows(noise(200)))
	var up, down []byte
	for stream := range flight {
		request[3], response[3] = byte(stream), byte(stream)
		up, down = append(up, request...), append(down, response...)
	}
	_ = client.SetDeadline(time.Time{})
	_ = node.SetDeadline(time.Time{})
	var wg sync.WaitGroup
	rounds := (b.N + flight - 1) / flight
	b.ReportAllocs()
	b.ResetTimer()
	wg.Go(func() {
		got := make([]byte, len(up))
		for range rounds {
			if _, err := io.ReadFull(node, got); err != nil {
				return
			}
			_, _ = node.Write(down)
		}
	})
	got := make([]byte, len(down))
	for range rounds {
		_, _ = client.Write(up)
		if _, err := io.ReadFull(client, got); err != nil {
			require.NoError(b, err)
		}
	}
	b.StopTimer()
	wg.Wait()
}

// bareRelay copies bytes both ways between one client and an address: what any proxy costs at least.
func bareRelay(b *testing.B, to string) (address string, stop func()) {
	ln := listen(b)
	var wg sync.WaitGroup
	wg.Go(func() {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		node, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		wg.Go(func() { bareCopy(node, client) })
		bareCopy(client, node)
	})
	return ln.Addr().String(), func() {
		_ = ln.Close()
		wg.Wait()
	}
}

// bareCopy is io.Copy without the kernel's splice, which no proxy that looks at its bytes can use.
func bareCopy(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	for buf := make([]byte, readBuffer); ; {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func rawPair(b *testing.B, address string, backend net.Listener) (client, node net.Conn) {
	client, err := net.Dial("tcp", address)
	require.NoError(b, err)
	node, err = backend.Accept()
	require.NoError(b, err)
	_ = backend.Close()
	return client, node
}

// acceptingLocks give every operation its stamp, and let every answer be told.
type acceptingLocks struct{ Locks }

func (acceptingLocks) Begin(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{Ticket: musiccore.Ticket{Key: k, Ref: r, Kind: kind, Stamp: 7}}, true
}

func (acceptingLocks) End(musiccore.Ticket, musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	return musiccore.VerdictTell, nil
}

// Lock gives every LOCK the same reference.
func (acceptingLocks) Lock(musiccore.Key, musiccore.Request, func(musiccore.Answer)) (musiccore.Answer, func()) {
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: 17, State: musiccore.StateHeld}}, nil
}

// Unlock takes every reference back.
func (acceptingLocks) Unlock(musiccore.Key, musiccore.LockRef, musiccore.Client, func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{}, true
}

// fencedConn is a connection whose core grants everything, with the EXECUTE of a write of a value to a key, under a lock where the
// text says so.
func fencedConn(t tester, d dialect, text string, unlocked catalog.Policy) (m *memoryConn, put *message.Execute) {
	t.Helper()
	m = newMemoryConn(t, d, false)
	m.server.Locks, m.server.References = acceptingLocks{}, NewReferences([]byte("secret"))
	table := m.server.Tables.Of("bank", "locked")
	m.server.Tables.Set("bank", "locked", &catalog.Critical{
		Key: []catalog.Column{{Name: "k", Type: "text"}}, Primary: []string{"k"}, MaxLease: time.Minute, Settings: catalog.Settings{Unlocked: unlocked},
	})
	parsed, err := rewrite.Parse([]byte(text))
	require.NoError(t, err)
	p := &preparedLockStatement{id: preparedID(idOf("put")), text: []byte(text), statement: &parsed, table: table, backendID: idOf("cut")}
	m.server.prepared.add(p.id, &preparedStatement{kind: classify.Critical, lock: p}, nil)
	values := []*primitive.Value{primitive.NewValue(noise(100)), primitive.NewValue([]byte("a key"))}
	if parsed.Lock.Kind != rewrite.NoTerm {
		ref := m.server.References.Show([16]byte{}, musiccore.Key{PK: "a key"}, 17)
		values = append([]*primitive.Value{primitive.NewValue(bigint(ref))}, values...)
	}
	return m, &message.Execute{
		QueryId: p.id[:], ResultMetadataId: p.id[:],
		Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelQuorum, PositionalValues: values},
	}
}

// fencedPut is such a connection, with a put under a lock as a client sends it, and its answer.
func fencedPut(t tester, d dialect) (m *memoryConn, put, done []byte) {
	t.Helper()
	m, execute := fencedConn(t, d, underLockText, catalog.Reject)
	return m, requestBytes(t, d, d.envelope(t, 1, execute)), requestBytes(t, d, d.envelope(t, 1, &message.VoidResult{}))
}

// underLockText is a put under a lock.
const underLockText = "UPDATE bank.locked USING LOCK ? SET v = ? WHERE k = ?"

// BenchmarkUnderLock is a put under a held lock, and one in a section of its own, there and back: what they cost beside a write
// that is forwarded, without core and sockets.
func BenchmarkUnderLock(b *testing.B) {
	for _, d := range []dialect{{v4, ""}, {v5, ""}} {
		version := d.version.String()[len("ProtocolVersion "):]
		b.Run("put/"+version, func(b *testing.B) {
			m, put := fencedConn(b, d, underLockText, catalog.Reject)
			benchWindows(b, m, d, put, &message.VoidResult{})
		})
		b.Run("auto/"+version, func(b *testing.B) {
			m, put := fencedConn(b, d, "UPDATE bank.locked SET v = ? WHERE k = ?", catalog.Auto)
			benchWindows(b, m, d, put, &message.VoidResult{})
		})
	}
}
