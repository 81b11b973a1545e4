package recipes

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"music/integration/evaluate/batch"
	"music/integration/evaluate/battery"
	"music/integration/evaluate/ours/ourstest"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store/storetest"
)

func TestMain(m *testing.M) { battery.Main(m) }

// Each recipe, on one proxy.
func TestRecipes(t *testing.T) {
	proxy := ourstest.Start(t)
	open := func(t testing.TB) section.Client {
		c, err := New(Options{Host: proxy})
		require.NoError(t, err)
		return c
	}
	battery.Run(t, battery.System{Name: "recipes", New: open})
	for name, recipe := range map[string]func(*testing.T, *Client){"election": electionRecipe, "lease": leaseRecipe, "batch": batchRecipe, "once": onceRecipe} {
		t.Run(name, func(t *testing.T) {
			c, err := New(Options{Host: proxy, Lease: 3 * time.Second})
			require.NoError(t, err)
			defer c.Close()
			recipe(t, c)
		})
	}
}

// One of two candidates leads, observers see which, and when it resigns the other one leads.
func electionRecipe(t *testing.T, c *Client) {
	terms := make(chan *Held, 2)
	resigned := make(chan error)
	lead := func(ctx context.Context, address string) {
		resigned <- c.Lead(ctx, "billing", address, func(h *Held) { terms <- h })
	}
	first, resignFirst := context.WithCancel(t.Context())
	second, resignSecond := context.WithCancel(t.Context())
	defer resignSecond()
	go lead(first, "host-1:8080")
	one := <-terms
	go lead(second, "host-2:8080")
	address, err := c.Leader(t.Context(), "billing")
	require.NoError(t, err)
	assert.Equal(t, "host-1:8080", address)
	require.NoError(t, one.Renew(t.Context()))
	assert.Empty(t, terms)

	resignFirst()
	require.NoError(t, <-resigned)
	two := <-terms
	assert.Greater(t, two.Token(), one.Token(), "the number of the term of office")
	require.ErrorIs(t, one.write(t.Context(), "host-1:8080"), section.ErrLost)
	address, err = two.read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "host-2:8080", address)
	resignSecond()
	require.NoError(t, <-resigned)
}

// A lease that is not renewed ends, and no later operation of its holder is executed.
func leaseRecipe(t *testing.T, c *Client) {
	silent := storetest.Enter(t, c, "lease")
	storetest.Put(t, silent, "of the silent")
	next := storetest.Enter(t, c, "lease")
	assert.Equal(t, "of the silent", storetest.Get(t, next))
	require.ErrorIs(t, silent.Put(t.Context(), []byte("late")), section.ErrLost)
	require.ErrorIs(t, silent.(section.Renewer).Renew(t.Context()), section.ErrLost)
	storetest.Leave(t, silent)
	storetest.Put(t, next, "of the next")
	storetest.Leave(t, next)
}

// A batch is processed beginning with its free keys.
func batchRecipe(t *testing.T, c *Client) {
	busy := storetest.Enter(t, c, "batch-b")
	var done []string
	keys := []string{"batch-a", "batch-b", "batch-c"}
	require.NoError(t, batch.Process(t.Context(), c, keys, 30*time.Millisecond, func(h section.Held, key string) error {
		if done = append(done, key); len(done) == 2 {
			storetest.Leave(t, busy)
		}
		return h.Put(t.Context(), []byte(key))
	}))
	assert.Equal(t, []string{"batch-a", "batch-c", "batch-b"}, done)
}

// Of many workers one does the job, and all others see that it is done or being done.
func onceRecipe(t *testing.T, c *Client) {
	require.NoError(t, c.Submit(t.Context(), "job", "resize photo 17"))
	var runs, claims atomic.Int32
	var workers errgroup.Group
	for range 8 {
		workers.Go(func() error {
			did, err := c.RunOnce(t.Context(), "job", func(what string) error {
				runs.Add(1)
				assert.Equal(t, "resize photo 17", what)
				return nil
			})
			if did {
				claims.Add(1)
			}
			return err
		})
	}
	require.NoError(t, workers.Wait())
	assert.EqualValues(t, []int32{1, 1}, []int32{runs.Load(), claims.Load()})
}
