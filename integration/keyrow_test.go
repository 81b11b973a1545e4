package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// seats is a table with key=row, so each row has a lock of its own; SEATS stands for its name.
const seats = `CREATE TABLE SEATS (show text, tier text, seat int, holder text, notes list<text>, price int static, PRIMARY KEY (show, tier, seat))
	WITH CLUSTERING ORDER BY (tier DESC, seat ASC) AND comment = '@critical(key=row, lease=5m)'`

// newSeatsFixture makes that table.
func newSeatsFixture(t *testing.T, keyspace string, d driver) *tableFixture {
	t.Helper()
	s := newTableFixture(t, keyspace, "@critical")
	s.driver = d
	s.client = d.open(t, s.address, s.keyspace)
	o := s.works(s.client, s.seatsCQL(seats))
	if d.version > 3 {
		assert.Contains(t, strings.Join(o.warnings, "\n"), s.seatsCQL("SEATS is critical: unlocked=reject, key=row, lease=5m"))
	}
	return s
}

// seatsCQL is a text with the table's name.
func (s *tableFixture) seatsCQL(text string, args ...any) string {
	return fmt.Sprintf(strings.ReplaceAll(text, "SEATS", s.keyspace+".seats"), args...)
}

// allSeats returns all seats, read from the node.
func (s *tableFixture) allSeats() string {
	s.t.Helper()
	rows, err := s.direct.Query(s.seatsCQL("SELECT show, tier, seat, holder, notes, price, writetime(holder) FROM SEATS")).Iter().SliceMap()
	require.NoError(s.t, err)
	return show(rows)
}

// A lock covers one row: another row of the partition can be locked by another client.
func TestLockOnARow(t *testing.T) {
	s := newSeatsFixture(t, "keyrow_locks", withGocql2(5, ""))
	const at = " WHERE show = 'x' AND tier = 'b' AND seat = %d"
	first := s.grant(s.works(s.client, s.seatsCQL("LOCK SEATS"+at, 1)), "HELD")
	second := s.grant(s.works(s.client, s.seatsCQL("SELECT LOCK SEATS WHERE seat = ? AND show = ? AND tier = ?"), 2, "x", "b"), "HELD")
	assert.Equal(t, "busy", told(s.works(s.client, s.seatsCQL("LOCK SEATS WHERE seat = 1 AND tier = 'b' AND show = 'x' NOWAIT")), "state"))
	s.grant(s.works(s.client, s.seatsCQL("LOCK SEATS WHERE show = 'x' AND tier = '' AND seat = 1 NOWAIT")), "HELD")

	for i, ref := range []int64{first, second} {
		seat := i + 1
		s.works(s.client, s.seatsCQL("INSERT INTO SEATS (seat, tier, show, holder) VALUES (%d, 'b', 'x', 'ann') USING LOCK %d", seat, ref))
		s.works(s.client, s.seatsCQL("UPDATE SEATS USING LOCK ? SET holder = ?, notes = notes + ['a'] WHERE show = ? AND tier = ? AND seat = ?"), ref, "ben", "x", "b", seat)
		s.works(s.client, s.seatsCQL("BEGIN BATCH USING LOCK %d UPDATE SEATS SET notes = notes + ['b']"+at+"; UPDATE SEATS SET holder = 'cid'"+at+"; APPLY BATCH", ref, seat, seat))
		o := s.client.run(statement{batch: unlogged, parts: []statement{
			{cql: s.seatsCQL("UPDATE SEATS USING LOCK ? SET notes = notes + ['c'] WHERE show = ? AND tier = ? AND seat = ?"), values: []any{ref, "x", "b", seat}},
			{cql: s.seatsCQL("UPDATE SEATS USING LOCK ? SET holder = ? WHERE show = ? AND tier = ? AND seat = ?"), values: []any{ref, "dan", "x", "b", seat}},
		}})
		require.NoError(t, o.err())
		read := s.works(s.client, s.seatsCQL("SELECT holder, notes FROM SEATS"+at+" USING LOCK %d", seat, ref))
		assert.Equal(t, "dan", told(read, "holder"))
		assert.Equal(t, `["a", "b", "c"]`, read.cell("notes"))
	}
	s.works(s.client, s.seatsCQL("DELETE FROM SEATS USING LOCK %d"+at, second, 2))
	several := s.works(s.client, s.seatsCQL("LOCK SEATS WHERE show = 'y' AND tier = '' AND seat IN (2, 1, 2)"))
	require.Len(t, several.rows, 2, "%v", several)
	for i, seat := range []string{"2", "1"} {
		assert.Equal(t, []string{"true", "1", `"HELD"`}, []string{several.rows[i][0], bareRef(t, several.rows[i][1]), several.rows[i][2]})
		assert.Equal(t, []string{`"y"`, `""`, seat}, several.rows[i][7:])
	}
	assert.Equal(t, "busy", told(s.works(s.client, s.seatsCQL("LOCK SEATS WHERE show = 'y' AND tier = '' AND seat = 1 NOWAIT")), "state"))
	read := s.works(s.client, s.seatsCQL("SELECT holder FROM SEATS WHERE show = 'z' AND tier = 'b' AND seat = 1 FOR UPDATE"))
	assert.Equal(t, "held", told(read, "state"))
	o := s.works(s.client, s.seatsCQL("LIST LOCKS ON SEATS"+at, 2))
	require.Len(t, o.rows, 1)
	assert.Equal(t, "'x', 'b', 2", told(o, "key"))
	s.grant(s.works(s.client, s.seatsCQL("UNLOCK SEATS"+at+" USING LOCK %d", 1, first)), "RELEASED")
	next := s.grant(s.works(s.client, s.seatsCQL("LOCK SEATS"+at, 1)), "HELD")
	assert.Equal(t, number(first)+1, number(next))
	assert.Equal(t, "dan", told(s.works(s.client, s.seatsCQL("SELECT holder FROM SEATS"+at+" USING LOCK %d", 1, next)), "holder"))
}

