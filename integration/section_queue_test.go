package integration

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// newTableFixture makes a critical table in a keyspace of its own, with the settings in the
// comment.
func newTableFixture(t *testing.T, keyspace, comment string) *tableFixture {
	t.Helper()
	s := &tableFixture{t: t, driver: withGocql2(5, ""), address: needProxy(t), keyspace: keyspace}
	s.direct = openGocql2(t, cluster2(needEnvironment(t).direct(), "")).session
	s.create(comment)
	return s
}

// create makes keyspace and table.
func (s *tableFixture) create(comment string) {
	s.t.Helper()
	require.NoError(s.t, s.direct.Query("DROP KEYSPACE IF EXISTS "+s.keyspace).Exec())
	require.NoError(s.t, s.direct.Query("CREATE KEYSPACE "+s.keyspace+" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}").Exec())
	s.client = s.driver.open(s.t, s.address, s.keyspace)
	s.works(s.client, "CREATE TABLE ACCOUNTS (branch text, id text, balance bigint, PRIMARY KEY (branch, id)) WITH comment = '"+comment+"'")
}

// acquire takes the lock of a branch and waits as long as necessary. Any goroutine may call it.
func (s *tableFixture) acquire(c client, branch string) (string, error) {
	token := gocql.MustRandomUUID()
	cql := fmt.Sprintf("LOCK %s.accounts WHERE branch = '%s' WAIT 1500ms TOKEN %s", s.keyspace, branch, token)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		o := c.run(statement{cql: cql})
		if err := o.err(); err != nil {
			return "", err
		}
		ref := told(o, "lock_ref")
		switch state := told(o, "state"); {
		case state == "held":
			return ref, nil
		case state != "queued":
			return "", errorf("%s: %v", cql, o)
		case ref != "0":
			cql = fmt.Sprintf("LOCK %s.accounts WHERE branch = '%s' USING LOCK %s WAIT 1500ms", s.keyspace, branch, ref)
		}
	}
	return "", errorf("%s: not within a minute", cql)
}

// must runs a statement that must succeed. Any goroutine may call it.
func (s *tableFixture) must(c client, format string, args ...any) (outcome, error) {
	o := s.do(c, fmt.Sprintf(format, args...))
	if err := o.err(); err != nil {
		return o, fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
	}
	return o, nil
}

// taskGroup runs functions at once and keeps their errors.
type taskGroup struct {
	running sync.WaitGroup
	mu      sync.Mutex
	faults  []error
}

// Go runs a function in a goroutine.
func (g *taskGroup) Go(f func() error) {
	g.running.Go(func() {
		err := f()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.faults = append(g.faults, err)
	})
}

// Wait returns when all have ended.
func (g *taskGroup) Wait() error {
	g.running.Wait()
	return errors.Join(g.faults...)
}

// Clients are served in the order in which they came.
func TestClientsQueueInOrder(t *testing.T) {
	s := newTableFixture(t, "section_fifo", "@critical")
	for _, clients := range []int{2, 5} {
		t.Run(strconv.Itoa(clients), func(t *testing.T) { s.fifo(fmt.Sprint("branch", clients), clients) })
	}
}

