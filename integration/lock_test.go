package integration

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// window is how many write timestamps a term has.
const window = 1 << 20

// tableFixture is a critical table in a keyspace of its own, used by a driver through the proxy and
// by the test directly at the node.
type tableFixture struct {
	t        *testing.T
	driver   driver
	address  string // of the proxy
	keyspace string
	direct   *gocql.Session
	client   client
	refs     map[string]string // references as clients see them, by branch; made by tests that want them
}

// lockDrivers returns the drivers and protocol versions that locks are tested with.
func lockDrivers() []driver {
	return []driver{
		withGocql2(3, ""), withGocql2(4, "+snappy"), withGocql2(4, "+lz4"), withGocql2(5, ""), withGocql2(5, "+lz4"),
		withGocql1(""), withPython(), withCqlsh(),
	}
}

// oneOfEach returns each driver in one version, for tests in which versions make no difference.
func oneOfEach() []driver {
	return []driver{withGocql2(5, "+lz4"), withGocql1(""), withPython(), withCqlsh()}
}

// newTableFixtureFor makes the table through the proxy.
func newTableFixtureFor(t *testing.T, d driver) *tableFixture {
	t.Helper()
	s := &tableFixture{t: t, driver: d, address: needProxy(t), direct: openGocql2(t, cluster2(needEnvironment(t).direct(), "")).session}
	s.keyspace = "lock_" + strings.NewReplacer("/", "_", "-", "_", "+", "_").Replace(d.name)
	for _, ddl := range []string{
		"DROP KEYSPACE IF EXISTS " + s.keyspace,
		"CREATE KEYSPACE " + s.keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
	} {
		require.NoError(t, s.direct.Query(ddl).Exec())
	}
	s.client = d.open(t, s.address, s.keyspace)
	o := s.client.run(statement{cql: "CREATE TABLE accounts (branch text, id text, balance bigint, PRIMARY KEY (branch, id)) WITH comment = 'money @critical'"})
	require.NoError(t, o.err())
	return s
}

// do runs a statement in which ACCOUNTS stands for the table.
func (s *tableFixture) do(c client, cql string, values ...any) outcome {
	s.t.Helper()
	if len(values) > 0 && !s.driver.bound {
		for _, v := range values {
			if text, ok := v.(string); ok {
				v = "'" + text + "'"
			}
			cql = strings.Replace(cql, "?", fmt.Sprint(v), 1)
		}
		values = nil
	}
	return c.run(statement{cql: strings.ReplaceAll(cql, "ACCOUNTS", s.keyspace+".accounts"), values: values})
}

// works runs a statement that must succeed.
func (s *tableFixture) works(c client, cql string, values ...any) outcome {
	s.t.Helper()
	var o outcome
	_ = poll(20*time.Second, func() error {
		if o = s.do(c, cql, values...); o.askedAgain() {
			return errorf("%v", o)
		}
		return nil
	})
	require.NoError(s.t, o.err(), cql)
	return o
}

// askedAgain reports whether an application would repeat the statement, since nothing was done: a
// proxy that another test has killed counts as living for a while and does not follow the schema,
// and a node of a busy machine may not answer in time, so that a LOCK has no reference when its
// WAIT ends.
func (o outcome) askedAgain() bool {
	err := o.err()
	if err == nil {
		ref, _ := strconv.Atoi(told(o, "lock_ref"))
		return told(o, "state") == "queued" && ref == 0
	}
	return strings.Contains(err.Error(), "it is becoming critical: try again") ||
		strings.Contains(err.Error(), "MUSIC_UNAVAILABLE: ") && strings.Contains(err.Error(), "nothing was done")
}

