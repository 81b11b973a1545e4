package integration

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// renamed is a table whose two key columns exchange their names again and again, and clients that write one key of it without
// a lock, as it is called at first: under the other names that is the key that the test has locked.
type renamed struct {
	*tableFixture
	done    chan struct{}
	written atomic.Int64
}

// What was read by the former names of key columns is not written by the present ones: nobody writes the locked key but its
// holder, whichever of the writes waits while the names change, and at whichever proxy.
func TestKeyColumnsExchangeTheirNames(t *testing.T) {
	r := &renamed{tableFixture: newTableFixtureFor(t, withGocql2(4, "")), done: make(chan struct{})}
	r.works(r.client, "CREATE TABLE seats (a text, b text, v int, PRIMARY KEY ((a, b))) WITH comment = '@critical(auto)'")
	r.works(r.client, "INSERT INTO seats (a, b, v) VALUES ('x', 'y', 0)")
	var writers sync.WaitGroup
	for _, address := range []string{r.address, startProxy(t, nil).address} {
		for _, put := range r.puts(openGocql2(t, cluster2(address, r.keyspace)).session) {
			writers.Go(func() { r.write(put) })
		}
	}
	for range 4 {
		ref := r.grant(r.works(r.client, "LOCK seats WHERE a = 'y' AND b = 'x' LEASE 60s"), "HELD")
		r.works(r.client, fmt.Sprintf("UPDATE seats USING LOCK %d SET v = -1 WHERE a = 'y' AND b = 'x'", ref))
		r.exchange()
		r.exchange()
		assert.Contains(t, r.values(), -1, "another one has written the locked key")
		r.works(r.client, fmt.Sprintf("UNLOCK seats WHERE a = 'y' AND b = 'x' USING LOCK %d", ref))
		before := r.written.Load()
		eventually(t, 20*time.Second, "the writers go on", func() error {
			if r.written.Load() == before {
				return errorf("no write since")
			}
			return nil
		})
	}
	close(r.done)
	writers.Wait()
}

// puts returns the ways in which clients write.
func (r *renamed) puts(session *gocql.Session) []func(n int) error {
	return []func(n int) error{
		func(n int) error {
			return session.Query(fmt.Sprintf("UPDATE seats SET v = %d WHERE a = 'x' AND b = 'y'", n)).Exec()
		},
		func(n int) error {
			return session.Query("UPDATE seats SET v = ? WHERE a = ? AND b = ?", n, "x", "y").Exec()
		},
		func(n int) error {
			_, err := session.Query("UPDATE seats SET v = ? WHERE a = ? AND b = ? IF v != ?", n, "x", "y", n).MapScanCAS(map[string]any{})
			return err
		},
		func(n int) error {
			b := session.Batch(gocql.LoggedBatch)
			b.Query("UPDATE seats SET v = ? WHERE a = ? AND b = ?", n, "x", "y")
			b.Query("INSERT INTO seats (a, b, v) VALUES (?, ?, ?)", "x", "z", n)
			return b.Exec()
		},
	}
}

// write writes until the test is over. Errors are as they should be: columns are missing while their names change, and a
// write that names the locked key waits in vain.
func (r *renamed) write(put func(n int) error) {
	for n := 0; ; n++ {
		select {
		case <-r.done:
			return
		default:
		}
		if put(n) == nil {
			r.written.Add(1)
		}
	}
}

// exchange has each of the key columns get the name of the other one.
func (r *renamed) exchange() {
	r.t.Helper()
	for _, names := range []string{"a TO other", "b TO a", "other TO b"} {
		r.works(r.client, "ALTER TABLE seats RENAME "+names)
	}
}

// values returns the values of all rows, read from the node.
func (r *renamed) values() (all []int) {
	r.t.Helper()
	iter := r.direct.Query("SELECT v FROM " + r.keyspace + ".seats").Iter()
	for v := 0; iter.Scan(&v); {
		all = append(all, v)
	}
	require.NoError(r.t, iter.Close())
	return all
}
