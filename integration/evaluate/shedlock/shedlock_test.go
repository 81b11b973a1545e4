package shedlock

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/battery"
	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
	"music/integration/evaluate/store/storetest"
)

var long = flag.Bool("evaluate.long", false, "fetch ShedLock where it has not been fetched")

func TestMain(m *testing.M) { battery.Main(m) }

// options are those of a test, which is skipped where something would have to be fetched first.
func options(t *testing.T) Options {
	t.Helper()
	if !Program().Built() && !*long {
		t.Skip("ShedLock is not fetched: -evaluate.long")
	}
	program, err := Program().Build(t.Context(), t.Output())
	require.NoError(t, err)
	return Options{Options: storetest.Options(t), Program: program, Lease: time.Hour}
}

// It passes, and has its faults.
func TestShedLock(t *testing.T) {
	o := options(t)
	battery.Run(t, battery.System{Name: "shedlock", New: func(t testing.TB) section.Client {
		c, err := New(o)
		require.NoError(t, err)
		return c
	}})
	t.Run("a clock that is ahead", func(t *testing.T) { entersAhead(t, o) })
	t.Run("a put after the lock", func(t *testing.T) { putsLate(t, o) })
}

// entersAhead: who is two hours ahead gets a lock that is held for one, and both put.
func entersAhead(t *testing.T, o Options) {
	clients := storetest.NewClients(t)
	first := storetest.Enter(t, clients.Add(New(o)), "ahead")
	o.Ahead = 2 * o.Lease
	next := storetest.Enter(t, clients.Add(New(o)), "ahead")
	storetest.Put(t, next, "of the one ahead")
	storetest.Put(t, first, "of the holder")
	assert.Equal(t, "of the holder", storetest.Get(t, next))
	assert.Contains(t, clients.Faults(), judge.TwoHolders)
}

// putsLate: a task that has run for longer than its lock puts on top of its successor.
func putsLate(t *testing.T, o Options) {
	clients, gate := storetest.NewClients(t), storetest.NewGate(store.PutStatement)
	slow := o
	slow.Hook, slow.Lease = gate.Hook, time.Second
	first := storetest.Enter(t, clients.Add(New(slow)), "late")
	put := make(chan error, 1)
	go func() { put <- first.Put(t.Context(), []byte("late")) }()
	<-gate.Reached
	next := storetest.Enter(t, clients.Add(New(o)), "late")
	storetest.Put(t, next, "of the next")
	gate.Open()
	require.NoError(t, <-put)
	assert.Equal(t, "late", storetest.Get(t, next))
	assert.Equal(t, []judge.Fault{judge.LatePut}, clients.Faults())
}
