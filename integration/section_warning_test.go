package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A client that renews its lease late gets a warning, through every driver that shows warnings.
func TestWarningInTheLastFifthOfTheLease(t *testing.T) {
	for _, d := range []driver{withGocql2(4, "+snappy"), withGocql2(5, "+lz4"), withPython()} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel() // it waits
			s := newTableFixtureFor(t, d)
			ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 8s"), "HELD")
			write := fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 1) USING LOCK %d", ref)
			assert.Empty(t, s.works(s.client, write).warnings)
			eventually(t, time.Minute, "the lease does not run out", func() error {
				o := s.works(s.client, "LIST LOCKS ON ACCOUNTS WHERE branch = 'b'")
				left, err := strconv.Atoi(told(o, "lease_ms"))
				if err == nil && left >= 1600 {
					err = errorf("%d ms left", left)
				}
				return err
			})
			o := s.works(s.client, write)
			require.Len(t, o.warnings, 1)
			assert.Regexp(t, fmt.Sprintf(`^MUSIC: lock_ref %d on %s.accounts had (\d+ms|1(\.\d)?s) of its 8s lease left when this came: renew it`, ref, s.keyspace), o.warnings[0])
			assert.Empty(t, s.works(s.client, write).warnings, "the write has renewed it")
		})
	}
}

// The answer to the DDL of a critical table warns of risks of the keyspace and the nodes.
func TestDDLWarnsOfTheKeyspaceAndTheNodes(t *testing.T) {
	s := newTableFixture(t, "section_hints", "@critical")
	o := s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical(lease=1m)'")
	assert.Equal(t, []string{
		s.keyspace + ".accounts is critical: unlocked=reject, key=partition, lease=1m0s",
		"keyspace " + s.keyspace + " has fewer than three replicas: the loss of one node stops its locks",
		"commitlog_sync is periodic: nodes that die together lose their last acknowledged writes",
	}, o.warnings)
	require.NoError(t, s.direct.Query("ALTER KEYSPACE "+s.keyspace+" WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}").Exec())
	o = s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical'")
	assert.Contains(t, o.warnings, "keyspace music has fewer replicas than "+s.keyspace+": locks end with nodes that the data would survive")
	assert.Contains(t, o.warnings, "keyspace "+s.keyspace+" has 3 replicas, and nodes are up for 1 of them: with fewer than 2 nothing is read or written under a lock")

	// A lock can be acquired, since Paxos counts the existing nodes; for operations under it,
	// Cassandra's own error is passed on.
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'few'"), "HELD")
	plain := s.direct.Query("SELECT balance FROM " + s.keyspace + ".accounts WHERE branch = 'few'").Consistency(gocql.Quorum).Exec()
	var few *gocql.RequestErrUnavailable
	require.ErrorAs(t, plain, &few)
	for _, cql := range []string{
		"SELECT balance FROM ACCOUNTS WHERE branch = 'few' USING LOCK ?", "DELETE FROM ACCOUNTS USING LOCK ? WHERE branch = 'few'",
	} {
		o := s.do(s.client, cql, ref)
		require.NotNil(t, o.failure, cql)
		assert.Equal(t, gocql.ErrCodeUnavailable, o.failure.code, "%v", o)
		assert.Contains(t, o.failure.text, few.Message(), cql)
	}
}

// patternKeyspace is the keyspace whose tables are critical by the setting of all proxies here.
const patternKeyspace = "section_pattern"

