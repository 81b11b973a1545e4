package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/operations.md, Restoring: whether the restored data are older or newer than the lock rows,
// and whatever happened to those, the first lock of each key reads what was restored, its writes
// persist, and no lock from before the restore is valid.
func TestRestoring(t *testing.T) {
	s := newTableFixture(t, "restoring", "@critical(lease=5m)")
	before := s.reference(20 * time.Second)
	backedUp := time.Now().UnixMicro()
	s.works(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 2 WHERE branch = 'b' AND id = 'x'", before)) // after the backup

	s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = ''")
	s.works(s.client, "DROP TABLE "+s.keyspace+"."+s.companion())
	s.works(s.client, "TRUNCATE ACCOUNTS")
	for branch, stamp := range map[string]int64{"b": backedUp - 1_000_000, "c": time.Now().UnixMicro()} { // as tables of a snapshot bring their stamps
		cql := fmt.Sprintf("INSERT INTO %s.accounts (branch, id, balance) VALUES ('%s', 'x', 1) USING TIMESTAMP %d", s.keyspace, branch, stamp)
		require.NoError(t, s.direct.Query(cql).Exec())
	}
	s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical(lease=5m)'")

	for _, branch := range []string{"b", "c"} {
		var ref int64
		eventually(t, time.Minute, "a lock", func() error {
			o := s.do(s.client, "LOCK ACCOUNTS WHERE branch = '"+branch+"'")
			if o.failure == nil {
				ref = s.grant(o, "HELD")
			}
			return o.err()
		})
		assert.Greater(t, ref, before)
		of := fmt.Sprintf(" WHERE branch = '%s' AND id = 'x'", branch)
		read := fmt.Sprintf("SELECT balance FROM ACCOUNTS%s USING LOCK %d", of, ref)
		assert.Equal(t, "1", told(s.works(s.client, read), "balance"), "what was restored")
		s.works(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 3%s", ref, of))
		assert.Equal(t, "3", told(s.works(s.client, read), "balance"))
		o := s.do(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 666%s", before, of))
		assert.NotNil(t, o.failure, "a lock from before the restore")
	}
}
