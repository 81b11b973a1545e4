package frontend

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/frontend/traffic"
)

// failingListener is a listener that has run out of something, and is then closed.
type failingListener struct {
	net.Listener
	errs chan error
}

func (f failingListener) Accept() (net.Conn, error) { return nil, <-f.errs }
func (f failingListener) Close() error              { return nil }

// A listener that runs out of something is asked again; one that is closed ends Serve.
func TestListenerThatFails(t *testing.T) {
	lines := &logLines{lines: make(chan map[string]any, 10)}
	r := newRig(t)
	o := r.server.Options
	o.Log = o.Log.Output(lines)
	s := NewServer(o)
	f := failingListener{errs: make(chan error, 3)}
	f.errs <- errors.New("too many open files")
	f.errs <- errors.New("too many open files")
	f.errs <- net.ErrClosed
	assert.ErrorIs(t, s.Serve(context.Background(), f), net.ErrClosed)
	for range 2 {
		assert.Equal(t, "too many open files", (<-lines.lines)["error"])
	}
}

// certificate makes both sides of TLS that trust each other.
func certificate(t *testing.T) *tls.Config {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates, InsecureSkipVerify: true}
}

// Behind TLS the sockets cannot be read without a buffer; everything else is the same.
func TestTLS(t *testing.T) {
	config := certificate(t)
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		r.dialsOverTLS(config)
		outer := tls.NewListener(listen(t), config)
		r.address = outer.Addr().String()
		ctx, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, r.server.Serve(ctx, outer)) })
		client, backend := r.loginOverTLS(config, d)

		id := r.prepare(client, backend, "INSERT INTO bank.accounts (id) VALUES (?)")
		pipe(client, backend, client.framed(client.envelope(t, 7, execute(id, noise(300_000)))), atOnce)
		pipe(backend, client, backend.framed(backend.envelope(t, 7, rows(noise(300_000)))), atOnce)
		// A request half of which has come when the server is stopped is served.
		first, second := client.envelope(t, 8, query("SELECT a FROM b.c")), client.envelope(t, 9, query("SELECT a FROM b.c"))
		b := joined(client, [][]byte{first, second}, false)
		client.write(b[:len(b)-2])
		backend.answer(8)
		stop()
		client.write(b[len(b)-2:])
		backend.answer(9)
		for stream := range int16(2) {
			backend.send(stream+8, rows(nil))
			client.answer(stream + 8)
		}
		client.ended()
		_ = client.Close()
		_ = backend.Close()
		wg.Wait()
	})
}

// Now and then a request is measured: the proxy's time and Cassandra's.
func TestLatencyIsSampled(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		type told struct{ proxy, backend time.Duration }
		samples := make(chan told, 100)
		r := newRig(t, func(o *Options) {
			o.Stats.Latency = func(proxy, backend time.Duration) { samples <- told{proxy, backend} }
		})
		client, backend := r.login(d)
		id := r.prepare(client, backend, "SELECT a FROM b.c")
		for range 4 * traffic.SampleEvery {
			client.send(3, execute([]byte("unknown"), nil)) // answered by the proxy: not measured
			client.answer(3)
			client.send(4, execute(id, nil))
			backend.answer(4)
			backend.send(4, rows(nil))
			client.answer(4)
		}
		assert.NotEmpty(t, samples)
		assert.LessOrEqual(t, len(samples), 4)
		for len(samples) > 0 {
			s := <-samples
			assert.Positive(t, s.proxy)
			assert.Positive(t, s.backend)
			assert.Less(t, s.proxy+s.backend, patience)
		}
	})
}

// A connection that has nothing to do holds little.
func TestIdleConnectionsAreSmall(t *testing.T) {
	for _, d := range []dialect{{v4, ""}, {v5, primitive.CompressionLz4}} {
		r := newRig(t)
		var peers [2][]*peer
		const n = 100
		before := footprint()
		for range n {
			client, backend := r.login(d)
			relayed(client, backend, 1, query("SELECT * FROM system.local"), systemLocal("rpc_address"))
			relayed(client, backend, 1, execute(r.prepare(client, backend, "SELECT a FROM b.c"), noise(100_000)), rows(noise(100_000)))
			client.payload, backend.payload = bytes.Buffer{}, bytes.Buffer{}
			peers[0], peers[1] = append(peers[0], client), append(peers[1], backend)
		}
		each := (footprint() - before) / n
		t.Logf("%v: %d bytes", d, each)
		assert.Less(t, each, int64(48<<10), "with the test's own two ends, and the race detector: %v", d)
		runtime.KeepAlive(peers)
	}
}

// footprint is the memory of the process that is in use, stacks and all.
func footprint() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// A panic ends the connection that it happens on, with an answer, and no other.
func TestPanicOfOneConnection(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t) // without Locks
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
		other, node := r.login(d)
		client, backend := r.login(d)
		client.send(3, query("SELECT a FROM b.c"))
		backend.answer(3)
		client.send(4, query("UPDATE bank.accounts USING LOCK 1 SET a = 1 WHERE id = 'x'"))
		assert.Equal(t, primitive.ErrorCodeServerError, client.failure(3).GetErrorCode())
		assert.Equal(t, primitive.ErrorCodeServerError, client.failure(4).GetErrorCode())
		client.ended()
		_ = client.Close()
		line := r.end()
		assert.Equal(t, "error", line["level"])
		assert.Contains(t, line["error"], "fence.go", "where it happened")
		survives(other, node)
	})
}
