package frontend

import (
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/refusal"
)

// becoming makes bank.accounts a table that is about to be served.
func (r *rig) becoming(p catalog.Policy) { r.becomes(p, "it is becoming critical") }

// becomes makes bank.accounts a table that cannot be locked for the moment.
func (r *rig) becomes(p catalog.Policy, refused string) {
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{
		Key: []catalog.Column{{Name: "id", Type: "text"}}, Settings: catalog.Settings{Unlocked: p}, Refused: refused, Passing: true,
	})
}

// cannot makes bank.accounts a table that cannot be locked at all.
func (r *rig) cannot(refused string) {
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Refused: refused})
}

// waitingRig is a client of a table whose writes without a lock wait, and the ways in which it writes.
func waitingRig(t *testing.T, d dialect, change ...func(*Options)) (r *rig, client, backend *peer, ways []message.Message) {
	t.Helper()
	r = newRig(t, append([]func(*Options){func(o *Options) { o.Locks, o.MaxWait = uncountedLocks{}, patience }}, change...)...)
	r.policy(catalog.Auto)
	client, backend = r.login(d)
	id := r.prepare(client, backend, "UPDATE bank.accounts SET n = 1 WHERE id = ?")
	r.becoming(catalog.Auto)
	return r, client, backend, []message.Message{
		query(lonely), execute(id, []byte("x")), query("BEGIN BATCH " + lonely + "; APPLY BATCH"),
		&message.Batch{Children: []*message.BatchChild{{Query: lonely}, {Id: id, Values: []*primitive.Value{primitive.NewValue([]byte("x"))}}}},
	}
}

// waiting tells that so many writes wait for their table, and that the connection goes on beside them.
func (r *rig) waiting(client, backend *peer, n int) {
	r.t.Helper()
	relayed(client, backend, 99, query("SELECT a FROM b.c"), rows(nil))
	require.Eventually(r.t, func() bool { // what was answered just now may not have ended yet
		count := 0
		r.server.each(func(c *conn) { count += c.operations.count() })
		return count == n
	}, patience, time.Millisecond)
	require.Positive(r.t, r.server.memory.InUse())
}

// idle tells that nothing is left of writes that have waited.
func (r *rig) idle() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		count := int64(0)
		r.server.each(func(c *conn) { count += int64(c.operations.count()) + c.waitingBytes.Load() })
		return count == 0
	}, patience, time.Millisecond)
}

// A write without a lock waits while its table becomes one that gives it a section, and gets what the table gives then, in
// whatever form it came: a section, the way to Cassandra as it was received, or an error.
func TestWritesWaitForTheirTable(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r, client, backend, ways := waitingRig(t, d)
		for name, then := range map[string]func(){
			"auto":             func() { r.policy(catalog.Auto) },
			"auto, later":      func() { r.becomes(catalog.Auto, "another reason"); r.policy(catalog.Auto) },
			"ordinary":         func() { r.server.Tables.Set("bank", "accounts", nil) },
			"allow":            func() { r.policy(catalog.Allow) },
			"allow, not yet":   func() { r.becoming(catalog.Allow) },
			"reject":           func() { r.policy(catalog.Reject) },
			"reject, not yet":  func() { r.becoming(catalog.Reject) },
			"auto by and by":   func() { r.becoming(catalog.Auto); r.becoming(catalog.Auto); r.policy(catalog.Auto) },
			"another, then it": func() { r.server.Tables.Set("bank", "other", nil); r.policy(catalog.Auto) },
		} {
			r.becoming(catalog.Auto)
			for i, m := range ways {
				client.send(int16(i), m)
			}
			r.waiting(client, backend, len(ways))
			then()
			if name[0] == 'r' {
				for range ways {
					assert.Contains(t, client.next().Body.Message.(message.Error).GetErrorMessage(), "MUSIC_UNLOCKED")
				}
				r.idle()
				continue
			}
			for range ways {
				f := backend.next()
				stamp, plain := int64(0), ways[f.Header.StreamId]
				switch m := f.Body.Message.(type) {
				case *message.Query:
					stamp = stampOf(m.Options.DefaultTimestamp)
				case *message.Execute:
					stamp = stampOf(m.Options.DefaultTimestamp)
				case *message.Batch:
					stamp = stampOf(m.DefaultTimestamp)
				}
				if name[:2] == "al" || name == "ordinary" {
					assert.Zero(t, stamp, name)
					assert.IsType(t, plain, f.Body.Message, name)
				} else {
					assert.EqualValues(t, fenceStamp, stamp, name)
				}
				backend.send(f.Header.StreamId, &message.VoidResult{})
				assert.IsType(t, &message.VoidResult{}, client.answer(f.Header.StreamId), name)
			}
			r.idle()
		}
	})
}

