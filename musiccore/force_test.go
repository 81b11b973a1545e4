package musiccore

import (
	"testing"
	"time"
)

// docs/protocol.md 3.14, Force: the owner's proxy ends the term, with bounded drain and Synch.
func TestForceOfTheOwnHolder(t *testing.T) {
	h, s := newHolder(t)
	tk, _ := h.begin(1, Put)
	op := h.force()
	h.expectNoCommand()
	h.expectWaiting(op)
	if v := h.end(tk, OutcomeUnknown); v != VerdictUncertain {
		t.Fatalf("verdict %v", v)
	}
	_, late := h.begin(1, Put)
	h.expectWaiting(late)
	s.answerAll()
	h.expectError(late, ErrLost)
	if g := h.expectState(op, StateReleased); !g.Applied || g.Ref != 1 {
		t.Fatalf("%+v", g)
	}
	if _, ok := s.actions[len(s.actions)-2].(Synch); !ok || s.row.Head != 2 || s.row.Dirty {
		t.Fatalf("settled, then released: %+v %+v", s.actions, *s.row)
	}
	h.expectForced(1)
	op = h.lock(Request{Ref: 1})
	s.answerAll()
	h.expectState(op, StateLost)
	op = h.force()
	s.answerAll()
	if g := h.expectState(op, StateReleased); g.Applied || g.Ref != 0 {
		t.Fatalf("nobody holds: %+v", g)
	}
}

// FORCE on a living session is left to its own proxy. A dead session is passed over at once,
// without the grace.
func TestForceIsForTheOwner(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = 1, 1
	op := h.force()
	h.runFor(s, 100*time.Millisecond)
	h.expectElsewhere(op, 9)
	if len(s.swapsSeen()) != 0 {
		t.Fatal("a live session is preempted")
	}
	s.beat[session(9)] = EndedBeat
	h.runFor(s, 2*time.Second)
	op = h.force()
	h.runFor(s, 100*time.Millisecond)
	if g := h.expectState(op, StateReleased); !g.Applied || g.Ref != 1 || s.row.Head != 2 || !s.row.Dirty {
		t.Fatalf("a dead one is passed over without the grace: %+v on %+v", g, *s.row)
	}
	h.expectForced(1)
}

// FORCE ends an orphaned head of this session.
func TestForceOfAnOrphanedHead(t *testing.T) {
	h, s := heldByOther(t, Row{Guard: 1, Head: 1, Epoch: 1000, Queue: []Block{block(1, 1, 1, 1)}})
	op := h.force()
	h.runFor(s, 100*time.Millisecond)
	if g := h.expectState(op, StateReleased); !g.Applied || s.row.Head != 2 || !s.row.Dirty {
		t.Fatalf("%+v on %+v", g, *s.row)
	}
}

// FORCE of a term whose Release is under way ends nothing else.
func TestForceWhileTheTermIsReleased(t *testing.T) {
	h, s := newHolder(t)
	h.expectState(h.unlock(1), StateReleased)
	op := h.force()
	if g := h.expectState(op, StateReleased); g.Applied || g.Ref != 1 {
		t.Fatalf("it was given back: %+v", g)
	}
	s.answerAll()
}

// Without a valid session nothing is forced.
func TestForceWithoutASession(t *testing.T) {
	h, _ := newHolder(t)
	h.advanceUnticked(11 * time.Second)
	h.expectError(h.force(), ErrNoSession)
}
