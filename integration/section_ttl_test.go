package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A row without values, written before its table was critical or under a lock, disappears when its
// time to live is over.
func TestRowsKeepTheirTimeToLive(t *testing.T) {
	s := newTableFixture(t, "section_ttl", "@critical(unlocked=allow)")
	start := time.Now().Unix()
	for _, row := range []string{
		"(branch, id) VALUES ('b', 'a key') USING TTL 600", "(branch, id) VALUES ('b', 'for ever')", "(branch, id, balance) VALUES ('b', 'a value', 1) USING TTL 600",
	} {
		s.works(s.client, "INSERT INTO ACCOUNTS "+row)
	}
	s.works(s.client, "DELETE balance FROM ACCOUNTS WHERE branch = 'b' AND id = 'a value'")
	s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical'")
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b'"), "HELD")
	s.works(s.client, fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id) VALUES ('b', 'locked') USING LOCK %d AND TTL 600", ref))
	assert.Equal(t, []string{"a key", "a value", "for ever", "locked"}, s.idsAt("b", start+590))
	assert.Equal(t, []string{"for ever"}, s.idsAt("b", time.Now().Unix()+600))

	o := s.works(s.client, "ALTER TABLE ACCOUNTS WITH default_time_to_live = 600")
	assert.Contains(t, strings.Join(o.warnings, "\n"), "default_time_to_live is set")
}

// idsAt returns the ids of a branch that exist at a second of Unix time.
func (s *tableFixture) idsAt(branch string, second int64) (ids []string) {
	s.t.Helper()
	iter := s.direct.Query("SELECT id FROM "+s.keyspace+".accounts WHERE branch = ?", branch).WithNowInSeconds(int(second)).Iter()
	for id := ""; iter.Scan(&id); {
		ids = append(ids, id)
	}
	require.NoError(s.t, iter.Close())
	return ids
}
