package frontend

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// conditionRig is a client of a table with a key of one column.
func conditionRig(t *testing.T, d dialect) (*rig, *peer, *peer) {
	t.Helper()
	r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{
		Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"},
		Columns: map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "balance": {Name: "balance", Type: "bigint"}, "n": {Name: "n", Type: "int"}},
	})
	client, backend := r.login(d)
	return r, client, backend
}

// balances is the answer to the read of a condition.
func balances(values ...[]byte) *message.RowsResult {
	m := &message.RowsMetadata{ColumnCount: 1, Columns: []*message.ColumnMetadata{{Keyspace: "bank", Table: "accounts", Name: "balance", Type: datatype.Bigint}}}
	data := message.RowSet{}
	for _, v := range values {
		data = append(data, message.Row{v})
	}
	return &message.RowsResult{Metadata: m, Data: data}
}

// A prepared write with IF becomes a read and, where the condition holds, the write without it: on the table that it was prepared for,
// whatever keyspace the connection stands in, and each with the values that belong to it.
func TestConditionIsReadThenWritten(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r, client, backend := conditionRig(t, d)
		relayed(client, backend, 1, query("USE bank"), &message.SetKeyspaceResult{Keyspace: "bank"})
		const text = "UPDATE accounts USING LOCK ? AND TTL ? SET n = ? WHERE id = ? IF balance >= ? AND balance != ?"
		client.send(1, &message.Prepare{Query: text})
		assert.Equal(t, "UPDATE accounts USING  TTL ? SET n = ? WHERE id = ? IF balance >= ? AND balance != ?", backend.answer(1).(*message.Prepare).Query)
		backend.send(1, preparedAs(idOf("x")))
		id := client.answer(1).(*message.PreparedResult).PreparedQueryId
		relayed(client, backend, 1, query("USE elsewhere"), &message.SetKeyspaceResult{Keyspace: "elsewhere"})
		var values []*primitive.Value
		for _, v := range [][]byte{bigint(7), {0, 0, 0, 60}, {0, 0, 0, 1}, []byte("x"), bigint(10), bigint(12)} {
			values = append(values, primitive.NewValue(v))
		}
		made := [][]byte{idOf("the read"), idOf("the write")}
		for _, balance := range []int64{10, 12, 9} {
			client.send(1, &message.Execute{QueryId: id, ResultMetadataId: []byte("result metadata!"), Options: &message.QueryOptions{PositionalValues: values, SkipMetadata: true, PageSize: 5}})
			if balance == 10 {
				for i, text := range []string{`SELECT "balance" FROM "bank"."accounts" WHERE "id" = ?`, `UPDATE "bank".accounts  USING TTL ?  SET n = ? WHERE id = ? `} {
					assert.Equal(t, text, backend.answer(1).(*message.Prepare).Query)
					backend.send(1, preparedAs(made[i]))
				}
			}
			read := backend.answer(1).(*message.Execute)
			assert.Equal(t, made[0], read.QueryId)
			assert.Equal(t, values[3:4], read.Options.PositionalValues)
			assert.Equal(t, primitive.ConsistencyLevelQuorum, read.Options.Consistency)
			backend.send(1, balances(bigint(balance)))
			if balance == 10 {
				write := backend.answer(1).(*message.Execute)
				assert.Equal(t, made[1], write.QueryId)
				assert.Equal(t, values[1:4], write.Options.PositionalValues)
				assert.EqualValues(t, 1000, *write.Options.DefaultTimestamp)
				backend.send(1, &message.VoidResult{})
			}
			got := client.answer(1).(*message.RowsResult)
			assert.Equal(t, boolean(balance == 10), got.Data[0][0])
			assert.Equal(t, "[applied]", got.Metadata.Columns[0].Name)
			if balance != 10 {
				assert.Equal(t, bigint(balance), got.Data[0][1])
			}
		}
		_ = r
	})
}

