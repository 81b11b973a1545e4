package frontend

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"music/frontend/traffic"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
)

// drained waits until the listener is closed: from then on the connections are told to end.
func (r *rig) drained() {
	r.t.Helper()
	r.stop()
	for {
		conn, err := net.Dial("tcp", r.address)
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// Idle connections end at once, others when they have their answers.
func TestDrain(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		idle, node := r.login(d)
		silent := r.dial(d)
		client, backend := r.login(d)
		for stream := range int16(3) {
			client.send(stream, query("SELECT a FROM b.c"))
			backend.answer(stream)
		}
		r.drained()
		for _, p := range []*peer{idle, node, silent} {
			p.ended()
			_ = p.Close()
		}
		for stream := range int16(3) {
			backend.send(stream, rows(noise(10)))
			client.answer(stream)
		}
		client.ended()
		_ = client.Close()
		r.waitServed()
		backend.ended()
		assert.Zero(t, r.server.Stats.Open.Load())
	})
}

// A request that has begun to arrive is taken to its end and answered: whether it lies in the buffer, with others before it that
// have gone on, or passes through in pieces, or is collected.
func TestDrainInTheMiddleOfARequest(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		requests := map[string]message.Message{
			"small": query("SELECT a FROM b.c"),
			"large": &message.Query{Query: "SELECT a FROM b.c WHERE d = ?", Options: &message.QueryOptions{
				PositionalValues: []*primitive.Value{primitive.NewValue(noise(400_000))},
			}},
			"collected": &message.Batch{Children: []*message.BatchChild{{
				Query: "INSERT INTO b.c (a) VALUES (?)", Values: []*primitive.Value{primitive.NewValue(noise(400_000))},
			}}},
		}
		for name, request := range requests {
			t.Run(name, func(t *testing.T) {
				r := newRig(t)
				client, backend := r.login(d)
				before := client.framed(client.envelope(t, 1, query("SELECT a FROM b.c")))
				after := client.framed(client.envelope(t, 2, request))
				cut := len(after) * 3 / 4
				client.write(append(before, after[:cut]...))
				backend.answer(1)
				r.drained()
				client.write(after[cut:])
				assert.IsType(t, request, backend.answer(2))
				backend.send(2, rows(nil))
				client.answer(2)
				backend.send(1, rows(nil))
				client.answer(1)
				client.ended()
			})
		}
	})
}

// An answer that has begun is delivered to its end: its stream is free from the first bytes on, but its client has only half of it.
func TestDrainInTheMiddleOfAnAnswer(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		for _, begun := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newPipedRig(t)
				client, backend := r.login(d)
				client.send(1, query("SELECT a FROM b.c"))
				backend.answer(1)
				answer := backend.framed(backend.envelope(t, 1, rows(noise(400_000))))
				first := answer[:len(answer)*2/3]
				received := make(chan []byte, 1)
				go func() {
					b, _ := io.ReadAll(client)
					received <- b
				}()
				if begun {
					_, _ = backend.Write(first)
					synctest.Wait()
					r.stop()
				} else {
					r.stop()
					synctest.Wait()
					_, _ = backend.Write(first)
				}
				synctest.Wait()
				_, _ = backend.Write(answer[len(first):])
				assert.True(t, bytes.Equal(answer, <-received), "begun %v", begun)
				_ = client.Close()
				r.waitServed()
			})
		}
	})
}

// What is not answered by then is told so.
func TestDrainHasADeadline(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) { o.DrainTimeout = 200 * time.Millisecond })
		client, backend := r.login(d)
		half, _ := r.login(d)
		dialing := r.dial(d)
		client.send(1, query("SELECT a FROM b.c"))
		backend.answer(1)
		b := half.framed(half.envelope(t, 1, query("SELECT a FROM b.c")))
		half.write(b[:len(b)-3])
		begun := time.Now()
		r.drained()
		assert.Contains(t, client.failure(1).GetErrorMessage(), errDrained.Error())
		client.ended()
		for _, p := range []*peer{client, half, dialing} {
			_ = p.Close()
		}
		r.waitServed()
		assert.Greater(t, time.Since(begun), 200*time.Millisecond)
		assert.Less(t, time.Since(begun), patience)
	})
}

// A message that is never finished does not hold up the end: however much of it is there, and whichever way it would go.
func TestDrainDoesNotWaitForHalfAMessage(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) { o.DrainTimeout = time.Hour })
		for _, size := range []int{10, 400_000} {
			for _, text := range []string{"SELECT a FROM b.c WHERE d = ?", "LIST LOCKS"} { // forwarded in pieces, or collected
				half, _ := r.login(d)
				b := half.framed(half.envelope(t, 1, &message.Query{Query: text, Options: &message.QueryOptions{
					PositionalValues: []*primitive.Value{primitive.NewValue(noise(size))},
				}}))
				half.write(b[:len(b)*3/4])
				defer func() { _ = half.Close() }()
			}
		}
		r.drained()
		r.waitServed()
	})
}

