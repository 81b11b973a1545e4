package zookeeper

import (
	"context"
	"flag"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/battery"
	"music/integration/evaluate/ensemble"
	"music/integration/evaluate/ensemble/ensembletest"
	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
	"music/integration/evaluate/store/storetest"
)

var long = flag.Bool("evaluate.long", false, "fetch ZooKeeper where it has not been fetched")

func TestMain(m *testing.M) { battery.Main(m) }

// serve starts a server, or skips the test where it would have to be fetched first.
func serve(t *testing.T) string {
	t.Helper()
	if !ensemble.HasZooKeeper() && !*long {
		t.Skip("ZooKeeper is not fetched: -evaluate.long")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	kind, err := ensemble.ZooKeeper(ctx, t.Output())
	require.NoError(t, err)
	return ensembletest.Start(t, kind)
}

// It passes, in both forms, and has its faults.
func TestZooKeeper(t *testing.T) {
	o := Options{Options: storetest.Options(t), Servers: []string{serve(t)}}
	for name, first := range map[string]bool{"zookeeper": false, "zookeeper-flag-first": true} {
		o.FlagFirst = first
		battery.Run(t, battery.System{Name: name, New: func(t testing.TB) section.Client {
			c, err := New(o)
			require.NoError(t, err)
			return c
		}})
		t.Run(name+" flag", func(t *testing.T) { flagComes(t, o, name) })
		t.Run(name+" late put", func(t *testing.T) { putsLate(t, o, name+"-late") })
	}
}

// opened returns a client that is closed at the end of the test.
func opened(t *testing.T, o Options, hook store.Hook) *Client {
	t.Helper()
	o.Hook = hook
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// flagged reports whether the key's flag is set.
func flagged(t *testing.T, c *Client, key string) bool {
	t.Helper()
	rows, err := c.session.Rows(t.Context(), gocql.Quorum, readFlag, key)
	require.NoError(t, err)
	return len(rows) > 0
}

// flagComes stops a forced release before it sets the flag. As released, the next one is in by then
// and has not synchronised, and the flag is set under its hands; with the repair it does not get in.
func flagComes(t *testing.T, o Options, key string) {
	gate := storetest.NewGate(setFlag)
	forcing, next := opened(t, o, gate.Hook), opened(t, o, nil)
	storetest.Enter(t, opened(t, o, nil), key)
	forced := make(chan error, 1)
	go func() { forced <- forcing.Force(t.Context(), key) }()
	<-gate.Reached
	if o.FlagFirst {
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := next.Enter(short, key)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	} else {
		storetest.Enter(t, next, key)
	}
	gate.Open()
	require.NoError(t, <-forced)
	assert.True(t, flagged(t, next, key))
	if o.FlagFirst {
		storetest.Leave(t, storetest.Enter(t, next, key))
		assert.False(t, flagged(t, next, key), "it has synchronised")
	}
}

// putsLate has a holder forced out before it puts: its put lies on top, in both forms.
func putsLate(t *testing.T, o Options, key string) {
	clients, gate := storetest.NewClients(t), storetest.NewGate(store.PutStatement)
	paused := o
	paused.Hook = gate.Hook
	first := storetest.Enter(t, clients.Add(New(paused)), key)
	put := make(chan error, 1)
	go func() { put <- first.Put(t.Context(), []byte("late")) }()
	<-gate.Reached
	require.NoError(t, opened(t, o, nil).Force(t.Context(), key))
	next := storetest.Enter(t, clients.Add(New(o)), key)
	storetest.Put(t, next, "of the next")
	gate.Open()
	require.NoError(t, <-put)
	assert.Equal(t, "late", storetest.Get(t, next))
	assert.Equal(t, []judge.Fault{judge.LatePut}, clients.Faults())
	require.ErrorIs(t, first.Put(t.Context(), []byte("later")), section.ErrLost, "which begins with the check")
}

// Who is not among the references any more was forced out, whether others are there or not.
func TestWhoWasForcedOutIsLost(t *testing.T) {
	require.NoError(t, present([]string{"x-1", "x-2"}, "x-2"))
	require.ErrorIs(t, present([]string{"x-2"}, "x-1"), section.ErrLost)
	require.ErrorIs(t, present(nil, "x-1"), section.ErrLost)
}
