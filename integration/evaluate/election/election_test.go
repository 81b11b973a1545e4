package election

import (
	"context"
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

// poll is shorter than the default, for the tests' sake.
const poll = 20 * time.Millisecond

// opened returns a client that is closed at the end of the test.
func opened(t testing.TB, o Options) *Client {
	t.Helper()
	o.Poll = poll
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// Both forms pass.
func TestBattery(t *testing.T) {
	o := storetest.Options(t)
	for name, fenced := range map[string]bool{"election": false, "election-fenced": true} {
		battery.Run(t, battery.System{Name: name, New: func(t testing.TB) section.Client {
			c, err := New(Options{Options: o, Poll: poll, Fenced: fenced})
			require.NoError(t, err)
			return c
		}})
	}
}

// campaign has a client lead, and returns its lease, a function that has it resign, and a function
// that waits for its end.
func campaign(t *testing.T, c *Client, address string) (lease *Lease, resign context.CancelFunc, over chan error) {
	t.Helper()
	ctx, resign := context.WithCancel(t.Context())
	elected := make(chan *Lease, 1)
	over = make(chan error, 1)
	go func() { over <- c.Lead(ctx, "k", address, func(l *Lease) { elected <- l }) }()
	select {
	case lease = <-elected:
	case err := <-over:
		require.NoError(t, err)
	}
	return lease, resign, over
}

// One of two candidates leads, observers see which, and when it resigns the other one leads.
func TestElection(t *testing.T) {
	t.Parallel()
	o := storetest.Options(t)
	for _, fenced := range []bool{false, true} {
		c := opened(t, Options{Options: o, Fenced: fenced})
		one, resign, over := campaign(t, c, "host-1:8080")
		leader, err := c.Observe(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, one.owner, leader.Owner)
		assert.Equal(t, "host-1:8080", leader.Value)
		_, elected, err := c.TryEnter(t.Context(), "k")
		require.NoError(t, err)
		assert.False(t, elected)

		resign()
		require.NoError(t, <-over)
		leader, err = c.Observe(t.Context(), "k")
		require.NoError(t, err)
		assert.Empty(t, leader.Owner+leader.Value)
		two, resign, over := campaign(t, c, "host-2:8080")
		require.ErrorIs(t, one.Renew(t.Context()), section.ErrLost)
		require.NoError(t, one.Leave(t.Context()), "it drops nothing of another")
		require.NoError(t, two.Renew(t.Context()))
		resign()
		require.NoError(t, <-over)
	}
}

// When a leader dies, the next one leads after the TTL.
func TestDeadLeader(t *testing.T) {
	t.Parallel()
	o := storetest.Options(t)
	for key, fenced := range map[string]bool{"printed": false, "fenced": true} {
		c := opened(t, Options{Options: o, TTL: 2 * time.Second, Fenced: fenced})
		storetest.Enter(t, c, key)
		storetest.Leave(t, storetest.Enter(t, c, key))
	}
}

// The value that a leader has published, which renews as the post says, is gone after a TTL; with
// the repair it stays.
func TestRenewalLetsTheValueExpire(t *testing.T) {
	o := storetest.Options(t)
	for key, fenced := range map[string]bool{"printed": false, "repaired": true} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			const ttl = 2 * time.Second
			c := opened(t, Options{Options: o, TTL: ttl, Fenced: fenced})
			lease := storetest.Enter(t, c, key).(*Lease)
			require.NoError(t, lease.Publish(t.Context(), "host-1:8080"))
			published := time.Now()
			ticker := time.NewTicker(ttl / 8)
			defer ticker.Stop()
			for time.Since(published) < ttl+ttl/3 {
				<-ticker.C
				if lease.Renew(t.Context()) != nil {
					t.Skip("this machine was too slow to renew in time")
				}
			}
			leader, err := c.Observe(t.Context(), key)
			require.NoError(t, err)
			if leader.Owner != lease.owner {
				t.Skip("this machine was too slow to renew in time")
			}
			assert.Equal(t, map[bool]string{false: "", true: "host-1:8080"}[fenced], leader.Value)
		})
	}
}

// A leader that is paused for longer than its lease overwrites the next one's value; with the
// repair it gets an error.
func TestPausedLeaderWrites(t *testing.T) {
	t.Parallel()
	o := storetest.Options(t)
	for key, fenced := range map[string]bool{"printed": false, "repaired": true} {
		clients := storetest.NewClients(t)
		prefix := map[bool]string{false: store.PutStatement, true: fencedPut}[fenced]
		gate := storetest.NewGate(prefix)
		paused := o
		paused.Hook = gate.Hook
		one := clients.Add(New(Options{Options: paused, TTL: 3 * time.Second, Poll: poll, Fenced: fenced}))
		two := clients.Add(New(Options{Options: o, Poll: poll, Fenced: fenced}))

		first := storetest.Enter(t, one, key)
		put := make(chan error, 1)
		go func() { put <- first.Put(t.Context(), []byte("of the first")) }()
		<-gate.Reached
		second := storetest.Enter(t, two, key)
		storetest.Put(t, second, "of the second")
		gate.Open()
		err := <-put
		value := storetest.Get(t, second)
		if fenced {
			require.ErrorIs(t, err, section.ErrLost)
			assert.Equal(t, "of the second", value)
			assert.Empty(t, clients.Faults())
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, "of the first", value)
		assert.Equal(t, []judge.Fault{judge.LatePut}, clients.Faults())
	}
}

// If the acquisition of a lease is not answered, the next attempt finds that it succeeded.
func TestAcquisitionNotAnswered(t *testing.T) {
	t.Parallel()
	o := storetest.Options(t)
	for key, fenced := range map[string]bool{"printed": false, "repaired": true} {
		lossy := o
		lossy.Hook = storetest.LoseAnswer(map[bool]string{false: acquireStatement, true: fencedAcquire}[fenced])
		c := opened(t, Options{Options: lossy, Fenced: fenced})
		storetest.Leave(t, storetest.Enter(t, c, key))
	}
}
