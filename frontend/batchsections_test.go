package frontend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// sectionLocks give every lock, stamps that tell the keys apart, and verdicts that the test chooses.
type sectionLocks struct {
	*grantingLocks
	busy     string // this key is not free
	verdicts map[string]musiccore.Verdict
	ended    chan musiccore.Outcome
	keys     map[musiccore.Stamp]string // by the stamps that they have
}

func newSectionLocks() *sectionLocks {
	return &sectionLocks{grantingLocks: newGrantingLocks(), verdicts: map[string]musiccore.Verdict{}, ended: make(chan musiccore.Outcome, 9), keys: map[musiccore.Stamp]string{}}
}

func (l *sectionLocks) Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (musiccore.Answer, func()) {
	if k.PK == l.busy {
		return musiccore.Answer{Grant: musiccore.Grant{Ref: 8, State: musiccore.StateQueued}}, nil
	}
	return l.grantingLocks.Lock(k, q, done)
}

func (l *sectionLocks) Begin(k musiccore.Key, ref musiccore.LockRef, kind musiccore.Kind, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	stamp := musiccore.Stamp(2000 + int(k.PK[0]))
	l.keys[stamp] = k.PK
	return musiccore.Answer{Ticket: musiccore.Ticket{Ref: ref, Kind: kind, Stamp: stamp}}, true
}

func (l *sectionLocks) End(t musiccore.Ticket, o musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	l.ended <- o
	if v, ok := l.verdicts[l.keys[t.Stamp]]; ok {
		return musiccore.VerdictPending, func() musiccore.Verdict { return v }
	}
	return musiccore.VerdictTell, nil
}

// sectionsRig is a client of two tables whose writes without a lock have sections of their own.
func sectionsRig(t *testing.T, d dialect) (r *rig, client, backend *peer, l *sectionLocks) {
	t.Helper()
	l = newSectionLocks()
	r, client, backend = autoRig(t, d, l)
	r.server.Tables.Set("bank", "other", &catalog.Critical{ID: [16]byte{1}, Key: []catalog.Column{{Name: "id", Type: "text"}}, Settings: catalog.Settings{Unlocked: catalog.Auto}})
	return r, client, backend, l
}

// drained empties what the locks have noted.
func (l *sectionLocks) drained() (locked []string, unlocked, ended int) {
	for len(l.locked) > 0 {
		locked = append(locked, (<-l.locked).PK)
	}
	for ; len(l.unlocked) > 0; unlocked++ {
		<-l.unlocked
	}
	for ; len(l.ended) > 0; ended++ {
		<-l.ended
	}
	return locked, unlocked, ended
}

// A batch over several keys and tables takes the locks of all of them in one order, however it comes, and goes out as one batch of its
// kind, in which each statement has the stamp of its key, and what no lock concerns goes as it came.
func TestABatchOfSeveralSections(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r, client, backend, l := sectionsRig(t, d)
		statements := []string{
			"UPDATE bank.other SET n = 1 WHERE id = 'a'", "INSERT INTO bank.accounts (id, n) VALUES (?, 2) USING TTL 9", "INSERT INTO bank.plain (id) VALUES (?)",
			"DELETE FROM bank.accounts WHERE id = 'p'", "UPDATE bank.accounts SET n = 3 WHERE id = 'q'",
		}
		want := []string{
			"UPDATE bank.other USING TIMESTAMP 2097 SET n = 1 WHERE id = 'a'", "INSERT INTO bank.accounts (id, n) VALUES (?, 2) USING TIMESTAMP 2113 AND TTL 9", "INSERT INTO bank.plain (id) VALUES (?)",
			"DELETE FROM bank.accounts USING TIMESTAMP 2112 WHERE id = 'p'", "UPDATE bank.accounts USING TIMESTAMP 2113 SET n = 3 WHERE id = 'q'",
		}
		q, plain := primitive.NewValue([]byte("q")), primitive.NewValue([]byte("z"))
		whole := "BEGIN UNLOGGED BATCH " + strings.Join(statements, "; ") + "; APPLY BATCH"
		text := query(whole)
		text.Options.PositionalValues = []*primitive.Value{q, plain}
		prepared := execute(r.prepare(client, backend, whole), nil)
		prepared.Options.PositionalValues = text.Options.PositionalValues
		children := &message.Batch{Type: primitive.BatchTypeUnlogged}
		ids := &message.Batch{Type: primitive.BatchTypeUnlogged}
		plainID := r.prepare(client, backend, statements[2])
		for _, s := range statements {
			child := &message.BatchChild{Query: s}
			switch {
			case strings.Contains(s, "plain"):
				child.Values = []*primitive.Value{plain}
			case strings.Contains(s, "?"):
				child.Values = []*primitive.Value{q}
			}
			children.Children = append(children.Children, child)
			ids.Children = append(ids.Children, &message.BatchChild{Id: r.prepare(client, backend, s), Values: child.Values})
		}
		for i, m := range []message.Message{text, prepared, children, ids} {
			client.send(1, m)
			sent := backend.answer(1).(*message.Batch)
			assert.Equal(t, primitive.BatchTypeUnlogged, sent.Type)
			assert.Equal(t, primitive.ConsistencyLevelQuorum, sent.Consistency)
			assert.Nil(t, sent.DefaultTimestamp, "the node stamps what no lock concerns")
			for j, child := range sent.Children {
				if m == ids && j == 2 {
					assert.Equal(t, plainID, child.Id)
				} else {
					assert.Equal(t, want[j], strings.Join(strings.Fields(child.Query), " "), i)
				}
			}
			assert.Equal(t, []*primitive.Value{q}, sent.Children[1].Values)
			assert.Equal(t, []*primitive.Value{plain}, sent.Children[2].Values)
			assert.Empty(t, l.unlocked, "not before the answer")
			backend.send(1, &message.VoidResult{})
			assert.IsType(t, &message.VoidResult{}, client.answer(1))
			locked, unlocked, ended := l.drained()
			assert.Equal(t, []string{"p", "q", "a"}, locked)
			assert.Equal(t, []int{3, 3}, []int{unlocked, ended})
		}
	})
}

