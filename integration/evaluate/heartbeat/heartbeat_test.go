package heartbeat

import (
	"context"
	"errors"
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

func TestMain(m *testing.M) { battery.Main(m) }

// sleep is shorter than the post's, for the tests' sake.
const sleep = 30 * time.Millisecond

// opened returns a client that is closed at the end of the test.
func opened(t testing.TB, o Options) *Client {
	t.Helper()
	o.Sleep = sleep
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// housekeeper returns one that is closed at the end of the test.
func housekeeper(t testing.TB, o Options) *Housekeeper {
	t.Helper()
	k, err := NewHousekeeper(o)
	require.NoError(t, err)
	t.Cleanup(k.Close)
	return k
}

// Both forms pass, with a housekeeper that finds nothing to do.
func TestBattery(t *testing.T) {
	o := storetest.Options(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go housekeeper(t, Options{Options: o}).Run(ctx)
	for name, conditional := range map[string]bool{"heartbeat": false, "heartbeat-conditional": true} {
		battery.Run(t, battery.System{Name: name, New: func(t testing.TB) section.Client {
			c, err := New(Options{Options: o, Sleep: sleep, Conditional: conditional})
			require.NoError(t, err)
			return c
		}})
	}
}

// A batch is worked off from what is free; what is not is waited for only when nothing else is left.
func TestProcess(t *testing.T) {
	t.Parallel()
	o := Options{Options: storetest.Options(t), Sleep: sleep}
	c, other := opened(t, o), opened(t, o)
	busy := storetest.Enter(t, other, "b")
	var done []string
	require.NoError(t, c.Process(t.Context(), []string{"a", "b", "c"}, func(h section.Held, key string) error {
		if done = append(done, key); len(done) == 2 {
			storetest.Leave(t, busy)
		}
		return h.Put(t.Context(), []byte("processed"))
	}))
	require.Len(t, done, 3)
	assert.Equal(t, "b", done[2])
	for _, key := range done {
		assert.Equal(t, "processed", storetest.Get(t, storetest.Enter(t, other, key)))
	}
}

// Work that fails ends the batch, and leaves nothing locked.
func TestProcessFails(t *testing.T) {
	t.Parallel()
	o := Options{Options: storetest.Options(t)}
	c, failure := opened(t, o), errors.New("no")
	err := c.Process(t.Context(), []string{"a", "b"}, func(section.Held, string) error { return failure })
	require.ErrorIs(t, err, failure)
	for _, key := range []string{"a", "b"} {
		_, ok, err := opened(t, o).TryEnter(t.Context(), key)
		require.NoError(t, err)
		assert.True(t, ok, key)
	}
}

// A token is stale when neither it nor a beat that names it is within the grace period.
func TestHousekeeping(t *testing.T) {
	t.Parallel()
	o := Options{Options: storetest.Options(t), Sleep: sleep, Beat: time.Hour, Grace: time.Hour, Conditional: true}
	past, present := o, o
	past.Clock = storetest.Ahead(-2 * o.Grace)
	old, fresh := opened(t, past), opened(t, present)
	for _, key := range []string{"dead", "beaten"} {
		storetest.Enter(t, old, key)
	}
	storetest.Enter(t, fresh, "fresh")
	beating := opened(t, present) // the same session, alive
	beating.id, beating.held = old.id, map[string]bool{"beaten": true}
	require.NoError(t, beating.sendBeat(t.Context()))

	for _, want := range [][]string{{"dead"}, nil} {
		stale, err := housekeeper(t, o).Clean(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, stale)
	}
	storetest.Leave(t, storetest.Enter(t, fresh, "dead"))
}

// A session that dies leaves its token until the housekeeping service finds it stale.
func TestADeadSessionIsCleanedUp(t *testing.T) {
	t.Parallel()
	o := Options{Options: storetest.Options(t), Sleep: sleep, Grace: time.Second}
	service, err := NewKept(o)
	require.NoError(t, err)
	defer service.Close()
	dies, err := New(o)
	require.NoError(t, err)
	storetest.Enter(t, dies, "k")
	dies.Close()
	storetest.Leave(t, storetest.Enter(t, service, "k"))
}

// A plain DELETE of a client whose clock is behind is acknowledged and deletes nothing, since the
// row was written with the timestamp of a ballot. The token is blocked until it is stale.
func TestDeleteUnderABallot(t *testing.T) {
	for name, conditional := range map[string]bool{"printed": false, "repaired": true} {
		t.Run(name, func(t *testing.T) {
			o := Options{Options: storetest.Options(t), Conditional: conditional}
			behind := o
			behind.Clock = storetest.Ahead(-time.Minute)
			storetest.Leave(t, storetest.Enter(t, opened(t, behind), "k"))
			_, ok, err := opened(t, o).TryEnter(t.Context(), "k")
			require.NoError(t, err)
			assert.Equal(t, conditional, ok)
		})
	}
}

// evicted is a session that was evicted while it was paused: the second session has the key.
type evicted struct {
	clients       *storetest.Clients
	first, second section.Held
	third         *Client
}

// evict pauses a session before its put, has it evicted, and resumes it after the second session
// has put. put is the error of its put.
func evict(t *testing.T, conditional bool) (e evicted, put error) {
	t.Helper()
	o := Options{Options: storetest.Options(t), Sleep: sleep, Beat: time.Hour, Grace: time.Millisecond, Conditional: conditional}
	gate := storetest.NewGate(store.PutStatement)
	paused := o
	paused.Hook = gate.Hook
	e.clients, e.third = storetest.NewClients(t), opened(t, o)
	one, two := e.clients.Add(New(paused)), e.clients.Add(New(o))
	e.first = storetest.Enter(t, one, "k")
	done := make(chan error, 1)
	go func() { done <- e.first.Put(t.Context(), []byte("late")) }()
	<-gate.Reached
	sweeper := housekeeper(t, o)
	require.Eventually(t, func() bool {
		stale, err := sweeper.Clean(t.Context())
		require.NoError(t, err)
		return len(stale) == 1
	}, time.Minute, time.Millisecond)
	e.second = storetest.Enter(t, two, "k")
	storetest.Put(t, e.second, "of the second")
	gate.Open()
	return e, <-done
}

// A session that resumes after its eviction overwrites its successor's put; the repair does not
// change that.
func TestEvictedSessionPuts(t *testing.T) {
	t.Parallel()
	for _, conditional := range []bool{false, true} {
		e, err := evict(t, conditional)
		require.NoError(t, err)
		assert.Equal(t, "late", storetest.Get(t, e.second))
		assert.Equal(t, []judge.Fault{judge.LatePut}, e.clients.Faults())
	}
}

// Then it deletes the token of its successor, so that a third session enters; with the repair it
// deletes nothing.
func TestEvictedSessionLeaves(t *testing.T) {
	t.Parallel()
	for _, conditional := range []bool{false, true} {
		e, err := evict(t, conditional)
		require.NoError(t, err)
		storetest.Leave(t, e.first)
		_, ok, err := e.third.TryEnter(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, !conditional, ok, "while the second one holds it")
	}
}