// refused runs a statement that must be refused with one of the prefixes, and change nothing.
func (s *tableFixture) refused(c client, prefixes, cql string, values ...any) {
	s.t.Helper()
	before := s.contents()
	o := s.do(c, cql, values...)
	require.NotNil(s.t, o.failure, "%s was not refused: %v", cql, o)
	found := false
	for prefix := range strings.FieldsSeq(prefixes) {
		found = found || strings.HasPrefix(o.failure.text, prefix+": ")
	}
	assert.True(s.t, found && o.failure.code == 0x2200, "%s: %v, not INVALID with %s", cql, o.failure, prefixes)
	assert.Equal(s.t, before, s.contents(), "%s has changed the data", cql)
}

// contents returns all rows, read from the node.
func (s *tableFixture) contents() string {
	s.t.Helper()
	rows, err := s.direct.Query("SELECT branch, id, balance, writetime(balance) FROM " + s.keyspace + ".accounts").Iter().SliceMap()
	require.NoError(s.t, err)
	return show(rows)
}

// term returns the base and the head of a branch's lock row, read from the node.
func (s *tableFixture) term(branch string) (base, head int64) {
	s.t.Helper()
	var id gocql.UUID
	err := s.direct.Query("SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'accounts'", s.keyspace).Scan(&id)
	require.NoError(s.t, err)
	companion := s.keyspace + ".music_lock_" + hex.EncodeToString(id[:])
	require.NoError(s.t, s.direct.Query("SELECT base, head FROM "+companion+" WHERE k1 = ?", branch).Scan(&base, &head))
	return base, head
}

// inWindow checks a written cell: its value, and that its timestamp is one of the holder's.
func (s *tableFixture) inWindow(branch, id string, ref, balance int64) {
	s.t.Helper()
	var got, stamp int64
	err := s.direct.Query("SELECT balance, writetime(balance) FROM "+s.keyspace+".accounts WHERE branch = ? AND id = ?", branch, id).Scan(&got, &stamp)
	require.NoError(s.t, err)
	base, head := s.term(branch)
	assert.Equal(s.t, balance, got)
	assert.LessOrEqual(s.t, head, ref, "the holder by the lock row, or behind it in its block")
	assert.True(s.t, stamp >= base && stamp < base+window, "written at %d, outside the window of %d", stamp, base)
}

// told returns a column of the row that LOCK and UNLOCK answer, without the quotes that some
// drivers show.
func told(o outcome, column string) string { return strings.ToLower(strings.Trim(o.cell(column), `"`)) }

// grant checks the answer of LOCK or UNLOCK and returns its reference.
func (s *tableFixture) grant(o outcome, state string) int64 {
	s.t.Helper()
	require.NoError(s.t, o.err())
	assert.Equal(s.t, []string{"[applied]", "lock_ref", "state", "position", "holder", "lease_ms", "owner_died"}, o.columns)
	require.Equal(s.t, strings.ToLower(state), told(o, "state"), "%v", o)
	ref, err := strconv.ParseInt(told(o, "lock_ref"), 10, 64)
	require.NoError(s.t, err)
	return ref
}

// A section, a queue and a lost lease, through every driver and version, as text and with bound
// values.
func TestLockThroughEveryDriver(t *testing.T) {
	for _, d := range lockDrivers() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel() // it waits for leases to end
			s := newTableFixtureFor(t, d)
			s.section()
			s.boundSection()
			s.queue()
			s.lostLease()
		})
	}
}

