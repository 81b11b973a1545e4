package musiccore

import (
	"testing"
	"time"
)

// What ended in memory alone may go on elsewhere when the session dies: nobody is told that it is lost before its Release.
func TestLostIsToldOnceTheRowSaysSo(t *testing.T) {
	for name, end := range map[string]func(d *desk){
		"expired":    func(d *desk) { d.jumpWithBeats(31 * time.Second) },
		"forced":     func(d *desk) { d.force() },
		"given back": func(d *desk) { d.unlock(1) },
	} {
		t.Run(name, func(t *testing.T) {
			d, s := held(t)
			end(d)
			_, put := d.begin(1, Put)
			d.waits(put)
			s.run()
			d.fails(put, ErrLost)
			if s.row.Head != 2 {
				t.Fatalf("lost, and still the head: %+v", *s.row)
			}
		})
	}
}

// jumpWithBeats lets time go by without a tick.
func (d *desk) jumpWithBeats(by time.Duration) {
	for end := d.now + by; d.now < end; {
		d.jump(d.opts.SessionLease / 4)
		d.beat()
	}
}

// The store is away: whether the lock is lost is not certain, and the client hears that.
func TestNobodyIsToldLostWhileTheReleaseIsUnknown(t *testing.T) {
	d, s := held(t)
	d.jumpWithBeats(31 * time.Second)
	_, put := d.begin(1, Put)
	lock, un := d.lock(Request{Ref: 1}), d.unlock(1)
	id, _ := only[Apply](d)
	d.reply(id, Result{Status: StatusUnknown})
	d.pass(d.opts.OpTimeout)
	d.fails(put, ErrUnavailable)
	d.fails(lock, ErrUnavailable)
	d.fails(un, ErrUnavailable)

	_, last := d.begin(1, Put)
	d.jump(d.opts.SessionLease)
	d.take(d.core.Tick(d.time()))
	d.fails(last, ErrNoSession)
	d.open = nil
	d.session = NewSession(session(2), d.opts)
	d.take(d.core.Rejoin(d.time(), d.session))
	d.beat()
	_, again := d.begin(1, Put)
	s.run()
	if !d.answered(again).Ticket.OK() || s.row.Owner != session(2) {
		t.Fatalf("the reference goes on: %+v", *s.row)
	}
}

// A process that stood still for too long: the put in flight is unknown, the audit says that the reference was left behind, and
// what is taken over was never told to be lost.
func TestAnOperationInFlightWhenItsSessionDiesIsUnknown(t *testing.T) {
	d, _ := held(t)
	put, _ := d.begin(1, Put)
	get, _ := d.begin(1, Get)
	d.jump(d.opts.SessionLease)
	for _, tk := range []Ticket{put, get} {
		if v := d.end(tk, OutcomeAcked); v != VerdictUncertain {
			t.Fatalf("verdict %v", v)
		}
	}
	if n := d.notes[len(d.notes)-1]; n.Kind != NoteOrphaned || n.Ref != 1 {
		t.Fatalf("audit %+v", d.notes)
	}
}

// A verdict that comes when the row has passed the reference says so.
func TestALateVerdictOfAPassedReferenceIsLost(t *testing.T) {
	d, s := held(t)
	put, _ := d.begin(1, Put)
	d.unlock(1)
	d.pass(d.opts.OpTimeout)
	s.run()
	if v := d.end(put, OutcomeAcked); v != VerdictLost || s.row.Head != 2 {
		t.Fatalf("verdict %v, %+v", v, *s.row)
	}
}

// In a strict table another proxy may take the term over, and with it the reference.
func TestATermThatWasTakenOverIsNotLost(t *testing.T) {
	d, s := strict(t)
	put := d.acked(Put)
	row, _ := Takeover(*s.row, session(9), d.opts.Window, 0).Apply(s.row)
	s.row = &row
	s.run()
	d.verdict(put, VerdictUncertain)
	_, begin := d.begin(1, Put)
	s.run()
	d.elsewhere(begin, 9)
}

