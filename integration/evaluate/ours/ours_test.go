package ours

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra"
	"music/integration/evaluate/section"
)

const (
	theNode  = "127.0.21.1"
	theProxy = "127.0.21.2"
	keyspace = "evaluate_ours"
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		end, err := serve()
		defer end()
		if err != nil {
			fmt.Fprintln(os.Stderr, "ours:", err)
			return 1
		}
		return m.Run()
	}())
}

// serve starts a node and a proxy for all tests.
func serve() (end func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	run, err := cassandra.DefaultRunDir()
	if err != nil {
		return func() {}, err
	}
	node, err := cassandra.Start(ctx, cassandra.Options{
		Dir: filepath.Join(run, "evaluate-ours"), FastJIT: true, Properties: cassandra.Once(), Address: func(int) string { return theNode }, Log: os.Stderr,
	})
	if err != nil {
		return func() {}, err
	}
	end = func() { _ = node.Wipe() }
	program, err := Build(ctx)
	if err != nil {
		return end, err
	}
	p, err := StartProxy(ctx, ProxyOptions{Program: program, Node: node.Nodes()[0].Addr(), Listen: theProxy})
	if err != nil {
		return end, err
	}
	end = func() { p.Kill(); _ = node.Wipe() }
	s, err := connect(Options{Hosts: []string{theProxy}, Timeout: time.Minute})
	if err != nil {
		return end, err
	}
	defer s.Close()
	return end, s.Query("CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 1}").Exec()
}

// application is a new client.
func application(t *testing.T, m Mode) section.Client {
	t.Helper()
	c, err := New(Options{Hosts: []string{theProxy}, Keyspace: keyspace, Mode: m})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// A client that enters reads the last put, in each mode, and a client whose section was ended by
// force gets ErrLost.
func TestSectionsOfEachMode(t *testing.T) {
	for _, m := range []Mode{Lock, ForUpdate, Auto, Strict, Local} {
		t.Run(string(m), func(t *testing.T) {
			one, two := application(t, m), application(t, m)
			h, err := one.Enter(t.Context(), "k")
			require.NoError(t, err)
			_, err = h.Get(t.Context())
			require.ErrorIs(t, err, section.ErrNoValue)
			require.NoError(t, h.Put(t.Context(), []byte("first")))
			require.NoError(t, h.Leave(t.Context()))

			h, err = two.Enter(t.Context(), "k")
			require.NoError(t, err)
			v, err := h.Get(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "first", string(v))
			if many, is := h.(section.Pipeliner); is {
				require.NoError(t, many.PutMany(t.Context(), [][]byte{[]byte("a"), []byte("b"), []byte("c")}))
				v, err = h.Get(t.Context())
				require.NoError(t, err)
				assert.Equal(t, "c", string(v))
			}
			if force, is := one.(section.Forcer); is {
				require.NoError(t, force.Force(t.Context(), "k"))
				require.ErrorIs(t, h.Put(t.Context(), []byte("late")), section.ErrLost)
				require.ErrorIs(t, h.(section.Renewer).Renew(t.Context()), section.ErrLost)
			}
		})
	}
}

// An Enter that is cancelled while it waits leaves no place in the queue, and TryEnter does not
// enter a key that is held.
func TestACancelledEnterLeavesNothing(t *testing.T) {
	for _, m := range []Mode{Lock, Strict} {
		one, two := application(t, m), application(t, m)
		h, err := one.Enter(t.Context(), "cancelled")
		require.NoError(t, err)
		_, free, err := two.(section.Trier).TryEnter(t.Context(), "cancelled")
		require.NoError(t, err)
		assert.False(t, free)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = two.Enter(ctx, "cancelled")
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 1, waiters(t, one, "cancelled"), "the holder, and nobody behind it")
		require.NoError(t, h.Leave(t.Context()))
	}
}

// waiters counts the holder and the waiters of a key.
func waiters(t *testing.T, c section.Client, key string) int {
	t.Helper()
	o := c.(*client)
	all, err := o.cql.Query("SELECT LIST LOCKS ON "+o.table+" WHERE k = ?", key).Iter().SliceMap()
	require.NoError(t, err)
	return len(all)
}

// Two sections of one key have references that rise.
func TestTokensRise(t *testing.T) {
	c, last := application(t, Lock), int64(0)
	for range 3 {
		h, err := c.Enter(t.Context(), "token")
		require.NoError(t, err)
		assert.Greater(t, h.(section.Token).Token(), last)
		last = h.(section.Token).Token()
		require.NoError(t, h.Leave(t.Context()))
	}
}

// After a driver's error without an answer LOCK may be repeated, after the proxy's own errors not.
func TestWhatMayBeAskedAgain(t *testing.T) {
	assert.True(t, unanswered(gocql.ErrTimeoutNoResponse))
	c := application(t, Lock).(*client)
	_, err := c.ask(t.Context(), "SELECT LOCK "+c.table+" WHERE v = ?", []byte("v"))
	require.Error(t, err)
	assert.False(t, unanswered(err))
}
