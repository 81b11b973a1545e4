package integration

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every refusal of docs/design.md 4 names the reason and the table, and says what to do if there is
// something.
func TestRefusalsSayWhyAndTheWayOut(t *testing.T) {
	s := newTableFixture(t, "section_refused", "@critical(lease=5m)")
	ref := told(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 5m"), "lock_ref")
	queued := told(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' WAIT 300ms"), "lock_ref")
	const row = " WHERE branch = 'b' AND id = 'x'"
	const no, partition = "MUSIC_UNLOCKED: ACCOUNTS is critical: take a lock (LOCK ACCOUNTS WHERE …) and write USING LOCK <ref>", "one partition of one table, ACCOUNTS"
	for _, r := range []struct{ cql, says string }{
		{"INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 1)", no},
		{"UPDATE ACCOUNTS SET balance = 1" + row, no},
		{"DELETE FROM ACCOUNTS" + row, no},
		{"BEGIN BATCH DELETE FROM ACCOUNTS" + row + " APPLY BATCH", no},
		{"UPDATE ACCOUNTS USING LOCK " + queued + " SET balance = 1" + row, "MUSIC_NOT_HELD: lock_ref " + queued + " does not hold this key of ACCOUNTS: it still waits"},
		{"UPDATE ACCOUNTS USING LOCK 99 SET balance = 1" + row, "MUSIC_NOT_HELD: lock_ref 99 is not one of this key of ACCOUNTS"},
		{"UPDATE ACCOUNTS USING LOCK 0 SET balance = 1" + row, "MUSIC_NOT_HELD: 0 is not a lock reference"},
		{"UPDATE ACCOUNTS USING LOCK -1 SET balance = 1" + row, "not a lock reference"},
		{"UPDATE ACCOUNTS USING LOCK REF AND TIMESTAMP 5 SET balance = 1" + row, "MUSIC_REFUSED: ACCOUNTS is critical: the lock gives the timestamp"},
		{"BEGIN BATCH USING LOCK REF DELETE FROM ACCOUNTS" + row + "; DELETE FROM ACCOUNTS WHERE branch = 'c' APPLY BATCH", partition},
		{"BEGIN BATCH USING LOCK REF DELETE FROM ACCOUNTS" + row + "; DELETE FROM music.named WHERE name = 'x' APPLY BATCH", "one partition of one table"},
		{"BEGIN BATCH USING LOCK REF DELETE FROM ACCOUNTS" + row + " IF balance = now() APPLY BATCH", "Type error: cannot assign result of function system.now"},
		{"UPDATE ACCOUNTS USING LOCK REF SET balance = 1" + row + " IF balance = token('x')", "MUSIC_REFUSED: ACCOUNTS is critical: token('x') cannot be evaluated before the write"},
		{"TRUNCATE ACCOUNTS", "MUSIC_REFUSED: ACCOUNTS is critical: TRUNCATE would remove the fences"},
		{"UPDATE ACCOUNTS USING LOCK REF SET balance = 1 WHERE branch IN ('b', 'c') AND id = 'x'", "MUSIC_KEY: the statement names 2 keys by IN, and one lock covers one partition of ACCOUNTS: send one statement for each"},
		{"SELECT * FROM ACCOUNTS WHERE token(branch) > 0 USING LOCK REF", "MUSIC_KEY: the statement must give branch = <value>"},
		{"UPDATE ACCOUNTS USING LOCK REF SET balance = 1 WHERE branch = fromJson('5') AND id = 'x'", "MUSIC_KEY: branch is of type text, and fromJson('5') is not a constant of that type"},
		{"INSERT INTO ACCOUNTS JSON '{\"branch\": 5}' USING LOCK REF", "Error decoding JSON value for branch"},
		{"INSERT INTO music.sessions (session) VALUES (123e4567-e89b-12d3-a456-426614174000)", "MUSIC_REFUSED: music.sessions is for the proxies only"},
		{"TRUNCATE " + s.keyspace + "." + s.companion(), "MUSIC_REFUSED: " + s.keyspace + "." + s.companion() + " is for the proxies only"},
		{"UPDATE ACCOUNTS SET", "MUSIC_SYNTAX: a column is expected here"},
		{"GIBBERISH ACCOUNTS", "MUSIC_SYNTAX: the proxy cannot parse this statement, which names ACCOUNTS, a critical table"},
	} {
		o := s.do(s.client, strings.ReplaceAll(r.cql, "REF", ref))
		require.NotNil(t, o.failure, r.cql)
		assert.Equal(t, 0x2200, o.failure.code, r.cql)
		assert.Contains(t, o.failure.text, strings.ReplaceAll(r.says, "ACCOUNTS", s.keyspace+".accounts"), r.cql)
	}
}

// A table that cannot be locked does not become critical: the DDL is refused with the reason. If
// the change was made at the node, LOCK and plain writes are refused with it.
func TestTablesThatCannotBeCritical(t *testing.T) {
	s := newTableFixture(t, "section_hindered", "@critical")
	for _, r := range []struct{ name, ddl, why, set string }{
		{"counted", "(k text PRIMARY KEY, n counter) WITH gc_grace_seconds = 864000", "counter", "n = n + 1"},
		{"short", "(k text PRIMARY KEY, n int) WITH gc_grace_seconds = 60", "gc_grace_seconds", "n = 1"},
		{"paired", "(k frozen<tuple<int, text>> PRIMARY KEY, n int) WITH gc_grace_seconds = 864000", "its key column k is of type frozen<tuple<int", ""},
	} {
		table := s.keyspace + "." + r.name
		s.hindered("CREATE TABLE "+table+" "+r.ddl+" AND comment = '@critical'", r.why)
		s.works(s.client, "CREATE TABLE "+table+" "+r.ddl)
		alter := "ALTER TABLE " + table + " WITH comment = '@critical'"
		s.hindered(alter, r.why)
		if r.set == "" {
			continue
		}
		s.works(s.client, "UPDATE "+table+" SET "+r.set+" WHERE k = 'x'")
		require.NoError(t, s.direct.Query(alter).Exec())
		eventually(t, answerLimit, "the proxy has followed", func() error {
			o := s.do(s.client, "LOCK "+table+" WHERE k = 'x'")
			if o.failure == nil || !strings.HasPrefix(o.failure.text, "MUSIC_REFUSED: "+table+" cannot be locked: ") {
				return errorf("%v", o)
			}
			return nil
		})
		s.refused(s.client, "MUSIC_REFUSED", "UPDATE "+table+" SET "+r.set+" WHERE k = 'x'")
	}
	keyspace := s.keyspace
	s.works(s.client, "CREATE TABLE "+keyspace+".ranked (k text, c decimal, n int, PRIMARY KEY (k, c)) WITH gc_grace_seconds = 600")
	s.hindered("ALTER TABLE "+keyspace+".ranked WITH gc_grace_seconds = 86400 AND comment = '@critical(row)'", "its clustering column c is of type decimal")
	s.hindered("CREATE TABLE "+keyspace+".again (k text, c decimal, n int, PRIMARY KEY (k, c)) WITH comment = '@critical(row)'", "its clustering column c is of type decimal")
	s.works(s.client, "ALTER TABLE "+keyspace+".ranked WITH gc_grace_seconds = 86400 AND comment = '@critical auto'")
	s.works(s.client, "UPDATE "+keyspace+".ranked SET n = 1 WHERE k = 'x' AND c = 1.0")
	s.works(s.client, "CREATE TABLE "+keyspace+".hidden (k text PRIMARY KEY, n int) WITH comment = '@critical'")
	s.works(s.client, "ALTER TABLE "+keyspace+".hidden DROP n USING TIMESTAMP 8000000000000000000")
	s.works(s.client, "ALTER TABLE "+keyspace+".hidden ADD n int")
	s.refused(s.client, "MUSIC_REFUSED", "LOCK "+keyspace+".hidden WHERE k = 'x'")
	s.works(s.client, "ALTER TABLE "+keyspace+".hidden DROP n")
	s.works(s.client, "ALTER TABLE "+keyspace+".hidden ADD n int")
	s.works(s.client, "LOCK "+keyspace+".hidden WHERE k = 'x'")
	s.works(s.client, "CREATE TABLE "+keyspace+".ordered (k text PRIMARY KEY, v 'org.apache.cassandra.db.marshal.PartitionerDefinedOrder')")
	s.hindered("ALTER TABLE "+keyspace+".ordered WITH comment = '@critical'", "its column v is of type 'org.apache.cassandra.db.marshal.PartitionerDefinedOrder")
	s.works(s.client, "CREATE KEYSPACE IF NOT EXISTS section_volatile WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} AND durable_writes = false")
	s.hindered("CREATE TABLE section_volatile.t (k int PRIMARY KEY) WITH comment = '@critical'", `ALTER KEYSPACE "section_volatile" WITH durable_writes = true`)
	s.works(s.client, "DROP KEYSPACE section_volatile")
}

// A table with a vector of collections can be critical: what is in it is kept when its key is
// synchronised.
func TestTablesWithVectorsOfCollections(t *testing.T) {
	s := newTableFixture(t, "section_vectors", "@critical")
	table := s.keyspace + ".vectors"
	s.works(s.client, "CREATE TABLE "+table+" (k text PRIMARY KEY, v vector<frozen<list<int>>, 2>, n int)")
	s.works(s.client, "INSERT INTO "+table+" (k, v) VALUES ('x', [[1], [2, 3]])")
	s.works(s.client, "ALTER TABLE "+table+" WITH comment = '@critical(auto)'")
	s.works(s.client, "UPDATE "+table+" SET n = 1 WHERE k = 'x'")
	assert.Equal(t, [][]string{{`"{\"k\": \"x\", \"n\": 1, \"v\": [[1], [2, 3]]}"`}}, s.works(s.client, "SELECT JSON * FROM "+table+" WHERE k = 'x'").rows)
}

// hindered checks that a schema change is refused, with the reason.
func (s *tableFixture) hindered(ddl, why string) {
	s.t.Helper()
	o := s.do(s.client, ddl)
	require.NotNil(s.t, o.failure, ddl)
	assert.True(s.t, strings.HasPrefix(o.failure.text, "MUSIC_REFUSED: "), "%v", o)
	assert.Contains(s.t, o.failure.text, why, ddl)
}

// A reference on one statement of a batch does not fence the others, so it is refused.
func TestBatchWithALockOnAChildIsRefusedAtPrepare(t *testing.T) {
	s := newTableFixture(t, "section_known", "@critical")
	b := &attacker{fixture: &fenceFixture{t: t}, wire: openWire(t, s.address, primitive.ProtocolVersion4, primitive.CompressionNone)}
	f := b.execute("BEGIN BATCH UPDATE " + s.keyspace + ".accounts USING LOCK 1 SET balance = 1 WHERE branch = 'b' AND id = 'x'; APPLY BATCH")
	require.NotNil(t, f)
	assert.True(t, matches("MUSIC_REFUSED", f), "%v", f)
}