// A statement that does not name one row, or affects more than that row, is refused.
func TestBeyondTheLockedRow(t *testing.T) {
	s := newSeatsFixture(t, "keyrow_refused", withGocql2(5, ""))
	ref := s.grant(s.works(s.client, s.seatsCQL("LOCK SEATS WHERE show = 'x' AND tier = 'b' AND seat = 1")), "HELD")
	other := s.grant(s.works(s.client, s.seatsCQL("LOCK SEATS WHERE show = 'x' AND tier = 'b' AND seat = 2")), "HELD")
	s.works(s.client, s.seatsCQL("INSERT INTO SEATS (show, tier, seat, holder) VALUES ('x', 'b', 1, 'ann') USING LOCK %d", ref))
	require.Equal(t, number(ref), number(other), "each row counts its own")
	require.NotEqual(t, ref, other, "and has references of its own")
	third := s.grant(s.works(s.client, s.seatsCQL("LOCK SEATS WHERE show = 'x' AND tier = 'b' AND seat = 2 WAIT 100ms")), "QUEUED")
	before := s.allSeats()
	const row = " WHERE show = 'x' AND tier = 'b' AND seat = 1"
	for cql, says := range map[string]string{
		"LOCK SEATS WHERE show = 'x'":                                                                                                               "MUSIC_KEY: the statement must give tier = <value>: one lock covers one row of SEATS",
		"LOCK SEATS WHERE show = 'x' AND tier = 'b'":                                                                                                "MUSIC_KEY: the statement must give seat",
		"UNLOCK SEATS WHERE show = 'x' USING LOCK REF":                                                                                              "MUSIC_KEY: the statement must give tier",
		"DELETE FROM SEATS USING LOCK REF WHERE show = 'x'":                                                                                         "MUSIC_KEY: the statement must give tier",
		"DELETE FROM SEATS USING LOCK REF WHERE show = 'x' AND tier = 'b'":                                                                          "MUSIC_KEY: the statement must give seat",
		"DELETE FROM SEATS USING LOCK REF WHERE show = 'x' AND tier = 'b' AND seat >= 1":                                                            "MUSIC_KEY: the statement must give seat",
		"DELETE FROM SEATS USING LOCK REF WHERE show = 'x' AND (tier, seat) = ('b', 1)":                                                             "MUSIC_KEY: the statement must give tier",
		"UPDATE SEATS USING LOCK REF SET holder = 'z' WHERE show = 'x' AND tier = 'b' AND seat IN (1, 2)":                                           "MUSIC_KEY: the statement names 2 keys by IN",
		"UPDATE SEATS USING LOCK REF SET price = 7 WHERE show = 'x'":                                                                                "MUSIC_REFUSED: price is static, and one lock covers one row of SEATS",
		"UPDATE SEATS USING LOCK REF SET holder = 'z', price = 7 ROW":                                                                               "MUSIC_REFUSED: price is static",
		"INSERT INTO SEATS (show, tier, seat, price) VALUES ('x', 'b', 1, 7) USING LOCK REF":                                                        "MUSIC_REFUSED: price is static",
		"INSERT INTO SEATS (show, price) VALUES ('x', 7) USING LOCK REF":                                                                            "MUSIC_REFUSED: price is static",
		"DELETE price FROM SEATS USING LOCK REF WHERE show = 'x'":                                                                                   "MUSIC_REFUSED: price is static",
		"SELECT * FROM SEATS WHERE show = 'x' USING LOCK REF":                                                                                       "MUSIC_KEY: the statement must give tier",
		"SELECT * FROM SEATS WHERE show = 'x' AND tier = 'b' AND seat > 0 USING LOCK REF":                                                           "MUSIC_KEY: the statement must give seat",
		"UPDATE SEATS USING LOCK THIRD SET holder = 'z' ROW":                                                                                        "MUSIC_NOT_HELD",
		"UPDATE SEATS SET holder = 'z' ROW":                                                                                                         "MUSIC_UNLOCKED",
		"BEGIN BATCH USING LOCK REF DELETE FROM SEATS ROW; UPDATE SEATS SET holder = 'z' WHERE show = 'x' AND tier = 'b' AND seat = 2; APPLY BATCH": "MUSIC_REFUSED: a batch under a lock must stay within one row of one table",
		"ALTER TABLE SEATS WITH comment = '@critical'":                                                                                              "key and scope cannot change",
		"ALTER TABLE SEATS WITH comment = '@critical(key=row, scope=local)'":                                                                        "key and scope cannot change",
	} {
		cql = strings.NewReplacer("REF", fmt.Sprint(ref), "THIRD", fmt.Sprint(third), " ROW", row).Replace(cql)
		o := s.do(s.client, s.seatsCQL(cql))
		require.NotNil(t, o.failure, cql)
		assert.Equal(t, 0x2200, o.failure.code, cql)
		assert.Contains(t, o.failure.text, s.seatsCQL(says), cql)
	}
	for cql, values := range map[string][]any{
		"DELETE FROM SEATS USING LOCK ? WHERE show = ?":                           {ref, "x"},
		"UPDATE SEATS USING LOCK ? SET price = ? WHERE show = ?":                  {ref, 7, "x"},
		"DELETE FROM SEATS USING LOCK ? WHERE show = ? AND tier = ? AND seat > ?": {ref, "x", "b", 0},
	} {
		o := s.client.run(statement{cql: s.seatsCQL(cql), values: values})
		require.NotNil(t, o.failure, cql)
		assert.Equal(t, 0x2200, o.failure.code, "%s: %v", cql, o.failure)
	}
	assert.Equal(t, before, s.allSeats())
}

