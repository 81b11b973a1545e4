//go:build compat

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Transactions of Cassandra 6 pass beside locks where they write no critical table, and are refused
// by name where they do.
func TestTransactionsBesideLocks(t *testing.T) {
	if !strings.HasPrefix(*release, "6") {
		t.Skip("Cassandra has transactions from 6.0 on: -cassandra=6.0-alpha2")
	}
	s := newTableFixture(t, "transactions", "@critical")
	s.works(s.client, "CREATE TABLE stock (item text PRIMARY KEY, left int) WITH transactional_mode = 'full'")
	s.works(s.client, "CREATE TABLE journal (id int PRIMARY KEY, what text, fence bigint) WITH transactional_mode = 'full'")
	s.works(s.client, "CREATE TABLE orders (id int PRIMARY KEY, state text) WITH comment = '@critical'")
	ref := s.grant(s.works(s.client, "LOCK orders WHERE id = 1"), "HELD")
	s.works(s.client, fmt.Sprintf("UPDATE orders USING LOCK %d SET state = 'paid' WHERE id = 1", ref))
	s.works(s.client, "INSERT INTO stock (item, left) VALUES ('lamp', 2)")
	s.works(s.client, "INSERT INTO journal (id, fence) VALUES (1, 0)")
	const begin, end = "BEGIN TRANSACTION ", " COMMIT TRANSACTION"
	book := begin + "LET s = (SELECT left FROM transactions.stock WHERE item = 'lamp'); LET j = (SELECT fence FROM transactions.journal WHERE id = 1); " +
		fmt.Sprintf("SELECT s.left; IF s.left >= 1 AND j.fence < %d THEN UPDATE transactions.stock SET left -= 1 WHERE item = 'lamp'; ", ref) +
		fmt.Sprintf("INSERT INTO transactions.journal (id, what, fence) VALUES (1, 'booked', %d); END IF", ref) + end
	for _, left := range []string{"2", "1", "1"} { // only the first books, by the fence
		assert.Equal(t, [][]string{{left}}, s.works(s.client, book).rows)
	}
	reads := s.do(s.client, begin+"LET o = (SELECT state FROM transactions.orders WHERE id = 1); SELECT o.state;"+end)
	require.NotNil(t, reads.failure, "Cassandra's own answer: the table has no transactional mode")
	assert.NotContains(t, reads.failure.text, "MUSIC")
	t.Log(reads)
	assert.Equal(t, [][]string{{"1"}}, s.works(s.client, "SELECT left FROM stock WHERE item = 'lamp'").rows)
	for _, write := range []string{
		"UPDATE transactions.orders SET state = 'x' WHERE id = 1;", "DELETE FROM orders WHERE id = 1;", "INSERT INTO transactions.stock (item, left) VALUES ('x', 1); INSERT INTO orders (id, state) VALUES (1, 'x');",
	} {
		o := s.do(s.client, begin+write+end)
		require.NotNil(t, o.failure, write)
		assert.Contains(t, o.failure.text, "MUSIC_REFUSED: transactions.orders is critical, and a transaction writes with timestamps of its own", write)
	}
	o := s.do(s.client, begin+"UPDATE transactions.stock USING TIMESTAMP 5 SET left = 7 WHERE item = 'lamp';"+end)
	require.NotNil(t, o.failure, "a transaction takes no timestamp, so no lock can give it one")
	t.Log(o)
	assert.Equal(t, [][]string{{`"paid"`}}, s.works(s.client, "SELECT state FROM orders WHERE id = 1").rows)
	assert.Empty(t, s.works(s.client, "SELECT * FROM stock WHERE item = 'x'").rows)
}

// A table whose writes Cassandra executes as transactions cannot be locked: they would have timestamps
// of Cassandra's own. (Tried without the refusal: acknowledged writes under a lock were hidden.)
func TestTransactionalModesCannotBeLocked(t *testing.T) {
	if !strings.HasPrefix(*release, "6") {
		t.Skip("Cassandra has transactional modes from 6.0 on: -cassandra=6.0-alpha2")
	}
	s := newTableFixture(t, "modes", "@critical")
	refused := func(cql, says string) {
		t.Helper()
		o := s.do(s.client, cql)
		require.NotNil(t, o.failure, cql)
		assert.Contains(t, o.failure.text, says, cql)
	}
	becomes := func(cql, says string) {
		t.Helper()
		eventually(t, time.Minute, cql, func() error {
			if o := s.do(s.client, cql); o.failure == nil || !strings.Contains(o.failure.text, says) {
				return fmt.Errorf("%v", o)
			}
			return nil
		})
	}
	s.works(s.client, "CREATE TABLE modes.off (k text PRIMARY KEY, n int) WITH transactional_mode = 'off' AND comment = '@critical'")
	ref := s.grant(s.works(s.client, "LOCK modes.off WHERE k = 'x'"), "HELD")
	s.works(s.client, fmt.Sprintf("UPDATE modes.off USING LOCK %d SET n = 1 WHERE k = 'x'", ref))
	for _, mode := range []string{"mixed_reads", "full"} {
		const says = "a critical table cannot have a transactional_mode"
		table := "modes.m_" + mode
		refused("CREATE TABLE "+table+" (k text PRIMARY KEY, n int) WITH transactional_mode = '"+mode+"' AND comment = '@critical'", says)
		refused("ALTER TABLE modes.off WITH transactional_mode = '"+mode+"'", says)
		s.works(s.client, "CREATE TABLE "+table+" (k text PRIMARY KEY, n int) WITH transactional_mode = '"+mode+"'")
		refused("ALTER TABLE "+table+" WITH comment = '@critical'", "cannot be critical: it has a transactional_mode")
		require.NoError(t, s.direct.Query("ALTER TABLE "+table+" WITH comment = '@critical'").Exec()) // past the proxy
		becomes("LOCK "+table+" WHERE k = 'x'", "MUSIC_REFUSED: "+table+" cannot be locked: it has a transactional_mode")
		refused("UPDATE "+table+" SET n = 1 WHERE k = 'x'", "cannot be locked")
	}
	require.NoError(t, s.direct.Query("ALTER TABLE modes.off WITH transactional_mode = 'full'").Exec())
	becomes(fmt.Sprintf("UPDATE modes.off USING LOCK %d SET n = 2 WHERE k = 'x'", ref), "it has a transactional_mode")
}
