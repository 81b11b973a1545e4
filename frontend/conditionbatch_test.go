package frontend

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
)

// rowsRig is a client of a table with several rows to a partition, and static columns.
func rowsRig(t *testing.T, d dialect) (client, backend *peer) {
	t.Helper()
	r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{
		Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id", "c"}, Static: []string{"st"},
		Columns: map[string]catalog.Column{
			"id": {Name: "id", Type: "text"}, "c": {Name: "c", Type: "int", Clustering: true}, "st": {Name: "st", Type: "int", Static: true}, "v": {Name: "v", Type: "int"},
		},
	})
	return r.login(d)
}

// found is the answer to a read of columns, each an int but for id.
func found(columns []string, rows ...message.Row) *message.RowsResult {
	m := &message.RowsMetadata{ColumnCount: int32(len(columns))}
	for _, name := range columns {
		kind := datatype.DataType(datatype.Int)
		if name == "id" {
			kind = datatype.Varchar
		}
		m.Columns = append(m.Columns, &message.ColumnMetadata{Keyspace: "bank", Table: "accounts", Name: name, Type: kind})
	}
	return &message.RowsResult{Metadata: m, Data: append(message.RowSet{}, rows...)}
}

// number is an int in wire form.
func number(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// A BATCH message whose statements have conditions becomes one read of all rows that they name, and the same message without conditions.
func TestConditionsInABatchMessage(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		client, backend := rowsRig(t, d)
		client.send(1, &message.Prepare{Query: "UPDATE bank.accounts USING LOCK ? SET v = ? WHERE id = ? AND c = ?"})
		backend.answer(1)
		backend.send(1, preparedAs(idOf("x")))
		id := client.answer(1).(*message.PreparedResult).PreparedQueryId
		batch := &message.Batch{Type: primitive.BatchTypeUnlogged, Consistency: primitive.ConsistencyLevelOne, Children: []*message.BatchChild{
			{Query: "UPDATE bank.accounts USING LOCK 9 SET v = 5 WHERE id = 'x' AND c = 1 IF v > ?", Values: []*primitive.Value{primitive.NewValue(number(3))}},
			{Id: id, Values: []*primitive.Value{primitive.NewValue(bigint(9)), primitive.NewValue(number(7)), primitive.NewValue([]byte("x")), primitive.NewValue(number(3))}},
			{Query: "DELETE FROM bank.accounts USING LOCK 9 WHERE id = 'x' AND c = ? IF v = 2", Values: []*primitive.Value{primitive.NewValue(number(2))}},
		}}
		for _, second := range []int32{2, 1} {
			client.send(1, batch)
			read := backend.answer(1).(*message.Query)
			assert.Equal(t, `SELECT "id", "c", "v" FROM "bank"."accounts" WHERE "id" = 'x' AND ("c") IN ((1), (?))`, read.Query)
			assert.Equal(t, []*primitive.Value{primitive.NewValue(number(2))}, read.Options.PositionalValues)
			backend.send(1, found([]string{"id", "c", "v"}, message.Row{[]byte("x"), number(1), number(4)}, message.Row{[]byte("x"), number(2), number(second)}))
			if second == 2 {
				write := backend.answer(1).(*message.Batch)
				assert.Equal(t, `UPDATE bank.accounts  SET v = 5 WHERE id = 'x' AND c = 1 `, write.Children[0].Query)
				assert.Empty(t, write.Children[0].Values)
				assert.Equal(t, idOf("x"), write.Children[1].Id)
				assert.Len(t, write.Children[1].Values, 3)
				assert.Equal(t, `DELETE FROM bank.accounts  WHERE id = 'x' AND c = ? `, write.Children[2].Query)
				assert.EqualValues(t, 1000, *write.DefaultTimestamp)
				assert.Equal(t, primitive.ConsistencyLevelQuorum, write.Consistency)
				backend.send(1, &message.VoidResult{})
			}
			got := client.answer(1).(*message.RowsResult)
			if second == 2 {
				assert.Equal(t, message.RowSet{{boolean(true)}}, got.Data)
				continue
			}
			assert.Equal(t, message.RowSet{{boolean(false), []byte("x"), number(1), number(4)}, {boolean(false), []byte("x"), number(2), number(1)}}, got.Data)
		}
	})
}

