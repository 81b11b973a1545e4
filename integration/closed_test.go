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

// forbidden returns writes on a critical table without its lock, in many forms; REF stands for a
// reference that is held.
func forbidden() []string {
	return []string{
		"INSERT INTO closed.accounts (branch, id, balance) VALUES ('b', 'x', 666)",
		"insert into CLOSED.Accounts (branch, id, balance) values ('b', 'x', 666)",
		`INSERT INTO "closed"."accounts" (branch, id, balance) VALUES ('b', 'x', 666)`,
		"INSERT INTO accounts (branch, id, balance) VALUES ('b', 'x', 666)",
		"/* closed */ INSERT /* INTO other.t */ INTO -- nothing\n closed /* . */ . accounts (branch, id, balance) VALUES ('b', 'x', 666);",
		"  \t\n UPDATE closed . accounts SET balance = 666 WHERE branch = 'b' AND id = 'x' ;",
		"UPDATE closed.accounts USING TTL 100 SET balance = 666 WHERE branch = 'b' AND id = 'x'",
		"UPDATE closed.accounts USING TIMESTAMP 9223372036854775807 SET balance = 666 WHERE branch = 'b' AND id = 'x'",
		"UPDATE closed.accounts SET balance = 666 WHERE branch IN ('b', 'a') AND id = 'x'",
		"DELETE FROM closed.accounts WHERE branch = 'b'",
		"DELETE balance FROM closed.accounts WHERE branch = 'b' AND id = 'x'",
		"DELETE FROM closed.accounts WHERE branch IN ('b')",
		"TRUNCATE closed.accounts",
		"TRUNCATE TABLE closed.accounts",
		"TRUNCATE accounts",
		`INSERT INTO closed.accounts JSON '{"branch": "b", "id": "x", "balance": 666}'`,
		"INSERT INTO closed.accounts (branch, id, balance) VALUES ('b', 'x', 666) IF NOT EXISTS",
		"UPDATE closed.accounts SET balance = 666 WHERE branch = 'b' AND id = 'x' IF EXISTS",
		"UPDATE closed.accounts SET balance = 666 WHERE branch = 'b' AND id = 'x' IF balance = 1",
		"BEGIN BATCH INSERT INTO closed.accounts (branch, id, balance) VALUES ('b', 'x', 666) APPLY BATCH",
		"BEGIN UNLOGGED BATCH UPDATE closed.plain SET v = 1 WHERE k = 1; UPDATE closed.accounts SET balance = 666 WHERE branch = 'b' AND id = 'x'; APPLY BATCH;",
		"begin batch using timestamp 5 update accounts set balance = 666 where branch = 'b' and id = 'x' apply batch",
		"UPDATE closed.accounts USING LOCK REF AND TIMESTAMP 5 SET balance = 666 WHERE branch = 'b' AND id = 'x'",
		"UPDATE closed.accounts USING TIMESTAMP 5 AND LOCK REF SET balance = 666 WHERE branch = 'b' AND id = 'x'",
		"UPDATE closed.accounts USING LOCK REF AND LOCK REF SET balance = 666 WHERE branch = 'b' AND id = 'x'",
		"UPDATE closed.accounts USING LOCK REF SET balance = 666 WHERE branch IN ('b', 'a') AND id = 'x'",
		"BEGIN BATCH USING LOCK REF UPDATE closed.accounts SET balance = 666 WHERE branch = 'b' AND id = 'x' IF EXISTS; UPDATE closed.plain SET v = 1 WHERE k = 1; APPLY BATCH",
		"UPDATE closed.accounts USING LOCK -1 SET balance = 666 WHERE branch = 'b' AND id = 'x'",
		"UPDATE closed.accounts USING LOCK null SET balance = 666 WHERE branch = 'b' AND id = 'x'",
		"UPDATE closed.accounts USING LOCK 99999999999999999999 SET balance = 666 WHERE branch = 'b' AND id = 'x'",
		"BEGIN BATCH USING LOCK REF UPDATE closed.accounts SET balance = 666 WHERE branch = 'b' AND id = 'x'; UPDATE closed.plain SET v = 1 WHERE k = 1; APPLY BATCH",
		"BEGIN BATCH UPDATE closed.accounts SET balance = 666 WHERE branch = 'b' AND id = 'x' IF balance = 1; APPLY BATCH",
		"BEGIN BATCH USING LOCK REF UPDATE closed.accounts USING TIMESTAMP 9 SET balance = 666 WHERE branch = 'b' AND id = 'x'; APPLY BATCH",
		"DELETE FROM closed.COMPANION WHERE k1 = 'b'",
		"UPDATE closed.COMPANION SET head = 5 WHERE k1 = 'b'",
		"TRUNCATE closed.COMPANION",
		"INSERT INTO music.sessions (session, beat) VALUES (5b647870-5c5b-11ef-9d6e-0242ac120002, 1)",
		"TRUNCATE music.sessions",
	}
}

