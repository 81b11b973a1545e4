//go:build compat

package integration

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"

	"music/config"
)

// switches is how often TestThreeProxiesSwitches changes the settings of its table.
const switches = 100

// switchedTable is a table whose settings change again and again, with writers without locks at
// every proxy.
type switchedTable struct {
	*tableFixture
	rejects  atomic.Bool // it refuses writes without a lock, or is about to, or has just done so
	done     chan struct{}
	written  atomic.Int64
	slowest  atomic.Int64 // ns
	mu       sync.Mutex
	failures map[string]int
}

// An application without locks writes at three proxies, as text, prepared, in batches and with
// conditions, while its table changes from plain to allow, auto and reject and back. No driver gets
// an error but MUSIC_UNLOCKED while it rejects.
func TestThreeProxiesSwitches(t *testing.T) {
	threeProxies(t, func(c *config.Config) { c.Music.MaxWait = 20 * time.Second }) // whatever else the machine does
	s := &switchedTable{tableFixture: newPlainFixture(t, "switched"), done: make(chan struct{}), failures: map[string]int{}}
	var writers sync.WaitGroup
	for k, address := range proxyAddresses() {
		session := pinned(t, address).session
		for _, put := range s.writers(session, fmt.Sprint("k", k)) {
			writers.Go(func() { s.write(session, put) })
		}
	}
	for i := range switches {
		began := time.Now()
		s.become(i % 4)
		s.t.Logf("switch %d in %v; %d written, the slowest in %v", i, time.Since(began), s.written.Load(), time.Duration(s.slowest.Swap(0)))
	}
	close(s.done)
	writers.Wait()
	assert.Empty(t, s.failures)
	assert.Positive(t, s.written.Load())
}

// become makes the table the next of: allow, auto, reject, plain.
func (s *switchedTable) become(what int) {
	switch what {
	case 0:
		s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical(allow)'")
	case 1:
		s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical(auto)'")
	case 2:
		s.rejects.Store(true)
		s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical'")
	case 3:
		s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = ''")
		s.works(s.client, "DROP TABLE "+s.keyspace+"."+s.companion())
		s.rejects.Store(false)
	}
}

// writers returns the ways in which a client writes.
func (s *switchedTable) writers(session *gocql.Session, branch string) []func(n int) error {
	return []func(n int) error{
		func(n int) error {
			return session.Query(fmt.Sprintf("UPDATE switched.accounts SET balance = %d WHERE branch = '%s-text' AND id = 'x'", n, branch)).Exec()
		},
		func(n int) error {
			return session.Query("UPDATE switched.accounts SET balance = ? WHERE branch = ? AND id = 'x'", n, branch+"-bound").Exec()
		},
		func(n int) error {
			b := session.Batch(gocql.LoggedBatch)
			b.Query("UPDATE switched.accounts SET balance = ? WHERE branch = ? AND id = 'x'", n, branch+"-batch")
			b.Query("INSERT INTO switched.accounts (branch, id, balance) VALUES (?, 'y', ?)", branch+"-batch", n)
			return b.Exec()
		},
		func(n int) error {
			_, err := session.Query("UPDATE switched.accounts SET balance = ? WHERE branch = ? AND id = 'x' IF balance != ?", n, branch+"-if", n).MapScanCAS(map[string]any{})
			return err
		},
	}
}

// write writes until the test is over. The proxy refuses a write without asking the node, so a read follows it: refused writers are no faster
// than others.
func (s *switchedTable) write(session *gocql.Session, put func(n int) error) {
	for n := 0; !s.over(); n++ {
		if s.try(func() error { return put(n) }) {
			continue
		}
		if err := session.Query("SELECT balance FROM switched.accounts WHERE branch = 'none' AND id = 'x'").Exec(); err != nil {
			s.failed(err)
		}
	}
}

// over reports whether the writers are to end.
func (s *switchedTable) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// try writes once, records the result, and reports whether the write was done.
func (s *switchedTable) try(put func() error) bool {
	rejects, began := s.rejects.Load(), time.Now()
	err := put()
	if took := int64(time.Since(began)); took > s.slowest.Load() {
		s.slowest.Store(took)
	}
	switch {
	case err == nil:
		s.written.Add(1)
	case !strings.Contains(err.Error(), "MUSIC_UNLOCKED") || !rejects && !s.rejects.Load():
		s.failed(err)
	}
	return err == nil
}

// failed records an error that no driver should get.
func (s *switchedTable) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures[err.Error()]++
}

// Clients at three proxies lock, write and unlock, each its own key and all one, while the settings of their table change: no LOCK gets an
// error, and what has a reference at most that nothing was done.
func TestThreeProxiesSettings(t *testing.T) {
	threeProxies(t, func(c *config.Config) { c.Music.MaxWait = 20 * time.Second })
	s := &switchedTable{tableFixture: newPlainFixture(t, "settled"), done: make(chan struct{}), failures: map[string]int{}}
	s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical'")
	var clients sync.WaitGroup
	for k, address := range proxyAddresses() {
		c := pinned(t, address)
		for _, branch := range []string{fmt.Sprint("k", k), "all"} {
			clients.Go(func() { s.sections(c, branch) })
		}
	}
	for i := range switches / 4 {
		s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical("+[]string{"lease=1m", "allow", "strict=true", "auto"}[i%4]+")'")
	}
	close(s.done)
	clients.Wait()
	assert.Empty(t, s.failures)
	assert.Positive(t, s.written.Load())
	t.Logf("%d sections", s.written.Load())
}

// sections does sections of a branch until the test is over.
func (s *switchedTable) sections(c client, branch string) {
	for n := 0; !s.over(); n++ {
		o := s.do(c, "SELECT LOCK ACCOUNTS WHERE branch = ? WAIT 20s", branch)
		if o.err() == nil && told(o, "state") == "queued" {
			continue
		}
		if o.err() != nil {
			s.failed(o.err())
			continue
		}
		ref, _ := strconv.ParseInt(told(o, "lock_ref"), 10, 64)
		s.works(c, "UPDATE ACCOUNTS USING LOCK ? SET balance = ? WHERE branch = ? AND id = 'x'", ref, n, branch)
		s.works(c, "SELECT UNLOCK ACCOUNTS WHERE branch = ? USING LOCK ?", branch, ref)
		s.written.Add(1)
	}
}
