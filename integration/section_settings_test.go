package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The settings in a comment hold from the DDL on, and an ALTER changes them.
func TestSettingsOfTheComment(t *testing.T) {
	s := newTableFixture(t, "section_settings", "money @critical(lease=2s) of the bank")
	plainWrite := "INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 1)"
	o := s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 10m")
	s.grant(o, "HELD")
	left, err := strconv.Atoi(told(o, "lease_ms"))
	require.NoError(t, err)
	assert.LessOrEqual(t, left, 2000, "the table bounds the client's lease")
	s.refused(s.client, "MUSIC_UNLOCKED", plainWrite)

	o = s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical(unlocked=allow, lease=3s)'")
	assert.Contains(t, strings.Join(o.warnings, "\n"), s.keyspace+".accounts is critical: unlocked=allow, key=partition, lease=3s")
	s.works(s.client, plainWrite)
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'c'"), "HELD")
	s.works(s.client, fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('c', 'x', 1) USING LOCK %d", ref))
	s.inWindow("c", "x", ref, 1)

	s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'c' USING LOCK %d", ref))
	s.endOfAllow(plainWrite)
}

// endOfAllow: plain writes from before, even with stamps in the future, are below every later
// window.
func (s *tableFixture) endOfAllow(plainWrite string) {
	future := time.Now().Add(time.Hour).UnixMicro()
	s.works(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING TIMESTAMP %d SET balance = 77 WHERE branch = 'c' AND id = 'x'", future))
	before, closed := s.closed(), time.Now().UnixMicro()
	o := s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical'")
	assert.Contains(s.t, strings.Join(o.warnings, "\n"), s.keyspace+".accounts is critical: unlocked=reject, key=partition")
	assert.Greater(s.t, s.closed(), before)
	assert.GreaterOrEqual(s.t, s.closed(), closed)
	s.refused(s.client, "MUSIC_UNLOCKED", plainWrite)
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'c'"), "HELD")
	assert.Equal(s.t, "77", told(s.works(s.client, fmt.Sprintf("SELECT balance FROM ACCOUNTS WHERE branch = 'c' USING LOCK %d", ref)), "balance"))
	base, _ := s.term("c")
	assert.Greater(s.t, base, future, "the window is above what was found")
	s.works(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 5 WHERE branch = 'c' AND id = 'x'", ref))
	assert.Equal(s.t, "5", told(s.works(s.client, "SELECT balance FROM ACCOUNTS WHERE branch = 'c'"), "balance"))
}

// A DDL whose settings cannot be read is refused, and changes nothing.
func TestSettingsThatDoNotExistAreRefusedWithTheDDL(t *testing.T) {
	s := newTableFixture(t, "section_unknown", "@critical")
	for _, comment := range []string{
		"@critical(nosuch=1)", "@critical(unlocked=perhaps)", "@critical(lease=5)", "@critical(lease=-1s)", "@critical(key=", "@critical(lease=1s, lock)",
		"@critical(strict=maybe)", "@critical(key=column)", "@critical(scope=dc1)", "x @CRITICAL(nosuch)",
	} {
		for _, ddl := range []string{
			"CREATE TABLE " + s.keyspace + ".fresh (k int PRIMARY KEY) WITH comment = '%s'",
			"CREATE TABLE " + s.keyspace + ".fresh (k int PRIMARY KEY) WITH gc_grace_seconds = 864000 AND COMMENT='%s' AND default_time_to_live = 0",
			"ALTER TABLE ACCOUNTS WITH /* x */ comment = '%s'", "ALTER TABLE ACCOUNTS WITH comment = $$%s$$",
		} {
			s.refused(s.client, "MUSIC_REFUSED", fmt.Sprintf(ddl, comment))
		}
	}
	var tables, comment string
	iter := s.direct.Query("SELECT table_name, comment FROM system_schema.tables WHERE keyspace_name = ?", s.keyspace).Iter()
	for name := ""; iter.Scan(&name, &comment); {
		if !strings.HasPrefix(name, "music_lock_") {
			tables += name + " " + comment
		}
	}
	require.NoError(t, iter.Close())
	assert.Equal(t, "accounts @critical", tables)
}

// A table that loses its comment stays critical until its lock table is dropped.
func TestCriticalWithoutTheCommentUntilTheCompanionIsDropped(t *testing.T) {
	s := newTableFixture(t, "section_retire", "@critical(lease=7m)")
	plainWrite := "INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 1)"
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 6m"), "HELD")
	o := s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = 'a migration tool has lost it'")
	assert.Contains(t, strings.Join(o.warnings, "\n"), s.keyspace+".accounts stays critical without @critical in its comment")
	s.refused(s.client, "MUSIC_UNLOCKED", plainWrite)
	s.works(s.client, fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 2) USING LOCK %d", ref))
	companion := s.companion()
	s.works(s.client, "DROP TABLE "+s.keyspace+"."+companion)
	s.works(s.client, plainWrite)
	o = s.do(s.client, "LOCK ACCOUNTS WHERE branch = 'b'")
	require.NotNil(t, o.failure)
	assert.Contains(t, o.failure.text, "MUSIC_REFUSED: ")

	o = s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical'")
	assert.NotContains(t, strings.Join(o.warnings, "\n"), "stays critical")
	s.refused(s.client, "MUSIC_UNLOCKED", plainWrite)
	s.refused(s.client, "MUSIC_LOST MUSIC_NOT_HELD", fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 3) USING LOCK %d", ref))
	again := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b'"), "HELD")
	assert.Greater(t, again, ref, "references go on above")
	s.works(s.client, fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 4) USING LOCK %d", again))
	base, head := s.term("b")
	assert.Positive(t, head)
	assert.Positive(t, base)
}

// CREATE TABLE is answered with a warning that names the settings, and the table can be locked at
// once.
func TestNewTableSaysThatItIsCritical(t *testing.T) {
	s := newTableFixture(t, "section_warning", "@critical")
	o := s.works(s.client, "CREATE TABLE "+s.keyspace+`."Mixed" (k int PRIMARY KEY, v int) WITH comment = '@critical(lease=1m)'`)
	assert.Contains(t, strings.Join(o.warnings, "\n"), s.keyspace+".Mixed is critical: unlocked=reject, key=partition, lease=1m")
	s.grant(s.works(s.client, `LOCK `+s.keyspace+`."Mixed" WHERE k = 1`), "HELD")
	o = s.works(s.client, "CREATE TABLE "+s.keyspace+".ordinary (k int PRIMARY KEY, v int) WITH comment = 'uncritical@criticality'")
	assert.Empty(t, o.warnings)
	s.works(s.client, "INSERT INTO "+s.keyspace+".ordinary (k, v) VALUES (1, 1)")
}

// music.named exists without any DDL of the user, and its rows are locked like any others.
func TestNamedLocksWorkOutOfTheBox(t *testing.T) {
	needEnvironment(t)
	s := &tableFixture{t: t, driver: withGocql2(4, ""), address: needProxy(t)}
	s.client = s.driver.open(t, s.address, "")
	name := "'section/" + t.Name() + "'"
	ref := s.grant(s.works(s.client, "LOCK music.named WHERE name = "+name), "HELD")
	s.works(s.client, fmt.Sprintf("UPDATE music.named USING LOCK %d SET value = 'host:port' WHERE name = %s", ref, name))
	o := s.works(s.client, "SELECT value FROM music.named WHERE name = "+name)
	assert.Equal(t, "host:port", told(o, "value"))
	s.grant(s.works(s.client, fmt.Sprintf("UNLOCK music.named WHERE name = %s USING LOCK %d", name, ref)), "RELEASED")
	o = s.do(s.client, fmt.Sprintf("UPDATE music.named USING LOCK %d SET value = 'late' WHERE name = %s", ref, name))
	require.NotNil(t, o.failure)
	assert.True(t, strings.HasPrefix(o.failure.text, "MUSIC_LOST: "), "%v", o)
}