func stampOf(stamp *int64) int64 {
	if stamp == nil {
		return 0
	}
	return *stamp
}

// A name without a keyspace is that of no table, and is not kept for ever as if it were: a client can send any number of them.
func TestANameWithoutAKeyspaceIsNotKept(t *testing.T) {
	r, client, backend, _ := waitingRig(t, d4())
	client.send(1, &message.Batch{Children: []*message.BatchChild{{Query: lonely}, {Query: "INSERT INTO nowhere (a) VALUES (1)"}}})
	r.waiting(client, backend, 1)
	assert.Nil(t, r.server.Tables.Find(catalog.Key("", "nowhere")))
	r.policy(catalog.Auto)
	assert.Len(t, backend.answer(1).(*message.Batch).Children, 2)
	backend.send(1, &message.Invalid{ErrorMessage: "No keyspace has been specified"})
	client.failure(1)
}

// What waits for its table is counted with its syntax tree, which takes many times as many bytes as the text.
func TestWhatWaitsForItsTableIsCounted(t *testing.T) {
	write := query("DELETE FROM bank.accounts WHERE id = 'x' AND c IN (" + strings.Repeat("1,", large/50) + "1)")
	for name, request := range map[string]message.Message{
		"write": write, "batch": asBatch(write), "lock": query("LOCK bank.accounts WHERE id IN (" + strings.Repeat("'',", large/50) + "'') WAIT 8s"),
	} {
		t.Run(name, func(t *testing.T) {
			r, client, _, _ := waitingRig(t, d4())
			client.send(1, request)
			r.holds(large, "while it waits")
			r.cannot("it has counters")
			client.failure(1)
			r.holds(0, "it is answered")
		})
	}
}

// A write is forwarded only where its stream is open for Outstanding to see while its table lets it through.
func TestAWriteThatHasWaitedIsOutstanding(t *testing.T) {
	r, client, backend, ways := waitingRig(t, dialect{version: v4})
	client.send(0, ways[0])
	r.waiting(client, backend, 1)
	r.server.Tables.Set("bank", "accounts", nil)
	backend.answer(0)
	r.becoming(catalog.Auto)
	left := r.server.Outstanding()
	assert.True(t, left())
	backend.send(0, &message.VoidResult{})
	client.answer(0)
	assert.False(t, left())
}

// A write does not wait for longer than its driver does, nor where as many wait as may: it is told to try again.
func TestWritesThatCannotWaitForTheirTable(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		_, client, _, ways := waitingRig(t, d, func(o *Options) { o.MaxWait = moment })
		for i, m := range ways {
			client.send(int16(i), m)
			f := client.failure(int16(i))
			assert.Equal(t, primitive.ErrorCodeOverloaded, f.GetErrorCode())
			assert.Equal(t, "MUSIC_UNAVAILABLE: bank.accounts: "+refusal.StillBecoming+": nothing was written, try again", f.GetErrorMessage())
		}
		r, client, backend, ways := waitingRig(t, d, func(o *Options) { o.Limits().Waits = 1 })
		client.send(0, ways[0])
		r.waiting(client, backend, 1)
		client.send(1, ways[1])
		assert.Equal(t, primitive.ErrorCodeOverloaded, client.failure(1).GetErrorCode())
	})
}

