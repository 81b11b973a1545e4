package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Operations of a strict table are checked against the lock row: what its holder does works in
// every version and compression, and the next operation after a forced end fails.
func TestStrictTable(t *testing.T) {
	s := newTableFixture(t, "section_strict", "@critical(strict=true)")
	for _, d := range []driver{withGocql2(3, ""), withGocql2(4, "+lz4"), withGocql2(5, "")} {
		t.Run(d.name, func(t *testing.T) {
			c := d.open(t, s.address, s.keyspace)
			ref := s.grant(s.works(c, "LOCK ACCOUNTS WHERE branch = 'b'"), "HELD")
			s.works(c, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 7 WHERE branch = 'b' AND id = 'x'", ref))
			read := s.works(c, fmt.Sprintf("SELECT balance FROM ACCOUNTS WHERE branch = 'b' AND id = 'x' USING LOCK %d", ref))
			assert.Equal(t, "7", told(read, "balance"))
			s.works(c, fmt.Sprintf("BEGIN BATCH USING LOCK %d DELETE FROM ACCOUNTS WHERE branch = 'b' AND id = 'x'; APPLY BATCH", ref))
			s.works(c, "UNLOCK ACCOUNTS WHERE branch = 'b' FORCE REASON 'a test'")
			s.refused(c, "MUSIC_LOST", fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 8 WHERE branch = 'b' AND id = 'x'", ref))
		})
	}
}
