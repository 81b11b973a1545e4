package paper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra/cassandratest"
	"music/integration/evaluate/battery"
	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
)

func TestMain(m *testing.M) { battery.Main(m) }

// opener returns a function that opens clients of a keyspace of the test.
func opener(t testing.TB) func(t testing.TB, o Options) *Client {
	t.Helper()
	keyspace := cassandratest.NewKeyspace(t, func(*gocql.ClusterConfig) {}).Name
	return func(t testing.TB, o Options) *Client {
		t.Helper()
		o.Hosts, o.Keyspace = []string{cassandratest.Address(t)}, keyspace
		c, err := New(o)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c
	}
}

// MUSIC, MSCP and what was repaired do what a critical section must.
func TestBattery(t *testing.T) {
	open := opener(t)
	for name, o := range map[string]Options{"music": {}, "mscp": {Variant: MSCP}, "repaired": {Repaired: true}} {
		t.Run(name, func(t *testing.T) {
			battery.Run(t, battery.System{Name: name, New: func(t testing.TB) section.Client { return open(t, o) }})
		})
	}
}

// gate holds back the next message of a step, once it is closed.
type gate struct {
	step   Step
	closed atomic.Bool
	open   chan struct{} // closed to let it go
	stands chan struct{} // closed when it is held
}

func newGate(step Step) *gate {
	return &gate{step: step, open: make(chan struct{}), stands: make(chan struct{})}
}

func (g *gate) send(step Step) {
	if step == g.step && g.closed.CompareAndSwap(true, false) {
		close(g.stands)
		<-g.open
	}
}

// faults are the names of what is wrong in a history.
func faults(h *judge.History) (all []judge.Fault) {
	for _, v := range h.Check() {
		all = append(all, v.Fault)
	}
	return all
}

// overtaken has a put of the first holder pass its peek and wait, while its section is taken away and
// the next one reads; the put goes on then, and the next one reads again.
func overtaken(t *testing.T, o Options) (*judge.History, error) {
	t.Helper()
	open, h, g := opener(t), new(judge.History), newGate(DataPut)
	ctx, second := t.Context(), open(t, o)
	o.Send = g.send
	one, two := judge.Record(open(t, o), 1, h.Add), judge.Record(second, 2, h.Add)
	first, err := one.Enter(ctx, "k")
	require.NoError(t, err)
	require.NoError(t, first.Put(ctx, []byte("a")))
	g.closed.Store(true)
	answer := make(chan error)
	go func() { answer <- first.Put(ctx, []byte("b")) }()
	<-g.stands
	require.NoError(t, second.Force(ctx, "k"))
	next, err := two.Enter(ctx, "k")
	require.NoError(t, err)
	value, err := next.Get(ctx)
	require.NoError(t, err)
	require.Equal(t, "a", string(value))
	close(g.open)
	late := <-answer
	_, err = next.Get(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, first.Put(ctx, []byte("c")), section.ErrLost, "the replica has got to know it")
	return h, late
}

// A put that has passed its peek is acknowledged when its section was taken away long ago (IV-B has the
// data right, and says nothing of the acknowledgement). With the flag as printed, and where critical
// puts take no stamp, it replaces what the next holder works with.
func TestAPutThatIsOvertaken(t *testing.T) {
	for name, c := range map[string]struct {
		o     Options
		want  []judge.Fault
		value string
		late  error
	}{
		"MUSIC":            {Options{}, []judge.Fault{judge.LostPut}, "a", nil},
		"the printed flag": {Options{FlagAsPrinted: true}, []judge.Fault{judge.LatePut}, "b", nil},
		"MSCP":             {Options{Variant: MSCP}, []judge.Fault{judge.LatePut}, "b", nil},
		"MUSIC, repaired":  {Options{Repaired: true}, nil, "a", errUnsure},
	} {
		t.Run(name, func(t *testing.T) {
			h, late := overtaken(t, c.o)
			require.ErrorIs(t, late, c.late)
			require.Equal(t, c.want, faults(h))
			ops := slices.DeleteFunc(h.Ops(), func(o judge.Op) bool { return o.Kind != judge.Get })
			require.Equal(t, c.value, ops[len(ops)-1].Value)
		})
	}
}