// A node that does not answer while a client connects does not hold up the end either.
func TestDrainWhileCassandraHangs(t *testing.T) {
	dialed := make(chan struct{})
	r := newRig(t, func(o *Options) {
		o.DrainTimeout, o.HandshakeTimeout = time.Millisecond, time.Hour
		o.Dial = func(ctx context.Context) (net.Conn, error) {
			close(dialed)
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	client := r.dial(dialect{version: v4})
	client.send(0, startup(dialect{version: v4}))
	<-dialed
	r.drained()
	r.waitServed()
	_ = client.Close()
}

// The login of a client does not undo the drain that began meanwhile.
func TestDrainDuringTheHandshake(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client := r.dial(d)
		client.send(0, startup(d))
		backend := r.accept(d)
		backend.answer(0)
		r.drained()
		backend.write(dialect{version: d.version}.envelope(t, 0, &message.Ready{}))
		client.answer(0)
		client.ended()
	})
}

// Setting a later deadline does not make a connection wait that drains or has ended.
func TestDeadlinesOfWhatEnds(t *testing.T) {
	for _, ends := range []func(*conn){
		func(c *conn) { c.drain(time.Now().Add(patience)) }, func(c *conn) { c.end(errDrained) },
	} {
		ln := listen(t)
		far, err := net.Dial("tcp", ln.Addr().String())
		assert.NoError(t, err)
		_, err = far.Write([]byte{4}) // which is not waited for
		assert.NoError(t, err)
		socket, err := ln.Accept()
		assert.NoError(t, err)
		c := newConn(NewServer(Options{Stats: new(traffic.Stats)}), socket)
		ends(c)
		c.readUntil(time.Time{})
		_, err = socket.Read(make([]byte, 1))
		assert.True(t, isTimeout(err), "%v", err)
		_, _, _ = far.Close(), socket.Close(), ln.Close()
	}
}

// A connection that is being made when the drain begins is made, answered, and closed.
func TestDrainWhileDialing(t *testing.T) {
	dialed, goOn := make(chan struct{}), make(chan struct{})
	r := newRig(t)
	dial := r.server.Dial
	r.server.Dial = func(ctx context.Context) (net.Conn, error) {
		close(dialed)
		<-goOn
		return dial(ctx)
	}
	d := dialect{version: v4}
	client := r.dial(d)
	client.send(0, startup(d))
	<-dialed
	r.drained()
	close(goOn)
	backend := r.accept(d)
	backend.answer(0)
	backend.send(0, &message.Ready{})
	client.answer(0)
	client.ended()
}

// A schema change that the proxy still follows is answered before the end.
func TestDrainWaitsForASchemaChange(t *testing.T) {
	goOn := make(chan struct{})
	r := newRig(t, func(o *Options) {
		o.DDL = func(SchemaChange) []string {
			<-goOn
			return nil
		}
	})
	client, backend := r.login(dialect{version: v4})
	client.send(1, query("DROP TABLE bank.accounts"))
	backend.answer(1)
	backend.send(1, &message.SchemaChangeResult{ChangeType: "DROPPED", Target: "TABLE", Keyspace: "bank", Object: "accounts"})
	relayed(client, backend, 2, query("SELECT a FROM b.c"), rows(nil))
	r.drained()
	close(goOn)
	assert.IsType(t, &message.SchemaChangeResult{}, client.answer(1))
	client.ended()
}

// Each connection that ends is told of once, whatever made it end.
func TestOneLineForEachConnection(t *testing.T) {
	r := newRig(t)
	d := dialect{version: v4}
	var clients []*peer
	for range 5 {
		client, _ := r.login(d)
		clients = append(clients, client)
	}
	_ = clients[0].Close()
	r.end()
	clients[1].write([]byte{5, 0, 0, 0, 5, 0, 0, 0, 0})
	clients[1].failure(0)
	_ = clients[1].Close()
	r.end()
	for _, client := range clients {
		_ = client.Close()
	}
	ids := map[any]bool{}
	for _, line := range r.ends(3) {
		assert.Equal(t, "client connection closed", line["message"])
		ids[line["conn"]] = true
	}
	assert.Len(t, ids, 3)
}

// Lines about clients that end as they should not are bounded, whatever many of them do; all are counted.
func TestLinesAboutLostClientsAreSampled(t *testing.T) {
	r := newRig(t)
	for range clientLogBurst + 50 {
		client := r.dial(dialect{version: v4})
		client.write([]byte{0x84, 0, 0, 0, 5, 0, 0, 0, 0})
		client.failure(0)
		_ = client.Close()
	}
	r.ends(clientLogBurst)
	assert.EqualValues(t, clientLogBurst+50, r.server.Stats.Rejected.Load())
}