// fifo has clients come one after the other and checks that they are served in that order.
func (s *tableFixture) fifo(branch string, clients int) {
	first := s.grant(s.works(s.client, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = '%s'", branch)), "HELD")
	var mu sync.Mutex
	var served, refs []int64
	var group taskGroup
	for i := range clients {
		c := s.driver.open(s.t, s.address, s.keyspace)
		o := s.works(c, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = '%s' WAIT 300ms", branch))
		ref := s.grant(o, "QUEUED")
		assert.Equal(s.t, strconv.Itoa(i+1), told(o, "position"), "%v", o)
		refs = append(refs, ref)
		group.Go(func() error {
			return s.turn(c, branch, ref, func() {
				mu.Lock()
				defer mu.Unlock()
				served = append(served, ref)
			})
		})
	}
	s.works(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 0 WHERE branch = '%s' AND id = 'x'", first, branch))
	mu.Lock()
	assert.Empty(s.t, served, "nobody is let in before the holder has gone")
	mu.Unlock()
	s.grant(s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = '%s' USING LOCK %d", branch, first)), "RELEASED")
	require.NoError(s.t, group.Wait())
	assert.IsIncreasing(s.t, append([]int64{first}, refs...))
	assert.Equal(s.t, refs, served)
}

// turn waits until a reference is granted, writes, and unlocks.
func (s *tableFixture) turn(c client, branch string, ref int64, in func()) error {
	err := poll(30*time.Second, func() error {
		o, err := s.must(c, "LOCK ACCOUNTS WHERE branch = '%s' USING LOCK %d WAIT 1s", branch, ref)
		if err == nil && told(o, "state") != "held" {
			err = errorf("%v", o)
		}
		return err
	})
	if err != nil {
		return err
	}
	in()
	if _, err := s.must(c, "UPDATE ACCOUNTS USING LOCK %d SET balance = %d WHERE branch = '%s' AND id = 'x'", ref, ref, branch); err != nil {
		return err
	}
	_, err = s.must(c, "UNLOCK ACCOUNTS WHERE branch = '%s' USING LOCK %d", branch, ref)
	return err
}

// Ten clients that read, add one and write, each under the lock, lose no increment.
func TestNoIncrementIsLost(t *testing.T) {
	const clients, rounds = 10, 20
	s := newTableFixture(t, "section_sum", "@critical")
	var group taskGroup
	for range clients {
		c := s.driver.open(t, s.address, s.keyspace)
		group.Go(func() error {
			for range rounds {
				if err := s.increment(c); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	var sum int64
	require.NoError(t, s.direct.Query("SELECT balance FROM "+s.keyspace+".accounts WHERE branch = 'b' AND id = 'sum'").Scan(&sum))
	assert.EqualValues(t, clients*rounds, sum)
}

// increment is one section: read, add one, write.
func (s *tableFixture) increment(c client) error {
	ref, err := s.acquire(c, "b")
	if err != nil {
		return err
	}
	o, err := s.must(c, "SELECT balance FROM ACCOUNTS WHERE branch = 'b' AND id = 'sum' USING LOCK %s", ref)
	if err != nil {
		return err
	}
	n := 0
	if len(o.rows) > 0 {
		if n, err = strconv.Atoi(told(o, "balance")); err != nil {
			return err
		}
	}
	if _, err := s.must(c, "UPDATE ACCOUNTS USING LOCK %s SET balance = %d WHERE branch = 'b' AND id = 'sum'", ref, n+1); err != nil {
		return err
	}
	o, err = s.must(c, "UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK %s", ref)
	if err == nil && told(o, "state") != "released" {
		err = errorf("UNLOCK: %v", o)
	}
	return err
}

// lockRows returns the queues as the node has them.
func (s *tableFixture) lockRows() (all []string) {
	s.t.Helper()
	iter := s.direct.Query("SELECT JSON * FROM " + s.keyspace + "." + s.companion()).Iter()
	for row := ""; iter.Scan(&row); {
		all = append(all, row)
	}
	require.NoError(s.t, iter.Close())
	return all
}

// NOWAIT on a lock that is held answers BUSY, and leaves neither a waiter nor a change in the lock
// row.
func TestNoWaitLeavesNothingBehind(t *testing.T) {
	s := newTableFixture(t, "section_nowait", "@critical")
	held := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' NOWAIT"), "HELD")
	before, listed := s.lockRows(), s.works(s.client, "LIST LOCKS ON ACCOUNTS").rows
	other := s.driver.open(t, s.address, s.keyspace)
	for range 5 {
		o := s.works(other, "LOCK ACCOUNTS WHERE branch = 'b' NOWAIT AS 'other'")
		assert.Equal(t, "busy", told(o, "state"), "%v", o)
		assert.Equal(t, "false", told(o, "[applied]"), "%v", o)
	}
	assert.Equal(t, before, s.lockRows())
	assert.Len(t, s.works(s.client, "LIST LOCKS ON ACCOUNTS").rows, len(listed))
	s.grant(s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK %d", held)), "RELEASED")
	next := s.grant(s.works(other, "LOCK ACCOUNTS WHERE branch = 'b' NOWAIT"), "HELD")
	assert.Equal(t, number(held)+1, number(next), "no reference was given in between")
}

// LOCK with the same TOKEN returns the same reference, held or queued, on any connection.
func TestTokenGivesTheSameReference(t *testing.T) {
	s := newTableFixture(t, "section_token", "@critical")
	mine, theirs := gocql.MustRandomUUID(), gocql.MustRandomUUID()
	first := s.grant(s.works(s.client, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = 'b' TOKEN %s", mine)), "HELD")
	other := s.driver.open(t, s.address, s.keyspace)
	assert.Equal(t, first, s.grant(s.works(other, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = 'b' TOKEN %s", mine)), "HELD"), "from another connection")
	queued := s.grant(s.works(other, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = 'b' WAIT 300ms TOKEN %s", theirs)), "QUEUED")
	again := s.works(other, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = 'b' WAIT 1ms TOKEN %s", theirs))
	assert.Equal(t, queued, s.grant(again, "QUEUED"))
	assert.Len(t, s.works(s.client, "LIST LOCKS ON ACCOUNTS").rows, 2)
}

// Writes and LOCK USING LOCK renew the lease.
func TestAskingAndWritingRenewTheLease(t *testing.T) {
	s := newTableFixture(t, "section_renew", "@critical(lease=2m)")
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 1s"), "HELD")
	other := s.driver.open(t, s.address, s.keyspace)
	queued := s.grant(s.works(other, "LOCK ACCOUNTS WHERE branch = 'b' WAIT 200ms"), "QUEUED")
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); {
		s.works(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1 WHERE branch = 'b' AND id = 'x'", ref))
	}
	o := s.works(other, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = 'b' USING LOCK %d WAIT 1ms", queued))
	assert.Equal(t, "queued", told(o, "state"), "who writes keeps the lock: %v", o)
	o = s.works(s.client, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = 'b' USING LOCK %d LEASE 100s", ref))
	assert.Equal(t, ref, s.grant(o, "HELD"))
	left, err := strconv.Atoi(told(o, "lease_ms"))
	require.NoError(t, err)
	assert.Greater(t, left, 60_000, "%v", o)
}

// A client whose connection ends keeps the lock that it holds, and loses its place in a queue.
func TestGoneClientKeepsItsLockAndLosesItsPlace(t *testing.T) {
	p := startProxy(t, func(c *config.Config) { c.Music.MaxWait = time.Minute })
	s := &tableFixture{t: t, driver: withGocql2(5, ""), address: p.address, keyspace: "section_gone"}
	s.direct = openGocql2(t, cluster2(needEnvironment(t).direct(), "")).session
	s.create("@critical(lease=2m)")
	holder := s.driver.open(t, s.address, s.keyspace)
	ref := s.grant(s.works(holder, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 100s"), "HELD")
	holder.close()
	s.works(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1 WHERE branch = 'b' AND id = 'x'", ref))

	waiting := func(want int) error {
		if n := len(s.works(s.client, "LIST LOCKS ON ACCOUNTS").rows); n != want {
			return errorf("%d in the queue", n)
		}
		return nil
	}
	w := openWire(t, s.address, primitive.ProtocolVersion4, primitive.CompressionNone)
	require.NoError(t, w.send(plainQuery("LOCK "+s.keyspace+".accounts WHERE branch = 'b' WAIT 1m"), nil))
	eventually(t, time.Minute, "it waits", func() error { return waiting(2) })
	require.NoError(t, w.net.Close())
	eventually(t, time.Minute, "its place is given up", func() error { return waiting(1) })

	o := s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' NOWAIT")
	assert.Equal(t, "busy", told(o, "state"), "the lock of who has gone is held: %v", o)
	s.grant(s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK %d", ref)), "RELEASED")
	s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' WAIT 1s"), "HELD")
}

// mustInt returns a reference as a number.
func mustInt(t *testing.T, ref string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(ref, 10, 64)
	require.NoError(t, err)
	return n
}
