package frontend

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
)

// errorOutcome is an error of Cassandra, and what it says of the operation.
type errorOutcome struct {
	answer message.Message
	what   musiccore.Outcome
}

// everyError is each error that Cassandra may answer an operation with. Refused are those alone that are raised before any replica is
// asked to write.
func everyError() []errorOutcome {
	level := primitive.ConsistencyLevelQuorum
	all := []errorOutcome{
		{&message.Invalid{ErrorMessage: "no"}, musiccore.OutcomeRefused},
		{&message.SyntaxError{ErrorMessage: "no"}, musiccore.OutcomeRefused},
		{&message.Unauthorized{ErrorMessage: "no"}, musiccore.OutcomeRefused},
		{&message.Unavailable{ErrorMessage: "few", Consistency: level, Required: 2, Alive: 1}, musiccore.OutcomeRefused},
		{&message.IsBootstrapping{ErrorMessage: "soon"}, musiccore.OutcomeRefused},
		{&message.Unprepared{ErrorMessage: "what?", Id: []byte("x")}, musiccore.OutcomeRefused},
		{&message.ServerError{ErrorMessage: "oops"}, musiccore.OutcomeUnknown},
		{&message.Overloaded{ErrorMessage: "full"}, musiccore.OutcomeUnknown},
		{&message.ReadTimeout{ErrorMessage: "slow", Consistency: level, BlockFor: 2}, musiccore.OutcomeUnknown},
		{&message.ReadFailure{ErrorMessage: "failed", Consistency: level, BlockFor: 2, NumFailures: 1}, musiccore.OutcomeUnknown},
		{&message.WriteFailure{ErrorMessage: "failed", Consistency: level, BlockFor: 2, NumFailures: 1, WriteType: primitive.WriteTypeSimple}, musiccore.OutcomeUnknown},
		{&message.TruncateError{ErrorMessage: "failed"}, musiccore.OutcomeUnknown},
		{&message.FunctionFailure{ErrorMessage: "failed", Keyspace: "k", Function: "f"}, musiccore.OutcomeRefused},
		{&message.ConfigError{ErrorMessage: "failed"}, musiccore.OutcomeUnknown},
	}
	for _, kind := range []primitive.WriteType{primitive.WriteTypeSimple, primitive.WriteTypeBatch, primitive.WriteTypeUnloggedBatch, primitive.WriteTypeBatchLog} {
		all = append(all, errorOutcome{&message.WriteTimeout{ErrorMessage: "slow", Consistency: level, BlockFor: 2, WriteType: kind}, musiccore.OutcomeUnknown})
	}
	return all
}

// underLock are operations of each kind and way under a lock on bank.accounts; id is that of a prepared write.
func underLock(id []byte) []message.Message {
	const write = "UPDATE bank.accounts USING LOCK 1 SET n = 1 WHERE id = 'x'"
	return []message.Message{
		query(write),
		query("SELECT n FROM bank.accounts WHERE id = 'x' USING LOCK 1"),
		query("BEGIN BATCH USING LOCK 1 UPDATE bank.accounts SET n = 1 WHERE id = 'x'; APPLY BATCH"),
		execute(id, []byte("x")),
		&message.Batch{Children: []*message.BatchChild{{Query: write}, {Id: id, Values: []*primitive.Value{primitive.NewValue([]byte("x"))}}}},
	}
}

// prepareWrite prepares a write under a lock, with a marker for the key.
func prepareWrite(client, backend *peer) (id []byte) {
	client.t.Helper()
	const text = "UPDATE bank.accounts USING LOCK 1 SET n = 1 WHERE id = ?"
	client.send(1, &message.Prepare{Query: text})
	backend.answer(1)
	backend.send(1, preparedAs(idOf(text)))
	return client.answer(1).(*message.PreparedResult).PreparedQueryId
}

