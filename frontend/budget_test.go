package frontend

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// The rest of a message that has begun has its time, whether nothing more comes or a byte now and then.
func TestMessagesHaveTheirTime(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) { o.MessageTimeout = 100 * time.Millisecond })
		for _, trickles := range []bool{false, true} {
			for _, begun := range []int{3, 5000} {
				client, backend := r.login(d)
				relayed(client, backend, 1, query("SELECT a FROM b.c"), rows(noise(100)))
				time.Sleep(200 * time.Millisecond) // between two messages there is no hurry
				relayed(client, backend, 1, query("SELECT a FROM b.c"), rows(noise(100)))
				b := client.framed(client.envelope(t, 1, execute(idOf("none"), noise(10_000))))
				client.write(b[:begun])
				for i := begun; trickles && i < len(b); i++ {
					if _, err := client.Write(b[i : i+1]); err != nil {
						break
					}
					time.Sleep(5 * time.Millisecond)
				}
				assert.Contains(t, r.end()["error"], errClientLate.Error())
				_ = client.Close()
			}
		}
	})
}

// No answer is made for a client that does not read: neither of its locks nor of lists, however many it asks for at once. When it reads, it
// has them all.
func TestAnswersAreOwedWithinBounds(t *testing.T) {
	const asked, answers = 20_000, 1 << 20
	for name, text := range map[string]string{"LOCK": "LOCK bank.accounts WHERE id = 'x'", "LIST": "LIST LOCKS"} {
		t.Run(name, func(t *testing.T) {
			r, core := patientRig(t, false, func(o *Options) { o.Limits().Waits = asked })
			core.answer.Grant.Holder = strings.Repeat("h", 256)
			core.asked = make(chan string, asked)
			client, _ := r.login(dialect{version: v4})
			require.NoError(t, client.Conn.(*net.TCPConn).SetReadBuffer(64<<10)) // else the kernel takes much of it
			n := asked
			if name == "LIST" {
				core.list, n = make([]musiccore.Listing, 5000), 40
			}
			var all []byte
			for stream := range n {
				all = append(all, client.envelope(t, int16(stream), query(text))...)
			}
			go func() { _, _ = client.Write(all) }()
			var owes *conn
			r.server.each(func(c *conn) { owes = c })
			require.Eventually(t, func() bool { return owes.down.Out.Full() }, patience, time.Millisecond)
			for range 50 { // it would go on, if it did
				assert.Less(t, owes.down.Out.Backlog(), int64(4*answers))
				assert.Less(t, len(core.asked), asked)
				time.Sleep(time.Millisecond)
			}
			got := map[int16]bool{}
			for range n {
				got[client.next().Header.StreamId] = true
			}
			assert.Len(t, got, n)
			_ = client.Close()
		})
	}
}
