package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lwts returns how many LWTs the node has applied to the lock rows: each is one write there,
// nothing else writes to them, and Cassandra counts the writes.
func (s *tableFixture) lwts() (n int64) {
	s.t.Helper()
	err := s.direct.Query("SELECT count FROM system_views.local_write_latency WHERE keyspace_name = ? AND table_name = ?", s.keyspace, s.companion()).Scan(&n)
	require.NoError(s.t, err)
	return n
}

// costs returns how many LWTs were applied while do ran.
func (s *tableFixture) costs(do func()) int64 {
	s.t.Helper()
	before := s.lwts()
	do()
	return s.lwts() - before
}

// visit is a section of one put.
func (s *tableFixture) visit() {
	s.t.Helper()
	ref := s.grant(s.works(s.client, lockB), "HELD")
	s.works(s.client, fmt.Sprintf(writeB, ref, ref))
	s.grant(s.works(s.client, fmt.Sprintf(unlockB, ref)), "RELEASED")
}

// In a section, a client waits for one LWT and its own operations; a second LWT follows its UNLOCK.
// A key that is used again at its proxy soon enough needs none.
func TestLWTsOfASection(t *testing.T) {
	s := newTableFixture(t, "lwts_section", "@critical")
	before := s.lwts()
	var ref int64
	assert.EqualValues(t, 1, s.costs(func() {
		ref = s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'a'"), "HELD")
		for i := range 5 {
			s.works(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = %d WHERE branch = 'a' AND id = 'x'", ref, i))
			s.works(s.client, fmt.Sprintf("SELECT balance FROM ACCOUNTS WHERE branch = 'a' USING LOCK %d", ref))
		}
	}))
	s.grant(s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'a' USING LOCK %d", ref)), "RELEASED")
	eventually(t, time.Minute, "the key is released", func() error {
		if n := s.lwts() - before; n != 2 {
			return fmt.Errorf("%d LWTs", n)
		}
		return nil
	})
	// How soon the next section comes depends on the machine: some of them come soon enough.
	eventually(t, time.Minute, "five sections cost no LWT", func() error {
		if n := s.costs(func() {
			for range 5 {
				s.visit()
			}
		}); n > 0 {
			return fmt.Errorf("%d LWTs", n)
		}
		return nil
	})
}

// work counts what a node has carried out for one table.
type work struct{ reads, writes int64 }

// work returns what the node has carried out for a table.
func (s *tableFixture) work(keyspace, table string) (w work) {
	s.t.Helper()
	for view, into := range map[string]*int64{"local_read_latency": &w.reads, "local_write_latency": &w.writes} {
		err := s.direct.Query("SELECT count FROM system_views."+view+" WHERE keyspace_name = ? AND table_name = ?", keyspace, table).Scan(into)
		require.NoError(s.t, err)
	}
	return w
}

// A section of one put on a key that was never locked is four statements: the lock row is made and
// released, each LWT with a read of its own, and the data are read once and written once. Of the first
// such keys the lock row is read before. Nothing is read of the schema.
func TestStatementsOfANewKey(t *testing.T) {
	s := newTableFixture(t, "lwts_new_keys", "@critical")
	const sections, before = 20, 400 // so many that each part of the proxy's core has met some
	for i := range before {
		s.newKey(fmt.Sprint("before", i))
	}
	s.released(2 * before)
	rows, data, local := s.work(s.keyspace, s.companion()), s.work(s.keyspace, "accounts"), s.work("system", "peers_v2")
	for i := range sections {
		s.newKey(fmt.Sprint("new", i))
	}
	s.released(rows.writes + 2*sections)
	after := s.work(s.keyspace, s.companion())
	assert.EqualValues(t, 2*sections, after.reads-rows.reads, "reads of lock rows")
	assert.Equal(t, work{data.reads + sections, data.writes + sections}, s.work(s.keyspace, "accounts"))
	assert.Less(t, s.work("system", "peers_v2").reads-local.reads, int64(sections), "somebody asks for the schema with each key")
}

// A section of one put on a key that was locked before, and that nobody has read under its lock, is
// the two LWTs and the put: the data are not read, and nothing else is written. The first get
// synchronises the key.
func TestStatementsOfAKeyThatIsOnlyWritten(t *testing.T) {
	s := newTableFixture(t, "lwts_only_written", "@critical")
	const keys = 10
	for visit := range int64(3) {
		rows, data := s.work(s.keyspace, s.companion()), s.work(s.keyspace, "accounts")
		for i := range keys {
			s.newKey(fmt.Sprint("key", i))
		}
		s.released(rows.writes + 2*keys)
		if visit > 0 {
			assert.Equal(t, work{data.reads, data.writes + keys}, s.work(s.keyspace, "accounts"), "data, visit %d", visit)
		}
		assert.Equal(t, []byte{2}, s.dirty("key0"), "visit %d", visit)
	}
	rows, data := s.work(s.keyspace, s.companion()), s.work(s.keyspace, "accounts")
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'key0'"), "HELD")
	s.works(s.client, fmt.Sprintf("SELECT balance FROM ACCOUNTS WHERE branch = 'key0' USING LOCK %d", ref))
	s.grant(s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'key0' USING LOCK %d", ref)), "RELEASED")
	s.released(rows.writes + 2)
	assert.Greater(t, s.work(s.keyspace, "accounts").writes, data.writes, "the get did not synchronise")
	assert.Equal(t, []byte{0}, s.dirty("key0"))
}

// dirty returns the byte of that column of a branch's lock row.
func (s *tableFixture) dirty(branch string) (b []byte) {
	s.t.Helper()
	require.NoError(s.t, s.direct.Query("SELECT booleanAsBlob(dirty) FROM "+s.keyspace+"."+s.companion()+" WHERE k1 = ?", branch).Scan(&b))
	return b
}

// released waits until the node has applied that many LWTs to the lock rows.
func (s *tableFixture) released(lwts int64) {
	s.t.Helper()
	eventually(s.t, time.Minute, "all keys are released", func() error {
		if n := s.work(s.keyspace, s.companion()).writes; n != lwts {
			return fmt.Errorf("%d LWTs", n)
		}
		return nil
	})
}

// newKey writes once to a branch under its lock.
func (s *tableFixture) newKey(branch string) {
	s.t.Helper()
	ref := s.grant(s.works(s.client, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = '%s'", branch)), "HELD")
	s.works(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1 WHERE branch = '%s' AND id = 'x'", ref, branch))
	s.grant(s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = '%s' USING LOCK %d", branch, ref)), "RELEASED")
}

// A write without a lock on a key that was never locked is five statements with one LWT: the lock
// row is read and made, the data are read and written once, and the lock row is read again. The same
// holds with IF NOT EXISTS, where the write also deletes what is older. After many new keys the first
// read is left out.
func TestStatementsOfAWriteWithoutALockOnANewKey(t *testing.T) {
	for name, write := range map[string]string{
		"put":    "UPDATE ACCOUNTS SET balance = %[2]d WHERE branch = '%[1]s' AND id = 'x'",
		"insert": "INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('%[1]s', 'x', %[2]d) IF NOT EXISTS",
	} {
		t.Run(name, func(t *testing.T) {
			s := newTableFixture(t, "lwts_alone_"+name, "@critical(unlocked=auto)")
			s.works(s.client, fmt.Sprintf(write, "warm", 0))
			const keys = 20
			rows, data := s.work(s.keyspace, s.companion()), s.work(s.keyspace, "accounts")
			for i := range keys {
				s.works(s.client, fmt.Sprintf(write, fmt.Sprint("new", i), i))
			}
			now := s.work(s.keyspace, s.companion())
			assert.EqualValues(t, keys, now.writes-rows.writes, "LWTs")
			assert.LessOrEqual(t, now.reads-rows.reads, int64(3*keys), "reads of lock rows")
			assert.Equal(t, work{data.reads + keys, data.writes + keys}, s.work(s.keyspace, "accounts"), "data")
			for i := range keys {
				var balance int
				require.NoError(t, s.direct.Query("SELECT balance FROM "+s.keyspace+".accounts WHERE branch = ? AND id = 'x'", fmt.Sprint("new", i)).Scan(&balance))
				assert.Equal(t, i, balance)
			}
		})
	}
}

// Clients that wait for a key at one proxy share the LWTs that enqueue them: one that is sent at
// once, and others for all that come while one is under way.
func TestWaitersShareLWTs(t *testing.T) {
	s := newTableFixture(t, "lwts_waiters", "@critical")
	const waiters = 50
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'a'"), "HELD")
	var all taskGroup
	n := s.costs(func() {
		for range waiters {
			all.Go(func() error {
				o := s.do(s.client, "LOCK ACCOUNTS WHERE branch = 'a' WAIT 60s")
				if err := o.err(); err != nil {
					return err
				}
				_, err := s.must(s.client, "UNLOCK ACCOUNTS WHERE branch = 'a' USING LOCK %s", told(o, "lock_ref"))
				return err
			})
		}
		eventually(t, time.Minute, "all of them are in the queue", func() error {
			var guard int64
			err := s.direct.Query("SELECT guard FROM " + s.keyspace + "." + s.companion() + " WHERE k1 = 'a'").Scan(&guard)
			if err == nil && guard < number(ref)+waiters {
				err = fmt.Errorf("the last is %d", guard)
			}
			return err
		})
	})
	t.Logf("%d LWTs for %d waiters", n, waiters)
	assert.Less(t, n, int64(waiters/2))
	s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'a' USING LOCK %d", ref))
	require.NoError(t, all.Wait())
}

// A key goes from one proxy to the other with the LWT that releases it: the waiting client is in
// the queue already, and its proxy gets a hint.
func TestHandOverCostsOneLWT(t *testing.T) {
	p := startTwoProxies(t, needEnvironment(t).direct(), "lwts_hand_over")
	ref := p.grant(p.works(p.here, lockB), "HELD")
	queued := p.grant(p.works(p.there, lockB+" WAIT 100ms"), "QUEUED")
	assert.EqualValues(t, 1, p.costs(func() {
		p.grant(p.works(p.here, fmt.Sprintf(unlockB, ref)), "RELEASED")
		p.grant(p.works(p.there, fmt.Sprintf(lockB+" USING LOCK %d WAIT 5s", queued)), "HELD")
	}))
	p.works(p.there, fmt.Sprintf(writeB, queued, 1))
	p.grant(p.works(p.there, fmt.Sprintf(unlockB, queued)), "RELEASED")
}