// The tables of a batch's text are those that its statements name where they are carried out, whatever they leave out: the lock of one
// table writes no table of its name in the keyspace in use.
func TestABatchOverTablesOfOneName(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r, client, backend, l := sectionsRig(t, d)
		r.server.Tables.Set("shop", "accounts", &catalog.Critical{ID: [16]byte{2}, Key: []catalog.Column{{Name: "id", Type: "text"}}, Settings: catalog.Settings{Unlocked: catalog.Auto}})
		for _, c := range []struct{ used, text string }{
			{"shop", "UPDATE bank.accounts SET n = 1 WHERE id = 'x'; UPDATE accounts SET n = 2 WHERE id = 'x'"},
			{"bank", "UPDATE accounts SET n = 1 WHERE id = 'x'; UPDATE shop.accounts SET n = 2 WHERE id = 'x'"},
		} {
			relayed(client, backend, 1, query("USE "+c.used), &message.SetKeyspaceResult{Keyspace: c.used})
			locked := "BEGIN BATCH USING LOCK 9 " + c.text + "; APPLY BATCH"
			client.send(1, query(locked))
			assert.Contains(t, client.failure(1).GetErrorMessage(), "must stay within one partition of one table", c.text)
			id := relayed(client, backend, 1, &message.Prepare{Query: locked}, preparedAs(idOf(locked))).(*message.PreparedResult).PreparedQueryId
			prepared := execute(id, nil)
			prepared.Options.PositionalValues = nil
			client.send(1, prepared)
			assert.Contains(t, client.failure(1).GetErrorMessage(), "must stay within one partition of one table", c.text)

			auto := "BEGIN BATCH " + c.text + "; APPLY BATCH"
			for _, m := range []message.Message{query(auto), execute(r.prepare(client, backend, auto), nil)} {
				if execution, ok := m.(*message.Execute); ok {
					execution.Options.PositionalValues = nil
				}
				client.send(1, m)
				sent := backend.answer(1).(*message.Batch)
				for i, keyspace := range []string{"bank", "shop"} {
					assert.Contains(t, strings.ReplaceAll(sent.Children[i].Query, `"`, ""), keyspace+".accounts")
				}
				backend.send(1, &message.VoidResult{})
				client.answer(1)
				keys, unlocked, _ := l.drained()
				assert.Equal(t, []string{"x", "x"}, keys)
				assert.Equal(t, 2, unlocked)
			}
		}
	})
}

