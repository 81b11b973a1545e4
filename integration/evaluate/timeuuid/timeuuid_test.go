package timeuuid

import (
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
// no more, and which goes on when the other has left; with the repair it waits.
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
			put := make(chan error)
			go func() { put <- first.Put(t.Context(), []byte("after the second has read")) }()
			storetest.Put(t, second, "of the second")
			storetest.Leave(t, second)
			require.NoError(t, <-put)
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

// A reference that is in the top row may go on, one behind an earlier one waits, and one that all others are later than is lost.
func TestOnlyTheFirstMayGoOn(t *testing.T) {
	now := time.Now()
	mine := gocql.UUIDFromTime(now)
	for name, c := range map[string]struct {
		top  []map[string]any
		in   bool
		want error
	}{
		"first":         {[]map[string]any{{"ref": mine}}, true, nil},
		"overtaken":     {[]map[string]any{{"ref": gocql.UUIDFromTime(now.Add(-time.Minute))}}, false, nil},
		"forced out":    {[]map[string]any{{"ref": gocql.UUIDFromTime(now.Add(tick))}}, false, section.ErrLost},
		"nobody waits":  {nil, false, section.ErrLost},
		"in one moment": {[]map[string]any{{"ref": gocql.UUIDFromTime(now)}}, false, nil},
	} {
		in, err := first(c.top, mine)
		assert.Equal(t, c.in, in, name)
		assert.ErrorIs(t, err, c.want, name)
	}
}

// A holder that was forced out is told so by its next put and get.
func TestForcedHolderIsRefused(t *testing.T) {
	o := storetest.Options(t)
	one, err := open(o, 0, false)
	require.NoError(t, err)
	t.Cleanup(one.Close)
	first := storetest.Enter(t, one, "k")
	require.NoError(t, one.Force(t.Context(), "k"))
	require.ErrorIs(t, first.Put(t.Context(), []byte("late")), section.ErrLost)
	_, err = first.Get(t.Context())
	require.ErrorIs(t, err, section.ErrLost)
}

// What a holder has sent, when it is forced out, lies on top of its successor's value, in both forms.
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
