package curator

import (
	"context"
	"flag"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/battery"
	"music/integration/evaluate/ensemble"
	"music/integration/evaluate/ensemble/ensembletest"
	"music/integration/evaluate/judge"
	"music/integration/evaluate/remote"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store/storetest"
)

var long = flag.Bool("evaluate.long", false, "fetch ZooKeeper and Curator where they have not been fetched")

// options starts a server, or skips the test where something would have to be fetched first.
func options(t *testing.T) Options {
	t.Helper()
	if (!ensemble.HasZooKeeper() || !Program().Built()) && !*long {
		t.Skip("ZooKeeper or Curator is not fetched: -evaluate.long")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	kind, err := ensemble.ZooKeeper(ctx, t.Output())
	require.NoError(t, err)
	program, err := Program().Build(ctx, t.Output())
	require.NoError(t, err)
	return Options{Program: program, Server: ensembletest.Start(t, kind)}
}

// It passes, and has its faults.
func TestCurator(t *testing.T) {
	o := options(t)
	battery.Run(t, battery.System{Name: "curator", New: func(t testing.TB) section.Client {
		c, err := New(o)
		require.NoError(t, err)
		return c
	}})
	t.Run("a put after the session", func(t *testing.T) { putsLate(t, o) })
	t.Run("a large value", func(t *testing.T) { putsMuch(t, o) })
}

// putsLate has the process of a holder stand still until its session has ended and another has put: when it goes on, its put
// replaces that.
func putsLate(t *testing.T, o Options) {
	clients := storetest.NewClients(t)
	o.Session = 2 * time.Second // the least that the server grants
	one, err := New(o)
	require.NoError(t, err)
	first := storetest.Enter(t, clients.Add(one, nil), "late")
	stopped(t, one, syscall.SIGSTOP)
	put := make(chan error, 1)
	go func() { put <- first.Put(t.Context(), []byte("late")) }()
	next := storetest.Enter(t, clients.Add(New(o)), "late")
	storetest.Put(t, next, "of the next")
	stopped(t, one, syscall.SIGCONT)
	require.NoError(t, <-put)
	assert.Equal(t, "late", storetest.Get(t, next))
	assert.Contains(t, clients.Faults(), judge.LatePut)
}

// stopped signals a client's process.
func stopped(t *testing.T, c *remote.Client, s syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(c.Pid(), s))
}

// putsMuch: a value above 1 MiB is not taken.
func putsMuch(t *testing.T, o Options) {
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	h := storetest.Enter(t, c, "large")
	require.NoError(t, h.Put(t.Context(), make([]byte, 1<<20-1000)))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	require.Error(t, h.Put(ctx, make([]byte, 1<<20+1000)))
}
