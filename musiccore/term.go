package musiccore

import (
	"fmt"
	"time"
)

// farBase is how far a base may be ahead of the clock before a person is told
// (I12).
const farBase = Stamp(time.Hour / time.Microsecond)

// term is one holder's tenure on one base, the unit of fencing (docs/protocol.md 3.5, Poll, Begin, End). seq is the next free place in the window; it only grows.
type term struct {
	id        uint64
	place     *place
	base, seq Stamp
	dirty     bool // D at entry, or by a later raise of closed
	synced    bool
	unsettled bool // a put whose acknowledgement never came
	open      bool
	alone     bool // its Release takes nobody along: one that did was refused
	broken    bool // an invariant failed: nothing is told any more
	flight    flight
	waiting   []begin
	synch     synch
	window    window
	checks    []check       // of a strict table
	bases     []Stamp       // that own Renews left, while operations were in flight
	unlock    begin         // an UNLOCK to be answered when the term has drained
	last      LockRef       // up to which the tenure goes: its own reference, or the block's last
	shut      time.Duration // when the last reference ended
	reserve   *reserve      // what is handed out in it; nil but for a retained tuple that this proxy entered
}

// begin is an operation that waits until the term may serve it.
type begin struct {
	op    OpID
	kind  Kind
	until time.Duration
}

// open starts the term of the head (docs/protocol.md 3.5, Poll and Enqueue).
func (k *key) open(now Now, p *place) {
	c, r := k.c, k.view.row
	c.last.term++
	k.term = &term{
		id: c.last.term, place: p, base: r.Epoch, seq: 2,
		dirty: r.DirtySince(k.closed),
		last:  r.through(p.ref), reserve: p.reserve,
	}
	if r.Epoch > now.Clk+farBase {
		c.alarm(k.id, "I12", fmt.Sprintf("base %d is far ahead of the clock %d", r.Epoch, now.Clk))
	}
	if p.reserve != nil {
		p.phase = over
		p.reserve.until = now.Boot + c.opts.Retain
		return
	}
	k.grant(now, p)
}

// grant makes a place the holder.
func (k *key) grant(now Now, p *place) {
	t := k.term
	t.place, t.open = p, true
	k.note(p.granted(), p, 0)
	t.waiting, p.begins = p.begins, nil
	p.phase, p.died, p.nowait, k.died = holding, k.died, false, false
	k.turn, p.since = now.Boot-p.since, now.Boot
	if p.op == 0 && len(t.waiting) == 0 {
		p.keep(now.Boot + k.c.opts.QueuedLease)
		return
	}
	p.keep(now.Boot + p.lease)
	k.answer(p, k.standing(now, p))
}

// clean: nothing of an older term, or of this one, can surface any more.
func (t *term) clean() bool {
	return t.synch.cmd == 0 && !t.unsettled && (!t.dirty || t.synced)
}

// ready reports that an operation may begin at once.
func (t *term) ready(kind Kind, w Stamp) bool {
	return t.clean() && (kind == Get || (!t.window.hold && t.seq < w-2))
}

// begin is Begin of docs/protocol.md 3.6 (paper §IV, criticalPut and criticalGet).
func (k *key) begin(now Now, b begin, r LockRef) Ticket {
	t := k.term
	if t == nil || t.place.ref != r || !t.open {
		k.beginElsewhere(now, b, r)
		return Ticket{}
	}
	k.overdue(now)
	left := t.place.until - now.Boot
	if left <= 0 {
		k.expire(now)
		k.beginElsewhere(now, b, r)
		return Ticket{}
	}
	t.place.keep(now.Boot + t.place.lease)
	if t.ready(b.kind, k.c.opts.Window) {
		tk := k.ticket(now, b.op, b.kind, left)
		if t.window.wanted && k.lwt == nil {
			k.step(now)
		}
		return tk
	}
	t.waiting = append(t.waiting, b)
	k.c.waits(b.op, k, nil)
	k.step(now)
	return Ticket{}
}

// beginElsewhere answers an operation whose reference has no open term here.
func (k *key) beginElsewhere(now Now, b begin, r LockRef) {
	switch {
	case k.dormant(r) != nil:
		k.c.answer(Answer{Op: b.op, Err: ErrNotHeld})
	case k.live(r) != nil:
		k.awaitTerm(b, k.live(r))
	default:
		k.askEnded(b.ask(r))
	}
	k.step(now)
}

