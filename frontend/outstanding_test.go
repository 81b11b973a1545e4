package frontend

import (
	"sync"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
)

// A request that Cassandra never answers holds up no table for ever, although its connection is busy.
func TestWhatIsNeverAnsweredIsNotOutstandingForEver(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) { o.BackendTimeout = 200 * time.Millisecond })
		client, backend := r.login(d)
		client.send(1, query("UPDATE a.b SET c = 1 WHERE d = 2"))
		backend.answer(1)
		left := r.server.Outstanding()
		go func() {
			for {
				f, err := backend.tryNext()
				if err != nil {
					return
				}
				if _, err := backend.Write(backend.framed(backend.envelope(t, f.Header.StreamId, rows(nil)))); err != nil {
					return
				}
			}
		}()
		limit := time.Now().Add(patience / 2)
		for left() && time.Now().Before(limit) {
			if _, err := client.Write(client.framed(client.envelope(t, 2, query("SELECT a FROM b.c")))); err != nil {
				break
			}
			if _, err := client.tryNext(); err != nil {
				break
			}
		}
		require.True(t, time.Now().Before(limit), "it is waited for still")
		require.Eventually(t, func() bool { return !left() }, patience, time.Millisecond)
		_ = client.Close()
		assert.Contains(t, r.end()["error"], errBackendSlow.Error())
	})
}

// What was on its way to Cassandra is known until it has its answer, whatever is sent meanwhile on whichever stream.
func TestOutstanding(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		other, node := r.login(d)
		relayed(client, backend, 1, query("UPDATE a.b SET c = 1 WHERE d = 2"), &message.VoidResult{})
		require.False(t, r.server.Outstanding()(), "all is answered")

		sent := func(c, b *peer, stream int16, m message.Message) {
			c.send(stream, m)
			b.answer(stream)
		}
		sent(client, backend, 3, query("UPDATE a.b SET c = 1 WHERE d = 2"))
		sent(client, backend, 4, query("UPDATE a.b SET c = 1 WHERE d = 2"))
		sent(client, backend, 5, query("INSERT INTO a.b (c) VALUES ('for update')"))
		sent(other, node, 3, query("UPDATE a.b SET c = 1 WHERE d = 2"))
		left := r.server.Outstanding()
		sent(client, backend, 6, query("UPDATE a.b SET c = 1 WHERE d = 2"))
		answered := func(c, b *peer, stream int16) {
			b.send(stream, &message.VoidResult{})
			c.answer(stream)
		}
		answered(client, backend, 3)
		sent(client, backend, 3, query("UPDATE a.b SET c = 1 WHERE d = 2"))
		answered(other, node, 3)
		assert.True(t, left(), "one has no answer")
		answered(client, backend, 4)
		assert.True(t, left(), "the text of one may have a lock clause")
		answered(client, backend, 5)
		assert.False(t, left(), "what was sent later does not count")

		left = r.server.Outstanding()
		assert.True(t, left())
		_ = client.Close()
		r.end()
		assert.False(t, left(), "nobody waits for the answers to a client that has gone")
	})
}

// What a batch writes beside its sections, to a table that needs no lock, is a plain write.
func TestABatchOfSectionsIsOutstanding(t *testing.T) {
	r, client, backend, _ := sectionsRig(t, dialect{version: v4})
	client.send(1, query("BEGIN BATCH "+lonely+"; INSERT INTO bank.plain (id) VALUES ('p'); APPLY BATCH"))
	assert.Len(t, backend.answer(1).(*message.Batch).Children, 2)
	left := r.server.Outstanding()
	assert.True(t, left())
	backend.send(1, &message.VoidResult{})
	client.answer(1)
	assert.False(t, left())
}

// A write that goes on, though a table becomes critical just now, is outstanding.
func TestNoWriteSlipsPastOutstanding(t *testing.T) {
	m := newMemoryConn(t, d4(), true)
	tables := m.server.Tables
	texts := []string{"UPDATE bank.accounts SET a = 1 WHERE id = 'x'", "UPDATE bank.accounts SET a = 1 WHERE id = 'for update'"}
	writes := [][]byte{d4().envelope(t, 1, query(texts[0])), d4().envelope(t, 1, query(texts[1]))}
	var refused int
	for i := range 60_000 {
		write := writes[i%len(writes)]
		var both sync.WaitGroup
		begun := make(chan struct{})
		both.Go(func() {
			close(begun)
			assert.NoError(t, m.feed(m.up, write))
		})
		<-begun
		for range i % 3000 { // now earlier, now later
			_ = tables.Version()
		}
		tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
		m.streams.Mark()
		both.Wait()
		if len(m.backend.got) > 0 {
			require.True(t, m.streams.Marked(), "it was forwarded")
		} else {
			refused++
		}
		m.streams.End(1)
		m.backend.got, m.client.got = nil, nil
		tables.Set("bank", "accounts", nil)
	}
	t.Logf("%d of 60000 were refused", refused)
}
