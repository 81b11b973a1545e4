package frontend

import (
	"sync/atomic"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
)

// emptyKeyLocks are Locks of keys without rows: a FencedPut may come first. What is begun is told.
type emptyKeyLocks struct {
	*grantingLocks
	begun chan musiccore.Kind
}

func (g *emptyKeyLocks) Lock(k musiccore.Key, q musiccore.Request, f func(musiccore.Answer)) (musiccore.Answer, func()) {
	a, cancel := g.grantingLocks.Lock(k, q, f)
	a.Grant.Empty = true
	return a, cancel
}

func (g *emptyKeyLocks) Begin(k musiccore.Key, ref musiccore.LockRef, kind musiccore.Kind, f func(musiccore.Answer)) (musiccore.Answer, bool) {
	g.begun <- kind
	if kind == musiccore.FencedPut {
		kind = musiccore.Put // as the core's tickets have it
	}
	return g.grantingLocks.Begin(k, ref, kind, f)
}

// losingLocks are Locks that are lost when a test says so.
type losingLocks struct {
	*grantingLocks
	lost atomic.Bool
}

func (g *losingLocks) Begin(k musiccore.Key, ref musiccore.LockRef, kind musiccore.Kind, f func(musiccore.Answer)) (musiccore.Answer, bool) {
	if g.lost.Load() {
		return musiccore.Answer{Err: musiccore.ErrLost}, true
	}
	return g.grantingLocks.Begin(k, ref, kind, f)
}

// The two writes of these tests, and what the proxy makes of them.
const (
	conditionalUpdate = "UPDATE bank.accounts SET n = ? WHERE id = ? IF balance = ?"
	conditionalInsert = "INSERT INTO bank.accounts (id, n) VALUES (?, ?) IF NOT EXISTS"
	readOfUpdate      = `SELECT "balance" FROM "bank"."accounts" WHERE "id" = ?`
	writeOfUpdate     = "UPDATE bank.accounts SET n = ? WHERE id = ? "
	readOfInsert      = `SELECT * FROM "bank"."accounts" WHERE "id" = ?`
	writeOfInsert     = "INSERT INTO bank.accounts (id, n) VALUES (?, ?) "
	fencedInsert      = `BEGIN UNLOGGED BATCH DELETE FROM "bank"."accounts" USING TIMESTAMP ? WHERE "id" = ?; INSERT INTO bank.accounts (id, n) VALUES (?, ?); APPLY BATCH`
)

// madeRig is a client of a table with unlocked=auto, and a node that prepares what it is asked to.
type madeRig struct {
	*rig
	client, backend *peer
	id              []byte // of the client's statement
	values          []*primitive.Value
}

// newMadeRig returns one whose client has prepared a statement.
func newMadeRig(t *testing.T, d dialect, core Locks, text string, values ...[]byte) *madeRig {
	t.Helper()
	return madeRigOf(t, d, func(o *Options) { o.Locks, o.MaxWait = core, patience }, text, values...)
}

// madeRigOf is newMadeRig with options.
func madeRigOf(t *testing.T, d dialect, change func(*Options), text string, values ...[]byte) *madeRig {
	t.Helper()
	r := &madeRig{rig: newRig(t, change)}
	r.balanceIs(false)
	r.client, r.backend = r.login(d)
	r.id = r.prepare(r.client, r.backend, text)
	for _, v := range values {
		r.values = append(r.values, primitive.NewValue(v))
	}
	return r
}

// balanceIs publishes the table anew, with rows and balance as a static column, or without.
func (r *madeRig) balanceIs(static bool) {
	primary := []string{"id"}
	if static {
		primary = []string{"id", "c"}
	}
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{
		Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: primary, Settings: catalog.Settings{Unlocked: catalog.Auto},
		Columns: map[string]catalog.Column{
			"id": {Name: "id", Type: "text"}, "c": {Name: "c", Type: "int", Clustering: true}, "balance": {Name: "balance", Type: "bigint", Static: static}, "n": {Name: "n", Type: "int", Static: static},
		},
	})
}

// execute sends the client's statement.
func (r *madeRig) execute() {
	r.client.t.Helper()
	r.client.send(1, &message.Execute{QueryId: r.id, ResultMetadataId: []byte("result metadata!"), Options: &message.QueryOptions{PositionalValues: r.values}})
}