// Where one key cannot be had nothing is sent, and the others are given back; so where a table has changed meanwhile that no lock
// concerned.
func TestABatchOfSeveralSectionsThatIsNotSent(t *testing.T) {
	r, client, backend, l := sectionsRig(t, dialect{version: v4})
	const both = "BEGIN BATCH UPDATE bank.accounts SET n = 1 WHERE id = 'q'; UPDATE bank.accounts SET n = 1 WHERE id = 'p'; INSERT INTO bank.plain (id) VALUES (1); APPLY BATCH"
	l.busy = "q"
	client.send(1, query(both))
	f := client.failure(1)
	assert.Equal(t, primitive.ErrorCodeOverloaded, f.GetErrorCode())
	assert.Contains(t, f.GetErrorMessage(), "nothing was written")
	locked, unlocked, ended := l.drained()
	assert.Equal(t, []string{"p"}, locked)
	assert.Equal(t, []int{2, 0}, []int{unlocked, ended}, "the place in the queue is given up too")

	l.busy = ""
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Settings: catalog.Settings{Unlocked: catalog.Auto, Local: true}})
	client.send(1, query(strings.Replace(both, "bank.accounts", "bank.other", 1)))
	assert.Contains(t, client.failure(1).GetErrorMessage(), "all tables of a batch must have the same scope: that of bank.accounts differs from that of bank.other: send one batch for each")
	r.policy(catalog.Auto)
	r.server.Tables.Set("bank", "plain", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
	client.send(1, query(both))
	assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_UNLOCKED: bank.plain")
	client.send(1, query(strings.Replace(strings.Replace(both, "bank.plain (id) VALUES (1)", "bank.other (id) VALUES ('z')", 1), "BATCH", "BATCH USING TTL 9", 1)))
	assert.Contains(t, client.failure(1).GetErrorMessage(), "Global TTL on the BATCH statement is not supported.", "it is not left out")
	for text, want := range map[string]string{
		strings.Replace(both, "'q'", "'q' IF n = 1", 1): "Batch with conditions cannot span multiple tables",
		strings.Replace(strings.Replace(both, "'q'", "'q' IF n = 1", 1), "bank.plain (id) VALUES (1)", "bank.accounts (id) VALUES ('z')", 1): "Batch with conditions cannot span multiple partitions",
	} {
		r.server.Tables.Set("bank", "plain", nil)
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{
			Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}, Settings: catalog.Settings{Unlocked: catalog.Auto},
			Columns: map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "n": {Name: "n", Type: "int"}},
		})
		client.send(1, query(text))
		assert.Equal(t, want, client.failure(1).GetErrorMessage())
	}
	relayed(client, backend, 2, query("SELECT a FROM b.c"), rows(nil)) // so nothing was sent
	locked, _, _ = l.drained()
	assert.Empty(t, locked)
}

// A table that no lock concerned when the batch came may be critical when the locks are there: then the batch is not sent.
func TestATableThatChangesWhileABatchWaits(t *testing.T) {
	r, client, backend, l := sectionsRig(t, dialect{version: v4})
	slow := &changingLocks{sectionLocks: l, change: func() {
		r.server.Tables.Set("bank", "plain", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "int"}}})
	}}
	r.server.Locks = slow
	client.send(1, query("BEGIN BATCH UPDATE bank.accounts SET n = 1 WHERE id = 'q'; INSERT INTO bank.plain (id) VALUES (1); APPLY BATCH"))
	f := client.failure(1)
	assert.Equal(t, primitive.ErrorCodeOverloaded, f.GetErrorCode())
	assert.Contains(t, f.GetErrorMessage(), "bank.plain: it has just become critical: nothing was written")
	relayed(client, backend, 2, query("SELECT a FROM b.c"), rows(nil))
	_, unlocked, ended := l.drained()
	assert.Equal(t, []int{1, 1}, []int{unlocked, ended})
}

// A table beside those with locks that is not in the schema may have been made since as a critical one, also while the batch waits
// for its locks: then the batch is not sent.
func TestABatchBesideATableThatWasNotRead(t *testing.T) {
	r, client, backend, l := sectionsRig(t, dialect{version: v4})
	known := [][2]string{{"bank", "accounts"}, {"bank", "other"}}
	readings := 0
	r.server.CatchUp = func([2]string) { readings++ }
	texts := []string{"UPDATE bank.accounts SET n = 1 WHERE id = 'q'", "INSERT INTO bank.plain (id) VALUES (1)"}
	ways := []message.Message{
		query("BEGIN BATCH " + texts[0] + "; " + texts[1] + "; APPLY BATCH"),
		&message.Batch{Children: []*message.BatchChild{{Query: texts[0]}, {Query: texts[1]}}},
	}
	r.server.Tables.Read(known)
	for i, m := range ways {
		client.send(1, m)
		assert.Equal(t, `SELECT * FROM "bank"."plain"`, backend.answer(1).(*message.Prepare).Query)
		backend.send(1, &message.Invalid{ErrorMessage: "table plain does not exist"})
		assert.Equal(t, "table plain does not exist", client.failure(1).GetErrorMessage())
		assert.Equal(t, i+1, readings)
	}
	locked, _, _ := l.drained()
	assert.Empty(t, locked)

	r.server.Locks = &changingLocks{sectionLocks: l, change: func() { r.server.Tables.Read(known) }}
	for _, m := range ways {
		r.server.Tables.Read(append(known, [2]string{"bank", "plain"}))
		client.send(1, m)
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_UNAVAILABLE: bank.plain has just been created: nothing was done")
		relayed(client, backend, 2, query("SELECT a FROM b.c"), rows(nil))
		_, unlocked, ended := l.drained()
		assert.Equal(t, []int{1, 1}, []int{unlocked, ended})
	}
}

