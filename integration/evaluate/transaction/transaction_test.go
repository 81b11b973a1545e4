package transaction

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
	"music/integration/evaluate/store/storetest"
)

var long = flag.Bool("evaluate.long", false, "fetch and start a node of Cassandra 6")

// node starts a node with transactions, and makes a keyspace there.
func node(t *testing.T) Options {
	t.Helper()
	if !*long {
		t.Skip("a node of Cassandra " + Release + ": -evaluate.long")
	}
	dir, err := cassandra.DefaultRunDir()
	require.NoError(t, err)
	cluster, err := cassandra.Start(t.Context(), cassandra.Options{
		Dir: filepath.Join(dir, "evaluate-transaction"), Release: Release, Address: func(int) string { return "127.0.33.1" }, FastJIT: true,
		Heap: "512m", Properties: cassandra.Once(), Yaml: Enabled(), Log: os.Stderr,
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, cluster.Wipe()) })
	c := gocql.NewCluster(cluster.ContactPoints()...)
	c.Timeout = time.Minute
	session, err := c.CreateSession()
	require.NoError(t, err)
	defer session.Close()
	require.NoError(t, session.Query("CREATE KEYSPACE evaluate WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}").Exec())
	return Options{Options: store.Options{Hosts: cluster.ContactPoints(), Keyspace: "evaluate"}}
}

// opened returns a client that is closed at the end of the test.
func opened(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// Updates of several clients are all carried out, and the last one is read. An update waits while
// another has the lock, and one that a dead holder has left is waited for without end.
func TestTransactions(t *testing.T) {
	o := node(t)
	var group sync.WaitGroup
	var values []string
	for i := range 3 {
		h := storetest.Enter(t, opened(t, o), "k")
		value := fmt.Sprint("of client ", i)
		values = append(values, value)
		group.Go(func() {
			for range 3 {
				assert.NoError(t, h.Put(t.Context(), []byte(value)))
			}
		})
	}
	group.Wait()
	c := opened(t, o)
	h := storetest.Enter(t, c, "k")
	assert.Contains(t, values, storetest.Get(t, h))
	_, err := storetest.Enter(t, c, "another").Get(t.Context())
	require.ErrorIs(t, err, section.ErrNoValue)

	holder := func(value string) {
		t.Helper()
		text := strings.ReplaceAll("BEGIN TRANSACTION UPDATE transactions SET holder = VALUE WHERE key = 'k'; COMMIT TRANSACTION", "VALUE", value)
		_, err := c.session.Rows(t.Context(), gocql.Quorum, text)
		require.NoError(t, err)
	}
	before := storetest.Get(t, h)
	holder(gocql.MustRandomUUID().String())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, h.Put(ctx, []byte("under another's lock")), context.DeadlineExceeded)
	require.Equal(t, before, storetest.Get(t, h))
	put := make(chan error, 1)
	go func() { put <- h.Put(t.Context(), []byte("after it")) }()
	holder("null")
	require.NoError(t, <-put)
	require.Equal(t, "after it", storetest.Get(t, h))
}