// Conditional writes of a key are done one at a time, whichever clients send them; one whose client
// disconnects meanwhile is passed over.
func TestConditionsOfAKeyTakeTurns(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r, first, firstBackend := conditionRig(t, d)
		second, secondBackend := r.login(d)
		q := query("UPDATE bank.accounts USING LOCK 9 SET balance = 1 WHERE id = 'x' IF balance = null")
		first.send(1, q)
		firstBackend.answer(1)
		second.send(1, q)
		relayed(second, secondBackend, 2, query("SELECT a FROM b.c"), rows(nil)) // the other waits, its connection goes on
		other := query("UPDATE bank.accounts USING LOCK 9 SET balance = 1 WHERE id = 'y' IF balance = null")
		second.send(3, other)
		secondBackend.answer(3) // another key does not wait
		require.NoError(t, first.Close())
		secondBackend.answer(1)
		secondBackend.send(1, &message.ReadTimeout{ErrorMessage: "too slow", Consistency: primitive.ConsistencyLevelQuorum})
		second.failure(1)
		second.send(1, q)
		secondBackend.answer(1)
		secondBackend.send(1, balances())
		secondBackend.answer(1)
		secondBackend.send(1, &message.WriteTimeout{ErrorMessage: "too slow", Consistency: primitive.ConsistencyLevelQuorum, WriteType: primitive.WriteTypeSimple})
		second.failure(1)
		second.send(1, q)
		assert.Contains(t, secondBackend.answer(1).(*message.Query).Query, "SELECT", "an error gives the turn on too")
	})
}

// A lock that is lost between the read and the write is told, and nothing is written.
func TestConditionWhoseLockIsLost(t *testing.T) {
	g := newGrantingLocks()
	r := newRig(t, func(o *Options) { o.Locks = g })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{
		Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}, Columns: map[string]catalog.Column{"balance": {Name: "balance", Type: "bigint"}},
	})
	client, backend := r.login(dialect{version: v4})
	g.verdict = musiccore.VerdictLost
	client.send(1, query("UPDATE bank.accounts USING LOCK 9 SET balance = 1 WHERE id = 'x' IF balance = null"))
	backend.answer(1)
	backend.send(1, balances())
	assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_LOST")
	backend.silent()
}

// Of a table that is decided within one data centre, a condition is read and written there too: a quorum of all would not have to meet what
// was written at one of them.
func TestConditionWithinOneDataCentre(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{
		Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}, Columns: map[string]catalog.Column{"balance": {Name: "balance", Type: "bigint"}},
		Settings: catalog.Settings{Local: true},
	})
	client, backend := r.login(dialect{version: v4})
	client.send(1, query("UPDATE bank.accounts USING LOCK 9 SET balance = 1 WHERE id = 'x' IF balance = null"))
	assert.Equal(t, primitive.ConsistencyLevelLocalQuorum, backend.answer(1).(*message.Query).Options.Consistency)
	backend.send(1, balances())
	assert.Equal(t, primitive.ConsistencyLevelLocalQuorum, backend.answer(1).(*message.Query).Options.Consistency)
	backend.send(1, &message.VoidResult{})
	client.answer(1)
}

// A lock on a row does not cover the static columns of its partition: a condition on them is none of its holder's.
func TestConditionOnAStaticColumnUnderALockOnARow(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
	key := []catalog.Column{{Name: "id", Type: "text"}, {Name: "c", Type: "int", Clustering: true}}
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{
		Key: key, Primary: []string{"c", "id"}, Static: []string{"st"}, Settings: catalog.Settings{Row: true},
		Columns: map[string]catalog.Column{"st": {Name: "st", Type: "int", Static: true}, "v": {Name: "v", Type: "int"}},
	})
	client, backend := r.login(dialect{version: v4})
	client.send(1, query("UPDATE bank.accounts USING LOCK 9 SET v = 1 WHERE id = 'x' AND c = 1 IF st = 1"))
	assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_REFUSED: bank.accounts is critical: one lock covers one row of it, and static columns belong to all rows")
	backend.silent()
}

// What Cassandra says beside its last answer is told beside ours: the id of the trace and the warnings.
func TestConditionKeepsTraceAndWarnings(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		if d.version < v4 {
			return // no warnings
		}
		_, client, backend := conditionRig(t, d)
		id := &primitive.UUID{1, 2, 3}
		dress := func(f *frame.Frame) {
			f.SetWarnings([]string{"too many tombstones"})
			f.Header.Flags = f.Header.Flags.Add(primitive.HeaderFlagTracing)
			f.Body.TracingId = id
		}
		for _, balance := range []int64{1, 2} {
			client.send(1, query("UPDATE bank.accounts USING LOCK 9 SET balance = 1 WHERE id = 'x' IF balance = 1"))
			backend.answer(1)
			if balance == 1 {
				backend.send(1, balances(bigint(1)))
				backend.answer(1)
				backend.send(1, &message.VoidResult{}, dress)
			} else {
				backend.send(1, balances(bigint(2)), dress)
			}
			got := client.next()
			assert.Equal(t, id, got.Body.TracingId)
			assert.Equal(t, []string{"too many tombstones"}, got.Body.Warnings)
			assert.Equal(t, boolean(balance == 1), got.Body.Message.(*message.RowsResult).Data[0][0])
		}
	})
}
