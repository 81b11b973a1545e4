package optimistic

import (
	"context"
	"strings"
	"sync"
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
const sleep = 50 * time.Millisecond

// opened returns a client that is closed at the end of the test.
func opened(t testing.TB, o Options) *Client {
	t.Helper()
	o.Sleep = sleep
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// Both forms pass, with few clients.
func TestBattery(t *testing.T) {
	o := storetest.Options(t)
	for name, repaired := range map[string]bool{"optimistic": false, "optimistic-repaired": true} {
		battery.Run(t, battery.System{Name: name, Goroutines: 1, New: func(t testing.TB) section.Client {
			c, err := New(Options{Options: o, Sleep: sleep, Repaired: repaired})
			require.NoError(t, err)
			return c
		}})
	}
}

// rendezvous lets two clients take each of a round's steps together.
type rendezvous struct {
	mu      sync.Mutex
	arrived int
	all     chan struct{}
}

// wait returns when both have called it.
func (r *rendezvous) wait() {
	r.mu.Lock()
	all := r.all
	if r.arrived++; r.arrived == 2 {
		r.arrived, r.all = 0, make(chan struct{})
		close(all)
	}
	r.mu.Unlock()
	<-all
}

// The post's own example: both write, both read, both delete, and so on for as long as one looks.
func TestNobodyEverGetsIt(t *testing.T) {
	t.Parallel()
	o := storetest.Options(t)
	meeting := &rendezvous{all: make(chan struct{})}
	o.Hook = func(statement string, send func() error) error {
		err := send()
		meeting.wait()
		return err
	}
	const rounds = 20
	var group sync.WaitGroup
	for range 2 {
		c := opened(t, Options{Options: o})
		group.Go(func() {
			for range rounds {
				_, ok, err := c.TryEnter(t.Context(), "k")
				assert.NoError(t, err)
				assert.False(t, ok)
			}
		})
	}
	group.Wait()
}

// A process that dies with the token leaves it for ever, or with the repair for a TTL.
func TestDeadHolder(t *testing.T) {
	t.Parallel()
	o := storetest.Options(t)
	for key, repaired := range map[string]bool{"printed": false, "repaired": true} {
		with := Options{Options: o, Repaired: repaired, TTL: 2 * time.Second}
		storetest.Enter(t, opened(t, with), key)
		living := opened(t, with)
		short, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		held, err := living.Enter(short, key)
		cancel()
		if !repaired {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			continue
		}
		require.NoError(t, err)
		storetest.Leave(t, held)
	}
}

// A delete of a client whose clock went back by a second after the insert is acknowledged, and
// the row stays; with the repair the clock is not asked again.
func TestDeleteLosesToItsOwnInsert(t *testing.T) {
	t.Parallel()
	o := storetest.Options(t)
	for key, repaired := range map[string]bool{"printed": false, "repaired": true} {
		steps := o
		steps.Clock = stepsBack(time.Second)
		left := opened(t, Options{Options: steps, Repaired: repaired})
		storetest.Leave(t, storetest.Enter(t, left, key))
		_, ok, err := opened(t, Options{Options: o, Repaired: repaired}).TryEnter(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, repaired, ok)
	}
}

// stepsBack returns a clock that is right once, and behind by d from then on.
func stepsBack(d time.Duration) func() time.Time {
	var once sync.Once
	behind := storetest.Ahead(-d)
	return func() (now time.Time) {
		now = behind()
		once.Do(func() { now = time.Now() })
		return now
	}
}

// What ends a stuck token also ends a section that is too long: two holders, with the repair only.
func TestRowRunsOut(t *testing.T) {
	t.Parallel()
	o := Options{Options: storetest.Options(t), Repaired: true, TTL: time.Second, Sleep: sleep}
	clients := storetest.NewClients(t)
	one, two := clients.Add(New(o)), clients.Add(New(o))
	first := storetest.Enter(t, one, "k")
	second := storetest.Enter(t, two, "k")
	storetest.Put(t, second, "of the second")
	storetest.Put(t, first, "of the first")
	assert.Contains(t, clients.Faults(), judge.TwoHolders)
}

// A write whose outcome is unknown is taken back like any other.
func TestUnknownWriteIsTakenBack(t *testing.T) {
	t.Parallel()
	o := storetest.Options(t)
	lossy := o
	lossy.Hook = storetest.LoseAnswer(strings.Fields(writeStatement)[0])
	_, ok, err := opened(t, Options{Options: lossy}).TryEnter(t.Context(), "k")
	assert.False(t, ok)
	assert.True(t, store.Unknown(err))
	storetest.Leave(t, storetest.Enter(t, opened(t, Options{Options: o}), "k"))
}
