package frontend

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/wire"
)

// backendLost reads the errors that end a connection on which these streams are open.
func backendLost(client *peer, streams ...int16) {
	client.t.Helper()
	open := map[int16]bool{}
	for _, s := range streams {
		open[s] = true
	}
	for range streams {
		f := client.next()
		e, ok := f.Body.Message.(message.Error)
		require.True(client.t, ok, "%v", f)
		assert.Equal(client.t, primitive.ErrorCodeServerError, e.GetErrorCode())
		assert.Contains(client.t, e.GetErrorMessage(), "MUSIC_BACKEND")
		assert.NotContains(client.t, e.GetErrorMessage(), "127.0.0.1", "no client learns a node's address")
		assert.True(client.t, open[f.Header.StreamId], "stream %d", f.Header.StreamId)
		delete(open, f.Header.StreamId)
	}
	client.ended()
}

// Where Cassandra closes, each open request is answered with an error before the client is closed.
func TestBackendLost(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		relayed(client, backend, 1, query("SELECT a FROM b.c"), rows(nil))
		client.send(2, query("SELECT a FROM b.c"))
		client.send(700, &message.Prepare{Query: "SELECT a FROM b.c"})
		client.send(32767, query("USE b"))
		for _, stream := range []int16{2, 700} {
			backend.answer(stream)
		}
		_ = backend.Close()
		backendLost(client, 2, 700) // USE has not been sent
		_ = client.Close()
		line := r.end()
		assert.Equal(t, "warn", line["level"])
		assert.EqualValues(t, 1, r.server.Stats.Lost.Load())
		r.ends(0)
	})
}

// Nothing can be said in the middle of an answer: the client sees its beginning, and the end of the connection.
func TestBackendLostInTheMiddleOfAnAnswer(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		client.send(1, query("SELECT a FROM b.c"))
		client.send(2, query("SELECT a FROM b.c"))
		answer := backend.framed(backend.envelope(t, 1, rows(noise(300_000))))
		backend.answer(1)
		backend.answer(2)
		half := answer[:150_000]
		backend.write(half)
		whole := half
		if d.version == v5 {
			whole = answer[:segmentAt(t, d, answer)]
		}
		client.expect(whole)
		_ = backend.Close()
		client.ended()
	})
}

// segmentAt is the size of the first segment.
func segmentAt(t *testing.T, d dialect, b []byte) int {
	t.Helper()
	h, err := wire.SegmentCodec{Compression: d.compression}.ReadHeader(b)
	require.NoError(t, err)
	return h.Size
}

// A client is closed without a word where Cassandra cannot be reached.
func TestBackendAbsent(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) {
			o.Dial = func(context.Context) (net.Conn, error) {
				return nil, errors.New("dial tcp 127.0.0.1:9042: connection refused")
			}
		})
		client := r.dial(d)
		client.send(5, startup(d))
		client.ended()
		_ = client.Close()
		assert.Equal(t, "warn", r.end()["level"])
		r.ends(0)
	})
}

// A node that cannot be reached costs a client no more than the handshake.
func TestBackendThatCannotBeReached(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.HandshakeTimeout = 100 * time.Millisecond
		o.Dial = func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	client := r.dial(dialect{version: v4})
	client.send(0, startup(client.dialect))
	client.ended()
}