// taken is what comes out of a channel, within patience.
func taken[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// An operation counts as refused after those errors alone that are raised before anything is written: after any other one, and where no
// answer comes at all, nobody knows what became of it, and the next holder's synchronise must count with it.
func TestWhatAnErrorSaysOfAnOperation(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r, core := withBorrowed(t)
		client, backend := r.login(d)
		id := prepareWrite(client, backend)
		for _, asked := range underLock(id) {
			for _, e := range everyError() {
				client.send(5, asked)
				backend.answer(5)
				backend.send(5, e.answer)
				assert.Equal(t, e.what, taken(t, core.ended), "%v after %v", e.answer, asked)
				core.verdicts <- musiccore.VerdictTell
				client.failure(5)
			}
		}
		for i, asked := range underLock(id) {
			client.send(int16(10+i), asked)
			backend.answer(int16(10 + i))
		}
		if d.compression == "" {
			_ = backend.Close()
		} else {
			_ = client.Close()
		}
		for range underLock(id) {
			assert.Equal(t, musiccore.OutcomeUnknown, taken(t, core.ended), "the connection is lost")
		}
		r.end()
		assert.Empty(t, core.ended, "each is ended once")
	})
}

// An error that does not follow the protocol tells nothing: the connection to Cassandra is lost, and the core hears at once that nobody
// knows what became of the operation.
func TestAnErrorThatCannotBeRead(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r, core := withBorrowed(t)
		client, backend := r.login(d)
		for i, asked := range underLock(prepareWrite(client, backend)) {
			if i > 0 {
				client, backend = r.login(d)
				prepareWrite(client, backend)
			}
			client.send(5, asked)
			backend.answer(5)
			backend.write(backend.framed(wire.ResponseEnvelope(byte(d.version), 5, primitive.OpCodeError, []byte{0, 0, 0x11})))
			assert.Equal(t, musiccore.OutcomeUnknown, taken(t, core.ended), "%v", asked)
			backendLost(client, 5)
			client.ended()
			_ = client.Close()
			r.end()
			assert.Empty(t, core.ended, "it is ended once")
		}
	})
}

// So it is with the rows that a request needs more than an outcome of, whenever the core has its verdict: the client is told, and the log does not say that
// it has violated the protocol.
func TestRowsThatCannotBeRead(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		for _, text := range []string{"SELECT balance FROM bank.accounts WHERE id = 'x' FOR UPDATE", "UPDATE bank.accounts USING LOCK 9 SET balance = 1 WHERE id = 'x' IF balance = 2", "UPDATE bank.auto SET balance = 1 WHERE id = 'x' IF balance = 2"} {
			for _, later := range []bool{false, true} {
				core := &verdictLocks{ended: make(chan musiccore.Outcome, 1), verdicts: make(chan musiccore.Verdict, 1)}
				core.verdicts <- musiccore.VerdictTell
				g, guard := newGrantingLocks(), OperationGuard(slowGuard{core})
				if later {
					guard = core
				}
				r := rightsRig(t, struct {
					Locker
					OperationGuard
					LockLister
				}{g, guard, g})
				client, backend := r.login(d)
				client.send(1, query(text))
				backend.answer(1)
				backend.write(backend.framed(wire.ResponseEnvelope(byte(d.version), 1, primitive.OpCodeResult, []byte{0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 9})))
				backendLost(client, 1)
				_ = client.Close()
				assert.Contains(t, r.end()["message"], "the connection to Cassandra is lost", text)
			}
		}
	})
}

// An error of a kind that the proxy does not know, or with a reason that it does not know for a replica's failure, as Cassandra 6 has some (COORDINATOR_BEHIND),
// is one of unknown outcome, which the client is told, and no reason to end the connection.
func TestAnErrorOfAnUnknownKind(t *testing.T) {
	shown := netip.MustParseAddrPort(advertised).Addr().AsSlice()
	for name, body := range map[string]string{
		"a reason": "\x00\x00\x15\x00\x00\x01x\x00\x04\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x01\x04" + string(shown) + "\x00\x0a\x00\x06SIMPLE",
		"an error": "\x00\x00\x16\x00\x00\x01x",
	} {
		t.Run(name, func(t *testing.T) {
			r, core := withBorrowed(t)
			client, backend := r.login(dialect{version: v5})
			for _, asked := range underLock(prepareWrite(client, backend)) {
				client.send(5, asked)
				backend.answer(5)
				raw := wire.ResponseEnvelope(byte(v5), 5, primitive.OpCodeError, []byte(body))
				backend.write(backend.framed(raw))
				assert.Equal(t, musiccore.OutcomeUnknown, taken(t, core.ended), "%v", asked)
				core.verdicts <- musiccore.VerdictUncertain
				client.expect(client.framed(raw))
			}
		})
	}
}

