package musiccore

import (
	"testing"
	"time"
)

// References of a block that were not given to a client do not count: a client behind one holder
// has position 1.
func TestPositionCountsWaiters(t *testing.T) {
	row := Row{Guard: 512, Head: 1, Epoch: 1000, Queue: []Block{{First: 1, N: 512, Session: session(9), Req: 1, Retained: true}}}
	h, s := heldByOther(t, row)
	first := h.lock(Request{AtOnce: true})
	s.answerAll()
	if g := h.expectState(first, StateQueued); g.Ref != 513 || g.Position != 1 {
		t.Fatalf("behind one holder: %+v", g)
	}
	second := h.lock(Request{AtOnce: true})
	s.answerAll()
	if g := h.expectState(second, StateQueued); g.Ref != 514 || g.Position != 2 {
		t.Fatalf("behind the holder and one who waits: %+v", g)
	}
	if all := h.core.List(h.time()); len(all) != 2 || all[0].Position != 1 || all[1].Position != 2 {
		t.Fatalf("listed %+v", all)
	}
}

// In a block of the own session, the clients in its line count.
func TestPositionBehindAnOwnBlock(t *testing.T) {
	h, s := blockHeld(t)
	h.lock(Request{Wait: time.Minute})
	h.lock(Request{Wait: time.Minute})
	behind := h.lock(Request{AtOnce: true})
	s.answerAll()
	if g := h.expectState(behind, StateQueued); g.Ref != 10 || g.Position != 3 {
		t.Fatalf("behind the holder and two in its line: %+v", g)
	}
}

// A lease belongs to the reference: a repeated LOCK, a further wait and a renewal change it only if
// they give another one.
func TestALeaseStaysUnlessAnotherIsGiven(t *testing.T) {
	h, s := newHolder(t)
	h.lock(Request{AtOnce: true, Lease: time.Second, Usual: 10 * time.Second})
	s.answerAll()
	op := h.lock(Request{Ref: 2, Wait: time.Minute, Usual: 10 * time.Second})
	h.unlock(1)
	s.answerAll()
	if g := h.expectState(op, StateHeld); g.Lease != time.Second {
		t.Fatalf("resumed: %+v", g)
	}
	for _, c := range []struct{ given, want time.Duration }{{0, time.Second}, {5 * time.Second, 5 * time.Second}, {0, 5 * time.Second}} {
		if g := h.expectState(h.lock(Request{Ref: 2, Lease: c.given, Usual: 10 * time.Second}), StateHeld); g.Lease != c.want {
			t.Fatalf("renewed by %v: %+v", c.given, g)
		}
	}
	h.unlock(2)
	s.answerAll()
	op = h.lock(Request{Usual: 10 * time.Second})
	s.answerAll()
	if g := h.expectState(op, StateHeld); g.Lease != 10*time.Second {
		t.Fatalf("the table's: %+v", g)
	}
}

// A reference that is taken over has the table's lease there.
func TestTheLeaseOfATakeover(t *testing.T) {
	for _, usual := range []time.Duration{time.Second, time.Hour} {
		h, s := heldByOther(t, theirs())
		s.beat[session(9)] = EndedBeat
		_, begin := h.begin(1, Put)
		s.answerAll()
		if !h.answerOf(begin).Ticket.OK() {
			t.Fatal("no ticket")
		}
		if g := h.expectState(h.lock(Request{Ref: 1, Usual: usual}), StateHeld); g.Lease != usual {
			t.Fatalf("%+v, want %v", g, usual)
		}
		if g := h.expectState(h.lock(Request{Ref: 1, Usual: usual / 2}), StateHeld); g.Lease != usual {
			t.Fatalf("once: %+v", g)
		}
	}
}