// changingLocks have the tables change while a ticket is asked for.
type changingLocks struct {
	*sectionLocks
	change func()
}

func (l *changingLocks) Begin(k musiccore.Key, ref musiccore.LockRef, kind musiccore.Kind, done func(musiccore.Answer)) (musiccore.Answer, bool) {
	l.change()
	return l.sectionLocks.Begin(k, ref, kind, done)
}

// The client is told the worst of what the keys' verdicts let it be told; and an error that would be certain of one mutation is not of
// several.
func TestTheVerdictOnABatchOfSeveralSections(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		_, client, backend, l := sectionsRig(t, d)
		const both = "BEGIN BATCH UPDATE bank.accounts SET n = 1 WHERE id = 'q'; UPDATE bank.other SET n = 1 WHERE id = 'p'; APPLY BATCH"
		for _, v := range []musiccore.Verdict{musiccore.VerdictLost, musiccore.VerdictUncertain} {
			l.verdicts = map[string]musiccore.Verdict{"q": musiccore.VerdictTell, "p": v}
			client.send(1, query(both))
			backend.answer(1)
			backend.send(1, &message.VoidResult{})
			f := client.failure(1)
			assert.Equal(t, primitive.ErrorCodeWriteTimeout, f.GetErrorCode())
			assert.Equal(t, primitive.WriteTypeBatch, f.(*message.WriteTimeout).WriteType)
			l.drained()
		}
		l.verdicts = nil
		for want, m := range map[musiccore.Outcome]message.Message{
			musiccore.OutcomeUnknown: &message.Unavailable{ErrorMessage: "short", Consistency: primitive.ConsistencyLevelQuorum, Required: 2, Alive: 1},
			musiccore.OutcomeRefused: &message.Unauthorized{ErrorMessage: "no"},
			musiccore.OutcomeAcked:   &message.VoidResult{},
		} {
			client.send(1, query(both))
			backend.answer(1)
			backend.send(1, m)
			require.IsType(t, m, client.answer(1))
			assert.Equal(t, []musiccore.Outcome{want, want}, []musiccore.Outcome{<-l.ended, <-l.ended})
			l.drained()
		}
	})
}

// A write whose key is named by IN takes the locks of all of its keys in one order, and goes out as the unlogged batch that Cassandra
// makes of it; one that names a single key is that write, and one that names none is nothing.
func TestEachKeyOfIN(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r, client, backend, l := sectionsRig(t, d)
		const listed = "DELETE FROM bank.accounts USING TIMESTAMP 2113  WHERE id = ? "
		inList := []byte("\x00\x00\x00\x02\x00\x00\x00\x01q\x00\x00\x00\x01p")
		bound := execute(r.prepare(client, backend, "DELETE FROM bank.accounts WHERE id IN ?"), inList)
		child := &message.Batch{Type: primitive.BatchTypeUnlogged, Children: []*message.BatchChild{{Query: "DELETE FROM bank.accounts WHERE id IN ?", Values: bound.Options.PositionalValues}}}
		batch := query("BEGIN UNLOGGED BATCH DELETE FROM bank.accounts WHERE id IN (?, 'p') APPLY BATCH")
		batch.Options.PositionalValues = []*primitive.Value{primitive.NewValue([]byte("q"))}
		for i, m := range []message.Message{query("DELETE FROM bank.accounts WHERE id IN ('q', 'p')"), bound, child, batch} {
			client.send(1, m)
			sent := backend.answer(1).(*message.Batch)
			assert.Equal(t, primitive.BatchTypeUnlogged, sent.Type)
			require.Len(t, sent.Children, 2, "%d", i)
			first := strings.Replace(sent.Children[0].Query, "'q'", "?", 1)
			assert.Equal(t, listed, first, "%d", i)
			assert.Contains(t, sent.Children[1].Query, "USING TIMESTAMP 2112")
			backend.send(1, &message.VoidResult{})
			assert.IsType(t, &message.VoidResult{}, client.answer(1))
			locked, unlocked, ended := l.drained()
			assert.Equal(t, []string{"p", "q"}, locked)
			assert.Equal(t, []int{2, 2}, []int{unlocked, ended})
		}
		client.send(1, query("DELETE FROM bank.accounts WHERE id IN ('q')"))
		assert.Equal(t, "DELETE FROM bank.accounts WHERE id = 'q' ", backend.answer(1).(*message.Query).Query)
		backend.send(1, &message.VoidResult{})
		client.answer(1)
		l.drained()
		client.send(1, query("DELETE FROM bank.accounts WHERE id IN ()"))
		assert.IsType(t, &message.VoidResult{}, client.answer(1))
		client.send(1, query("UPDATE bank.accounts USING LOCK 9 SET n = 1 WHERE id IN ('q', 'p')"))
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_KEY")
		backend.silent()
		locked, _, _ := l.drained()
		assert.Empty(t, locked)
	})
}

