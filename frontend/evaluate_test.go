package frontend

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
)

// questioned is one row of values, as Cassandra answers a question.
func questioned(values ...[]byte) *message.RowsResult {
	columns := make([]*message.ColumnMetadata, len(values))
	for i := range columns {
		columns[i] = &message.ColumnMetadata{Name: "v", Type: datatype.Blob}
	}
	return &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: int32(len(values)), Columns: columns}, Data: message.RowSet{values}}
}

// evaluatingRig is a rig with the table bank.texts, whose writes have sections of their own.
func evaluatingRig(t *testing.T) (*rig, *grantingLocks) {
	g := newGrantingLocks()
	r := newRig(t, func(o *Options) { o.Locks = g })
	columns := map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "n": {Name: "n", Type: "int"}, "m": {Name: "m", Type: "map<text, int>"}, "p": {Name: "p", Type: "frozen<pair>"}}
	r.server.Tables.Set("bank", "texts", &catalog.Critical{Key: []catalog.Column{columns["id"]}, Primary: []string{"id"}, Columns: columns, Settings: catalog.Settings{Unlocked: catalog.Auto}})
	return r, g
}

// What only Cassandra can evaluate is asked once, before the lock is taken: the key that is locked is the key that is written, and the
// values of the statement keep their places.
func TestKeysThatCassandraEvaluates(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r, g := evaluatingRig(t)
		client, backend := r.login(d)
		const text = "INSERT INTO bank.texts (n, id, m) VALUES (?, f(?, 'a') + 'b', {'x': ?}) USING TTL ?"
		values := []*primitive.Value{primitive.NewValue(number(1)), primitive.NewValue([]byte("2")), primitive.NewValue(number(3)), primitive.NewValue(number(4))}
		q, x := query(text), execute(r.prepare(client, backend, text), nil)
		q.Options.PositionalValues, x.Options.PositionalValues = values, values
		for _, m := range []message.Message{q, x, x, &message.Batch{Children: []*message.BatchChild{{Query: text, Values: values}}}, &message.Batch{Children: []*message.BatchChild{{Id: x.QueryId, Values: values}}}} {
			client.send(1, m)
			asked := backend.answer(1).(*message.Query)
			assert.Equal(t, "SELECT (text) (f(?, 'a') + (text) 'b') FROM system.local", asked.Query)
			assert.Equal(t, values[1:2], asked.Options.PositionalValues)
			assert.Empty(t, g.locked)
			backend.send(1, questioned([]byte("key")))
			sent, got := "", []*primitive.Value(nil)
			switch w := backend.answer(1).(type) {
			case *message.Query:
				sent, got = w.Query, w.Options.PositionalValues
			case *message.Batch:
				sent, got = w.Children[0].Query, w.Children[0].Values
			}
			assert.Regexp(t, `VALUES \(\?,  \? , {'x': \?}\)`, sent)
			assert.Equal(t, []*primitive.Value{values[0], primitive.NewValue([]byte("key")), values[2], values[3]}, got)
			assert.Equal(t, "key", (<-g.locked).PK)
			backend.send(1, &message.VoidResult{})
			assert.IsType(t, &message.VoidResult{}, client.answer(1))
			<-g.unlocked
		}
	})
}