// A table that matches a pattern of the configuration is critical with the default settings; those
// of its comment have precedence.
func TestCriticalByPattern(t *testing.T) {
	s := &tableFixture{t: t, driver: withGocql2(5, ""), keyspace: patternKeyspace}
	s.direct = openGocql2(t, cluster2(needEnvironment(t).direct(), "")).session
	for _, ddl := range []string{
		"DROP KEYSPACE IF EXISTS " + s.keyspace,
		"CREATE KEYSPACE " + s.keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE " + s.keyspace + ".accounts (branch text, id text, balance bigint, PRIMARY KEY (branch, id))",
	} {
		require.NoError(t, s.direct.Query(ddl).Exec())
	}
	p := startProxy(t, nil)
	s.address = p.address
	s.client = s.driver.open(t, s.address, s.keyspace)
	s.refused(s.client, "MUSIC_UNLOCKED MUSIC_REFUSED", "INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 1)")
	var held outcome
	eventually(t, time.Minute, "other proxies have followed", func() error {
		held = s.do(s.client, "LOCK ACCOUNTS WHERE branch = 'b'")
		return held.err()
	})
	ref := s.grant(held, "HELD")
	s.refused(s.client, "MUSIC_UNLOCKED", "INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 1)")
	s.works(s.client, fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 1) USING LOCK %d", ref))
	s.inWindow("b", "x", ref, 1)
	o := s.works(s.client, "CREATE TABLE "+s.keyspace+".fresh (k int PRIMARY KEY, v int)")
	require.NotEmpty(t, o.warnings)
	assert.Equal(t, s.keyspace+".fresh is critical: unlocked=reject, key=partition", o.warnings[0])
	o = s.works(s.client, "CREATE TABLE "+s.keyspace+".open (k int PRIMARY KEY, v int) WITH comment = '@critical(unlocked=allow)'")
	assert.Equal(t, s.keyspace+".open is critical: unlocked=allow, key=partition", o.warnings[0])
	s.works(s.client, "INSERT INTO "+s.keyspace+".open (k, v) VALUES (1, 1)")
	s.refused(s.client, "MUSIC_REFUSED", "CREATE TABLE "+s.keyspace+".counted (k int PRIMARY KEY, n counter)")
	assert.Equal(t, "unlocked=reject, key=partition", s.stored("accounts"))
	assert.Equal(t, "unlocked=reject, key=partition", s.stored("fresh"))
}

// The settings that lock rows depend on are stored whenever they change, and stay in force if a
// tool removes the comment.
func TestSettingsAreStored(t *testing.T) {
	s := newTableFixture(t, "section_stored", "@critical")
	assert.Equal(t, "unlocked=reject, key=partition", s.stored("accounts"))
	s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical(lease=1m)'")
	assert.Equal(t, "unlocked=reject, key=partition, lease=1m0s", s.stored("accounts"))
	s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = 'a migration tool has lost it'")
	s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b'"), "HELD")
	for _, unlocked := range []string{"allow", "reject"} {
		s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical(unlocked="+unlocked+")'")
		assert.Equal(t, "unlocked="+unlocked+", key=partition", s.stored("accounts"))
	}
	s.works(s.client, "CREATE TABLE "+s.keyspace+".late (k int PRIMARY KEY, v int)")
	s.works(s.client, "ALTER TABLE "+s.keyspace+".late WITH comment = '@critical'")
	assert.Equal(t, "unlocked=reject, key=partition", s.stored("late"))
}

// stored returns the row of a table in music.tables, read from the node.
func (s *tableFixture) stored(table string) (settings string) {
	s.t.Helper()
	var id gocql.UUID
	require.NoError(s.t, s.direct.Query("SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", s.keyspace, table).Scan(&id))
	require.NoError(s.t, s.direct.Query("SELECT settings FROM music.tables WHERE id = ?", id).Scan(&settings))
	return settings
}

// For a table that does not exist, the error is Cassandra's; for one that is not critical, it says
// what to do.
func TestLockOfTablesThatHaveNoLocks(t *testing.T) {
	for _, d := range oneOfEach() {
		t.Run(d.name, func(t *testing.T) {
			s := newTableFixtureFor(t, d)
			s.works(s.client, "CREATE TABLE "+s.keyspace+".plain (k int PRIMARY KEY)")
			for _, verb := range []string{"LOCK", "SELECT LOCK", "UNLOCK"} {
				for table, says := range map[string]string{
					s.keyspace + ".nosuch": "table nosuch does not exist", "nosuch": "table nosuch does not exist", "nowhere.t": "keyspace nowhere does not exist",
					s.keyspace + ".plain": "MUSIC_REFUSED: " + s.keyspace + ".plain is not critical: make it so with ALTER TABLE",
				} {
					o := s.do(s.client, strings.TrimSpace(verb+" "+table+" WHERE k = 1 USING LOCK 1"))
					require.NotNil(t, o.failure)
					assert.True(t, strings.HasPrefix(o.failure.text, says), "%s %s: %v", verb, table, o)
				}
			}
		})
	}
}
