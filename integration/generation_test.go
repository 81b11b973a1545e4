package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whatever ends the locks of a table for good, the references of a later table of its name are
// above all of theirs, and an old reference permits nothing.
func TestReferencesAboveAllOfThoseBefore(t *testing.T) {
	s := newTableFixture(t, "generations", "@critical(lease=5m)")
	const create = "CREATE TABLE ACCOUNTS (branch text, id text, balance bigint, PRIMARY KEY (branch, id)) WITH comment = '@critical(lease=5m)'"
	companion := "DROP TABLE " + s.keyspace + "." + s.companion()
	last := s.reference(20 * time.Second)
	s.refused(s.client, "MUSIC_REFUSED", companion)
	for _, end := range []struct {
		how string
		do  func()
	}{
		{"dropped past the proxies", func() { require.NoError(t, s.direct.Query(companion).Exec()) }},
		{"ordinary for a while", func() {
			s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = ''")
			s.works(s.client, companion)
			s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical(lease=5m)'")
		}},
		{"dropped and created", func() {
			s.works(s.client, "DROP TABLE ACCOUNTS")
			s.works(s.client, create)
		}},
		{"dropped and created past the proxies", func() {
			require.NoError(t, s.direct.Query("DROP TABLE "+s.keyspace+".accounts").Exec())
			s.works(s.client, create)
		}},
	} {
		end.do()
		old := fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 666 WHERE branch = 'b' AND id = 'x'", last)
		eventually(t, time.Minute, "the old reference is not served", func() error {
			if s.do(s.client, old).failure == nil {
				return errorf("%s: carried out under %d", end.how, last)
			}
			return nil
		})
		next := s.reference(20 * time.Second)
		assert.Greater(t, next, last, end.how)
		for _, stale := range []int64{1, last, next - 1} {
			o := s.do(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 666 WHERE branch = 'b' AND id = 'x'", stale))
			assert.NotNil(t, o.failure, "%s: %d", end.how, stale)
		}
		last = next
	}
}

// reference locks branch b, writes under the lock, and keeps it. It takes a while until a new lock
// table is in use.
func (s *tableFixture) reference(limit time.Duration) (ref int64) {
	s.t.Helper()
	eventually(s.t, limit, "a lock", func() error {
		o := s.do(s.client, "LOCK ACCOUNTS WHERE branch = 'b'")
		if o.failure == nil {
			ref = s.grant(o, "HELD")
		}
		return o.err()
	})
	s.works(s.client, fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 1) USING LOCK %d", ref))
	return ref
}