// newClosedFixture makes a critical table and an ordinary one, and locks a key of the first.
func newClosedFixture(t *testing.T) (s *tableFixture, ref string) {
	t.Helper()
	s = &tableFixture{t: t, driver: withGocql2(4, ""), address: needProxy(t), keyspace: "closed", direct: openGocql2(t, cluster2(needEnvironment(t).direct(), "")).session}
	for _, ddl := range []string{
		"DROP KEYSPACE IF EXISTS closed", "CREATE KEYSPACE closed WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE closed.plain (k int PRIMARY KEY, v int)",
	} {
		require.NoError(t, s.direct.Query(ddl).Exec())
	}
	s.client = s.driver.open(t, s.address, s.keyspace)
	s.works(s.client, "CREATE TABLE ACCOUNTS (branch text, id text, balance bigint, PRIMARY KEY (branch, id)) WITH comment = '@critical'")
	o := s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 10m")
	ref = told(o, "lock_ref")
	s.works(s.client, "INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 1) USING LOCK "+ref)
	return s, ref
}

// companion returns the name of the table of lock rows.
func (s *tableFixture) companion() string {
	s.t.Helper()
	iter := s.direct.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", s.keyspace).Iter()
	for name := ""; iter.Scan(&name); {
		if strings.HasPrefix(name, "music_lock_") {
			return name
		}
	}
	require.Fail(s.t, "no companion")
	return ""
}

// rows returns the data that no forbidden statement may change, read from the node.
func (s *tableFixture) rows() string {
	s.t.Helper()
	base, head := s.term("b")
	plain, err := s.direct.Query("SELECT * FROM closed.plain").Iter().SliceMap()
	require.NoError(s.t, err)
	var sessions int
	require.NoError(s.t, s.direct.Query("SELECT count(*) FROM music.sessions").Scan(&sessions))
	return fmt.Sprint(s.contents(), base, head, plain, sessions > 0)
}

// Statements that the proxy does not understand, or must not let through, are refused in every
// protocol version and change nothing.
func TestNothingFailsOpen(t *testing.T) {
	s, ref := newClosedFixture(t)
	names := strings.NewReplacer("REF", ref, "COMPANION", s.companion())
	before := s.rows()
	for _, version := range []primitive.ProtocolVersion{primitive.ProtocolVersion3, primitive.ProtocolVersion4, primitive.ProtocolVersion5} {
		w := openWire(t, s.address, version, primitive.CompressionNone)
		_, err := w.ask(plainQuery("USE closed"))
		require.NoError(t, err)
		for _, text := range forbidden() {
			for way, answer := range w.everyWay(t, names.Replace(text)) {
				assert.Equal(t, primitive.OpCodeError, answer.opcode(), "v%d %s, %s: %v", version, way, text, answer)
			}
			require.Equal(t, before, s.rows(), "v%d %s: has changed\n", version, text)
		}
	}
}

// everyWay sends a statement as QUERY, as PREPARE and EXECUTE, and as child of a BATCH, and returns the answers by way.
func (w *wire) everyWay(t *testing.T, text string) map[string]envelope {
	t.Helper()
	ask := func(m message.Message) envelope {
		e, err := w.ask(m)
		require.NoError(t, err, text)
		return e
	}
	all := map[string]envelope{"QUERY": ask(plainQuery(text))}
	batch := &message.Batch{Type: primitive.BatchTypeUnlogged, Consistency: primitive.ConsistencyLevelOne, Children: []*message.BatchChild{{Query: text}}}
	all["BATCH of text"] = ask(batch)
	prepared := ask(&message.Prepare{Query: text})
	f, err := w.decode(prepared)
	require.NoError(t, err)
	p, ok := f.Body.Message.(*message.PreparedResult)
	if !ok {
		all["PREPARE"] = prepared
		return all
	}
	all["EXECUTE"] = ask(&message.Execute{QueryId: p.PreparedQueryId, ResultMetadataId: p.ResultMetadataId, Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne}})
	batch.Children = []*message.BatchChild{{Id: p.PreparedQueryId}}
	all["BATCH of an id"] = ask(batch)
	return all
}

// Statements prepared while a table was ordinary are refused once it is critical: a comment does not invalidate them.
func TestPreparedBeforeCritical(t *testing.T) {
	s, _ := newClosedFixture(t)
	w := openWire(t, s.address, primitive.ProtocolVersion4, primitive.CompressionNone)
	write := "UPDATE closed.plain SET v = 2 WHERE k = 1"
	e, err := w.ask(&message.Prepare{Query: write})
	require.NoError(t, err)
	f, err := w.decode(e)
	require.NoError(t, err)
	x := &message.Execute{QueryId: f.Body.Message.(*message.PreparedResult).PreparedQueryId, Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne}}
	e, err = w.ask(x)
	require.NoError(t, err)
	require.Equal(t, primitive.OpCodeResult, e.opcode())
	s.works(s.client, "ALTER TABLE closed.plain WITH comment = '@critical'")
	for range 3 {
		e, err = w.ask(x)
		require.NoError(t, err)
		assert.Equal(t, primitive.OpCodeError, e.opcode(), "%v", e)
		assert.Contains(t, string(e.body), "MUSIC_UNLOCKED")
	}
}
