package timeuuid

import (
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

// open opens a client as a test needs it.
func open(o store.Options, clock time.Duration, ordered bool) (*Client, error) {
	o.Clock = storetest.Ahead(clock)
	return New(Options{Options: o, Ordered: ordered})
}

// Both forms pass where clocks are right.
func TestBattery(t *testing.T) {
	o := storetest.Options(t)
	for name, ordered := range map[string]bool{"timeuuid": false, "timeuuid-ordered": true} {
		battery.Run(t, battery.System{Name: name, New: func(t testing.TB) section.Client {
			c, err := open(o, 0, ordered)
			require.NoError(t, err)
			return c
		}})
	}
}

// A client whose clock is a minute behind overtakes a living holder, whose reference is at the top
// no more; with the repair it waits.
func TestSlowClockOvertakes(t *testing.T) {
	o := storetest.Options(t)
	for _, ordered := range []bool{false, true} {
		clients := storetest.NewClients(t)
		right, slow := clients.Add(open(o, 0, ordered)), clients.Add(open(o, -time.Minute, ordered))
		key := map[bool]string{false: "printed", true: "repaired"}[ordered]

		first := storetest.Enter(t, right, key)
		storetest.Put(t, first, "of the first")
		entered := make(chan section.Held)
		go func() { entered <- storetest.Enter(t, slow, key) }()
		if !ordered {
			second := <-entered
			assert.Equal(t, "of the first", storetest.Get(t, second))
			storetest.Put(t, first, "after the second has read")
			storetest.Put(t, second, "of the second")
			storetest.Leave(t, second)
			assert.Contains(t, clients.Faults(), judge.TwoHolders)
			continue
		}
		storetest.Put(t, first, "again")
		storetest.Leave(t, first)
		second := <-entered
		assert.Equal(t, "again", storetest.Get(t, second))
		storetest.Leave(t, second)
		assert.Empty(t, clients.Faults())
	}
}

// What a holder sends that was forced out lies on top of its successor's value, in both forms.
func TestForcedHolderPutsLate(t *testing.T) {
	o := storetest.Options(t)
	clients := storetest.NewClients(t)
	gate := storetest.NewGate(store.PutStatement)
	paused := o
	paused.Hook = gate.Hook
	one, two := clients.Add(open(paused, 0, true)), clients.Add(open(o, 0, true))

	first := storetest.Enter(t, one, "k")
	done := make(chan struct{})
	go func() {
		defer close(done)
		storetest.Put(t, first, "late")
	}()
	<-gate.Reached
	forcer, err := open(o, 0, true)
	assert.NoError(t, err)
	defer forcer.Close()
	assert.NoError(t, forcer.Force(t.Context(), "k"))
	second := storetest.Enter(t, two, "k")
	storetest.Put(t, second, "of the second")
	gate.Open()
	<-done
	assert.Equal(t, "late", storetest.Get(t, second))
	assert.Equal(t, []judge.Fault{judge.LatePut}, clients.Faults())
}
