package frontend

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
)

// With timestamp=ignore a statement goes out without its own timestamp and the value that is bound to it, whatever else stands in USING,
// however it comes, and with or without a lock. The client is told so once.
func TestTimestampsThatAreIgnored(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		g := newGrantingLocks()
		r := newRig(t, func(o *Options) { o.Locks = g })
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Settings: catalog.Settings{Unlocked: catalog.Auto, Ignore: true}})
		client, backend := r.login(d)
		told := 0
		five, nine, x := primitive.NewValue(bigint(5)), primitive.NewValue(bigint(9)), primitive.NewValue([]byte("x"))
		for _, c := range []struct {
			text, want   string
			values, left []*primitive.Value
		}{
			{"UPDATE bank.accounts USING TIMESTAMP 5 SET n = 1 WHERE id = ?", "UPDATE bank.accounts SET n = 1 WHERE id = ?", []*primitive.Value{x}, []*primitive.Value{x}},
			{"UPDATE bank.accounts USING TIMESTAMP ? SET n = 1 WHERE id = 'x'", "UPDATE bank.accounts SET n = 1 WHERE id = 'x'", []*primitive.Value{five}, nil},
			{"UPDATE bank.accounts USING TTL ? AND TIMESTAMP ? SET n = 1 WHERE id = ?", "UPDATE bank.accounts USING TTL ? SET n = 1 WHERE id = ?", []*primitive.Value{nine, five, x}, []*primitive.Value{nine, x}},
			{"UPDATE bank.accounts USING TIMESTAMP ? AND LOCK ? AND TTL 7 SET n = 1 WHERE id = ?", "UPDATE bank.accounts USING TTL 7 SET n = 1 WHERE id = ?", []*primitive.Value{five, nine, x}, []*primitive.Value{x}},
			{"INSERT INTO bank.accounts (id, n) VALUES (?, 1) USING TIMESTAMP ? AND TTL 7", "INSERT INTO bank.accounts (id, n) VALUES (?, 1) USING TTL 7", []*primitive.Value{x, five}, []*primitive.Value{x}},
			{"DELETE n FROM bank.accounts USING TIMESTAMP 5 WHERE id = ?", "DELETE n FROM bank.accounts WHERE id = ?", []*primitive.Value{x}, []*primitive.Value{x}},
		} {
			client.send(1, &message.Prepare{Query: c.text})
			backend.answer(1)
			backend.send(1, preparedAs(idOf(c.text)))
			execution := &message.Execute{QueryId: client.answer(1).(*message.PreparedResult).PreparedQueryId, ResultMetadataId: []byte("result metadata!"), Options: &message.QueryOptions{PositionalValues: c.values}}
			q := query(c.text)
			q.Options.PositionalValues = c.values
			child := &message.Batch{Children: []*message.BatchChild{{Query: c.text, Values: c.values}}}
			prepared := &message.Batch{Children: []*message.BatchChild{{Id: execution.QueryId, Values: c.values}}}
			for _, m := range []message.Message{q, execution, child, prepared} {
				client.send(1, m)
				var text string
				var values []*primitive.Value
				var stamp *int64
				switch sent := backend.answer(1).(type) {
				case *message.Query:
					text, values, stamp = sent.Query, sent.Options.PositionalValues, sent.Options.DefaultTimestamp
				case *message.Batch:
					text, values, stamp = sent.Children[0].Query, sent.Children[0].Values, sent.DefaultTimestamp
				}
				assert.Equal(t, c.want, strings.Join(strings.Fields(text), " "))
				require.Len(t, values, len(c.left), c.text)
				for i := range values {
					assert.Equal(t, c.left[i], values[i])
				}
				require.NotNil(t, stamp)
				assert.EqualValues(t, 1000, *stamp)
				backend.send(1, &message.VoidResult{})
				client.send(2, query("SELECT a FROM b.c")) // so the warning, if any, has been read
				f := client.next()
				require.IsType(t, &message.VoidResult{}, f.Body.Message)
				told += len(f.Body.Warnings)
				backend.answer(2)
				backend.send(2, rows(nil))
				client.answer(2)
				for len(g.locked) > 0 {
					<-g.locked
				}
				for len(g.unlocked) > 0 {
					<-g.unlocked
				}
			}
		}
		assert.Equal(t, map[bool]int{true: 1, false: 0}[d.version >= v4], told)
	})
}

// What Cassandra does not take beside a timestamp it is not given without one: the client is told what Cassandra would tell.
func TestTimestampsThatCassandraRefuses(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{
		Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}, Settings: catalog.Settings{Unlocked: catalog.Auto, Ignore: true},
		Columns: map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "n": {Name: "n", Type: "int"}},
	})
	client, _ := r.login(dialect{version: v4})
	for text, want := range map[string]string{
		"UPDATE bank.accounts USING TIMESTAMP 5 SET n = 1 WHERE id = 'x' IF n = 1":                                     "Cannot provide custom timestamp for conditional updates",
		"BEGIN BATCH USING TIMESTAMP 5 UPDATE bank.accounts SET n = 1 WHERE id = 'x' IF n = 1 APPLY BATCH":             "Cannot provide custom timestamp for conditional BATCH",
		"BEGIN BATCH USING TIMESTAMP 5 UPDATE bank.accounts USING TIMESTAMP 5 SET n = 1 WHERE id = 'x' APPLY BATCH":    "Timestamp must be set either on BATCH or individual statements",
		"SELECT n FROM bank.accounts WHERE id = 'x' USING LOCK 9 AND TIMESTAMP 5":                                      "MUSIC_SYNTAX: SELECT takes only USING LOCK, not TIMESTAMP",
		"BEGIN BATCH USING LOCK 9 AND TIMESTAMP 5 UPDATE bank.accounts SET n = 1 WHERE id = 'x' IF EXISTS APPLY BATCH": "Cannot provide custom timestamp for conditional BATCH",
		"BEGIN BATCH UPDATE bank.accounts USING TIMESTAMP 5 SET n = 1 WHERE id = 'x' IF n = 1 APPLY BATCH":             "Cannot provide custom timestamp for conditional updates",
	} {
		client.send(1, query(text))
		assert.Equal(t, want, client.failure(1).GetErrorMessage(), text)
	}
}
