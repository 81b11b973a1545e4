package frontend

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// Messages that are begun and never finished take no more than the budget, whatever becomes of them; small requests go on beside them, and
// a large one does when there is room.
func TestMessagesThatAreNeverFinished(t *testing.T) {
	const limit = 4 << 20
	large := func(text string) message.Message {
		return &message.Batch{Children: []*message.BatchChild{{Query: text, Values: []*primitive.Value{primitive.NewValue(noise(1 << 20))}}}}
	}
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) { o.Limits().Messages, o.MessageTimeout = limit, 3*time.Second })
		var half []*peer
		for range 12 {
			client, _ := r.login(d)
			b := client.framed(client.envelope(t, 1, large("INSERT INTO b.c (a) VALUES (?)")))
			go func() { _, _ = client.Write(b[:len(b)-10]) }()
			half = append(half, client)
		}
		require.Eventually(t, func() bool { return r.server.memory.WaitedFor() }, patience, time.Millisecond, "some wait for room")
		assert.LessOrEqual(t, r.server.memory.InUse(), int64(limit))
		client, backend := r.login(d)
		relayed(client, backend, 1, query("SELECT a FROM b.c"), rows(noise(100)))
		assert.LessOrEqual(t, r.server.memory.InUse(), int64(limit))
		for _, p := range half {
			_ = p.Close()
		}
		require.Eventually(t, func() bool { return r.server.memory.InUse() == 0 }, patience, time.Millisecond, "all of it is given back")
		relayed(client, backend, 2, large("INSERT INTO b.c (a) VALUES (?)"), rows(nil))
		_ = client.Close()
		require.Eventually(t, func() bool { return r.server.memory.InUse() == 0 }, patience, time.Millisecond)
	})
}

// The rest of a message that has begun has its time, whether nothing more comes or a byte now and then, and whether the message is held back
// until it is whole or forwarded as it arrives.
func TestMessagesHaveTheirTime(t *testing.T) {
	const limit = 100 * time.Millisecond
	for name, late := range map[string]message.Message{
		"held back": execute(idOf("none"), noise(10_000)),
		"forwarded": &message.Query{Query: "INSERT INTO b.c (a) VALUES (?)", Options: &message.QueryOptions{
			PositionalValues: []*primitive.Value{primitive.NewValue(noise(10_000))},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bothFramings(t, func(t *testing.T, d dialect) {
				for _, trickles := range []bool{false, true} {
					for _, begun := range []int{3, 5000} {
						synctest.Test(t, func(t *testing.T) {
							r := newPipedRig(t, func(o *Options) { o.MessageTimeout = limit })
							client, backend := r.login(d)
							relayed(client, backend, 1, query("SELECT a FROM b.c"), rows(noise(100)))
							time.Sleep(10 * limit) // between two messages there is no hurry
							relayed(client, backend, 1, query("SELECT a FROM b.c"), rows(noise(100)))
							go func() { _, _ = io.Copy(io.Discard, backend) }()
							b := client.framed(client.envelope(t, 1, late))
							client.write(b[:begun])
							began := time.Now()
							for i := begun; trickles && i < len(b); i++ {
								if _, err := client.Write(b[i : i+1]); err != nil {
									break
								}
								time.Sleep(limit / 20)
							}
							assert.Contains(t, r.end()["error"], errClientLate.Error())
							assert.Less(t, time.Since(began), 20*limit, "with the farewell")
							_ = client.Close()
						})
					}
				}
			})
		})
	}
}

// No answer is made for a client that does not read: neither of its locks nor of lists, however many it asks for at once. When it reads, it
// has them all.
func TestAnswersAreOwedWithinBounds(t *testing.T) {
	const asked, answers = 20_000, 1 << 20
	for name, text := range map[string]string{"LOCK": "LOCK bank.accounts WHERE id = 'x'", "LIST": "LIST LOCKS"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core := newWaitingLocks(false)
				r := newPipedRig(t, func(o *Options) { o.Locks, o.Limits().Waits = core, asked })
				r.createAccounts()
				core.answer.Grant.Holder = strings.Repeat("h", 256)
				core.asked, core.takes = make(chan string, asked), time.Microsecond
				client, _ := r.login(dialect{version: v4})
				n := asked
				if name == "LIST" {
					core.list, n = make([]musiccore.Listing, 5000), 40
				}
				var all []byte
				for stream := range n {
					all = append(all, client.envelope(t, int16(stream), query(text))...)
				}
				go func() { _, _ = client.Write(all) }()
				time.Sleep(time.Second)
				synctest.Wait() // nothing more is done before the client reads
				r.server.each(func(owes *conn) {
					assert.Equal(t, name == "LOCK", owes.down.Out.Full(), "one list at a time is sent")
					assert.Less(t, owes.down.Out.Backlog(), int64(4*answers))
				})
				assert.Less(t, len(core.asked), asked)
				got := map[int16]bool{}
				for range n {
					got[client.next().Header.StreamId] = true
				}
				assert.Len(t, got, n)
				_ = client.Close()
			})
		})
	}
}

// What is to be written to a node that does not read is bounded, too, however many writes have got their locks: the client is read no further.
func TestRequestsForANodeThatDoesNotRead(t *testing.T) {
	for _, d := range []dialect{{version: v4}, {version: v5}} {
		synctest.Test(t, func(t *testing.T) {
			const asked, size, limit = 100, 100_000, 1 << 20
			core := newDelayedLocks()
			core.holds = true
			r := newPipedRig(t, func(o *Options) { o.Locks, o.MaxWait, o.Limits().Messages = core, time.Minute, limit })
			id, n := catalog.Column{Name: "id", Type: "text"}, catalog.Column{Name: "n", Type: "blob"}
			r.server.Tables.Set("bank", "auto", &catalog.Critical{
				Key: []catalog.Column{id}, Primary: []string{"id"}, Columns: map[string]catalog.Column{"id": id, "n": n}, Settings: catalog.Settings{Unlocked: catalog.Auto},
			})
			client, backend := r.login(d)
			go func() {
				for give := range core.held {
					go give()
				}
			}()
			defer close(core.held)
			go func() {
				for stream := range asked {
					q := query("INSERT INTO bank.auto (id, n) VALUES (?, ?)")
					q.Options.PositionalValues = []*primitive.Value{primitive.NewValue([]byte{byte(stream + 1)}), primitive.NewValue(noise(size))}
					if _, err := client.Write(client.framed(client.envelope(t, int16(stream), q))); err != nil {
						break
					}
				}
			}()
			time.Sleep(time.Second)
			synctest.Wait()
			r.server.each(func(c *conn) { assert.Less(t, c.up.Out.Backlog(), int64(2*limit)) })
			for range asked {
				backend.send(backend.next().Header.StreamId, &message.VoidResult{})
				assert.IsType(t, &message.VoidResult{}, client.next().Body.Message)
			}
			_ = client.Close()
		})
	}
}
