package musiccore

import (
	"errors"
	"testing"
	"time"
)

// Tests that a known-bad variant asked for: the simulation meets what they
// play too seldom.

// A replica that missed the INSERT of a lock row and got a later commit shows
// half a row, for good: whoever is next to it must be able to lock.
func TestHalfARowIsReadAtQuorum(t *testing.T) {
	d := newDesk(t)
	op := d.lock(Request{})
	id, read := only[ReadRow](d)
	if read.Quorum {
		t.Fatal("the first look is local")
	}
	d.reply(id, Result{Cause: errors.New("half a row")})
	d.pass(50 * time.Millisecond)
	id, read = only[ReadRow](d)
	if !read.Quorum {
		t.Fatal("the same replica is asked again")
	}
	d.reply(id, Result{Status: StatusDone})
	id, _ = only[Apply](d)
	d.reply(id, Result{Status: StatusDone})
	d.state(op, StateHeld)
}

// An INSERT that has reached one replica is no row yet: a quorum that does not
// show it says nothing of a lost one (docs/protocol.md 7.1).
func TestAnInsertOnOneReplica(t *testing.T) {
	d := newDesk(t)
	d.lock(Request{NoWait: true})
	id, _ := only[ReadRow](d)
	half := Row{Guard: 1, Head: 1, Queue: []Block{{First: 1, N: 1, Session: session(2), Req: 1}}, Epoch: t0, Dirty: true}
	d.reply(id, Result{Status: StatusDone, Row: &half})
	for quorum := false; !quorum; {
		d.pass(100 * time.Millisecond)
		for len(d.open) > 0 {
			c := d.open[0]
			d.open = d.open[1:]
			if read, ok := c.Action.(ReadRow); ok && read.Quorum {
				quorum = true
				d.reply(c.ID, Result{Status: StatusDone})
				continue
			}
			d.reply(c.ID, Result{Status: StatusDone, Row: &half})
		}
	}
	if len(d.alarms) > 0 {
		t.Fatalf("alarms %+v", d.alarms)
	}
	d.open = nil
	d.lock(Request{})
	if _, w := only[Apply](d); w.Swap.If.What != IfAbsent {
		t.Fatalf("%+v", w.Swap)
	}
}

// D: whoever tells first of a later closed, an open term hears of it.
func TestALockTellsOfALaterClosed(t *testing.T) {
	d, _ := held(t)
	d.lock(Request{NoWait: true, Closed: 2 * t0})
	if tk, _ := d.begin(1, Get); tk.OK() {
		t.Fatal("the table was closed since, and the term goes on as synchronised")
	}
}

// A reference that was given up before its turn leaves the head alone, also an
// own one that memory does not know (C8).
func TestC8AnAbandonedReferenceWaitsForItsTurn(t *testing.T) {
	d := newDesk(t)
	op := d.lock(Request{Wait: time.Hour})
	id, _ := only[ReadRow](d)
	d.reply(id, sees(Row{Guard: 4, Head: 4, Queue: []Block{block(4, 1, 1, 77)}, Epoch: 50}))
	id, _ = only[Apply](d)
	d.reply(id, Result{Status: StatusDone})
	d.take(d.core.Gone(d.time(), op))
	if _, read := only[ReadRow](d); !read.Quorum {
		t.Fatal("the head must be certain")
	}
	d.none()
}

// A check's read that began before an own Renew was done shows the epoch that
// the Renew has left: the term is still the operation's own.
func TestStrictKnowsTheBaseThatItLeft(t *testing.T) {
	d, s := strict(t)
	put := d.acked(Put)
	id, _ := only[ReadRow](d)
	before := s.read()
	d.take(d.core.Altered(d.time(), d.table))
	s.run()
	d.reply(id, before)
	d.verdict(put, VerdictTell)
}

// A read that began before the own INSERT and comes back late shows no row:
// nothing has vanished.
func TestALateReadOfBeforeTheInsert(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	theirs := Row{Guard: 1, Head: 1, Queue: []Block{block(1, 1, 2, 1)}, Epoch: 50, Dirty: true}
	d.lock(Request{NoWait: true})
	id, _ := only[ReadRow](d)
	d.reply(id, sees(theirs)) // one replica has their INSERT
	var late CommandID
	for late == 0 {
		d.pass(100 * time.Millisecond)
		for len(d.open) > 0 {
			c := d.open[0]
			d.open = d.open[1:]
			if read, ok := c.Action.(ReadRow); ok && read.Quorum {
				late = c.ID
				continue
			}
			d.reply(c.ID, sees(theirs))
		}
	}
	s.row = &theirs
	d.lock(Request{})
	s.run() // the own Enqueue is applied to it
	d.reply(late, Result{Status: StatusDone})
	if len(d.alarms) > 0 {
		t.Fatalf("alarms %+v", d.alarms)
	}
}

// Of two registers of different ages the queue's may be the older: such a row
// is not empty, and nobody enqueues as the next holder on it.
func TestARowOfTwoAgesIsNotEmpty(t *testing.T) {
	d := newDesk(t)
	op := d.lock(Request{})
	id, _ := only[ReadRow](d)
	row := Row{Guard: 11, Head: 12, Queue: []Block{block(11, 1, 1, 77)}, Epoch: 50}
	torn := row
	torn.Guard, torn.Queue = 10, []Block{block(10, 1, 1, 76)}
	d.reply(id, sees(torn))
	id, a := only[Apply](d)
	if a.Swap.If.What != IfGuard {
		t.Fatalf("%+v", a.Swap)
	}
	d.reply(id, Result{Status: StatusRefused})
	id, _ = only[ReadRow](d)
	d.reply(id, sees(row))
	id, _ = only[Apply](d)
	d.reply(id, Result{Status: StatusDone})
	if g := d.state(op, StateHeld); g.Ref != 12 {
		t.Fatalf("%+v", g)
	}
}

// The wall clock may step back; the number of a beat, which is its write
// timestamp, may not (C5).
func TestC5BeatsCountUpWhateverTheClockShows(t *testing.T) {
	s := NewSession(session(1), Defaults())
	one, _ := s.Beat(at(time.Second))
	back := at(2 * time.Second)
	back.Wall -= 10_000_000
	if two, _ := s.Beat(back); two <= one {
		t.Fatalf("beat %d after beat %d", two, one)
	}
}