// All statements of a batch are asked about at once.
func TestBatchesThatCassandraEvaluates(t *testing.T) {
	r, g := evaluatingRig(t)
	client, backend := r.login(dialect{version: v4})
	const one, two = "UPDATE bank.texts SET n = 1 WHERE id = f() IF m[g(1)] = 1 + 1", "DELETE FROM bank.texts WHERE id = f()"
	answer := func(text string, values ...[]byte) {
		assert.Equal(t, text, backend.answer(1).(*message.Query).Query)
		backend.send(1, questioned(values...))
	}
	client.send(1, query("BEGIN BATCH "+one+"; "+two+"; APPLY BATCH"))
	answer("SELECT (text) (f()), (text) (g(1)), (int) ((int) 1 + (int) 1), (text) (f()) FROM system.local", []byte("a"), []byte("b"), number(2), []byte("a"))
	assert.Equal(t, "a", (<-g.locked).PK)
	assert.Contains(t, backend.answer(1).(*message.Query).Query, "SELECT")
	read := questioned([]byte("a"), nil)
	read.Metadata.Columns = []*message.ColumnMetadata{{Name: "id", Type: datatype.Varchar}, {Name: "m", Type: datatype.NewMap(datatype.Varchar, datatype.Int)}}
	backend.send(1, read)
	require.Equal(t, boolean(false), client.answer(1).(*message.RowsResult).Data[0][0])
	<-g.unlocked
	client.send(1, &message.Batch{Children: []*message.BatchChild{{Query: two}, {Query: "DELETE FROM bank.texts WHERE id = 'a'"}, {Query: two}}})
	answer("SELECT (text) (f()), (text) (f()) FROM system.local", []byte("a"), []byte("a"))
	assert.Equal(t, "a", (<-g.locked).PK)
	assert.Len(t, backend.answer(1).(*message.Batch).Children, 3)
	backend.send(1, &message.VoidResult{})
	client.answer(1)
	<-g.unlocked
}

// A batch of many statements takes a few questions, not one for each.
func TestALargeBatchIsAskedAboutInFewQuestions(t *testing.T) {
	const statements, values = 5000, 20
	r, g := evaluatingRig(t)
	client, backend := r.login(dialect{version: v4})
	m := &message.Batch{}
	for i := range statements {
		child := &message.BatchChild{Query: "UPDATE bank.texts SET n = 1 WHERE id = f(" + strings.Repeat("?, ", values-1) + "?)"}
		for range values {
			child.Values = append(child.Values, primitive.NewValue(number(int32(i))))
		}
		m.Children = append(m.Children, child)
	}
	client.send(1, m)
	for questions := 1; ; questions++ {
		q, ok := backend.answer(1).(*message.Query)
		if !ok {
			break
		}
		require.LessOrEqual(t, questions, 10)
		of := make([][]byte, strings.Count(q.Query, "f("))
		for i := range of {
			of[i] = []byte("a")
		}
		assert.Len(t, q.Options.PositionalValues, values*len(of))
		backend.send(1, questioned(of...))
	}
	assert.Equal(t, "a", (<-g.locked).PK)
	backend.send(1, &message.VoidResult{})
	client.answer(1)
	<-g.unlocked
}

// A write whose terms Cassandra does not evaluate takes no lock, and its client has Cassandra's error.
func TestValuesThatCassandraDoesNotEvaluate(t *testing.T) {
	r, g := evaluatingRig(t)
	client, backend := r.login(dialect{version: v4})
	for answer, says := range map[message.Message]string{
		&message.Invalid{ErrorMessage: "Unknown function f called"}: "Unknown function f called",
		&message.Overloaded{ErrorMessage: "later"}:                  "later",
		&message.VoidResult{}:                                       "MUSIC_REFUSED: Cassandra has not evaluated",
		questioned(nil):                                             "MUSIC_KEY: the value bound to id is null",
		&message.RowsResult{Metadata: questioned(nil).Metadata}:     "MUSIC_REFUSED: Cassandra has not evaluated",
	} {
		client.send(1, query("DELETE FROM bank.texts WHERE id = f()"))
		backend.answer(1)
		backend.send(1, answer)
		assert.Contains(t, client.failure(1).GetErrorMessage(), says)
	}
	for _, condition := range []string{"p = f()", "p = {f: 1 + 1}", "p.f = 1 + 1"} { // no SELECT of system.local can name a user-defined type
		client.send(1, query("UPDATE bank.texts SET n = 1 WHERE id = 'x' IF "+condition))
		assert.Contains(t, client.failure(1).GetErrorMessage(), "cannot be evaluated before the write", condition)
	}
	backend.silent()
	assert.Empty(t, g.locked)
}