// A dirty row is synchronised alone, and writes to it that arrive late stay invisible; other rows
// and static columns are not touched.
func TestSynchroniseOfOneRow(t *testing.T) {
	s := newTableFixture(t, "keyrow_synch", "@critical")
	plain, _, _ := strings.Cut(s.seatsCQL(seats), " AND comment")
	s.works(s.client, plain)
	for seat := range 3 {
		s.works(s.client, s.seatsCQL("INSERT INTO SEATS (show, tier, seat, holder, notes, price) VALUES ('x', 'b', %d, 'ann', ['a', 'b'], 7)", seat))
	}
	stamps := func() (all []int64) {
		iter := s.direct.Query(s.seatsCQL("SELECT writetime(holder), writetime(price) FROM SEATS")).Iter()
		for holder, price := int64(0), int64(0); iter.Scan(&holder, &price); {
			all = append(all, holder, price)
		}
		require.NoError(t, iter.Close())
		return all
	}
	before := stamps()
	s.works(s.client, s.seatsCQL("ALTER TABLE SEATS WITH comment = '@critical(key=row)'"))
	ref := s.grant(s.works(s.client, s.seatsCQL("LOCK SEATS WHERE show = 'x' AND tier = 'b' AND seat = 1")), "HELD")
	read := s.works(s.client, s.seatsCQL("SELECT holder, notes, price FROM SEATS WHERE show = 'x' AND tier = 'b' AND seat = 1 USING LOCK %d", ref))
	assert.Equal(t, [][]string{{`"ann"`, `["a", "b"]`, "7"}}, read.rows)
	after := stamps()
	assert.Greater(t, after[2], before[2], "the row was written in the holder's window")
	after[2] = before[2]
	assert.Equal(t, before, after, "and nothing else")
	for _, late := range []string{
		"UPDATE SEATS USING TIMESTAMP %d SET holder = 'late', notes = ['late'] WHERE show = 'x' AND tier = 'b' AND seat = 1",
		"DELETE FROM SEATS USING TIMESTAMP %d WHERE show = 'x' AND tier = 'b' AND seat = 1",
	} {
		require.NoError(t, s.direct.Query(s.seatsCQL(late, before[2]+1)).Exec())
	}
	read = s.works(s.client, s.seatsCQL("SELECT holder, notes FROM SEATS WHERE show = 'x' AND tier = 'b' AND seat = 1 USING LOCK %d", ref))
	assert.Equal(t, [][]string{{`"ann"`, `["a", "b"]`}}, read.rows)
}