// A request for a lock waits while its table becomes one that can be locked, and is carried out then as the table is. What waits for
// nobody is told at once to try again, and so is what has a reference: it would lose its order.
func TestLocksWaitForTheirTable(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r, client, backend, _ := waitingRig(t, d)
		r.policy(catalog.Reject)
		const lock, put = "LOCK bank.accounts WHERE id = 'x'", "UPDATE bank.accounts USING LOCK 9 SET n = 1 WHERE id = 'x'"
		client.send(1, &message.Prepare{Query: "LOCK bank.accounts WHERE id = ?"})
		id := client.answer(1).(*message.PreparedResult).PreparedQueryId
		asking := []message.Message{
			query(lock), execute(id, []byte("x")), query(lock + " WAIT 5s"), query("LOCK bank.accounts WHERE id IN ('x', 'y')"), query("SELECT n FROM bank.accounts WHERE id = 'x' FOR UPDATE"),
		}
		for name, then := range map[string]func(){
			"it can":            func() { r.policy(catalog.Reject) },
			"by and by":         func() { r.becomes(catalog.Allow, "another reason"); r.policy(catalog.Allow) },
			"it is another's":   func() { r.server.Tables.Set("bank", "other", nil); r.policy(catalog.Auto) },
			"refused: ordinary": func() { r.server.Tables.Set("bank", "accounts", nil) },
			"refused":           func() { r.cannot("counters") },
			"refused by and by": func() { r.becomes(catalog.Allow, "another reason"); r.cannot("counters") },
		} {
			r.becoming(catalog.Reject)
			for i, m := range asking {
				client.send(int16(i), m)
			}
			r.waiting(client, backend, len(asking))
			then()
			if strings.HasPrefix(name, "refused") {
				for range asking {
					assert.Regexp(t, "MUSIC_REFUSED: bank.accounts (is not critical any more: it has no locks|cannot be locked: counters)", client.next().Body.Message.(message.Error).GetErrorMessage(), name)
				}
				backend.silent()
				r.idle()
				continue
			}
			f := backend.next()
			assert.Equal(t, "SELECT n FROM bank.accounts WHERE id = 'x' ", f.Body.Message.(*message.Query).Query)
			backend.send(f.Header.StreamId, page(nil, "1"))
			for range asking {
				assert.IsType(t, &message.RowsResult{}, client.next().Body.Message, name)
			}
			r.idle()
		}
		r.becoming(catalog.Reject)
		for _, m := range []message.Message{
			query(lock + " NOWAIT"), query(lock + " WAIT 0s"), query(lock + " WAIT 1ms"), query("LOCK bank.accounts WHERE id IN ('x', 'y') SKIP LOCKED"),
			query(put), query("UNLOCK bank.accounts WHERE id = 'x' USING LOCK 9"), query(lock + " USING LOCK 9"), query("SELECT n FROM bank.accounts WHERE id = 'x' USING LOCK 9"),
			query("BEGIN BATCH USING LOCK 9 " + lonely + "; APPLY BATCH"), &message.Batch{Children: []*message.BatchChild{{Query: put}}},
		} {
			client.send(1, m)
			f := client.failure(1)
			assert.Equal(t, "MUSIC_UNAVAILABLE: bank.accounts: it is becoming critical; nothing was done", f.GetErrorMessage(), m)
			assert.Equal(t, primitive.ErrorCodeInvalid, f.GetErrorCode())
		}
	})
}

// Who has waited for the table is not told, when it is ready, that too many wait; and a WAIT that was too long is warned of as ever.
func TestWhoHasWaitedForTheTableHasAPlace(t *testing.T) {
	r, client, backend, ways := waitingRig(t, dialect{version: v4}, func(o *Options) { o.Limits().Waits = 2 })
	for _, m := range []message.Message{query("LOCK bank.accounts WHERE id = 'x' WAIT 10h"), ways[0]} {
		r.becoming(catalog.Auto)
		client.send(0, m)
		client.send(1, m)
		r.waiting(client, backend, 2)
		r.policy(catalog.Auto)
		for range 2 {
			if m == ways[0] {
				backend.send(backend.next().Header.StreamId, &message.VoidResult{})
			}
			f := client.next()
			_, is := f.Body.Message.(message.Error)
			assert.False(t, is, "%v", f.Body.Message)
			if m != ways[0] {
				assert.Contains(t, strings.Join(f.Body.Warnings, ""), "it is reduced to")
			}
		}
		r.idle()
	}
}