// The static columns of a partition are read by themselves where the row is not there, and told without another row's values.
func TestConditionOnAStaticColumnOfARowThatIsNotThere(t *testing.T) {
	client, backend := rowsRig(t, dialect{version: v4})
	columns := []string{"v", "st"}
	for _, static := range []int32{1, 2} {
		client.send(1, query("UPDATE bank.accounts USING LOCK 9 SET v = 5 WHERE id = 'x' AND c = 1 IF st = 1 AND v = null"))
		assert.Equal(t, `SELECT "v", "st" FROM "bank"."accounts" WHERE "id" = 'x' AND "c" = 1`, backend.answer(1).(*message.Query).Query)
		backend.send(1, found(columns))
		assert.Equal(t, `SELECT "v", "st" FROM "bank"."accounts" WHERE "id" = 'x' LIMIT 1`, backend.answer(1).(*message.Query).Query)
		backend.send(1, found(columns, message.Row{number(77), number(static)}))
		if static == 1 {
			assert.Contains(t, backend.answer(1).(*message.Query).Query, "UPDATE")
			backend.send(1, &message.VoidResult{})
			assert.Equal(t, message.RowSet{{boolean(true)}}, client.answer(1).(*message.RowsResult).Data)
			continue
		}
		assert.Equal(t, message.RowSet{{boolean(false), nil, number(2)}}, client.answer(1).(*message.RowsResult).Data)
	}
}

// Conditions of several statements on one row are one row's, and some do not go together.
func TestConditionsThatDoNotMix(t *testing.T) {
	client, backend := rowsRig(t, dialect{version: v4})
	const insert, delete = "INSERT INTO bank.accounts (id, c) VALUES ('x', 1) IF NOT EXISTS", "DELETE FROM bank.accounts WHERE id = 'x' AND c = 1 IF EXISTS"
	const update, in = "UPDATE bank.accounts SET v = 1 WHERE id = 'x' AND c = 1 IF v = 1", "UPDATE bank.accounts SET v = 1 WHERE id = 'x' AND c IN (1, 2)"
	const deleted = "MUSIC_REFUSED: bank.accounts is critical: a batch with IF that also writes rows must name the rows that it deletes by column = value"
	for text, want := range map[string]string{
		insert + "; " + delete: "Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row",
		update + "; " + delete: "Cannot mix IF conditions and IF EXISTS for the same row",
		update + "; " + insert: "Cannot mix IF conditions and IF NOT EXISTS for the same row",
		insert + "; " + update: "Cannot mix IF conditions and IF NOT EXISTS for the same row",
		update + "; DELETE FROM bank.accounts WHERE id = 'x' AND (c) = (1)": deleted,
		update + "; DELETE FROM bank.accounts WHERE id = 'x' AND (c = 1)":   deleted,
		update + "; " + in: "IN on the clustering key columns is not supported with conditional updates",
	} {
		client.send(1, query("BEGIN BATCH USING LOCK 9 "+text+"; APPLY BATCH"))
		assert.Equal(t, want, client.failure(1).GetErrorMessage())
	}
	client.send(1, query("BEGIN BATCH USING LOCK 9 "+insert+" "+insert+" APPLY BATCH"))
	assert.Equal(t, `SELECT * FROM "bank"."accounts" WHERE "id" = 'x' AND "c" = 1`, backend.answer(1).(*message.Query).Query)
}