// delayedLocks give their answers when the test says so, or at once.
type delayedLocks struct {
	Locks
	holds bool
	held  chan func() // gives the answer
	ended chan musiccore.Outcome
}

func newDelayedLocks() *delayedLocks {
	return &delayedLocks{held: make(chan func(), 8), ended: make(chan musiccore.Outcome, 1024)}
}

func (h *delayedLocks) Begin(k musiccore.Key, ref musiccore.LockRef, kind musiccore.Kind, done func(musiccore.Answer)) (musiccore.Answer, bool) {
	a := musiccore.Answer{Ticket: musiccore.Ticket{Key: k, Ref: ref, Stamp: 1000, Kind: kind, Left: time.Minute, Lease: time.Minute}}
	if !h.holds {
		return a, true
	}
	h.held <- func() { done(a) }
	return musiccore.Answer{}, false
}

func (h *delayedLocks) End(_ musiccore.Ticket, o musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	h.ended <- o
	return musiccore.VerdictTell, nil
}

func (h *delayedLocks) Lock(_ musiccore.Key, _ musiccore.Request, done func(musiccore.Answer)) (musiccore.Answer, func()) {
	a := musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: 9, State: musiccore.StateHeld}}
	if !h.holds {
		return a, nil
	}
	h.held <- func() { done(a) }
	return musiccore.Answer{}, func() {}
}

func (h *delayedLocks) Unlock(k musiccore.Key, ref musiccore.LockRef, _ musiccore.Client, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: ref, State: musiccore.StateReleased}}, true
}

// holdingRig has bank.accounts, bank.auto, whose plain writes get sections of their own, and bank.events, whose key is a timestamp.
func holdingRig(t *testing.T) (*rig, *delayedLocks) {
	t.Helper()
	core := newDelayedLocks()
	r := newRig(t, func(o *Options) { o.Locks = core })
	columns := func(kind string) map[string]catalog.Column {
		return map[string]catalog.Column{"id": {Name: "id", Type: kind}, "balance": {Name: "balance", Type: "bigint"}, "n": {Name: "n", Type: "blob"}}
	}
	text, at := []catalog.Column{{Name: "id", Type: "text"}}, []catalog.Column{{Name: "id", Type: "timestamp"}}
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: text, Primary: []string{"id"}, Columns: columns("text")})
	r.server.Tables.Set("bank", "auto", &catalog.Critical{Key: text, Primary: []string{"id"}, Columns: columns("text"), Settings: catalog.Settings{Unlocked: catalog.Auto}})
	r.server.Tables.Set("bank", "events", &catalog.Critical{Key: at, Primary: []string{"id"}, Columns: columns("timestamp")})
	return r, core
}

// waitingCase is a request that waits for the core: so often before each message that Cassandra gets.
type waitingCase struct {
	request message.Message
	waits   []int
}

