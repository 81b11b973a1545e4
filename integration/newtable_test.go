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

// A table that is critical from its CREATE on accepts no plain write at any proxy, however early,
// also under a name that another table had: other proxies see it only when they read the schema
// again.
func TestNewTablesAtAnotherProxy(t *testing.T) {
	const keyspace = "newtable"
	direct := openGocql2(t, cluster2(needEnvironment(t).direct(), "")).session
	tell := func(cql string) {
		require.NoError(t, direct.Query(cql).Exec(), cql)
	}
	tell("DROP KEYSPACE IF EXISTS " + keyspace)
	tell("CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
	maker := openGocql2(t, cluster2(needProxy(t), "")).session
	second := startProxy(t, nil)
	w := openWire(t, second.address, primitive.ProtocolVersion4, primitive.CompressionNone)
	ways := map[string]func(text string) error{
		"QUERY": func(text string) error { return wireError(w.ask(plainQuery(text))) },
		"EXECUTE": func(text string) error {
			e, err := w.ask(&message.Prepare{Query: text})
			if err := wireError(e, err); err != nil {
				return err
			}
			f, err := w.decode(e)
			require.NoError(t, err)
			p := f.Body.Message.(*message.PreparedResult)
			return wireError(w.ask(&message.Execute{QueryId: p.PreparedQueryId, Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne}}))
		},
		"BATCH": func(text string) error {
			return wireError(w.ask(&message.Batch{Children: []*message.BatchChild{{Query: text}}, Consistency: primitive.ConsistencyLevelOne}))
		},
	}
	const define = " (k int PRIMARY KEY, v int) WITH comment = '@critical'"
	for round := range 2 {
		for way, put := range ways {
			table := keyspace + ".by_" + strings.ToLower(way)
			made := make(chan error, 1)
			go func() { made <- maker.Query("CREATE TABLE " + table + define).Exec() }()
			insert := "INSERT INTO " + table + " (k, v) VALUES (1, 1)"
			err := put(insert)
			for err != nil && noTable(err) {
				err = put(insert)
			}
			assert.ErrorContains(t, err, "MUSIC_", "%s, round %d: the first answer other than that there is no table", way, round)
			require.NoError(t, <-made)
			assert.ErrorContains(t, put(insert), "MUSIC_", "%s, round %d", way, round)
			var rows int
			require.NoError(t, direct.Query("SELECT count(*) FROM "+table).Scan(&rows))
			assert.Zero(t, rows, "%s, round %d", way, round)
			if round == 0 {
				require.NoError(t, maker.Query("DROP TABLE "+table).Exec())
			}
		}
	}

	// Two instances of an application create the table, each at its proxy: one of them is told that
	// it exists.
	for i := range 2 {
		table := fmt.Sprint(keyspace, ".both", i)
		create := "CREATE TABLE IF NOT EXISTS " + table + define
		made := make(chan error, 1)
		go func() { made <- maker.Query(create).Exec() }()
		require.NoError(t, wireError(w.ask(plainQuery(create))))
		assert.ErrorContains(t, ways["QUERY"]("INSERT INTO "+table+" (k, v) VALUES (1, 1)"), "MUSIC_", table)
		require.NoError(t, <-made)
	}
}

// noTable reports whether an error is Cassandra's for a table that does not exist, or that it is about
// to make: for a moment it knows the definition but has no store, and answers any statement with
// "Unknown CF" (Keyspace.getColumnFamilyStore).
func noTable(err error) bool {
	return strings.Contains(err.Error(), "does not exist") || strings.Contains(err.Error(), "Unknown CF")
}

// wireError returns the error of an answer, if it is one.
func wireError(e envelope, err error) error {
	if err != nil {
		return err
	}
	if e.opcode() != primitive.OpCodeError {
		return nil
	}
	return errorf("%s", e.body)
}