// Writes that wait are given up with their connection, and a USE waits for them.
func TestTheEndOfWritesThatWait(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r, client, backend, ways := waitingRig(t, d)
		for i, m := range ways {
			client.send(int16(i), m)
		}
		r.waiting(client, backend, len(ways))
		_ = client.Close()
		backend.ended()
		require.Eventually(t, func() bool { return r.server.memory.InUse() == 0 && r.server.Stats.Open.Load() == 0 }, patience, time.Millisecond)
		r.policy(catalog.Auto)

		client, backend = r.login(d)
		r.becoming(catalog.Auto)
		client.send(0, ways[0])
		r.waiting(client, backend, 1)
		client.send(1, query("USE bank"))
		backend.silent()
		r.policy(catalog.Auto)
		backend.answer(0)
		backend.send(0, &message.VoidResult{})
		client.answer(0)
		backend.answer(1)
		backend.send(1, &message.SetKeyspaceResult{Keyspace: "bank"})
		client.answer(1)

		r.becoming(catalog.Auto)
		client.send(0, ways[0])
		r.waiting(client, backend, 1)
		r.drained()
		r.policy(catalog.Auto)
		backend.answer(0)
		backend.send(0, &message.VoidResult{})
		assert.IsType(t, &message.VoidResult{}, client.answer(0))
		client.ended()
	})
}

// What is prepared while its table becomes critical is prepared: an application prepares everything at its start.
func TestPrepareWhileATableBecomesCritical(t *testing.T) {
	r, client, backend, _ := waitingRig(t, dialect{version: v4})
	for _, text := range []string{lonely, "INSERT INTO bank.accounts (id, n) VALUES (?, ?)", "BEGIN BATCH " + lonely + "; APPLY BATCH"} {
		r.prepare(client, backend, text)
	}
}

// A batch over several tables waits for each of them, and has no section as long as one of them cannot be locked.
func TestABatchWaitsForAllOfItsTables(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r, client, backend, _ := waitingRig(t, d)
		id := r.prepare(client, backend, "UPDATE bank.other SET n = 1 WHERE id = 'y'")
		auto := &catalog.Critical{ID: [16]byte{7}, Key: []catalog.Column{{Name: "id", Type: "text"}}, Settings: catalog.Settings{Unlocked: catalog.Auto}}
		both := &message.Batch{Children: []*message.BatchChild{{Query: lonely}, {Query: "UPDATE bank.other SET n = 1 WHERE id = 'y'"}}}
		r.server.Tables.Set("bank", "other", auto)
		text := query("BEGIN BATCH " + lonely + "; UPDATE bank.other SET n = 1 WHERE id = 'y'; APPLY BATCH")
		for _, m := range []message.Message{both, text} {
			r.becoming(catalog.Auto)
			client.send(1, m)
			r.waiting(client, backend, 1)
			r.policy(catalog.Auto)
			assert.Len(t, backend.answer(1).(*message.Batch).Children, 2)
			backend.send(1, &message.VoidResult{})
			client.answer(1)
		}
		r.becoming(catalog.Auto)
		client.send(1, text)
		r.waiting(client, backend, 1)
		r.server.Tables.Set("bank", "other", nil)
		r.server.Tables.Set("bank", "accounts", nil)
		assert.Equal(t, text.Query, backend.answer(1).(*message.Query).Query, "as it was received")
		backend.send(1, &message.VoidResult{})
		client.answer(1)
		r.server.Tables.Set("bank", "other", auto)

		r.becoming(catalog.Auto)
		client.send(1, both)
		r.waiting(client, backend, 1)
		r.server.Tables.Set("bank", "other", nil)
		r.server.Tables.Set("bank", "accounts", nil)
		assert.Len(t, backend.answer(1).(*message.Batch).Children, 2)
		backend.send(1, &message.VoidResult{})
		client.answer(1)

		r.becoming(catalog.Auto)
		r.server.Tables.Set("bank", "other", nil)
		client.send(1, &message.Batch{Children: []*message.BatchChild{{Query: lonely}, {Id: id}}})
		r.waiting(client, backend, 1)
		r.server.Tables.Set("bank", "other", auto)
		r.policy(catalog.Auto)
		assert.Equal(t, primitive.ErrorCodeOverloaded, client.failure(1).GetErrorCode(), "it was read for a table that let it through")
		r.server.Tables.Set("bank", "other", &catalog.Critical{Key: auto.Key})
		r.becoming(catalog.Auto)
		client.send(1, both)
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_UNLOCKED: bank.other")
		backend.silent()
	})
}