// section is one section, all as text.
func (s *tableFixture) section() {
	c := s.client
	s.refused(c, "MUSIC_UNLOCKED", "INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('zurich', 'x', 1)")
	ref := s.grant(s.works(c, "LOCK ACCOUNTS WHERE branch = 'zurich' WAIT 5s LEASE 60s AS 'teller'"), "HELD")

	s.works(c, fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('zurich', 'x', 100) USING LOCK %d", ref))
	s.inWindow("zurich", "x", ref, 100)
	s.works(c, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 90 WHERE branch = 'zurich' AND id = 'x'", ref))
	s.inWindow("zurich", "x", ref, 90)
	s.works(c, fmt.Sprintf("BEGIN BATCH USING LOCK %d UPDATE ACCOUNTS SET balance = 80 WHERE branch = 'zurich' AND id = 'x'; "+
		"INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('zurich', 'y', 20); APPLY BATCH", ref))
	s.inWindow("zurich", "x", ref, 80)
	s.inWindow("zurich", "y", ref, 20)
	s.works(c, fmt.Sprintf("DELETE FROM ACCOUNTS USING LOCK %d WHERE branch = 'zurich' AND id = 'y'", ref))
	read := s.works(c, fmt.Sprintf("SELECT id, balance FROM ACCOUNTS WHERE branch = 'zurich' USING LOCK %d", ref))
	assert.Len(s.t, read.rows, 1)
	assert.Equal(s.t, "80", told(read, "balance"))

	s.refused(c, "MUSIC_UNLOCKED", "UPDATE ACCOUNTS SET balance = 1 WHERE branch = 'zurich' AND id = 'x'")
	s.refused(c, "MUSIC_NOT_HELD", fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1 WHERE branch = 'zurich' AND id = 'x'", ref+1))
	s.refused(c, "MUSIC_NOT_HELD", fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1 WHERE branch = 'geneva' AND id = 'x'", ref))
	s.refused(c, "MUSIC_NOT_HELD", "UPDATE ACCOUNTS USING LOCK 0 SET balance = 1 WHERE branch = 'zurich' AND id = 'x'")
	s.refused(c, "MUSIC_REFUSED", fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d AND TIMESTAMP 5 SET balance = 1 WHERE branch = 'zurich' AND id = 'x'", ref))
	s.refused(c, "MUSIC_REFUSED", fmt.Sprintf("BEGIN BATCH USING LOCK %d UPDATE ACCOUNTS SET balance = 1 WHERE branch = 'zurich' AND id = 'x'; "+
		"UPDATE ACCOUNTS SET balance = 1 WHERE branch = 'geneva' AND id = 'x'; APPLY BATCH", ref))

	// The session's keyspace holds for unqualified names, in any case.
	assert.Equal(s.t, ref, s.grant(s.works(c, fmt.Sprintf("lock Accounts where branch = 'zurich' using lock %d", ref)), "HELD"))
	s.refused(c, "MUSIC_UNLOCKED", "UPDATE accounts SET balance = 1 WHERE branch = 'zurich' AND id = 'x'")
	s.refused(c, "MUSIC_UNLOCKED", `UPDATE "accounts" SET balance = 1 WHERE branch = 'zurich' AND id = 'x'`)
	s.works(c, fmt.Sprintf("UPDATE accounts USING LOCK %d SET balance = 80 WHERE branch = 'zurich' AND id = 'x'", ref))
	s.inWindow("zurich", "x", ref, 80)

	s.grant(s.works(c, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'zurich' USING LOCK %d", ref)), "RELEASED")
	s.refused(c, "MUSIC_LOST MUSIC_NOT_HELD", fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1 WHERE branch = 'zurich' AND id = 'x'", ref))
	assert.Equal(s.t, "80", told(s.works(c, "SELECT balance FROM ACCOUNTS WHERE branch = 'zurich' AND id = 'x'"), "balance"), "an ordinary read")
}

// boundSection is the same with values bound to prepared statements, if the driver can.
func (s *tableFixture) boundSection() {
	c := s.client
	insert := "INSERT INTO ACCOUNTS (branch, id, balance) VALUES (?, ?, ?)"
	s.refused(c, "MUSIC_UNLOCKED", insert, "basel", "x", 1)
	ref := s.grant(s.works(c, "SELECT LOCK ACCOUNTS WHERE branch = ?", "basel"), "HELD")
	s.works(c, insert+" USING LOCK ?", "basel", "x", 7, ref)
	s.inWindow("basel", "x", ref, 7)
	update := "UPDATE ACCOUNTS USING LOCK ? SET balance = ? WHERE branch = ? AND id = ?"
	s.works(c, update, ref, 8, "basel", "x")
	s.inWindow("basel", "x", ref, 8)
	assert.Equal(s.t, "8", told(s.works(c, "SELECT balance FROM ACCOUNTS WHERE branch = ? USING LOCK ?", "basel", ref), "balance"))
	s.works(c, "DELETE balance FROM ACCOUNTS USING LOCK ? WHERE branch = ? AND id = ?", ref, "basel", "x")
	s.works(c, update, ref, 9, "basel", "x")
	s.inWindow("basel", "x", ref, 9)
	s.refused(c, "MUSIC_NOT_HELD", update, ref+1, 1, "basel", "x")
	s.refused(c, "MUSIC_NOT_HELD", update, ref, 1, "bern", "x")
	s.grant(s.works(c, "SELECT UNLOCK ACCOUNTS WHERE branch = ? USING LOCK ?", "basel", ref), "RELEASED")
	s.refused(c, "MUSIC_LOST MUSIC_NOT_HELD", update, ref, 1, "basel", "x")
}

// queue has two clients wait, one behind the other.
func (s *tableFixture) queue() {
	first, second := s.client, s.driver.open(s.t, s.address, s.keyspace)
	defer second.close()
	held := s.grant(s.works(first, "LOCK ACCOUNTS WHERE branch = 'chur'"), "HELD")
	busy := s.works(second, "LOCK ACCOUNTS WHERE branch = 'chur' NOWAIT")
	assert.Equal(s.t, "busy", told(busy, "state"))
	assert.Equal(s.t, "false", told(busy, "[applied]"))
	queued := s.grant(s.works(second, "LOCK ACCOUNTS WHERE branch = 'chur' WAIT 100ms"), "QUEUED")
	assert.Greater(s.t, queued, held)
	write := "UPDATE ACCOUNTS USING LOCK %d SET balance = %d WHERE branch = 'chur' AND id = 'x'"
	s.refused(second, "MUSIC_NOT_HELD", fmt.Sprintf(write, queued, 2))
	s.works(first, fmt.Sprintf(write, held, 1))
	s.inWindow("chur", "x", held, 1)
	s.grant(s.works(first, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'chur' USING LOCK %d", held)), "RELEASED")
	assert.Equal(s.t, queued, s.grant(s.works(second, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = 'chur' USING LOCK %d WAIT 5s", queued)), "HELD"))
	s.works(second, fmt.Sprintf(write, queued, 2))
	s.inWindow("chur", "x", queued, 2)
	s.refused(first, "MUSIC_LOST MUSIC_NOT_HELD", fmt.Sprintf(write, held, 3))
	s.grant(s.works(second, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'chur' USING LOCK %d", queued)), "RELEASED")
}

// lostLease has a client that is silent for longer than its lease.
func (s *tableFixture) lostLease() {
	second := s.driver.open(s.t, s.address, s.keyspace)
	defer second.close()
	write := "UPDATE ACCOUNTS USING LOCK %d SET balance = %d WHERE branch = 'thun' AND id = 'x'"
	lost := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'thun' LEASE 1s"), "HELD")
	s.works(s.client, fmt.Sprintf(write, lost, 1))
	next := s.grant(s.works(second, "LOCK ACCOUNTS WHERE branch = 'thun' WAIT 200ms"), "QUEUED")
	eventually(s.t, time.Minute, "the lease runs out", func() error {
		o := s.works(second, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = 'thun' USING LOCK %d WAIT 500ms", next))
		if told(o, "state") != "held" {
			return errorf("%v", o)
		}
		return nil
	})
	s.refused(s.client, "MUSIC_LOST MUSIC_NOT_HELD", fmt.Sprintf(write, lost, 2))
	s.works(second, fmt.Sprintf(write, next, 3))
	s.inWindow("thun", "x", next, 3)
	assert.Equal(s.t, "lost", told(s.works(s.client, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = 'thun' USING LOCK %d", lost)), "state"))
}