// The key of a row can be given as text and bound, through every driver.
func TestLockOnARowThroughEveryDriver(t *testing.T) {
	for _, d := range oneOfEach() {
		t.Run(d.name, func(t *testing.T) {
			s := newSeatsFixture(t, "keyrow_"+strings.NewReplacer("/", "_", "-", "_", "+", "_").Replace(d.name), d)
			run := func(cql string, values ...any) outcome {
				o := s.do(s.client, s.seatsCQL(cql), values...)
				require.NoError(t, o.err(), cql)
				return o
			}
			ref := s.grant(run("SELECT LOCK SEATS WHERE show = ? AND tier = ? AND seat = ?", "x", "", 1), "HELD")
			run(fmt.Sprintf("UPDATE SEATS USING LOCK %d SET holder = ? WHERE show = ? AND tier = ? AND seat = ?", ref), "ann", "x", "", 1)
			assert.Equal(t, "ann", told(run(fmt.Sprintf("SELECT holder FROM SEATS WHERE show = ? AND tier = ? AND seat = ? USING LOCK %d", ref), "x", "", 1), "holder"))
			s.grant(run(fmt.Sprintf("SELECT UNLOCK SEATS WHERE show = ? AND tier = ? AND seat = ? USING LOCK %d", ref), "x", "", 1), "RELEASED")
		})
	}
}

// A comment that was changed at the node does not change the settings that lock rows depend on.
func TestKeyStaysThoughTheCommentChanges(t *testing.T) {
	p := startProxy(t, nil)
	s := newSeatsFixture(t, "keyrow_kept", withGocql2(5, ""))
	own := s.driver.open(t, p.address, s.keyspace)
	ref := s.grant(s.works(s.client, s.seatsCQL("LOCK SEATS WHERE show = 'x' AND tier = 'b' AND seat = 1")), "HELD")
	require.NoError(t, s.direct.Query(s.seatsCQL("ALTER TABLE SEATS WITH comment = '@critical(key=partition, scope=local, lease=7m)'")).Exec())
	p.log.tells(t, "key and scope stay while there are lock rows: unlocked=reject, key=row, lease=5m0s")
	for _, c := range []client{s.client, own} {
		eventually(t, time.Minute, "one lock covers one row", func() error {
			o := s.do(c, s.seatsCQL("LOCK SEATS WHERE show = 'x'"))
			if o.failure == nil || !strings.Contains(o.failure.text, "one lock covers one row") {
				return errorf("%v", o)
			}
			return nil
		})
	}
	s.works(s.client, s.seatsCQL("UPDATE SEATS USING LOCK %d SET holder = 'ann' WHERE show = 'x' AND tier = 'b' AND seat = 1", ref))
	s.works(s.client, s.seatsCQL("ALTER TABLE SEATS WITH comment = 'lost'"))
	s.works(s.client, s.seatsCQL("UPDATE SEATS USING LOCK %d SET holder = 'ben' WHERE show = 'x' AND tier = 'b' AND seat = 1", ref))
}