// The statements of a batch have a bound also once they are rewritten: INSERT JSON as one of all columns, and what Cassandra evaluates.
func TestRewrittenStatementsOfABatchAreBounded(t *testing.T) {
	r, client, backend, _ := sectionsRig(t, dialect{version: v4})
	now := *r.server.Tables.Of("bank", "accounts").Critical()
	now.Primary, now.Columns = []string{"id"}, map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "d": {Name: "d", Type: "timeuuid"}}
	for i := range 1000 {
		name := fmt.Sprintf("column_%d", i)
		now.Columns[name] = catalog.Column{Name: name, Type: "int"}
	}
	r.server.Tables.Set("bank", "accounts", &now)
	batch := func(id []byte) *message.Batch {
		m := new(message.Batch)
		for range 2000 {
			m.Children = append(m.Children, &message.BatchChild{Id: id})
		}
		return m
	}
	id := r.prepare(client, backend, `INSERT INTO bank.accounts JSON '{"id": "x"}'`)
	before := allocated()
	client.send(1, batch(id))
	assert.Regexp(t, "^MUSIC_REFUSED: the statements of the batch would take more than", client.failure(1).GetErrorMessage())
	assert.Less(t, allocated()-before, uint64(8*maxBatchMemory))

	id = r.prepare(client, backend, "UPDATE bank.accounts SET d = ["+strings.Repeat("1, ", 20_000)+"1] WHERE id = f()")
	client.send(1, batch(id))
	asked := strings.Count(backend.answer(1).(*message.Query).Query, "f()")
	values := make(message.Row, asked)
	for i := range values {
		values[i] = []byte("x")
	}
	backend.send(1, &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: int32(asked)}, Data: message.RowSet{values}})
	assert.Regexp(t, "^MUSIC_REFUSED: the statements of the batch would take more than", client.failure(1).GetErrorMessage())
}

// What is prepared and sent as text, with a stamp, without its IF, or with constants for its functions, makes a batch no larger than that.
func TestPreparedStatementsOfABatchAsTextAreBounded(t *testing.T) {
	r, client, backend, _ := sectionsRig(t, dialect{version: v4})
	now := *r.server.Tables.Of("bank", "accounts").Critical()
	now.Columns = map[string]catalog.Column{"id": {Name: "id", Type: "text"}}
	r.server.Tables.Set("bank", "accounts", &now)
	comment := " /*" + strings.Repeat("x", 60_000) + "*/"
	for _, texts := range [][2]string{
		{"DELETE FROM bank.accounts WHERE id = 'a'", "DELETE FROM bank.accounts WHERE id = 'b'"},
		{"DELETE FROM bank.accounts WHERE id = 'a' IF EXISTS", "DELETE FROM bank.accounts WHERE id = 'a' IF EXISTS "},
		{"DELETE FROM bank.accounts WHERE id = (text) 'a'", "DELETE FROM bank.accounts WHERE id = (text) 'b'"},
	} {
		m := new(message.Batch)
		for _, text := range texts {
			id := r.prepare(client, backend, text+comment)
			for range 1000 {
				m.Children = append(m.Children, &message.BatchChild{Id: id})
			}
		}
		before := allocated()
		client.send(1, m)
		assert.Regexp(t, "^MUSIC_REFUSED: the statements of the batch would take more than", client.failure(1).GetErrorMessage())
		assert.Less(t, allocated()-before, uint64(2*maxBatchMemory))
	}
}
