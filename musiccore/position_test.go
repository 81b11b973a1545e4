package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// References of a block that were not given to a client do not count: a client behind one holder
// has position 1.
func TestPositionCountsWaiters(t *testing.T) {
	row := Row{Guard: 512, Head: 1, Epoch: 1000, Queue: []Block{{First: 1, N: 512, Session: session(9), Req: 1, Retained: true}}}
	h, s := heldByOther(t, row)
	first := h.lock(Request{AtOnce: true})
	s.answerAll()
	g := h.expectState(first, StateQueued)
	require.EqualValues(t, 513, g.Ref, "behind one holder")
	require.Equal(t, 1, g.Position, "behind one holder")
	second := h.lock(Request{AtOnce: true})
	s.answerAll()
	g = h.expectState(second, StateQueued)
	require.EqualValues(t, 514, g.Ref, "behind the holder and one who waits")
	require.Equal(t, 2, g.Position, "behind the holder and one who waits")
	all := h.core.List(h.time(), Key{}, 100)
	require.Len(t, all, 2)
	require.Equal(t, 1, all[0].Position)
	require.Equal(t, 2, all[1].Position)
}

// In a block of the own session, the clients in its line count.
func TestPositionBehindAnOwnBlock(t *testing.T) {
	h, s := blockHeld(t)
	h.lock(Request{Wait: time.Minute})
	h.lock(Request{Wait: time.Minute})
	behind := h.lock(Request{AtOnce: true})
	s.answerAll()
	g := h.expectState(behind, StateQueued)
	require.EqualValues(t, 10, g.Ref, "behind the holder and two in its line")
	require.Equal(t, 3, g.Position, "behind the holder and two in its line")
}

// Who waits in a block is not behind itself, nor behind those that came later.
func TestPositionInAnOwnBlock(t *testing.T) {
	h, s := newHolder(t, func(o *Options) { o.Retain = 200 * time.Millisecond })
	for range 3 {
		h.lock(Request{AtOnce: true})
		s.answerAll()
	}
	h.unlock(1)
	s.answerAll()
	all := h.core.List(h.time(), Key{}, 100)
	require.Len(t, all, 3)
	for i, l := range all {
		require.EqualValues(t, i+2, l.Ref)
		require.Equal(t, i, l.Position, "of reference %d, %v", l.Ref, l.State)
	}
	require.Equal(t, 2, h.expectState(h.lock(Request{Ref: 4, AtOnce: true}), StateQueued).Position, "behind the holder and one who waits")
}

// A lease belongs to the reference: a repeated LOCK, a further wait, a renewal and another lease of
// the table do not change it unless they give another one.
func TestALeaseStaysUnlessAnotherIsGiven(t *testing.T) {
	h, s := newHolder(t)
	h.clientLease(10 * time.Second)
	h.lock(Request{AtOnce: true, Lease: time.Second})
	s.answerAll()
	op := h.lock(Request{Ref: 2, Wait: time.Minute})
	h.unlock(1)
	s.answerAll()
	require.Equal(t, time.Second, h.expectState(op, StateHeld).Lease)
	for _, c := range []struct{ given, want time.Duration }{{0, time.Second}, {5 * time.Second, 5 * time.Second}, {0, 5 * time.Second}} {
		g := h.expectState(h.lock(Request{Ref: 2, Lease: c.given}), StateHeld)
		require.Equal(t, c.want, g.Lease, "renewed by %v", c.given)
	}
	h.unlock(2)
	s.answerAll()
	op = h.lock(Request{})
	s.answerAll()
	require.Equal(t, 10*time.Second, h.expectState(op, StateHeld).Lease, "the table's")
	h.clientLease(0)
	require.Equal(t, 10*time.Second, h.expectState(h.lock(Request{Ref: 3}), StateHeld).Lease, "its own")
}

// A reference that is taken over has the table's lease there, also by a write.
func TestTheLeaseOfATakeover(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, time.Hour} {
		h, s := heldByOther(t, theirs())
		h.clientLease(lease)
		s.beat[session(9)] = EndedBeat
		_, begin := h.begin(1, Put)
		s.answerAll()
		tk := h.answerOf(begin).Ticket
		require.True(t, tk.OK(), "no ticket")
		require.Equal(t, lease, tk.Lease)
		require.Equal(t, lease, h.expectState(h.lock(Request{Ref: 1}), StateHeld).Lease)
	}
}

// A listing is of all keys, of those of one table, or of one key.
func TestListOfSomeKeys(t *testing.T) {
	h := newHarness(t)
	a, b, other := Key{Table: h.table, PK: "a"}, Key{Table: h.table, PK: "b"}, Key{Table: [16]byte{2}, PK: "a"}
	for _, id := range []Key{other, b, a} {
		h.collect(h.core.Lock(h.time(), h.op(), id, Request{Wait: time.Minute}))
	}
	for only, want := range map[Key][]Key{
		{}: {a, b, other}, {Table: h.table}: {a, b}, b: {b}, {Table: h.table, PK: "c"}: nil, {Table: [16]byte{3}}: nil,
	} {
		var got []Key
		for _, l := range h.core.List(h.time(), only, 100) {
			got = append(got, l.Key)
		}
		require.ElementsMatch(t, want, got, only)
		require.Len(t, h.core.List(h.time(), only, 1), min(len(want), 1), "a bound")
	}
}
