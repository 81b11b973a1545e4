package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An application without locks writes a table whose plain writes get sections of their own, in
// every way, and needs hardly any LWT: its writes are in windows of the lock.
func TestPlainWritesInSectionsOfTheirOwn(t *testing.T) {
	for i, d := range []driver{withGocql2(5, ""), withGocql2(4, "+lz4"), withGocql1(""), withPython()} {
		s := newTableFixture(t, fmt.Sprintf("section_auto_%d", i), "@critical(unlocked=auto)")
		s.driver, s.client = d, d.open(t, s.address, s.keyspace)
		s.works(s.client, "INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', ?)", int64(0))
		for n := range int64(40) {
			s.works(s.client, "UPDATE ACCOUNTS SET balance = ? WHERE branch = 'b' AND id = 'x'", n)
		}
		s.works(s.client, "BEGIN BATCH UPDATE ACCOUNTS SET balance = 40 WHERE branch = 'b' AND id = 'x'; INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'y', 1); APPLY BATCH")
		s.works(s.client, "DELETE FROM ACCOUNTS WHERE branch = 'b' AND id = 'y'")
		var balance int64
		require.NoError(t, s.direct.Query("SELECT balance FROM "+s.keyspace+".accounts WHERE branch = 'b' AND id = 'x'").Scan(&balance))
		assert.EqualValues(t, 40, balance)

		// A plain write waits for the holder of the lock, and fails if the lock is not released in
		// time.
		ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b'"), "HELD")
		o := s.do(s.client, "UPDATE ACCOUNTS SET balance = 41 WHERE branch = 'b' AND id = 'x'")
		require.Error(t, o.err())
		assert.Contains(t, o.err().Error(), "nothing was written")
		s.works(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 42 WHERE branch = 'b' AND id = 'x'", ref))
		s.inWindow("b", "x", ref, 42)
		s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK %d", ref))
		s.works(s.client, "UPDATE ACCOUNTS SET balance = 43 WHERE branch = 'b' AND id = 'x'")
	}
}

// Cassandra forgets what the proxy has had it prepare for writes with IF when their table changes. The
// client notices nothing, neither on keys with rows nor on new ones.
func TestPreparedConditionsOutliveASchemaChange(t *testing.T) {
	for i, d := range []driver{withGocql2(5, ""), withGocql2(4, "+lz4")} {
		s := newTableFixture(t, fmt.Sprintf("section_auto_made_%d", i), "@critical(unlocked=auto)")
		s.driver, s.client = d, d.open(t, s.address, s.keyspace)
		const insert, update = "INSERT INTO ACCOUNTS (branch, id, balance) VALUES (?, 'x', 1) IF NOT EXISTS", "UPDATE ACCOUNTS SET balance = ? WHERE branch = ? AND id = 'x' IF balance = ?"
		applied := func(want, text string, values ...any) {
			o := s.works(s.client, text, values...)
			assert.Equal(t, want, told(o, "[applied]"), "%s %v: %v", text, values, o)
		}
		for n := range 3 {
			branch := fmt.Sprint("b", n)
			applied("true", insert, branch)
			for balance := range int64(3) {
				applied("true", update, balance+2, branch, balance+1)
			}
			applied("false", update, int64(7), branch, int64(1))
			applied("false", insert, branch)
			require.Len(t, s.prepared(), 5, "a read and a write of each, and the write of a new key")
			s.works(s.client, fmt.Sprintf("ALTER TABLE ACCOUNTS ADD added%d int", n))
			require.Empty(t, s.prepared())
			applied("true", update, int64(9), branch, int64(4))
		}
	}
}

// prepared returns the texts on the table that the proxy has made and the node knows prepared.
func (s *tableFixture) prepared() map[string]bool {
	s.t.Helper()
	texts := map[string]bool{}
	iter := s.direct.Query("SELECT query_string FROM system.prepared_statements").Iter()
	for text := ""; iter.Scan(&text); {
		if strings.Contains(text, s.keyspace) && strings.Contains(text, "accounts") && !strings.Contains(text, " IF ") && !synchronises(text) {
			texts[text] = true
		}
	}
	require.NoError(s.t, iter.Close())
	return texts
}

// synchronises reports whether a text is of a synchronise: it reads write times, or writes at a given one
// without deleting the rest of a new key.
func synchronises(text string) bool {
	return strings.Contains(text, "WRITETIME") || strings.Contains(text, "USING TIMESTAMP") && !strings.HasPrefix(text, "BEGIN")
}

// Plain writes of many clients are ordered by the lock: each overwrites the one before, and all
// stamps differ.
func TestPlainWritesOfManyClients(t *testing.T) {
	s := newTableFixture(t, "section_auto_many", "@critical(unlocked=auto)")
	s.works(s.client, "INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 0)")
	var wg sync.WaitGroup
	for i := range 8 {
		client := s.driver.open(t, s.address, s.keyspace)
		wg.Go(func() {
			for n := range 25 {
				id := fmt.Sprintf("%d-%d", i, n)
				o := s.do(client, "BEGIN BATCH INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', '"+id+"', 1); UPDATE ACCOUNTS SET balance = "+fmt.Sprint(i*25+n)+" WHERE branch = 'b' AND id = 'x' APPLY BATCH")
				assert.NoError(t, o.err())
			}
		})
	}
	wg.Wait()
	stamps := map[int64]bool{}
	iter := s.direct.Query("SELECT id, WRITETIME(balance) FROM " + s.keyspace + ".accounts WHERE branch = 'b'").Iter()
	var last, x int64
	for id, stamp := "", int64(0); iter.Scan(&id, &stamp); {
		if id == "x" {
			x = stamp
			continue
		}
		assert.False(t, stamps[stamp], "two writes have the stamp %d", stamp)
		stamps[stamp] = true
		last = max(last, stamp)
	}
	require.NoError(t, iter.Close())
	assert.Len(t, stamps, 200)
	assert.Equal(t, last, x, "the account that all write has the last one's")
}

// Batches over several keys and tables, some of them critical, write what they write without a
// proxy: as one batch, in a section of each key, with each statement stamped in its own key's
// window. Clients that write the same keys in different orders do not deadlock.
func TestBatchesInSeveralSections(t *testing.T) {
	s := newTableFixture(t, "section_auto_batch", "@critical(unlocked=auto, timestamp=ignore)")
	s.works(s.client, "CREATE TABLE "+s.keyspace+".plain (id text PRIMARY KEY, v int)")
	s.works(s.client, "CREATE TABLE "+s.keyspace+".rows (p text, c int, v int, PRIMARY KEY (p, c)) WITH comment = '@critical(unlocked=auto, key=row)'")
	s.works(s.client, "BEGIN BATCH INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('a', 'x', ?); INSERT INTO "+s.keyspace+".rows (p, c, v) VALUES ('r', 1, 1) USING TTL 1000; INSERT INTO "+s.keyspace+".rows (p, c, v) VALUES ('r', 2, ?);"+
		" UPDATE "+s.keyspace+".plain USING TIMESTAMP 77 SET v = ? WHERE id = 'p'; UPDATE ACCOUNTS USING TIMESTAMP 5 SET balance = 2 WHERE branch = 'b' AND id = 'x'; APPLY BATCH", int64(1), 2, 3)
	stamps := map[int64]bool{}
	for text, want := range map[string]int{"accounts WHERE branch = 'a'": 1, "accounts WHERE branch = 'b'": 2, "rows WHERE p = 'r' AND c = 1": 1, "rows WHERE p = 'r' AND c = 2": 2, "plain WHERE id = 'p'": 3} {
		column := "v"
		if text[0] == 'a' {
			column = "CAST(balance AS int)"
		}
		stamped := map[bool]string{true: "v", false: "balance"}[column == "v"]
		var got int
		var stamp int64
		require.NoError(t, s.direct.Query("SELECT "+column+", WRITETIME("+stamped+") FROM "+s.keyspace+"."+text).Scan(&got, &stamp), text)
		assert.Equal(t, want, got, text)
		if text[0] == 'p' {
			assert.EqualValues(t, 77, stamp)
		} else {
			assert.Greater(t, stamp, int64(1_000_000_000_000_000), text)
			stamps[stamp] = true
		}
	}
	assert.NotEmpty(t, stamps)
	o := s.do(s.client, "BEGIN BATCH UPDATE ACCOUNTS SET balance = 2 WHERE branch = 'b' AND id = 'x' IF balance = 2; UPDATE "+s.keyspace+".plain SET v = 1 WHERE id = 'p'; APPLY BATCH")
	require.Error(t, o.err())
	assert.Contains(t, o.err().Error(), "Batch with conditions cannot span multiple tables")

	// A key that is a function call is evaluated once.
	s.works(s.client, "CREATE TABLE "+s.keyspace+".ids (id timeuuid, u uuid, v int, PRIMARY KEY (id, u)) WITH comment = '@critical(unlocked=auto, key=row)'")
	for v := range 3 {
		s.works(s.client, "INSERT INTO "+s.keyspace+".ids (id, u, v) VALUES (now(), uuid(), ?)", v)
		s.works(s.client, "INSERT INTO "+s.keyspace+".ids (id, u, v) VALUES (now(), uuid(), ?) IF NOT EXISTS", v)
	}
	var ids int
	require.NoError(t, s.direct.Query("SELECT count(*) FROM "+s.keyspace+".ids").Scan(&ids))
	assert.Equal(t, 6, ids)

	s.eachKeyAndJSON()

	// A batch waits for the holder of one of its keys, and writes nothing before.
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b'"), "HELD")
	const both = "BEGIN UNLOGGED BATCH UPDATE ACCOUNTS SET balance = %d WHERE branch = '%s' AND id = 'x'; UPDATE ACCOUNTS SET balance = %d WHERE branch = '%s' AND id = 'x'; APPLY BATCH"
	o = s.do(s.client, fmt.Sprintf(both, 7, "a", 7, "b"))
	require.Error(t, o.err())
	assert.Contains(t, o.err().Error(), "nothing was written")
	var balance int64
	require.NoError(t, s.direct.Query("SELECT balance FROM "+s.keyspace+".accounts WHERE branch = 'a' AND id = 'x'").Scan(&balance))
	assert.EqualValues(t, 1, balance)
	s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK %d", ref))

	// If clients write two keys in one batch, both keys always show the same last writer.
	var wg sync.WaitGroup
	for i := range 4 {
		client := s.driver.open(t, s.address, s.keyspace)
		wg.Go(func() {
			for n := range 10 {
				first, second := "a", "b"
				if i%2 == 1 {
					first, second = second, first
				}
				o := s.do(client, fmt.Sprintf(both, i*100+n, first, i*100+n, second))
				assert.NoError(t, o.err())
			}
		})
	}
	wg.Wait()
	var last [2]int64
	for i, branch := range []string{"a", "b"} {
		require.NoError(t, s.direct.Query("SELECT balance FROM "+s.keyspace+".accounts WHERE branch = ? AND id = 'x'", branch).Scan(&last[i]))
	}
	assert.Equal(t, last[0], last[1])
}

// eachKeyAndJSON checks that INSERT JSON, and writes of several keys by IN, are answered and
// executed as without a proxy.
func (s *tableFixture) eachKeyAndJSON() {
	s.t.Helper()
	const columns = " (p text, d decimal, c int, v int, l list<int>, m map<text, int>, f frozen<set<int>>, o boolean, w timestamp, \"Up\" int, st int static, PRIMARY KEY ((p, d), c))"
	s.works(s.client, "CREATE TABLE "+s.keyspace+".served"+columns+" WITH comment = '@critical(unlocked=auto)'")
	s.works(s.client, "CREATE TABLE "+s.keyspace+".twin"+columns)
	for i, one := range []statement{
		{cql: `INSERT INTO TABLE JSON '{"p": "it''s", "d": "1.10", "c": "7", "L": [2, 1], "m": {"k": 3}, "f": [2, 1], "\"Up\"": 3, "w": "2020-01-01 00:00:00Z", "o": true}'`},
		{cql: "INSERT INTO TABLE JSON ?", values: []any{`{"p": "x", "d": 1, "c": 8, "v": 1, "m": null}`}},
		{cql: `INSERT INTO TABLE JSON '{"p": "x", "d": 1, "c": 8, "st": 5}' DEFAULT UNSET`},
		{cql: `INSERT INTO TABLE JSON '{"p": "x", "d": 1, "c": 8, "v": 2}' IF NOT EXISTS`},
		{cql: `INSERT INTO TABLE JSON '{"p": "x", "d": 1, "c": 9, "l": [1]}' DEFAULT NULL IF NOT EXISTS USING TTL 5000`},
		{cql: `INSERT INTO TABLE JSON '{"p": "x", "d": 1, "c": 9, "v": 4}' DEFAULT UNSET`},
		{cql: `INSERT INTO TABLE JSON '{"p": "x", "d": 1, "c": 9}' DEFAULT NULL`},
		{cql: `INSERT INTO TABLE JSON '{"p": "x", "d": 1}'`, fails: true},
		{cql: `INSERT INTO TABLE JSON '{"p": "x", "d": 1, "c": 1, "nosuch": 1}'`, fails: true},
		{cql: `INSERT INTO TABLE JSON 'null'`, fails: true},
		{cql: `BEGIN BATCH INSERT INTO TABLE JSON '{"p": "x", "d": 2, "c": 1}'; INSERT INTO TABLE JSON '{"p": "y", "d": 1, "c": 1, "v": 6}' APPLY BATCH`},
		{cql: `BEGIN BATCH INSERT INTO TABLE JSON '{"p": "x", "d": 2, "c": 3}' IF NOT EXISTS; UPDATE TABLE SET v = 5 WHERE p = 'x' AND d = 2 AND c = 4 APPLY BATCH`},
		{cql: "UPDATE TABLE SET v = 77, l = l + [5] WHERE p IN ('x', 'y', 'x', 'new') AND d IN (1, 2) AND c IN (1, 8)"},
		{cql: "UPDATE TABLE SET v = ? WHERE p IN ? AND d = 1 AND c = ?", values: []any{78, []string{"x", "y"}, 1}},
		{cql: "DELETE FROM TABLE WHERE p IN (?, ?) AND d IN (2)", values: []any{"y", "nosuch"}},
		{cql: "DELETE FROM TABLE WHERE p IN () AND d = 1"},
		{cql: "UPDATE TABLE SET v = 79 WHERE p IN ('x', 'x') AND d = 1 AND c IN (1) IF v = 1", fails: true},
		{cql: "UPDATE TABLE SET v = 79 WHERE p IN ('x') AND d = 1 AND c IN (1) IF v = 78"},
		{cql: "DELETE FROM TABLE WHERE p IN ('x') AND d IN (1) AND c = 1 IF v = 78"},
		{cql: "UPDATE TABLE SET v = 79 WHERE p IN ('x', 'y') AND d = 1 AND c = 1 IF v = 78", fails: true},
		{cql: "BEGIN BATCH DELETE v FROM TABLE WHERE p IN ('new', 'y') AND d = 1 AND c = 8; UPDATE TABLE SET v = 80 WHERE p = 'x' AND d IN (1, 2) AND c = 4; APPLY BATCH"},
	} {
		var got [2]string
		for j, table := range []string{"served", "twin"} {
			o := s.do(s.client, strings.ReplaceAll(one.cql, "TABLE", s.keyspace+"."+table), one.values...)
			require.Equal(s.t, one.fails, o.err() != nil, "%d %s: %v", i, one.cql, o)
			got[j] = strings.ReplaceAll(o.String(), "served", "twin") + fmt.Sprint(s.do(s.client, "SELECT * FROM "+s.keyspace+"."+table).rows)
		}
		assert.Equal(s.t, got[1], got[0], "%d: %s", i, one.cql)
	}
}