// waitingCases are requests of every kind that can wait.
func waitingCases(id []byte) []waitingCase {
	with := func(text string, values ...[]byte) *message.Query {
		q := query(text)
		for _, v := range values {
			q.Options.PositionalValues = append(q.Options.PositionalValues, primitive.NewValue(v))
		}
		return q
	}
	child := func(text string, values ...[]byte) *message.BatchChild {
		return &message.BatchChild{Query: text, Values: with(text, values...).Options.PositionalValues}
	}
	value := noise(300)
	blob := "0x" + hex.EncodeToString(value)
	named := query("UPDATE bank.accounts USING LOCK :l SET n = :n WHERE id = :k")
	named.Options.NamedValues = map[string]*primitive.Value{"l": primitive.NewValue(bigint(1)), "n": primitive.NewValue(value), "k": primitive.NewValue([]byte("x"))}
	prepared := &message.BatchChild{Id: id, Values: []*primitive.Value{primitive.NewValue([]byte("x"))}}
	return []waitingCase{
		{with("UPDATE bank.accounts USING LOCK ? SET n = ? WHERE id = ?", bigint(1), value, []byte("x")), []int{1}},
		{named, []int{1}},
		{query("UPDATE bank.accounts USING LOCK 1 SET n = " + blob + " WHERE id = 'x'"), []int{1}},
		{with("SELECT n FROM bank.accounts WHERE id = ? USING LOCK ?", []byte("x"), bigint(1)), []int{1}},
		{query("BEGIN BATCH USING LOCK 1 UPDATE bank.accounts SET n = " + blob + " WHERE id = 'x'; APPLY BATCH"), []int{1}},
		{execute(id, []byte("x")), []int{1}},
		{&message.Batch{Children: []*message.BatchChild{child("UPDATE bank.accounts USING LOCK 1 SET n = ? WHERE id = ?", value, []byte("x")), prepared}}, []int{1}},
		{with("UPDATE bank.accounts USING LOCK 1 SET n = ? WHERE id = ? IF balance = ?", value, []byte("x"), bigint(5)), []int{1, 1}},
		{&message.Batch{Children: []*message.BatchChild{child("UPDATE bank.accounts USING LOCK 1 SET n = ? WHERE id = ? IF balance = ?", value, []byte("x"), bigint(5)), prepared}}, []int{1, 1}},
		{with("SELECT balance FROM bank.accounts WHERE id = ? FOR UPDATE", []byte("x")), []int{2}},
		{with("UPDATE bank.auto SET n = ? WHERE id = ?", value, []byte("x")), []int{2}},
		{query("UPDATE bank.auto SET n = " + blob + " WHERE id = 'x'"), []int{2}},
		{&message.Batch{Children: []*message.BatchChild{child("UPDATE bank.auto SET n = ? WHERE id = ?", value, []byte("x"))}}, []int{2}},
		{with("UPDATE bank.auto SET n = ? WHERE id = ? IF balance = ?", value, []byte("x"), bigint(5)), []int{2, 1}},
		{with("UPDATE bank.events USING LOCK 1 SET n = ? WHERE id = '2020-01-01Z'", value), []int{1}},
		{&message.Batch{Children: []*message.BatchChild{child("UPDATE bank.events USING LOCK 1 SET n = ? WHERE id = '2020-01-02Z'", value)}}, []int{1}},
	}
}

// carriedOut has a request carried out and returns what Cassandra gets for it. Where the core holds its answers, other requests fill the
// connection's buffers before each.
func (w waitingCase) carriedOut(client, backend *peer, core *delayedLocks) (sent []string) {
	client.t.Helper()
	client.send(1, w.request)
	for _, waits := range w.waits {
		for range waits {
			if core.holds {
				give := taken(client.t, core.held)
				for range 3 {
					relayed(client, backend, 2, query("SELECT a FROM b.c WHERE d = '"+hex.EncodeToString(noise(1500))+"'"), rows(noise(3000)))
				}
				give()
			}
		}
		got := backend.answer(1)
		sent = append(sent, fmt.Sprintf("%x", backend.envelope(client.t, 1, got)))
		if q, ok := got.(*message.Query); ok && strings.HasPrefix(q.Query, "SELECT") {
			backend.send(1, balances(bigint(5)))
		} else {
			backend.send(1, &message.VoidResult{})
		}
	}
	_, failed := client.answer(1).(message.Error)
	assert.False(client.t, failed)
	return sent
}

// What waits for the core waits in memory of its own: whatever comes over the connection meanwhile, Cassandra gets the same bytes as if
// nothing had been waited for.
func TestWhatWaitsIsKept(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r, core := holdingRig(t)
		client, backend := r.login(d)
		id := prepareWrite(client, backend)
		for i, w := range waitingCases(id) {
			core.holds = false
			want := w.carriedOut(client, backend, core)
			core.holds = true
			assert.Equal(t, want, w.carriedOut(client, backend, core), "case %d: %v", i, w.request)
			assert.Empty(t, core.held)
		}
	})
}

// A stamp that comes when its client has gone, or Cassandra, is given back: nothing was sent under it.
func TestStampThatNobodyWaitsFor(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		for _, clientGoes := range []bool{true, false} {
			r, core := holdingRig(t)
			client, backend := r.login(d)
			id := prepareWrite(client, backend)
			core.holds = true
			asked := underLock(id)
			for i, m := range asked {
				client.send(int16(10+i), m)
			}
			var give []func()
			for range asked {
				give = append(give, taken(t, core.held))
			}
			if clientGoes {
				_ = client.Close()
				backend.ended()
			} else {
				_ = backend.Close()
				streams := []int16{10, 11, 12, 13, 14}
				backendLost(client, streams...)
			}
			_ = client.Close()
			for _, g := range give {
				g()
			}
			for range asked {
				assert.Equal(t, musiccore.OutcomeRefused, taken(t, core.ended))
			}
			r.end()
			assert.Empty(t, core.ended)
		}
	})
}

