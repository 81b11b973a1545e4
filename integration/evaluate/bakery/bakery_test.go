package bakery

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/battery"
	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
	"music/integration/evaluate/store/storetest"
)

func TestMain(m *testing.M) { battery.Main(m) }

// opened returns a client that is closed at the end of the test.
func opened(t testing.TB, o Options) *Client {
	t.Helper()
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// Both forms pass.
func TestBattery(t *testing.T) {
	o := storetest.Options(t)
	for name, renew := range map[string]bool{"bakery": false, "bakery-renewed": true} {
		battery.Run(t, battery.System{Name: name, New: func(t testing.TB) section.Client {
			c, err := New(Options{Options: o, Renew: renew})
			require.NoError(t, err)
			return c
		}})
	}
}

// errDead is the error of a process that dies.
var errDead = errors.New("dead")

// dying returns a hook that has the process die before a step.
func dying(at Step) func(Step) error {
	return func(s Step) error {
		if s == at {
			return errDead
		}
		return nil
	}
}

// A process that dies before a step keeps others out for the TTL of what it has written, and no
// longer: before step 3 that is its row in Choosing, before step 5 both rows.
func TestDeathInEachStep(t *testing.T) {
	o := storetest.Options(t)
	const choosing, number = 2 * time.Second, 4 * time.Second
	living := opened(t, Options{Options: o, ChoosingTTL: choosing, NumberTTL: number})
	for _, step := range []Step{1, 2, 3, 4, 5, 6, 7, 9, 10} { // 8 is one with 7
		t.Run(fmt.Sprint(int(step)), func(t *testing.T) {
			t.Parallel()
			key := "k" + fmt.Sprint(int(step))
			dead := opened(t, Options{Options: o, ChoosingTTL: choosing, NumberTTL: number, At: dying(step)})
			held, err := dead.Enter(t.Context(), key)
			if err == nil {
				err = held.Leave(t.Context())
			}
			require.ErrorIs(t, err, errDead)
			if step <= 2 {
				storetest.Leave(t, storetest.Enter(t, living, key))
				return
			}
			short, cancel := context.WithTimeout(t.Context(), choosing/4)
			defer cancel()
			_, err = living.Enter(short, key)
			require.ErrorIs(t, err, context.DeadlineExceeded, "nobody else may know that it is dead")
			storetest.Leave(t, storetest.Enter(t, living, key))
		})
	}
}

// If a section is longer than the TTL of its number, the next process enters, too. With the repair,
// a section continues as long as it renews, and is told if it has not.
func TestNumberRunsOut(t *testing.T) {
	o := storetest.Options(t)
	const ttl = 2 * time.Second
	for name, renew := range map[string]bool{"printed": false, "repaired": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clients := storetest.NewClients(t)
			one := clients.Add(New(Options{Options: o, NumberTTL: ttl, Renew: renew}))
			two := clients.Add(New(Options{Options: o, NumberTTL: time.Minute, Renew: renew}))
			first := storetest.Enter(t, one, name)
			storetest.Put(t, first, "of the first")
			second := storetest.Enter(t, two, name) // when the number has run out
			if renew {
				require.ErrorIs(t, first.Put(t.Context(), []byte("too late")), section.ErrLost)
				assert.Equal(t, "of the first", storetest.Get(t, second))
				assert.Empty(t, clients.Faults())
				return
			}
			storetest.Put(t, second, "of the second")
			storetest.Put(t, first, "as if nothing had been")
			assert.Contains(t, clients.Faults(), judge.TwoHolders)
		})
	}
}

// A section that is renewed is longer than the TTL.
func TestRenewed(t *testing.T) {
	t.Parallel()
	o := storetest.Options(t)
	const ttl = 2 * time.Second
	one, two := opened(t, Options{Options: o, NumberTTL: ttl, Renew: true}), opened(t, Options{Options: o, NumberTTL: ttl, Renew: true})
	held := storetest.Enter(t, one, "k")
	entered := make(chan section.Held, 1)
	go func() { entered <- storetest.Enter(t, two, "k") }()
	ticker := time.NewTicker(ttl / 8)
	defer ticker.Stop()
	for range 10 {
		<-ticker.C
		err := held.(section.Renewer).Renew(t.Context())
		if errors.Is(err, section.ErrLost) {
			t.Skip("this machine was too slow to renew in time")
		}
		require.NoError(t, err)
	}
	assert.Empty(t, entered, "nobody enters beside one that renews")
	storetest.Leave(t, held)
	storetest.Leave(t, <-entered)
}

// There is no fencing: the put of a process that was paused overwrites later ones, in both forms.
func TestPausedHolderPuts(t *testing.T) {
	t.Parallel()
	o := storetest.Options(t)
	clients := storetest.NewClients(t)
	gate := storetest.NewGate(store.PutStatement)
	paused := o
	paused.Hook = gate.Hook
	one := clients.Add(New(Options{Options: paused, NumberTTL: 2 * time.Second, Renew: true}))
	two := clients.Add(New(Options{Options: o, NumberTTL: time.Minute, Renew: true}))
	first := storetest.Enter(t, one, "k")
	done := make(chan struct{})
	go func() {
		defer close(done)
		storetest.Put(t, first, "late")
	}()
	<-gate.Reached
	second := storetest.Enter(t, two, "k")
	storetest.Put(t, second, "of the second")
	gate.Open()
	<-done
	assert.Equal(t, "late", storetest.Get(t, second))
	assert.Equal(t, []judge.Fault{judge.LatePut}, clients.Faults())
}

// A process that is paused between reading a number and writing it, for longer than its row in
// Choosing lives, gets a number that others have passed, and enters while another holds the key.
func TestChoosingRunsOut(t *testing.T) {
	t.Parallel()
	o := storetest.Options(t)
	clients := storetest.NewClients(t)
	read, goOn := make(chan struct{}), make(chan struct{})
	slow := clients.Add(New(Options{Options: o, ChoosingTTL: time.Second, At: func(s Step) error {
		if s == 4 {
			close(read)
			<-goOn
		}
		return nil
	}}))
	entered := make(chan section.Held)
	go func() { entered <- storetest.Enter(t, slow, "k") }()
	<-read
	others := clients.Add(New(Options{Options: o}))
	before := storetest.Enter(t, others, "k") // number 1, as the slow one has read it
	waiting := make(chan section.Held)
	go func() { waiting <- storetest.Enter(t, others, "k") }()
	watch := opened(t, Options{Options: o})
	require.Eventually(t, func() bool { return hasNumber(t, watch, 2) }, 20*time.Second, 5*time.Millisecond)
	storetest.Leave(t, before)
	held := <-waiting // number 2
	storetest.Put(t, held, "of the holder")
	close(goOn)
	overtaking := <-entered
	assert.Equal(t, "of the holder", storetest.Get(t, overtaking))
	storetest.Put(t, held, "of the holder, still")
	assert.Contains(t, clients.Faults(), judge.TwoHolders)
}

// hasNumber reports whether a process waits with that number.
func hasNumber(t *testing.T, c *Client, number int64) bool {
	rows, err := c.session.Rows(t.Context(), gocql.Quorum, readNumbersStatement, "k")
	require.NoError(t, err)
	for _, row := range rows {
		if row["number"] == number {
			return true
		}
	}
	return false
}
