package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// lateWrites sends writes to the node with stamps of a term that has ended, as if they had been in
// flight since. None of them may become visible.
func (s *tableFixture) lateWrites(branch string, stamps ...int64) {
	s.t.Helper()
	before := s.contents()
	now, _ := s.term(branch)
	require.Greater(s.t, now, slices.Max(stamps), "the windows do not overlap")
	table := s.keyspace + ".accounts"
	for _, stamp := range stamps {
		for _, cql := range []string{
			"INSERT INTO " + table + " (branch, id, balance) VALUES ('" + branch + "', 'x', 666) USING TIMESTAMP %d",
			"UPDATE " + table + " USING TIMESTAMP %d SET balance = 666 WHERE branch = '" + branch + "' AND id = 'x'",
			"DELETE balance FROM " + table + " USING TIMESTAMP %d WHERE branch = '" + branch + "' AND id = 'x'",
			"DELETE FROM " + table + " USING TIMESTAMP %d WHERE branch = '" + branch + "'",
			"INSERT INTO " + table + " (branch, id, balance) VALUES ('" + branch + "', 'ghost', 666) USING TIMESTAMP %d",
		} {
			require.NoError(s.t, s.direct.Query(fmt.Sprintf(cql, stamp)).Exec())
		}
	}
	assert.Equal(s.t, before, s.contents(), "a late write shows")
}

// A holder that is silent for its lease loses the lock, and what it still sends changes nothing.
func TestLostLeaseAndItsLateWrites(t *testing.T) {
	s := newTableFixture(t, "section_lost", "@critical")
	write := "UPDATE ACCOUNTS USING LOCK %d SET balance = %d WHERE branch = 'b' AND id = 'x'"
	lost := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 1s"), "HELD")
	s.works(s.client, fmt.Sprintf(write, lost, 1))
	base, _ := s.term("b")
	other := s.driver.open(t, s.address, s.keyspace)
	next := s.grant(s.works(other, "LOCK ACCOUNTS WHERE branch = 'b' WAIT 200ms"), "QUEUED")
	eventually(t, time.Minute, "the lease runs out", func() error {
		if o := s.works(other, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = 'b' USING LOCK %d WAIT 500ms", next)); told(o, "state") != "held" {
			return errorf("%v", o)
		}
		return nil
	})
	for _, cql := range []string{
		fmt.Sprintf(write, lost, 2), fmt.Sprintf("DELETE FROM ACCOUNTS USING LOCK %d WHERE branch = 'b'", lost),
		fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'y', 2) USING LOCK %d", lost),
		fmt.Sprintf("BEGIN BATCH USING LOCK %d DELETE FROM ACCOUNTS WHERE branch = 'b' AND id = 'x'; APPLY BATCH", lost),
		fmt.Sprintf("SELECT * FROM ACCOUNTS WHERE branch = 'b' USING LOCK %d", lost),
	} {
		s.refused(s.client, "MUSIC_LOST", cql)
	}
	read := s.works(other, fmt.Sprintf("SELECT balance FROM ACCOUNTS WHERE branch = 'b' AND id = 'x' USING LOCK %d", next))
	assert.Equal(t, "1", told(read, "balance"), "the latest state")
	s.works(other, fmt.Sprintf(write, next, 3))
	s.inWindow("b", "x", next, 3)
	// This proxy knows that nothing of the old term was in flight, so it has not rewritten the key:
	// what the next holder wrote is safe.
	later, _ := s.term("b")
	require.Greater(t, later, base, "the windows do not overlap")
	for _, late := range []string{"UPDATE %s.accounts USING TIMESTAMP %d SET balance = 666 WHERE branch = 'b' AND id = 'x'", "DELETE FROM %s.accounts USING TIMESTAMP %d WHERE branch = 'b'"} {
		require.NoError(t, s.direct.Query(fmt.Sprintf(late, s.keyspace, later-1)).Exec())
	}
	s.inWindow("b", "x", next, 3)
	o := s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK %d", lost))
	assert.Contains(t, "lost released", told(o, "state"), "%v", o)
	s.works(other, fmt.Sprintf(write, next, 4))
}

