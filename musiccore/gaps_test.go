package musiccore

import (
	"errors"
	"testing"
	"time"
)

// Tests that a known-bad variant asked for: the simulation meets what they
// play too seldom.

// A replica that missed the INSERT of a lock row and got a later commit shows half a row for good.
// A proxy that reads this replica must still be able to lock.
func TestHalfARowIsReadAtQuorum(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{})
	id, read := commandOf[ReadRow](h)
	if read.Quorum {
		t.Fatal("the first look is local")
	}
	h.reply(id, Result{Cause: errors.New("half a row")})
	h.advance(50 * time.Millisecond)
	id, read = commandOf[ReadRow](h)
	if !read.Quorum {
		t.Fatal("the same replica is asked again")
	}
	h.reply(id, Result{Status: StatusDone})
	id, _ = commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	h.expectState(op, StateHeld)
}

// An INSERT that reached one replica only is not a row yet: a quorum that does not show it does not
// mean that a row was lost (docs/protocol.md 7.1).
func TestAnInsertOnOneReplica(t *testing.T) {
	h := newHarness(t)
	h.lock(Request{NoWait: true})
	id, _ := commandOf[ReadRow](h)
	half := Row{Guard: 1, Head: 1, Queue: []Block{{First: 1, N: 1, Session: session(2), Req: 1}}, Epoch: t0, Dirty: true}
	h.reply(id, Result{Status: StatusDone, Row: &half})
	for quorum := false; !quorum; {
		h.advance(100 * time.Millisecond)
		for len(h.open) > 0 {
			c := h.open[0]
			h.open = h.open[1:]
			if read, ok := c.Action.(ReadRow); ok && read.Quorum {
				quorum = true
				h.reply(c.ID, Result{Status: StatusDone})
				continue
			}
			h.reply(c.ID, Result{Status: StatusDone, Row: &half})
		}
	}
	if len(h.alarms) > 0 {
		t.Fatalf("alarms %+v", h.alarms)
	}
	h.open = nil
	h.lock(Request{})
	if _, w := commandOf[Apply](h); w.Swap.If.What != IfAbsent {
		t.Fatalf("%+v", w.Swap)
	}
}

// A Lock or Begin that carries a later closed marks an open term of the key as not synchronised.
func TestALockTellsOfALaterClosed(t *testing.T) {
	h, _ := newHolder(t)
	h.lock(Request{NoWait: true, Closed: 2 * t0})
	if tk, _ := h.begin(1, Get); tk.OK() {
		t.Fatal("the table was closed since, and the term goes on as synchronised")
	}
}

// A reference that was abandoned before its turn is released only when it is the head, also one
// that memory does not know (C8).
func TestC8AnAbandonedReferenceWaitsForItsTurn(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{Wait: time.Hour})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, sees(Row{Guard: 4, Head: 4, Queue: []Block{block(4, 1, 1, 77)}, Epoch: 50}))
	id, _ = commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	h.collect(h.core.Gone(h.time(), op))
	if _, read := commandOf[ReadRow](h); !read.Quorum {
		t.Fatal("the head must be certain")
	}
	h.expectNoCommand()
}

// A check whose read began before an own Renew shows the epoch from before the Renew: the term is
// still the operation's own.
func TestStrictKnowsTheEpochThatItLeft(t *testing.T) {
	h, s := heldStrict(t)
	put := h.pendingOp(Put)
	id, _ := commandOf[ReadRow](h)
	before := s.read()
	h.collect(h.core.Altered(h.time(), h.table))
	s.answerAll()
	h.reply(id, before)
	h.expectVerdict(put, VerdictTell)
}

// A read that began before the own INSERT and returns late shows no row: that does not mean that
// the row has vanished.
func TestALateReadOfBeforeTheInsert(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	theirs := Row{Guard: 1, Head: 1, Queue: []Block{block(1, 1, 2, 1)}, Epoch: 50, Dirty: true}
	h.lock(Request{NoWait: true})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, sees(theirs)) // one replica has their INSERT
	var late CommandID
	for late == 0 {
		h.advance(100 * time.Millisecond)
		for len(h.open) > 0 {
			c := h.open[0]
			h.open = h.open[1:]
			if read, ok := c.Action.(ReadRow); ok && read.Quorum {
				late = c.ID
				continue
			}
			h.reply(c.ID, sees(theirs))
		}
	}
	s.row = &theirs
	h.lock(Request{})
	s.answerAll() // the own Enqueue is applied to it
	h.reply(late, Result{Status: StatusDone})
	if len(h.alarms) > 0 {
		t.Fatalf("alarms %+v", h.alarms)
	}
}

// If two registers have different ages, the queue's may be the older one: such a row does not count
// as empty, and no Enqueue on it takes the lock.
func TestARowOfTwoAgesIsNotEmpty(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{})
	id, _ := commandOf[ReadRow](h)
	row := Row{Guard: 11, Head: 12, Queue: []Block{block(11, 1, 1, 77)}, Epoch: 50}
	torn := row
	torn.Guard, torn.Queue = 10, []Block{block(10, 1, 1, 76)}
	h.reply(id, sees(torn))
	id, a := commandOf[Apply](h)
	if a.Swap.If.What != IfGuard {
		t.Fatalf("%+v", a.Swap)
	}
	h.reply(id, Result{Status: StatusRefused})
	id, _ = commandOf[ReadRow](h)
	h.reply(id, sees(row))
	id, _ = commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	if g := h.expectState(op, StateHeld); g.Ref != 12 {
		t.Fatalf("%+v", g)
	}
}

// The number of a beat, which is its write timestamp, rises even if the wall clock steps back (C5).
func TestC5BeatsCountUpWhateverTheClockShows(t *testing.T) {
	s := NewSession(session(1), Defaults())
	one, _ := s.Beat(at(time.Second))
	back := at(2 * time.Second)
	back.Wall -= 10_000_000
	if two, _ := s.Beat(back); two <= one {
		t.Fatalf("beat %d after beat %d", two, one)
	}
}