// The lock alone gives the timestamp: no statement under one carries its own, wherever in it that stands and however it comes, and what
// the frame says is not heard.
func TestTheLockAloneGivesTheTimestamp(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r, core := holdingRig(t)
		client, backend := r.login(d)
		for _, stamp := range []string{"TIMESTAMP 5", "timestamp ?", "TTL 9 AND TIMESTAMP 5", "Timestamp 5 AND TTL 9"} {
			for _, text := range []string{
				"UPDATE bank.accounts USING LOCK 1 AND " + stamp + " SET n = 0x WHERE id = 'x'",
				"UPDATE bank.accounts USING " + stamp + " AND LOCK 1 SET n = 0x WHERE id = 'x'",
				"INSERT INTO bank.accounts (id, n) VALUES ('x', 0x) USING " + stamp + " AND LOCK 1",
				"UPDATE bank.accounts USING LOCK 1 AND " + stamp + " SET n = 0x WHERE id = 'x' IF balance = 5",
				"UPDATE bank.auto USING " + stamp + " SET n = 0x WHERE id = 'x'",
				"BEGIN BATCH USING LOCK 1 UPDATE bank.accounts SET n = 0x WHERE id = 'x'; UPDATE bank.accounts USING " + stamp + " SET n = 0x WHERE id = 'x'; APPLY BATCH",
				"BEGIN BATCH USING LOCK 1 UPDATE bank.accounts USING " + stamp + " SET n = 0x WHERE id = 'x'; UPDATE bank.accounts SET n = 0x WHERE id = 'x'; APPLY BATCH",
				"BEGIN BATCH UPDATE bank.auto USING " + stamp + " SET n = 0x WHERE id = 'x'; UPDATE bank.auto SET n = 0x WHERE id = 'x'; APPLY BATCH",
			} {
				q := query(text)
				if strings.Contains(text, "?") {
					q.Options.PositionalValues = []*primitive.Value{primitive.NewValue(bigint(5))}
				}
				client.send(1, q)
				assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_REFUSED", text)
				client.send(1, &message.Prepare{Query: text})
				backend.answer(1)
				backend.send(1, preparedAs(idOf(text)))
				x := &message.Execute{QueryId: client.answer(1).(*message.PreparedResult).PreparedQueryId, ResultMetadataId: []byte("result metadata!"), Options: &message.QueryOptions{}}
				if strings.Contains(text, "?") {
					x.Options.PositionalValues = []*primitive.Value{primitive.NewValue(bigint(5))}
				}
				client.send(1, x)
				assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_REFUSED", text)
				if strings.HasPrefix(text, "BEGIN") {
					continue
				}
				client.send(1, &message.Batch{Children: []*message.BatchChild{{Query: strings.Replace(strings.Replace(text, stamp, "TTL 9", 1), "TTL 9 AND TTL 9", "TTL 9", 1)}, {Query: text, Values: q.Options.PositionalValues}}})
				assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_REFUSED", text)
			}
		}
		relayed(client, backend, 2, query("SELECT a FROM b.c"), rows(nil)) // so none of them was sent
		assert.Empty(t, core.ended)

		own := int64(77)
		text := query("UPDATE bank.accounts USING LOCK 1 SET n = 0x WHERE id = 'x'")
		text.Options.DefaultTimestamp = &own
		batch := &message.Batch{Children: []*message.BatchChild{{Query: text.Query}}, DefaultTimestamp: &own}
		for _, m := range []message.Message{text, batch} {
			client.send(1, m)
			switch got := backend.answer(1).(type) {
			case *message.Query:
				require.NotNil(t, got.Options.DefaultTimestamp)
				assert.EqualValues(t, 1000, *got.Options.DefaultTimestamp)
				assert.Equal(t, primitive.ConsistencyLevelQuorum, got.Options.Consistency)
			case *message.Batch:
				require.NotNil(t, got.DefaultTimestamp)
				assert.EqualValues(t, 1000, *got.DefaultTimestamp)
				assert.Equal(t, primitive.ConsistencyLevelQuorum, got.Consistency)
			}
			backend.send(1, &message.VoidResult{})
			client.answer(1)
		}
	})
}