// CassaEV excludes nobody: of two who raise a number, one is lost.
func TestCassaEVLosesUpdates(t *testing.T) {
	open, h, ctx := opener(t), new(judge.History), t.Context()
	var both [2]section.Held
	for i := range both {
		held, err := judge.Record(open(t, Options{Variant: CassaEV}), i+1, h.Add).Enter(ctx, "k")
		require.NoError(t, err)
		_, err = held.Get(ctx)
		require.ErrorIs(t, err, section.ErrNoValue)
		both[i] = held
	}
	require.NoError(t, both[0].Put(ctx, []byte("1 of the first")))
	require.NoError(t, both[1].Put(ctx, []byte("1 of the second")))
	value, err := both[0].Get(ctx)
	require.NoError(t, err)
	require.Equal(t, "1 of the second", string(value), "two have raised it, and it is 1")
	require.Contains(t, faults(h), judge.TwoHolders)
}

// A clock that goes back has a later put ordered before an earlier one, unless repaired.
func TestAClockThatGoesBack(t *testing.T) {
	for repaired, want := range map[bool][]judge.Fault{false: {judge.LostPut}, true: nil} {
		open, h, ctx := opener(t), new(judge.History), t.Context()
		var back atomic.Int64
		c := open(t, Options{Repaired: repaired, Now: func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }})
		held, err := judge.Record(c, 1, h.Add).Enter(ctx, "k")
		require.NoError(t, err)
		require.NoError(t, held.Put(ctx, []byte("b")))
		back.Store(int64(time.Minute))
		require.NoError(t, held.Put(ctx, []byte("a")))
		_, err = held.Get(ctx)
		require.NoError(t, err)
		require.Equal(t, want, faults(h))
	}
}

// A section ends after T, and an orphan, whose client nobody knows, after Patience.
func TestBounds(t *testing.T) {
	open, ctx := opener(t), t.Context()
	var ahead atomic.Int64
	c := open(t, Options{Patience: 100 * time.Millisecond, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	_, err := c.CreateLockRef(ctx, "k") // whose client dies
	require.NoError(t, err)
	held, err := c.Enter(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, int64(2), held.(*Held).Token())
	require.NoError(t, held.Put(ctx, []byte("a")))
	ahead.Store(int64(time.Hour))
	require.ErrorIs(t, held.Put(ctx, []byte("b")), section.ErrLost)
	require.NoError(t, held.Leave(ctx))
}

// Those who only try get in when the first has failed, too.
func TestTryingFindsWhoHasFailed(t *testing.T) {
	open, ctx := opener(t), t.Context()
	c := open(t, Options{Patience: 100 * time.Millisecond})
	_, err := c.CreateLockRef(ctx, "k") // whose client dies
	require.NoError(t, err)
	for tries := 0; ; tries++ {
		held, in, err := c.TryEnter(ctx, "k")
		require.NoError(t, err)
		if in {
			require.Greater(t, tries, 1, "the first has been seen for a while")
			require.NoError(t, held.Put(ctx, []byte("a")))
			return
		}
	}
}

// Several keys are entered in order, and without a lock there are put, get and getAllKeys.
func TestManyKeysAndNoLock(t *testing.T) {
	open, ctx := opener(t), t.Context()
	var steps []string
	c := open(t, Options{Send: func(s Step) { steps = append(steps, string(s)) }})
	_, err := c.GetEventual(ctx, "b")
	require.ErrorIs(t, err, section.ErrNoValue)
	require.NoError(t, c.Put(ctx, "b", []byte("early")))
	value, err := c.GetEventual(ctx, "b")
	require.NoError(t, err)
	require.Equal(t, "early", string(value))
	steps = nil
	all, err := c.EnterMany(ctx, "b", "a", "b")
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "a", all[0].(*Held).key)
	const one = "read guard, enqueue, peek, read flag, start time"
	require.Equal(t, one+", "+one, strings.Join(steps, ", "))
	require.NoError(t, all[1].Put(ctx, []byte("critical")))
	require.NoError(t, c.Put(ctx, "b", []byte("unlocked puts are below")))
	value, err = all[1].Get(ctx)
	require.NoError(t, err)
	require.Equal(t, "critical", string(value))
	keys, err := c.GetAllKeys(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, keys)

	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = open(t, Options{}).EnterMany(short, "0", "a")
	require.True(t, errors.Is(err, context.DeadlineExceeded), err)
	free, err := c.Enter(ctx, "0")
	require.NoError(t, err, "what was entered of several is left again")
	require.NoError(t, free.Leave(ctx))
}

// v2s keeps the order of vector timestamps (X-A2), and puts without a lock are below all of them.
func TestStamps(t *testing.T) {
	c := &Client{o: Options{T: time.Second, Now: time.Now}}
	last := c.unlocked()
	for _, stamp := range []int64{c.v2s(1, 0), c.v2s(1, time.Microsecond), c.v2s(1, time.Second-time.Microsecond), c.v2s(2, 0)} {
		assert.Greater(t, stamp, last)
		last = stamp
	}
}