// A write that is in flight when its lease ends is not acknowledged, and is settled before the next
// holder reads.
func TestWriteOnItsWayWhenTheLeaseIsLost(t *testing.T) {
	node := needDisposableNode(t)
	p := startProxy(t, func(c *config.Config) {
		c.Cassandra.ContactPoints = []string{node.Addr()}
		c.Listen.Metrics = ownAddress(t)
	})
	s := &tableFixture{t: t, driver: withGocql2(4, ""), address: p.address, keyspace: "section_underway"}
	s.direct = openGocql2(t, cluster2(node.Addr(), "")).session
	s.create("@critical")
	write := "UPDATE " + s.keyspace + ".accounts USING LOCK %d SET balance = %d WHERE branch = 'b' AND id = 'x'"
	lost := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 1s"), "HELD")
	s.works(s.client, fmt.Sprintf(write, lost, 1))
	base, _ := s.term("b")
	var stamp int64
	require.NoError(t, s.direct.Query("SELECT writetime(balance) FROM "+s.keyspace+".accounts WHERE branch = 'b' AND id = 'x'").Scan(&stamp))

	w := openWire(t, p.address, primitive.ProtocolVersion4, primitive.CompressionNone)
	before, err := p.requests("QUERY", "fenced")
	require.NoError(t, err)
	clients, err := p.metric("music_connections_open")
	require.NoError(t, err)
	pause(t, node)
	require.NoError(t, w.send(plainQuery(fmt.Sprintf(write, lost, 2)), nil))
	eventually(t, wireTimeout, "the write is on its way", func() error {
		if n, err := p.requests("QUERY", "fenced"); err != nil || n <= before {
			return errorf("%d fenced, %w", n, err)
		}
		return nil
	})
	require.NoError(t, w.net.Close())
	eventually(t, wireTimeout, "nobody will hear of it", func() error {
		if n, err := p.metric("music_connections_open"); err != nil || n >= clients {
			return errorf("%d connections, %w", n, err)
		}
		return nil
	})
	require.NoError(t, node.Resume())

	next, err := s.acquire(s.client, "b")
	require.NoError(t, err)
	s.refused(s.client, "MUSIC_LOST", fmt.Sprintf(write, lost, 4))
	read := s.works(s.client, "SELECT balance FROM ACCOUNTS WHERE branch = 'b' AND id = 'x' USING LOCK "+next)
	assert.Contains(t, []string{"1", "2"}, told(read, "balance"), "settled, one way or the other")
	s.lateWrites("b", base, stamp, stamp+1) // stamp+1 is that of the write that was under way
	again := s.works(s.client, "SELECT balance FROM ACCOUNTS WHERE branch = 'b' AND id = 'x' USING LOCK "+next)
	assert.Equal(t, told(read, "balance"), told(again, "balance"))
	s.works(s.client, "UPDATE ACCOUNTS USING LOCK "+next+" SET balance = 3 WHERE branch = 'b' AND id = 'x'")
	s.lateWrites("b", base, stamp, stamp+1)
}

// killLease is the session lease of the proxies that are killed, and of those that find them dead.
const killLease = 2 * time.Second

// After a proxy is killed, the next client gets the lock when the session lease is over, and the
// key is synchronised.
func TestKilledProxyLetsTheNextHolderIn(t *testing.T) {
	node := needDisposableNode(t)
	p := startProcess(t, node.Addr(), "--session-lease", killLease.String())
	s := &tableFixture{t: t, driver: withGocql2(4, ""), address: p.address, keyspace: "section_killed"}
	s.direct = openGocql2(t, cluster2(node.Addr(), "")).session
	s.create("@critical")
	old := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 30s"), "HELD")
	write := "UPDATE ACCOUNTS USING LOCK %d SET balance = %d WHERE branch = 'b' AND id = 'x'"
	s.works(s.client, fmt.Sprintf(write, old, 1))
	base, _ := s.term("b")
	require.NoError(t, p.cmd.Process.Kill())
	assert.Equal(t, -1, p.status(t))
	s.client.close()

	q := startProxy(t, func(c *config.Config) {
		c.Cassandra.ContactPoints = []string{node.Addr()}
		c.Music.SessionLease = killLease
	})
	s.client = s.driver.open(t, q.address, s.keyspace)
	var next int64
	eventually(t, time.Minute, "the next holder is let in", func() error {
		o := s.do(s.client, "LOCK ACCOUNTS WHERE branch = 'b' WAIT 1500ms TOKEN 123e4567-e89b-12d3-a456-426614174000")
		if err := o.err(); err != nil || told(o, "state") != "held" {
			return errorf("%w %v", err, o)
		}
		next = s.grant(o, "HELD")
		return nil
	})
	assert.Greater(t, next, old)
	s.refused(s.client, "MUSIC_LOST", fmt.Sprintf(write, old, 2))
	read := s.works(s.client, fmt.Sprintf("SELECT balance FROM ACCOUNTS WHERE branch = 'b' AND id = 'x' USING LOCK %d", next))
	assert.Equal(t, "1", told(read, "balance"))
	s.inWindow("b", "x", next, 1) // the data has been synchronised: rewritten in the new window
	s.lateWrites("b", base, base+5, base+window-1)
	s.works(s.client, fmt.Sprintf(write, next, 3))
	s.inWindow("b", "x", next, 3)
	q.log.tells(t, "lock_ref")
}