// ask is the operation where its reference has no term here.
func (b begin) ask(r LockRef) ask {
	return ask{op: b.op, what: askBegin, ref: r, kind: b.kind, until: b.until}
}

// ticket counts an operation in and gives a put its stamp v2s(lockRef, seq):
// unique, and inside the window (I2, I12).
func (k *key) ticket(now Now, op OpID, kind Kind, left time.Duration) Ticket {
	t, c := k.term, k.c
	tk := Ticket{Op: op, Key: k.id, Ref: t.place.ref, Epoch: t.base, Kind: kind, Left: left, Lease: t.place.lease, Term: t.id}
	tk.Number = t.flight.add(now.Boot, kind == Put)
	c.timers.set(&k.timer, now.Boot+c.opts.OpTimeout)
	if kind != Put {
		return tk
	}
	tk.Stamp = t.base + t.seq
	t.seq++
	if t.window.narrow(t.seq, c.opts.Window) {
		t.window.wanted = true
	}
	return tk
}

// end is End of docs/protocol.md 3.7. What has no End in time is over: its client
// hears "unknown" whatever comes later (C16).
func (k *key) end(now Now, tk Ticket, o Outcome) Verdict {
	t := k.term
	k.overdue(now)
	if k.checked() && o == OutcomeAcked && k.checkLater(now, tk) {
		return VerdictPending
	}
	if !t.flight.end(tk.Number) {
		return VerdictUncertain
	}
	if o == OutcomeUnknown && tk.Kind == Put {
		t.unsettled = true
	}
	v := t.verdict(tk.Kind, o)
	if !t.open || len(t.waiting) > 0 || k.c.draining {
		k.step(now)
	}
	return v
}

// verdict is check(term) in lease mode: the session was found valid on the way
// in, and the term was open at Begin or there were no ticket.
func (t *term) verdict(kind Kind, o Outcome) Verdict {
	switch {
	case o == OutcomeRefused:
		return VerdictTell
	case t.broken, o == OutcomeUnknown && kind == Put:
		return VerdictUncertain
	}
	return VerdictTell
}

// overdue ends what has taken too long: operations without an End, and
// operations that wait for the term.
func (k *key) overdue(now Now) {
	t, c := k.term, k.c
	if t.flight.expire(now.Boot - c.opts.OpTimeout) {
		t.unsettled = true
	}
	if len(t.checks) > 0 {
		k.overdueChecks()
	}
	for len(t.waiting) > 0 && t.waiting[0].until <= now.Boot {
		c.answer(Answer{Op: t.waiting[0].op, Err: ErrSynchronising})
		t.waiting = t.waiting[1:]
	}
	if t.unlock.op != 0 && t.unlock.until <= now.Boot {
		k.answerUnlock(StateReleased)
	}
}

// serve lets the term work: tickets for those who wait, or the synchronise
// that they wait for.
func (k *key) serve(now Now) {
	k.overdueAsks(now)
	k.overdueBegins(now)
	t := k.term
	if t == nil {
		return
	}
	k.overdue(now)
	if t.clean() && t.open {
		k.admit(now)
	}
	if k.wantsSynch(now) {
		k.copy(now)
	}
}

// admit gives tickets to the operations that waited, in order.
func (k *key) admit(now Now) {
	t := k.term
	waiting := t.waiting
	t.waiting = nil
	for _, b := range waiting {
		if !t.ready(b.kind, k.c.opts.Window) {
			t.waiting = append(t.waiting, b)
			continue
		}
		left := t.place.until - now.Boot
		t.place.keep(now.Boot + t.place.lease)
		k.c.answer(Answer{Op: b.op, Ticket: k.ticket(now, b.op, b.kind, left)})
	}
}

// leave takes a waiting operation away.
func (t *term) leave(op OpID) {
	if t.unlock.op == op {
		t.unlock.op = 0
	}
	for i := range t.checks {
		if t.checks[i].op == op {
			t.checks[i].op = 0
		}
	}
	for i, b := range t.waiting {
		if b.op == op {
			t.waiting = append(t.waiting[:i:i], t.waiting[i+1:]...)
			return
		}
	}
}