// Whatever becomes of the connection to Cassandra during the handshake, the client's one ends without a word: drivers take an error
// there for the refusal of the protocol version. The log tells the cause.
func TestBackendLostDuringTheHandshake(t *testing.T) {
	reset := func(_ *rig, p *peer) { _ = p.Conn.(*net.TCPConn).SetLinger(0); _ = p.Close() }
	ways := map[string]struct {
		what func(*rig, *peer)
		told string
	}{
		"it ends":           {func(_ *rig, p *peer) { _ = p.Close() }, "connection to Cassandra lost"},
		"it is reset":       {reset, "connection to Cassandra lost"},
		"it stalls":         {func(*rig, *peer) {}, "no answer from Cassandra for too long"},
		"the proxy ends":    {func(r *rig, _ *peer) { r.stop() }, ""},
		"it makes no sense": {func(_ *rig, p *peer) { p.write([]byte{4, 0, 0, 1, 0, 0, 0, 0, 0}) }, "connection to Cassandra lost"},
	}
	steps := map[string][]message.Message{ // each but the last is answered
		"OPTIONS":       {&message.Options{}},
		"STARTUP":       {message.NewStartup()},
		"both":          {&message.Options{}, message.NewStartup()},
		"AUTH_RESPONSE": {message.NewStartup(), &message.AuthResponse{Token: []byte("\x00a\x00b")}},
	}
	answers := map[primitive.OpCode]message.Message{
		primitive.OpCodeOptions: supportedAnswer(), primitive.OpCodeStartup: &message.Authenticate{Authenticator: "PasswordAuthenticator"},
	}
	bothFramings(t, func(t *testing.T, d dialect) {
		for way, w := range ways {
			for step, requests := range steps {
				t.Run(step+", and "+way, func(t *testing.T) {
					r := newRig(t, func(o *Options) {
						o.DrainTimeout = 50 * time.Millisecond
						if way == "it stalls" {
							o.HandshakeTimeout = 500 * time.Millisecond
						}
					})
					client, backend := r.dial(d), (*peer)(nil)
					for i, request := range requests {
						client.send(int16(i), request)
						if backend == nil {
							backend = r.accept(d)
						}
						backend.answer(int16(i))
						if i == len(requests)-1 {
							break
						}
						backend.send(int16(i), answers[request.GetOpCode()])
						client.answer(int16(i))
						segmented := d.version == v5 && request.GetOpCode() == primitive.OpCodeStartup
						client.segmented, backend.segmented = segmented, segmented
					}
					w.what(r, backend)
					client.ended()
					_ = client.Close()
					if line := r.end(); w.told != "" {
						assert.Contains(t, []any{"warn", "info"}, line["level"], "%v", line)
						assert.Contains(t, line["error"], w.told)
					}
				})
			}
		}
	})
}

// A node that says nothing while it owes an answer is given up after BackendTimeout.
func TestBackendSilent(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) { o.BackendTimeout = 200 * time.Millisecond })
		client, backend := r.login(d)
		client.send(1, query("SELECT a FROM b.c"))
		client.send(2, query("SELECT a FROM b.c"))
		backend.answer(1)
		backend.answer(2)
		begun := time.Now()
		backend.send(2, rows(nil))
		client.answer(2)
		backendLost(client, 1)
		assert.Greater(t, time.Since(begun), 200*time.Millisecond)
		backend.ended()
		_ = client.Close()
		assert.Equal(t, "warn", r.end()["level"])
		assert.EqualValues(t, 1, r.server.Stats.Lost.Load())
	})
}

// So is one that stops in the middle of an answer: the stream is free from the answer's first bytes on, but its client still waits.
func TestBackendSilentInTheMiddleOfAnAnswer(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		synctest.Test(t, func(t *testing.T) {
			r := newPipedRig(t, func(o *Options) { o.BackendTimeout = time.Second })
			client, backend := r.login(d)
			client.send(1, query("SELECT a FROM b.c"))
			backend.answer(1)
			answer := backend.framed(backend.envelope(t, 1, rows(noise(300_000))))
			half := make(chan int64)
			go func() {
				n, _ := io.Copy(io.Discard, client)
				half <- n
			}()
			begun := time.Now()
			backend.write(answer[:200_000])
			assert.Less(t, <-half, int64(len(answer)))
			assert.Less(t, time.Since(begun), 3*time.Second)
			_ = client.Close()
			assert.Contains(t, r.end()["error"], errBackendSlow.Error())
		})
	})
}

// As long as something comes, however slowly, nothing is lost; nor is an idle connection.
func TestBackendSlow(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) { o.BackendTimeout = 400 * time.Millisecond })
		idle, _ := r.login(d)
		client, backend := r.login(d)
		client.send(1, query("SELECT a FROM b.c"))
		client.send(2, query("SELECT a FROM b.c"))
		backend.answer(1)
		backend.answer(2)
		answer := backend.framed(backend.envelope(t, 1, rows(noise(100_000))))
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for i := range 16 { // 800 ms
			<-ticker.C
			backend.write(answer[len(answer)*i/16 : len(answer)*(i+1)/16])
		}
		client.expect(answer)
		backend.send(2, rows(nil))
		client.answer(2)
		require.NoError(t, idle.SetReadDeadline(time.Now().Add(time.Millisecond)))
		_, err := idle.Read(make([]byte, 1))
		assert.True(t, isTimeout(err), "%v", err)
	})
}