// A batch with IF may delete what it writes, as a lightweight transaction may: a deletion of rows that it does not name one by one is
// stamped one below the writes, which stay; a deletion of one row has the stamp of the writes, and hides them.
func TestABatchDeletesAndWrites(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		client, backend := rowsRig(t, d)
		const insert = "INSERT INTO bank.accounts (id, c, v) VALUES ('x', ?, 1) IF NOT EXISTS"
		for deletion, want := range map[string]string{
			"DELETE FROM bank.accounts WHERE id = 'x' AND c = 1": "DELETE FROM bank.accounts WHERE id = 'x' AND c = 1",
			"DELETE FROM bank.accounts WHERE id = 'x'":           "DELETE FROM bank.accounts USING TIMESTAMP 999  WHERE id = 'x'",
			"DELETE FROM bank.accounts WHERE id = 'x' AND c > 0": "DELETE FROM bank.accounts USING TIMESTAMP 999  WHERE id = 'x' AND c > 0",
			"DELETE st FROM bank.accounts WHERE id = 'x'":        "DELETE st FROM bank.accounts WHERE id = 'x'",
		} {
			one := []*primitive.Value{primitive.NewValue(number(1))}
			text := query("BEGIN BATCH USING LOCK 9 " + deletion + "; " + insert + "; APPLY BATCH")
			text.Options.PositionalValues = one
			locked := func(s string) string {
				return strings.Replace(s, "FROM bank.accounts", "FROM bank.accounts USING LOCK 9", 1)
			}
			children := []*message.BatchChild{{Query: locked(deletion)}, {Query: insert + " USING LOCK 9", Values: one}}
			for _, m := range []message.Message{text, &message.Batch{Children: children}} {
				client.send(1, m)
				assert.Contains(t, backend.answer(1).(*message.Query).Query, "SELECT * FROM")
				backend.send(1, found([]string{"id", "c", "v"}))
				switch sent := backend.answer(1).(type) {
				case *message.Query:
					assert.Contains(t, strings.ReplaceAll(sent.Query, " ", ""), strings.ReplaceAll("BEGIN BATCH "+want+"; INSERT", " ", ""))
					assert.EqualValues(t, 1000, *sent.Options.DefaultTimestamp)
					assert.Equal(t, one, sent.Options.PositionalValues)
				case *message.Batch:
					assert.Equal(t, strings.ReplaceAll(want, " ", ""), strings.ReplaceAll(sent.Children[0].Query, " ", ""))
					assert.EqualValues(t, 1000, *sent.DefaultTimestamp)
					assert.Equal(t, one, sent.Children[1].Values)
				}
				backend.send(1, &message.VoidResult{})
				assert.Equal(t, message.RowSet{{boolean(true)}}, client.answer(1).(*message.RowsResult).Data)
			}
		}
	})
}

// Rows that a batch names by values of which nobody here knows when they are equal are not told apart: a condition on one of them is not
// evaluated on another. One statement with IF has one row.
func TestRowsThatCannotBeToldApart(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{
		Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id", "c"},
		Columns: map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "c": {Name: "c", Type: "frozen<tuple<int, int>>", Clustering: true}, "v": {Name: "v", Type: "int"}},
	})
	client, backend := r.login(dialect{version: v4})
	const update = "UPDATE bank.accounts%s SET v = 1 WHERE id = 'x' AND c = ? IF v = 0"
	pair := func(n int32) *primitive.Value {
		return primitive.NewValue(append(append([]byte{0, 0, 0, 4}, number(n)...), append([]byte{0, 0, 0, 4}, number(n)...)...))
	}
	locked, bare := strings.Replace(update, "%s", " USING LOCK 9", 1), strings.Replace(update, "%s", "", 1)
	text := query("BEGIN BATCH USING LOCK 9 " + bare + "; " + bare + "; APPLY BATCH")
	text.Options.PositionalValues = []*primitive.Value{pair(1), pair(2)}
	children := []*message.BatchChild{{Query: locked, Values: []*primitive.Value{pair(1)}}, {Query: locked, Values: []*primitive.Value{pair(2)}}}
	for _, m := range []message.Message{text, &message.Batch{Children: children}} {
		client.send(1, m)
		assert.Equal(t, "MUSIC_REFUSED: bank.accounts is critical: in a batch with IF the proxy cannot tell rows apart by c, of type frozen<tuple<int, int>>: send one statement for each row", client.failure(1).GetErrorMessage())
	}
	one := query(locked)
	one.Options.PositionalValues = []*primitive.Value{pair(1)}
	client.send(1, one)
	assert.Equal(t, `SELECT "v" FROM "bank"."accounts" WHERE "id" = 'x' AND "c" = ?`, backend.answer(1).(*message.Query).Query)
}