// prepares has the node prepare this text.
func (r *madeRig) prepares(text string) {
	r.backend.t.Helper()
	require.Equal(r.backend.t, text, r.backend.answer(1).(*message.Prepare).Query)
	r.backend.send(1, preparedAs(idOf(text)))
}

// executes has the node answer the EXECUTE of this text.
func (r *madeRig) executes(text string, answer message.Message) *message.QueryOptions {
	r.backend.t.Helper()
	sent := r.backend.answer(1).(*message.Execute)
	require.Equal(r.backend.t, idOf(text), sent.QueryId, text)
	if r.backend.version >= v5 {
		require.Equal(r.backend.t, "result metadata!", string(sent.ResultMetadataId))
	}
	r.backend.send(1, answer)
	return sent.Options
}

// reads has the node answer a QUERY of this text.
func (r *madeRig) reads(text string, answer message.Message) *message.QueryOptions {
	r.backend.t.Helper()
	sent := r.backend.answer(1).(*message.Query)
	require.Equal(r.backend.t, text, sent.Query)
	r.backend.send(1, answer)
	return sent.Options
}

// applied reports whether the client's write was.
func (r *madeRig) applied(want bool) {
	r.client.t.Helper()
	require.Equal(r.client.t, boolean(want), r.client.answer(1).(*message.RowsResult).Data[0][0])
}

// forgotten is the answer to an EXECUTE of a text that the node does not know.
func forgotten(text string) *message.Unprepared {
	return &message.Unprepared{ErrorMessage: "what?", Id: idOf(text)}
}

// What the proxy sends for a prepared write with IF is prepared once, before a lock is taken, and executed from then on. When Cassandra has
// forgotten it, in the middle of a section, that section goes on with the text, and the next one prepares it again: no client hears of it.
func TestAConditionAloneIsPrepared(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		g := newGrantingLocks()
		r := newMadeRig(t, d, g, conditionalUpdate, []byte{0, 0, 0, 1}, []byte("x"), bigint(10))
		section := func(sent func()) {
			t.Helper()
			sent()
			r.applied(true)
			assert.Equal(t, <-g.locked, musiccore.Key{PK: "x"})
			assert.EqualValues(t, 9, <-g.unlocked)
		}
		executed := func() {
			read := r.executes(readOfUpdate, balances(bigint(10)))
			assert.Equal(t, primitive.ConsistencyLevelQuorum, read.Consistency)
			assert.Equal(t, r.values[1:2], read.PositionalValues)
			write := r.executes(writeOfUpdate, &message.VoidResult{})
			assert.Equal(t, primitive.ConsistencyLevelQuorum, write.Consistency)
			assert.Equal(t, r.values[:2], write.PositionalValues)
			assert.EqualValues(t, 1000, *write.DefaultTimestamp)
		}
		section(func() {
			r.execute()
			r.prepares(readOfUpdate)
			assert.Empty(t, g.locked, "before the lock")
			r.prepares(writeOfUpdate)
			executed()
		})
		section(func() { r.execute(); executed() })
		section(func() {
			r.execute()
			r.executes(readOfUpdate, forgotten(readOfUpdate))
			read := r.reads(readOfUpdate, balances(bigint(10)))
			assert.Equal(t, primitive.ConsistencyLevelQuorum, read.Consistency)
			r.executes(writeOfUpdate, forgotten(writeOfUpdate))
			assert.Empty(t, g.unlocked, "the section goes on")
			write := r.reads(writeOfUpdate, &message.VoidResult{})
			assert.Equal(t, r.values[:2], write.PositionalValues)
			assert.EqualValues(t, 1000, *write.DefaultTimestamp)
		})
		section(func() { r.execute(); r.prepares(readOfUpdate); r.prepares(writeOfUpdate); executed() })
		r.execute()
		r.executes(readOfUpdate, balances(bigint(9)))
		r.applied(false)
	})
}

// A table that changes between two sections, so that something else has to be sent, has that prepared.
func TestWhatIsPreparedFollowsTheTable(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newMadeRig(t, d, newGrantingLocks(), conditionalUpdate, []byte{0, 0, 0, 1}, []byte("x"), bigint(10))
		const distinct = `SELECT DISTINCT "balance", "id" FROM "bank"."accounts" WHERE "id" = ?`
		for i, static := range []bool{false, true, true, false} {
			r.balanceIs(static)
			r.execute()
			text := readOfUpdate
			if static {
				text = distinct
			}
			if i < 2 {
				r.prepares(text)
			}
			if i == 0 {
				r.prepares(writeOfUpdate)
			}
			r.executes(text, balances(bigint(10)))
			r.executes(writeOfUpdate, &message.VoidResult{})
			r.applied(true)
		}
	})
}