// A client that reads nothing for so long is given up, and it is not Cassandra that is blamed.
func TestClientThatNeverReads(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) { o.BackendTimeout = 400 * time.Millisecond })
		other, node := r.login(d)
		client, backend := r.login(d)
		var wg sync.WaitGroup
		wg.Go(func() {
			for stream := range int16(2000) { // until neither takes any more
				if _, err := client.Write(client.framed(client.envelope(t, stream, query("SELECT a FROM b.c")))); err != nil {
					return
				}
			}
		})
		answer := backend.framed(backend.envelope(t, 1, rows(noise(100_000))))
		wg.Go(func() {
			for {
				f, err := backend.tryNext()
				if err != nil {
					return
				}
				if d.version < v5 {
					answer[2], answer[3] = byte(f.Header.StreamId>>8), byte(f.Header.StreamId)
				}
				if _, err := backend.Write(answer); err != nil {
					return
				}
			}
		})
		for range 20 {
			relayed(other, node, 1, query("SELECT a FROM b.c"), rows(nil))
		}
		assert.Contains(t, r.end()["error"], errClientSlow.Error())
		assert.Zero(t, r.server.Stats.Lost.Load())
		relayed(other, node, 1, query("SELECT a FROM b.c"), rows(nil))
		_ = client.Close()
		_ = backend.Close()
		wg.Wait()
	})
}

// What the proxy answers by itself to a client that does not read does not pile up: the client is not read either.
func TestAnswersDoNotPileUp(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		client.send(0, query("SELECT a FROM b.c"))
		backend.answer(0)
		fill(t, backend, backend.framed(backend.envelope(t, 0, rows(noise(100_000)))))
		request := client.framed(client.envelope(t, 1, execute(noise(60_000), nil)))
		before := heapInUse()
		assert.Less(t, fill(t, client, request), 64<<20, "the client is held up")
		assert.Less(t, int64(heapInUse())-int64(before), int64(8<<20))
		_ = client.Close()
		_, _ = io.Copy(io.Discard, backend.Conn) // to the end, whatever it is
	})
}

// fill writes b again and again until the proxy takes no more, and returns how many bytes that were.
func fill(t *testing.T, p *peer, b []byte) (sent int) {
	t.Helper()
	for err := error(nil); err == nil && sent < 64<<20; {
		var n int
		require.NoError(t, p.SetWriteDeadline(time.Now().Add(500*time.Millisecond)))
		n, err = p.Write(b)
		sent += n
	}
	return sent
}

// Where the client closes, so does its connection to Cassandra, and nothing is left.
func TestClientGone(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		client.send(1, query("SELECT a FROM b.c"))
		backend.answer(1)
		_ = client.Close()
		backend.ended()
		assert.Equal(t, "debug", r.end()["level"])
		r.ends(0)
	})
}

// A client that goes in the middle of a request takes it along.
func TestClientGoneInTheMiddleOfARequest(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		id := r.prepare(client, backend, "INSERT INTO bank.accounts (id) VALUES (?)")
		request := client.framed(client.envelope(t, 1, execute(id, noise(300_000))))
		client.write(request[:150_000])
		_ = client.Close()
		got := make([]byte, 0, len(request))
		for buf := make([]byte, 4096); ; {
			n, err := backend.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				break
			}
		}
		assert.Equal(t, request[:len(got)], got)
		assert.Less(t, len(got), 150_001)
		assert.Equal(t, "debug", r.end()["level"])
	})
}

// One connection too many is closed at once.
func TestTooManyConnections(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits().Connections = 2 })
	first, backend := r.login(dialect{version: v4})
	r.login(dialect{version: v4})
	r.dial(dialect{version: v4}).ended()
	assert.Equal(t, "warn", r.end()["level"])
	_ = first.Close()
	backend.ended()
	r.end()
	r.login(dialect{version: v4})
}