// Who was silent for too long goes on where it stands, as long as its turn has not come.
func TestAWaiterThatComesBackLate(t *testing.T) {
	d, s := held(t)
	d.lock(Request{AtOnce: true})
	s.run()
	d.renewing(1, 2*d.opts.QueuedLease)
	_, put := d.begin(2, Put)
	d.fails(put, ErrNotHeld)
	op := d.lock(Request{Ref: 2, Wait: time.Minute})
	d.waits(op)
	d.unlock(1)
	s.run()
	d.state(op, StateHeld)
}

// renewing lets time go by for a holder that goes on working.
func (d *desk) renewing(r LockRef, by time.Duration) {
	for end := d.now + by; d.now < end; {
		d.pass(time.Second)
		tk, _ := d.begin(r, Get)
		d.end(tk, OutcomeAcked)
	}
}

// Who gave a place back does not get it again.
func TestAWaiterThatGaveItsPlaceBackIsGone(t *testing.T) {
	d, s := held(t)
	d.lock(Request{AtOnce: true})
	s.run()
	d.unlock(2)
	d.state(d.lock(Request{Ref: 2}), StateReleased)
	_, put := d.begin(2, Put)
	d.fails(put, ErrNotHeld)
	d.unlock(1)
	s.run()
	if s.row.Head != 3 {
		t.Fatalf("%+v", *s.row)
	}
	_, put = d.begin(2, Put)
	s.run()
	d.fails(put, ErrReleased)
}

// Sections of one key cost no memory each.
func TestEndingsOfFollowingReferencesAreOne(t *testing.T) {
	k := &key{}
	for r := LockRef(1); r <= 100; r++ {
		k.endings.record(r, StateReleased)
	}
	k.endings.record(101, StateLost)
	k.endings.record(0, StateLost)
	k.endings.record(102, 0)
	if len(k.endings) != 2 || k.endings.of(57) != StateReleased || k.endings.of(101) != StateLost || k.endings.of(102) != 0 {
		t.Fatalf("%+v", k.endings)
	}
	for r := LockRef(200); r < 400; r += 2 {
		k.endings.record(r, StateLost)
	}
	if len(k.endings) != maxEndings || k.endings.of(57) != 0 || k.endings.of(398) != StateLost {
		t.Fatalf("%+v", k.endings)
	}
}

// A reference of a block is over for good once nothing of it is in flight: nobody else takes it over, and no LWT is needed.
func TestAReferenceOfABlockIsLostWithItsLastOperation(t *testing.T) {
	d, _ := kept(t)
	get, _ := d.begin(2, Get)
	d.unlock(2)
	_, put := d.begin(2, Put)
	d.waits(put)
	d.end(get, OutcomeAcked)
	d.fails(put, ErrReleased)
	d.none()
}

// The holder of a block that was made plain may be taken over: its end is that of any other.
func TestTheLastReferenceOfABlockIsLostWithItsRelease(t *testing.T) {
	d, s := kept(t)
	d.pass(d.opts.Retain)
	renew, _ := only[Apply](d)
	d.reply(renew, Result{Status: StatusUnknown})
	d.pass(20 * time.Millisecond)
	d.unlock(2)
	_, put := d.begin(2, Put)
	d.waits(put)
	d.serve(s, time.Second)
	d.fails(put, ErrReleased)
	if s.row.Head != 10 {
		t.Fatalf("given back, and not passed: %+v", *s.row)
	}
}

// A dead session's block is passed over before anybody is told that a reference in it is lost.
func TestAReferenceOfADeadBlockIsLostWithThePreempt(t *testing.T) {
	r := Row{Guard: 4, Head: 1, Epoch: 1000, Queue: []Block{{First: 1, N: 4, Session: session(9), Req: 1, Retained: true}}}
	d, s := foreign(t, r)
	s.beat[session(9)] = EndedBeat
	_, put := d.begin(1, Put)
	for len(d.open) > 0 {
		c := d.open[0]
		if _, preempts := c.Action.(Apply); preempts {
			break
		}
		d.open = d.open[1:]
		d.reply(c.ID, s.do(c.Action))
	}
	d.waits(put)
	s.run()
	d.fails(put, ErrLost)
}