// Cassandra refuses a write for what it writes before it looks at its condition. So where a condition does not hold, and the proxy does
// not know a column or does not read a literal, Cassandra is asked; nothing is asked for any other write.
func TestAConditionThatDoesNotHoldHidesNoError(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		client, backend := rowsRig(t, d)
		const end = " WHERE id = 'x' AND c = 1 IF v = 7"
		for text, asked := range map[string]string{
			"UPDATE bank.accounts USING LOCK 9 SET v = 5, st = null" + end:                      "",
			"UPDATE bank.accounts USING LOCK 9 SET v = v + 5" + end:                             "",
			"DELETE v FROM bank.accounts USING LOCK 9" + end:                                    "",
			"UPDATE bank.accounts USING LOCK 9 SET v = f(5)" + end:                              "",
			"UPDATE bank.accounts USING LOCK 9 SET v = 'five'" + end:                            "UPDATE bank.accounts SET v = 'five'" + end,
			"UPDATE bank.accounts USING LOCK 9 SET v = 5, nope = 5" + end:                       "UPDATE bank.accounts SET v = 5, nope = 5" + end,
			"DELETE nope FROM bank.accounts USING LOCK 9" + end:                                 "DELETE nope FROM bank.accounts" + end,
			"UPDATE bank.accounts USING LOCK 9 AND TTL 5 SET v = 1h" + end:                      "UPDATE bank.accounts USING TTL 5 SET v = 1h" + end,
			"BEGIN BATCH USING LOCK 9 UPDATE bank.accounts SET v = 0x05" + end + " APPLY BATCH": "UPDATE bank.accounts SET v = 0x05" + end,
		} {
			columns, row := []string{"v"}, message.Row{number(1)}
			if strings.HasPrefix(text, "BEGIN") {
				columns, row = []string{"id", "c", "v"}, message.Row{[]byte("x"), number(1), number(1)}
			}
			for _, valid := range []bool{true, false} {
				client.send(1, query(text))
				backend.answer(1)
				backend.send(1, found(columns, row))
				if asked != "" {
					sent := backend.answer(1).(*message.Prepare)
					assert.Equal(t, strings.Fields(asked), strings.Fields(sent.Query))
					if !valid {
						backend.send(1, &message.Invalid{ErrorMessage: "it is wrong"})
						assert.Equal(t, "it is wrong", client.failure(1).GetErrorMessage())
						continue
					}
					backend.send(1, preparedAs(idOf("x")))
				}
				assert.Equal(t, message.RowSet{append(message.Row{boolean(false)}, row...)}, client.answer(1).(*message.RowsResult).Data, text)
			}
		}
	})
}

// Of a BATCH message each statement that may be wrong is asked about, until one is.
func TestAConditionThatDoesNotHoldHidesNoErrorOfABatch(t *testing.T) {
	client, backend := rowsRig(t, dialect{version: v4})
	batch := &message.Batch{Children: []*message.BatchChild{
		{Query: "UPDATE bank.accounts USING LOCK 9 SET v = 1 WHERE id = 'x' AND c = 1 IF v = 7"},
		{Query: "INSERT INTO bank.accounts (id, c, a) VALUES ('x', 2, 5) USING LOCK 9"},
		{Query: "DELETE b FROM bank.accounts USING LOCK 9 WHERE id = 'x' AND c = 3"},
	}}
	for _, wrong := range []int{2, 3} {
		client.send(1, batch)
		backend.answer(1)
		backend.send(1, found([]string{"id", "c", "v"}))
		for i, text := range []string{"INSERT INTO bank.accounts (id, c, a) VALUES ('x', 2, 5)", "DELETE b FROM bank.accounts WHERE id = 'x' AND c = 3"} {
			assert.Equal(t, strings.Fields(text), strings.Fields(backend.answer(1).(*message.Prepare).Query))
			if i+1 == wrong {
				backend.send(1, &message.Invalid{ErrorMessage: "it is wrong"})
				break
			}
			backend.send(1, preparedAs(idOf("x")))
		}
		if wrong == 2 {
			assert.Equal(t, "it is wrong", client.failure(1).GetErrorMessage())
			continue
		}
		assert.Equal(t, message.RowSet{{boolean(false)}}, client.answer(1).(*message.RowsResult).Data)
	}
}
