package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// docs/protocol.md 3.14, Force: the owner's proxy ends the term, with bounded drain and Synch.
func TestForceOfTheOwnHolder(t *testing.T) {
	h, s := newHolder(t)
	tk, _ := h.begin(1, Put)
	op := h.force()
	h.expectNoCommand()
	h.expectWaiting(op)
	require.Equal(t, VerdictUncertain, h.end(tk, OutcomeUnknown))
	_, late := h.begin(1, Put)
	h.expectWaiting(late)
	s.answerAll()
	h.expectError(late, ErrLost)
	g := h.expectState(op, StateReleased)
	require.True(t, g.Applied, "%+v", g)
	require.EqualValues(t, 1, g.Ref)
	_, ok := s.actions[len(s.actions)-2].(Synch)
	require.True(t, ok, "settled, then released: %+v %+v", s.actions, *s.row)
	require.EqualValues(t, 2, s.row.Head, "settled, then released: %+v", s.actions)
	require.False(t, s.row.Dirty, "settled, then released: %+v %+v", s.actions, *s.row)
	h.expectForced(1)
	op = h.lock(Request{Ref: 1})
	s.answerAll()
	h.expectState(op, StateLost)
	op = h.force()
	s.answerAll()
	g = h.expectState(op, StateReleased)
	require.False(t, g.Applied, "nobody holds: %+v", g)
	require.Zero(t, g.Ref, "nobody holds")
}

// FORCE on a living session is left to its own proxy. A dead session is passed over at once,
// without the grace.
func TestForceIsForTheOwner(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = 1, 1
	op := h.force()
	h.runFor(s, 100*time.Millisecond)
	h.expectElsewhere(op, 9)
	require.Empty(t, s.swapsSeen(), "a live session is preempted")
	s.beat[session(9)] = EndedBeat
	h.runFor(s, 2*time.Second)
	op = h.force()
	h.runFor(s, 100*time.Millisecond)
	g := h.expectState(op, StateReleased)
	require.True(t, g.Applied, "a dead one is passed over without the grace: %+v on %+v", g, *s.row)
	require.EqualValues(t, 1, g.Ref, "a dead one is passed over without the grace: %+v on %+v", g, *s.row)
	require.EqualValues(t, 2, s.row.Head, "a dead one is passed over without the grace: %+v", g)
	require.True(t, s.row.Dirty, "a dead one is passed over without the grace: %+v on %+v", g, *s.row)
	h.expectForced(1)
}

// FORCE ends an orphaned head of this session.
func TestForceOfAnOrphanedHead(t *testing.T) {
	h, s := heldByOther(t, Row{Guard: 1, Head: 1, Epoch: 1000, Queue: []Block{block(1, 1, 1, 1)}})
	op := h.force()
	h.runFor(s, 100*time.Millisecond)
	g := h.expectState(op, StateReleased)
	require.True(t, g.Applied, "%+v on %+v", g, *s.row)
	require.EqualValues(t, 2, s.row.Head, "%+v", g)
	require.True(t, s.row.Dirty, "%+v on %+v", g, *s.row)
}

// FORCE of a term whose Release is under way ends nothing else.
func TestForceWhileTheTermIsReleased(t *testing.T) {
	h, s := newHolder(t)
	h.expectState(h.unlock(1), StateReleased)
	op := h.force()
	g := h.expectState(op, StateReleased)
	require.False(t, g.Applied, "it was given back: %+v", g)
	require.EqualValues(t, 1, g.Ref, "it was given back")
	s.answerAll()
}

// Without a valid session nothing is forced.
func TestForceWithoutASession(t *testing.T) {
	h, _ := newHolder(t)
	h.advanceUnticked(11 * time.Second)
	h.expectError(h.force(), ErrNoSession)
}
