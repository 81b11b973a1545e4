package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// twinTables are a critical table, whose key is locked, and an ordinary one with the same columns.
type twinTables struct {
	*tableFixture
	b   *attacker
	ref int64
}

// both sends something to either table and returns the answers; the critical table's name is
// replaced in its answer.
func (w *twinTables) both(ask func(say func(string) string) (message.Message, *failure)) (want, got string) {
	w.t.Helper()
	tell := func(m message.Message, f *failure) string {
		switch m := m.(type) {
		case *message.RowsResult:
			return fmt.Sprintf("%q %x", declared(m.Metadata.Columns), m.Data)
		case *message.PreparedResult:
			return fmt.Sprintf("%q %v %q", declared(m.VariablesMetadata.Columns), m.VariablesMetadata.PkIndices, declared(m.ResultMetadata.Columns))
		}
		return fmt.Sprint(m, f)
	}
	twin := strings.NewReplacer("TABLE", w.keyspace+".twin", " LOCKED", "")
	locked := strings.NewReplacer("TABLE", w.keyspace+".locked", "LOCKED", fmt.Sprintf("USING LOCK %d", w.ref))
	want = tell(ask(twin.Replace))
	return want, strings.ReplaceAll(tell(ask(locked.Replace)), "locked", "twin")
}

// Conditions look the same on the wire, too: what PREPARE declares, values bound by name, and BATCH
// messages.
func TestConditionsOnTheWire(t *testing.T) {
	s := newTableFixture(t, "section_wire", "@critical")
	const columns = " (k text, c int, a int, m map<text, int>, li list<int>, st int static, PRIMARY KEY (k, c))"
	s.works(s.client, "CREATE TABLE "+s.keyspace+".locked"+columns+" WITH comment = '@critical'")
	s.works(s.client, "CREATE TABLE "+s.keyspace+".twin"+columns)
	ref := s.grant(s.works(s.client, "LOCK "+s.keyspace+".locked WHERE k = 'key'"), "HELD")
	applied := 0
	for _, version := range []primitive.ProtocolVersion{primitive.ProtocolVersion3, primitive.ProtocolVersion4, primitive.ProtocolVersion5} {
		w := &twinTables{tableFixture: s, b: s.onWire(t, version), ref: ref}
		w.preparedAlike(t)
		w.namedAlike(t)
		applied += w.batchedAlike(t)
	}
	assert.Positive(t, applied, "not all batches were refused")
}

// preparedAlike compares what PREPARE declares, by which drivers bind.
func (w *twinTables) preparedAlike(t *testing.T) {
	for _, text := range []string{
		"UPDATE TABLE LOCKED SET a = ? WHERE k = ? AND c = ? IF m[?] = ? AND li[?] IN ? AND a IN (?, ?)", "INSERT INTO TABLE (c, k, a) VALUES (?, ?, ?) IF NOT EXISTS LOCKED",
		"DELETE FROM TABLE LOCKED WHERE c = ? AND k = :key IF a > :a", "UPDATE TABLE LOCKED SET st = ? WHERE k = ? IF st IN ? AND st != ?",
		"BEGIN BATCH LOCKED UPDATE TABLE SET a = ? WHERE k = ? AND c = ? IF m = ?; DELETE FROM TABLE WHERE k = ? AND c = ? IF EXISTS; APPLY BATCH",
	} {
		want, got := w.both(func(say func(string) string) (message.Message, *failure) {
			return w.b.ask(&message.Prepare{Query: say(text)})
		})
		assert.Equal(t, want, got, text)
	}
}

// namedAlike binds by name: one value for a name that is used several times.
func (w *twinTables) namedAlike(t *testing.T) {
	for _, text := range []string{
		"UPDATE TABLE LOCKED SET a = :n WHERE k = :key AND c = :n IF a = null AND li = null", "UPDATE TABLE LOCKED SET a = :n WHERE k = :key AND c = :n IF a = :n AND m[:key] != :n",
		"BEGIN BATCH LOCKED UPDATE TABLE SET a = :n WHERE k = :key AND c = :n IF a != :n; UPDATE TABLE SET st = :n WHERE k = :key; APPLY BATCH",
	} {
		values := map[string]*primitive.Value{"key": {Type: primitive.ValueTypeRegular, Contents: []byte("key")}, "n": short(3)}
		want, got := w.both(func(say func(string) string) (message.Message, *failure) {
			return w.b.ask(&message.Query{Query: say(text), Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne, NamedValues: values}})
		})
		assert.Equal(t, want, got, text)
		assert.Contains(t, want, "[applied]")
	}
}

// batchedAlike sends BATCH messages of texts and of prepared statements, and compares what they
// leave. It returns how many were applied.
func (w *twinTables) batchedAlike(t *testing.T) (applied int) {
	const insert, update = "INSERT INTO TABLE (k, c, a) VALUES (?, ?, ?) IF NOT EXISTS LOCKED", "UPDATE TABLE LOCKED SET a = ? WHERE k = 'key' AND c = ? IF a = ?"
	const plain, static = "UPDATE TABLE LOCKED SET m = {'x': 1} WHERE k = ? AND c = ?", "UPDATE TABLE LOCKED SET st = 1 WHERE k = 'key' IF st = null"
	for _, kind := range []primitive.BatchType{primitive.BatchTypeLogged, primitive.BatchTypeUnlogged} {
		for prepared := range 4 {
			for n := range int32(3) {
				key := text("key")
				parts := []*message.BatchChild{
					{Query: insert, Values: []*primitive.Value{key, short(10 + n), short(n)}},
					{Query: update, Values: []*primitive.Value{short(n + 1), short(10 + n), short(n)}},
					{Query: plain, Values: []*primitive.Value{key, short(n)}},
					{Query: static},
				}[n:]
				want, got := w.both(func(say func(string) string) (message.Message, *failure) {
					m := &message.Batch{Type: kind, Consistency: primitive.ConsistencyLevelOne}
					for i, part := range parts {
						child := &message.BatchChild{Query: say(part.Query), Values: part.Values}
						if prepared&(1<<(i%2)) != 0 {
							id, _, f := w.b.prepare(child.Query, "")
							require.Nil(t, f, child.Query)
							child = &message.BatchChild{Id: id, Values: part.Values}
						}
						m.Children = append(m.Children, child)
					}
					return w.b.ask(m)
				})
				assert.Equal(t, want, got, "%v %d %d", kind, prepared, n)
				if strings.HasSuffix(want, "[[01]]") {
					applied++
				}
			}
		}
	}
	want, got := w.both(func(say func(string) string) (message.Message, *failure) {
		return w.b.ask(&message.Query{Query: say("SELECT * FROM TABLE WHERE k = 'key'"), Options: w.b.options(nil)})
	})
	assert.Equal(t, want, got)
	return applied
}
