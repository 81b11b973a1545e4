package requirements

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/battery"
	"music/integration/evaluate/heartbeat"
	"music/integration/evaluate/optimistic"
	"music/integration/evaluate/ours/ourstest"
	"music/integration/evaluate/recipes"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
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

// paused are the options of a worker that stands still for a span before its first put. Nobody waits for that: until then its clock
// is behind by as much, so that what it has said is old at once.
func paused(o store.Options, span time.Duration) store.Options {
	var awake atomic.Bool
	o.Clock = func() time.Time {
		if awake.Load() {
			return time.Now()
		}
		return time.Now().Add(-span)
	}
	o.Hook = func(statement string, send func() error) error {
		if strings.HasPrefix(statement, store.PutStatement) {
			awake.Store(true)
		}
		return send()
	}
	return o
}

// A worker that was paused wakes by its put, whose timestamp is that of now: from a clock that is behind it would be acknowledged and
// lie below what the next one has written.
func TestAPausedWorkerPutsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := paused(store.Options{}, time.Hour)
		var seen []time.Duration
		for _, statement := range []string{"INSERT INTO lwt_tokens", store.PutStatement + " (key, value)", "DELETE FROM lwt_tokens"} {
			require.NoError(t, o.Hook(statement, func() error {
				seen = append(seen, time.Since(o.Clock()))
				return nil
			}))
		}
		assert.Equal(t, []time.Duration{time.Hour, 0, 0}, seen)
	})
}

// theHeartbeat is the post's second lock, with its housekeeper. A mortal worker does not beat, and is paused for longer than the grace
// period: nobody else is ever evicted, however slow the machine is.
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
	mortal := func() (Lock, error) {
		o := o
		o.Beat, o.Options = time.Hour, paused(o.Options, 2*o.Grace)
		return heartbeat.New(o)
	}
	return wants{System{func() (Lock, error) { return heartbeat.New(o) }, mortal, sleep}, nil, ErrSafety}
}

// ours is the product as its recipes have it. A mortal worker has a short lease.
func ours(t *testing.T) wants {
	proxy := ourstest.Start(t)
	of := func(lease time.Duration) func() (Lock, error) {
		return func() (Lock, error) { return recipes.New(recipes.Options{Host: proxy, Lease: lease}) }
	}
	return wants{System: System{of(time.Minute), of(soon), sleep}}
}

// row is a lock that everybody has, and its value. The first worker's put is carried out, or not, and answered.
type row struct {
	value  *string
	writes bool
	answer error
}

func (r row) Close()                                              {}
func (r row) Enter(context.Context, string) (section.Held, error) { return r, nil }
func (r row) TryEnter(context.Context, string) (section.Held, bool, error) {
	return r, true, nil
}
func (r row) Leave(context.Context) error         { return nil }
func (r row) Get(context.Context) ([]byte, error) { return []byte(*r.value), nil }
func (r row) Put(_ context.Context, value []byte) error {
	if r.writes {
		*r.value = string(value)
	}
	return r.answer
}

// The late put of a worker is refused, or carried out, or acknowledged and lost: the test tells one from another.
func TestStopTheWorldTells(t *testing.T) {
	unknown := errors.New("unknown")
	for _, c := range []struct {
		late row
		want error
	}{
		{row{writes: true}, ErrSafety}, {row{writes: true, answer: unknown}, ErrSafety}, {row{}, ErrLost}, {row{answer: section.ErrLost}, nil},
	} {
		c.late.value = new(string)
		s := System{
			Mortal: func() (Lock, error) { return c.late, nil },
			New:    func() (Lock, error) { return row{value: c.late.value, writes: true}, nil },
		}
		assert.ErrorIs(t, s.StopTheWorld(t.Context()), c.want)
	}
}
