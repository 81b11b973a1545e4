package frontend

import (
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
)

// A key that is given as uuid(), as now() or as a cast is evaluated once, here, each time that the statement is executed: what is locked
// is what is written, in whatever way the statement comes.
func TestKeysThatAreEvaluatedOnce(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		g := newGrantingLocks()
		r := newRig(t, func(o *Options) { o.Locks = g })
		for table, kind := range map[string]string{"uuids": "uuid", "times": "timeuuid", "texts": "text"} {
			r.server.Tables.Set("bank", table, &catalog.Critical{
				Key: []catalog.Column{{Name: "id", Type: kind}}, Primary: []string{"id"}, Columns: map[string]catalog.Column{"id": {Name: "id", Type: kind}},
				Settings: catalog.Settings{Unlocked: catalog.Auto},
			})
		}
		client, backend := r.login(d)
		seen := map[string]bool{}
		for text, want := range map[string]string{
			"INSERT INTO bank.uuids (n, id) VALUES (?, uuid()) USING TTL 7": `[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`,
			"UPDATE bank.times SET n = ? WHERE id = NOW ()":                 `[0-9a-f]{8}-[0-9a-f]{4}-1[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`,
			"DELETE FROM bank.texts WHERE id = (text) 'x'":                  `'x'`,
		} {
			var values []*primitive.Value
			if strings.Contains(text, "?") {
				values = []*primitive.Value{primitive.NewValue(number(1))}
			}
			x := execute(r.prepare(client, backend, text), nil)
			x.Options.PositionalValues = values
			q := query(text)
			q.Options.PositionalValues = values
			for _, m := range []message.Message{q, x, x, &message.Batch{Children: []*message.BatchChild{{Query: text, Values: values}}}, &message.Batch{Children: []*message.BatchChild{{Id: x.QueryId, Values: values}}}} {
				client.send(1, m)
				sent := ""
				switch got := backend.answer(1).(type) {
				case *message.Query:
					sent = got.Query
					assert.Equal(t, values, got.Options.PositionalValues)
				case *message.Batch:
					sent = got.Children[0].Query
				}
				constant := regexp.MustCompile(want).FindString(sent)
				require.NotEmpty(t, constant, sent)
				key := strings.Trim(constant, "'")
				if key != "x" {
					assert.False(t, seen[key], "each has its own")
					raw, err := hex.DecodeString(strings.ReplaceAll(key, "-", ""))
					require.NoError(t, err)
					key = string(raw)
				}
				seen[strings.Trim(constant, "'")] = true
				assert.Equal(t, key, (<-g.locked).PK)
				backend.send(1, &message.VoidResult{})
				assert.IsType(t, &message.VoidResult{}, client.answer(1))
				<-g.unlocked
			}
		}
		for _, text := range []string{
			"INSERT INTO bank.uuids (id) VALUES (f(cluster_name))", "INSERT INTO bank.texts (id) VALUES (fromJson('1'))", "DELETE FROM bank.texts WHERE id = token('x')", "DELETE FROM bank.texts WHERE id = cluster_name",
		} {
			client.send(1, query(text))
			assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_KEY", text)
		}
	})
}

// What names a row that no lock needs to know is Cassandra's to evaluate, and the statement goes as it was prepared; with IF the row is
// read before it is written.
func TestRowsThatCassandraEvaluates(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
	columns := map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "at": {Name: "at", Type: "timestamp", Clustering: true}}
	r.server.Tables.Set("bank", "events", &catalog.Critical{Key: []catalog.Column{columns["id"]}, Primary: []string{"id", "at"}, Columns: columns})
	client, backend := r.login(dialect{version: v4})
	const text, condition, lock = "INSERT INTO bank.events (id, at) VALUES ('x', toTimestamp(now()))", " IF NOT EXISTS", " USING LOCK 9"
	client.send(1, &message.Prepare{Query: text + lock})
	backend.answer(1)
	backend.send(1, preparedAs(idOf("x")))
	id := client.answer(1).(*message.PreparedResult).PreparedQueryId
	client.send(1, &message.Execute{QueryId: id, Options: &message.QueryOptions{}})
	assert.Equal(t, idOf("x"), backend.answer(1).(*message.Execute).QueryId)
	backend.send(1, &message.VoidResult{})
	client.answer(1)
	client.send(1, query(text+condition+lock))
	assert.Regexp(t, `^SELECT \* FROM "bank"."events" WHERE "id" = 'x' AND "at" = [0-9]+$`, backend.answer(1).(*message.Query).Query)
}

// A function that is a value of IF is evaluated once, here, each time that the statement is executed.
func TestFunctionsInConditions(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
		columns := map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "until": {Name: "until", Type: "timestamp"}, "n": {Name: "n", Type: "int"}}
		r.server.Tables.Set("bank", "leases", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}, Columns: columns})
		client, backend := r.login(d)
		const text = "UPDATE bank.leases USING LOCK ? SET n = (int) 1 WHERE id = 'x' IF until < toTimestamp( NOW() ) AND n IN ((int) 5, ?)"
		values := []*primitive.Value{primitive.NewValue(bigint(9)), primitive.NewValue(number(6))}
		q, x := query(text), execute(nil, nil)
		q.Options.PositionalValues, x.Options.PositionalValues = values, values
		client.send(1, &message.Prepare{Query: text})
		backend.answer(1)
		backend.send(1, preparedAs(idOf("x")))
		x.QueryId = client.answer(1).(*message.PreparedResult).PreparedQueryId
		for _, m := range []message.Message{q, x, x, &message.Batch{Children: []*message.BatchChild{{Query: text, Values: values}}}, &message.Batch{Children: []*message.BatchChild{{Id: x.QueryId, Values: values}}}} {
			for off, applied := range map[time.Duration]bool{-time.Hour: true, time.Hour: false} {
				client.send(1, m)
				backend.answer(1)
				row := message.Row{bigint(time.Now().Add(off).UnixMilli()), number(5)}
				kinds := []*message.ColumnMetadata{{Name: "until", Type: datatype.Timestamp}, {Name: "n", Type: datatype.Int}}
				if _, batch := m.(*message.Batch); batch {
					row, kinds = append(message.Row{[]byte("x")}, row...), append([]*message.ColumnMetadata{{Name: "id", Type: datatype.Varchar}}, kinds...)
				}
				backend.send(1, &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: int32(len(kinds)), Columns: kinds}, Data: message.RowSet{row}})
				if applied {
					backend.answer(1)
					backend.send(1, &message.VoidResult{})
				}
				assert.Equal(t, boolean(applied), client.answer(1).(*message.RowsResult).Data[0][0])
			}
		}
		for _, condition := range []string{"until < f(mine)", "until < toTimestamp(\"mine\")", "n = token('x')", "until IN (fromJson('1'))", "n = 1 + mine"} {
			client.send(1, query("UPDATE bank.leases USING LOCK 9 SET n = 1 WHERE id = 'x' IF "+condition))
			assert.Contains(t, client.failure(1).GetErrorMessage(), "cannot be evaluated before the write", condition)
		}
	})
}