// scope=local works in one data centre, and is stored with its name.
func TestScopeLocal(t *testing.T) {
	s := newTableFixture(t, "scope_local", "@critical(scope=local, lease=5m)")
	var centre, stored string
	require.NoError(t, s.direct.Query("SELECT data_center FROM system.local").Scan(&centre))
	var id gocql.UUID
	require.NoError(t, s.direct.Query("SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'accounts'", s.keyspace).Scan(&id))
	require.NoError(t, s.direct.Query("SELECT settings FROM music.tables WHERE id = ?", id).Scan(&stored))
	assert.Equal(t, "unlocked=reject, key=partition, scope=local, lease=5m0s, dc="+centre, stored)
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b'"), "HELD")
	s.works(s.client, fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 1) USING LOCK %d", ref))
	s.inWindow("b", "x", ref, 1)
	assert.Equal(t, "1", told(s.works(s.client, fmt.Sprintf("SELECT balance FROM ACCOUNTS WHERE branch = 'b' USING LOCK %d", ref)), "balance"))
	s.refused(s.client, "MUSIC_REFUSED", "ALTER TABLE ACCOUNTS WITH comment = '@critical(lease=5m)'")
	s.grant(s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK %d", ref)), "RELEASED")

	// If another data centre decides, this proxy grants no lock.
	require.NoError(t, s.direct.Query("UPDATE music.tables SET settings = ? WHERE id = ? IF settings = ?",
		"unlocked=reject, key=partition, scope=local, lease=5m0s, dc=elsewhere", id, stored).Exec())
	s.works(s.client, "ALTER TABLE ACCOUNTS ADD note text")
	o := s.do(s.client, "LOCK ACCOUNTS WHERE branch = 'b'")
	require.NotNil(t, o.failure)
	assert.Contains(t, o.failure.text, "its locks are decided in data centre elsewhere: this proxy stands in "+centre)
}

// A column that is dropped and added again hides what was written before (docs/protocol.md 3.10,
// Renew): later puts must be visible.
func TestPutsAfterAColumnCameBack(t *testing.T) {
	s := newTableFixture(t, "synch_columns", "@critical(lease=5m)")
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b'"), "HELD")
	put := "UPDATE ACCOUNTS USING LOCK %d SET balance = %d WHERE branch = 'b' AND id = 'x'"
	s.works(s.client, fmt.Sprintf(put, ref, 1))
	base, _ := s.term("b")
	for n := 2; n < 4; n++ {
		s.works(s.client, "ALTER TABLE ACCOUNTS DROP balance")
		s.works(s.client, "ALTER TABLE ACCOUNTS ADD balance bigint")
		s.works(s.client, fmt.Sprintf(put, ref, n))
		s.inWindow("b", "x", ref, int64(n))
		assert.Equal(t, fmt.Sprint(n), told(s.works(s.client, fmt.Sprintf("SELECT balance FROM ACCOUNTS WHERE branch = 'b' USING LOCK %d", ref)), "balance"))
	}
	renewed, _ := s.term("b")
	assert.Greater(t, renewed, base)

	// At the node, the column is there again before the proxies read the schema: they must notice
	// that it was dropped.
	for _, ddl := range []string{"DROP balance", "ADD balance bigint"} {
		require.NoError(t, s.direct.Query("ALTER TABLE "+s.keyspace+".accounts "+ddl).Exec())
	}
	eventually(t, time.Minute, "the window is renewed", func() error {
		s.works(s.client, fmt.Sprintf(put, ref, 9))
		if again, _ := s.term("b"); again <= renewed {
			return errorf("not yet")
		}
		return nil
	})
	s.works(s.client, fmt.Sprintf(put, ref, 10))
	s.inWindow("b", "x", ref, 10)
}

// Synchronising a large partition takes long; an operation meanwhile is answered in its own
// time-out, and succeeds when it is repeated.
func TestSynchroniseOfALargePartition(t *testing.T) {
	s := newTableFixture(t, "synch_large", "@critical(lease=5m, unlocked=allow)")
	const rows = 20_000
	for from := 0; from < rows; {
		b := s.direct.Batch(gocql.UnloggedBatch)
		for range 1000 {
			b.Query("INSERT INTO "+s.keyspace+".accounts (branch, id, balance) VALUES ('b', ?, ?)", fmt.Sprintf("%06d", from), int64(from))
			from++
		}
		require.NoError(t, b.Exec())
	}
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b'"), "HELD")
	eventually(t, time.Minute, "the key is synchronised", func() error {
		o := s.do(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = -1 WHERE branch = 'b' AND id = '000000'", ref))
		if o.failure != nil && !strings.Contains(o.failure.text, "is being synchronised") {
			return fatal{o.err()}
		}
		return o.err()
	})
	base, _ := s.term("b")
	iter := s.direct.Query("SELECT balance, writetime(balance) FROM " + s.keyspace + ".accounts WHERE branch = 'b'").Iter()
	n, sum := 0, int64(0)
	for balance, stamp := int64(0), int64(0); iter.Scan(&balance, &stamp); n++ {
		require.True(t, stamp >= base && stamp < base+window, "row %d was not rewritten", n)
		sum += balance
	}
	require.NoError(t, iter.Close())
	assert.Equal(t, rows, n)
	assert.EqualValues(t, rows*(rows-1)/2-1, sum)
}
