package requirements

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/battery"
	"music/integration/evaluate/heartbeat"
	"music/integration/evaluate/optimistic"
	"music/integration/evaluate/ours/ourstest"
	"music/integration/evaluate/recipes"
	"music/integration/evaluate/store/storetest"
)

func TestMain(m *testing.M) { battery.Main(m) }

// The times of a test: sleep is shorter than the post's; patience is how long a test looks at a
// system that stands still; soon is when a worker that says nothing is taken for dead.
const sleep, patience, soon = 50 * time.Millisecond, 3 * time.Second, time.Second

// wants is what comes of a system's tests.
type wants struct {
	System
	redeployed, stopWorld error
}

// Both locks of the post and the product's recipes have no deadlock, starve no one of two, and lose
// no update. The optimistic lock stays with the dead; the one with the heartbeat lets a worker write
// that it has taken for dead; the product does neither.
func TestRequirements(t *testing.T) {
	for name, system := range map[string]func(*testing.T) wants{"optimistic": theOptimistic, "heartbeat": theHeartbeat, "ours": ours} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := system(t)
			require.NoError(t, w.Deadlock(t.Context()), "deadlock")
			require.NoError(t, w.Starvation(t.Context(), 2), "starvation")
			took, err := w.Performance(t.Context(), 10, 0, 0.5, 1)
			require.NoError(t, err, "performance")
			t.Logf("batches of 10, of which 0, 5 and 10 are wanted twice: %v", took)
			assert.ErrorIs(t, within(t, w.redeployed, w.Redeployment), w.redeployed, "redeployment")
			assert.ErrorIs(t, within(t, w.stopWorld, w.StopTheWorld), w.stopWorld, "stop the world")
		})
	}
}

// within gives a test that cannot come to an end only as long as patience.
func within(t *testing.T, want error, test func(context.Context) error) error {
	t.Helper()
	limit := time.Minute
	if want == context.DeadlineExceeded { //nolint:errorlint // it is this one
		limit = patience
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return test(ctx)
}

// theOptimistic is the post's first lock.
func theOptimistic(t *testing.T) wants {
	o := optimistic.Options{Options: storetest.Options(t), Sleep: sleep}
	open := func() (Lock, error) { return optimistic.New(o) }
	return wants{System{open, open, sleep}, context.DeadlineExceeded, context.DeadlineExceeded}
}

// theHeartbeat is the post's second lock, with its housekeeper. A mortal worker does not beat, and its
// clock is further behind than the grace period is long: nobody else is ever evicted, however slow
// the machine is.
func theHeartbeat(t *testing.T) wants {
	o := heartbeat.Options{Options: storetest.Options(t), Sleep: sleep, Grace: time.Hour}
	keeper, err := heartbeat.NewHousekeeper(o)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { stop(); <-ended; keeper.Close() })
	go func() {
		defer close(ended)
		for tick := time.Tick(soon / 10); ctx.Err() == nil; <-tick {
			_, _ = keeper.Clean(ctx)
		}
	}()
	mortal := o
	mortal.Beat, mortal.Clock = time.Hour, storetest.Ahead(-2*o.Grace)
	return wants{
		System{func() (Lock, error) { return heartbeat.New(o) }, func() (Lock, error) { return heartbeat.New(mortal) }, sleep},
		nil, ErrSafety,
	}
}

// ours is the product as its recipes have it. A mortal worker has a short lease.
func ours(t *testing.T) wants {
	proxy := ourstest.Start(t)
	of := func(lease time.Duration) func() (Lock, error) {
		return func() (Lock, error) { return recipes.New(recipes.Options{Host: proxy, Lease: lease}) }
	}
	return wants{System: System{of(time.Minute), of(soon), sleep}}
}