// What Cassandra does not prepare is sent as text, and Cassandra's answer to that is the client's.
func TestWhatCannotBePreparedGoesAsText(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newMadeRig(t, d, newGrantingLocks(), conditionalUpdate, []byte{0, 0, 0, 1}, []byte("x"), bigint(10))
		r.execute()
		for range 2 {
			assert.IsType(t, &message.Prepare{}, r.backend.answer(1))
			r.backend.send(1, &message.Overloaded{ErrorMessage: "not now"})
		}
		r.reads(readOfUpdate, balances(bigint(10)))
		r.reads(writeOfUpdate, &message.Unavailable{ErrorMessage: "nobody there", Consistency: primitive.ConsistencyLevelQuorum})
		assert.Contains(t, r.client.failure(1).GetErrorMessage(), "nobody there")
	})
}

// A new key is written by one statement, which makes its fence. When Cassandra has forgotten that, the key is read: it can be the first
// operation of a section only.
func TestANewKeysWriteIsPrepared(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		g := &emptyKeyLocks{newGrantingLocks(), make(chan musiccore.Kind, 9)}
		r := newMadeRig(t, d, g, conditionalInsert, []byte("x"), []byte{0, 0, 0, 1})
		r.execute()
		r.prepares(readOfInsert)
		r.prepares(writeOfInsert)
		r.prepares(fencedInsert)
		sent := r.executes(fencedInsert, &message.VoidResult{})
		assert.Equal(t, bigint(999), sent.PositionalValues[0].Contents, "below the stamp of the write")
		assert.EqualValues(t, 1000, *sent.DefaultTimestamp)
		assert.Equal(t, r.values[0], sent.PositionalValues[1])
		r.applied(true)
		assert.Equal(t, musiccore.FencedPut, <-g.begun)
		assert.EqualValues(t, 9, <-g.unlocked)

		r.execute()
		r.executes(fencedInsert, forgotten(fencedInsert))
		r.executes(readOfInsert, balances())
		r.executes(writeOfInsert, &message.VoidResult{})
		r.applied(true)
		for _, kind := range []musiccore.Kind{musiccore.FencedPut, musiccore.Get, musiccore.Put} {
			assert.Equal(t, kind, <-g.begun)
		}
		assert.EqualValues(t, 9, <-g.unlocked)
	})
}

// A section whose lock is lost when Cassandra turns out to have forgotten its statement sends nothing more.
func TestWhatIsForgottenIsNotSentWithoutItsLock(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		g := &losingLocks{grantingLocks: newGrantingLocks()}
		r := newMadeRig(t, d, g, conditionalUpdate, []byte{0, 0, 0, 1}, []byte("x"), bigint(10))
		r.execute()
		r.prepares(readOfUpdate)
		r.prepares(writeOfUpdate)
		r.executes(readOfUpdate, balances(bigint(10)))
		require.Equal(t, idOf(writeOfUpdate), r.backend.answer(1).(*message.Execute).QueryId)
		g.lost.Store(true)
		r.backend.send(1, forgotten(writeOfUpdate))
		assert.Contains(t, r.client.failure(1).GetErrorMessage(), "MUSIC_UNAVAILABLE: bank.accounts: the write came too late")
		assert.EqualValues(t, 9, <-g.unlocked)
		r.backend.silent()
	})
}

// If the answer to what the proxy asks for a request cannot be read, the request is answered like all others when the connection ends.
func TestAnIDThatCannotBeRead(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		y := madeRigOf(t, d, func(o *Options) { o.Locks = newGrantingLocks() }, conditionalUpdate, number(1), []byte("x"), number(2))
		y.execute()
		y.backend.answer(1)
		y.backend.write(y.backend.framed(wire.ResponseEnvelope(byte(d.version), 1, primitive.OpCodeResult, []byte{0, 0, 0, 4, 0, 99})))
		backendLost(y.client, 1)
	})
}
