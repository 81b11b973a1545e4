package integration

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An application that knows nothing of locks writes a table whose plain writes have sections of their own, in every way, and hardly
// costs an LWT: its writes lie in windows of the lock.
func TestPlainWritesInSectionsOfTheirOwn(t *testing.T) {
	for i, d := range []driver{withGocql2(5, ""), withGocql2(4, "+lz4"), withGocql1(4, ""), withPython()} {
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

		// Who holds the lock is waited for, and who does not give it back in time is not overtaken.
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

// Plain writes of many clients are ordered by the lock: each is on top of the one before, and the stamps of all differ.
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
