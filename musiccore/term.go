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
		id: c.last.term, place: p, base: r.Base, seq: 2,
		dirty: r.DirtySince(k.closed),
		last:  r.through(p.ref), reserve: p.reserve,
	}
	if r.Base > now.Clk+farBase {
		c.alarm(k.id, "I12", fmt.Sprintf("base %d is far ahead of the clock %d", r.Base, now.Clk))
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
		p.keep(now.Boot + k.c.opts.Untold)
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
	tk := Ticket{Op: op, Key: k.id, Ref: t.place.ref, Base: t.base, Kind: kind, Left: left, Lease: t.place.lease, Term: t.id}
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
		return Later
	}
	if !t.flight.end(tk.Number) {
		return Uncertain
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
		return Tell
	case t.broken, o == OutcomeUnknown && kind == Put:
		return Uncertain
	}
	return Tell
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
		k.answerUnlock(Released)
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

// expire ends a client lease: silence, and the next one is told so.
func (k *key) expire(now Now) {
	k.died = true
	k.close(now, LostState)
}

// giveBack is the UNLOCK of the holder, or a Force. It is answered at once
// when nothing is unsettled and no put can become so.
func (k *key) giveBack(now Now, op OpID, how State) {
	t := k.term
	k.close(now, how)
	t.unlock = begin{op: op, until: now.Boot + k.c.opts.Wait}
	if t.flight.puts == 0 && !t.unsettled {
		k.answerUnlock(Released)
		return
	}
	k.c.waits(op, k, nil)
}

func (k *key) answerUnlock(how State) {
	t := k.term
	if t.unlock.op == 0 {
		return
	}
	k.c.answer(Answer{Op: t.unlock.op, Grant: Grant{Applied: how == Released, Ref: t.place.ref, State: how}})
	t.unlock.op = 0
}

// close lets no more operations in. Those in flight still end; then the term
// is settled if need be, and released.
func (k *key) close(now Now, how State) {
	t := k.term
	if !t.open {
		return
	}
	t.open, t.shut = false, now.Boot
	t.synch.tries = 0
	if t.reserve != nil {
		t.reserve.until = now.Boot + k.c.opts.Retain
	}
	k.brief(now, t.place, how)
	k.finish(t.place, how)
	waiting := t.waiting
	t.waiting = nil
	for _, b := range waiting {
		k.askEnded(b.ask(t.place.ref))
	}
}

// drained reports that a closed term may be released: nothing in flight, and
// settled or enough tried (docs/protocol.md 3.11, Release).
func (t *term) drained(tries int) bool {
	if t.open || t.flight.ops > 0 || t.synch.cmd != 0 {
		return false
	}
	return !t.unsettled || t.broken || t.synch.tries >= tries
}

// release ends the term for everybody. The row may only become clean when
// nothing is left that could surface (I7, C6, C7, C17).
func (k *key) release(now Now) {
	t := k.term
	if len(k.asking)+len(k.riders) > 0 && !t.alone && k.glances(now) {
		return
	}
	dirty := t.unsettled || (t.dirty && !t.synced) || t.broken
	if !dirty && (t.flight.ops > 0 || t.synch.cmd != 0) {
		k.broken(now, "I7", "a clean release with operations in flight")
		return
	}
	used := t.seq
	if t.broken {
		used = k.c.opts.Window
	}
	k.answerUnlock(Released)
	k.appraise()
	next := k.nextInLine()
	if t.reserve != nil {
		t.reserve.plain = true
	}
	held := Row{Guard: k.view.row.Guard, Head: next - 1, Base: t.base}
	l := lwt{why: releasing, swap: Release(held, used, dirty, now.Clk)}
	if !t.alone && next > t.last {
		k.takeAlong(now, &l)
	}
	if k.start(now, l) {
		k.left = now.Boot
		k.yielding(l.swap)
	}
}

// nextInLine answers the reference that a Release makes the head: the one behind
// the term, but where it ends with others in the line of a block that cannot be
// handed over the next of them. Their block goes on, as another term.
func (k *key) nextInLine() LockRef {
	t := k.term
	b := t.reserve
	if b != nil {
		k.passSilent(b)
	}
	switch {
	case b == nil || len(b.line) == 0 || t.broken || k.c.draining:
		return t.last + 1
	case b.named > 0:
		return b.line[0].ref
	}
	return b.next
}

// released ends the term whose Release was applied. A block that the new head is
// in waits for another term.
func (k *key) released(now Now, head LockRef) {
	b := k.term.reserve
	if b == nil || head > b.last {
		k.endTerm()
		return
	}
	k.term.reserve = nil
	k.endTerm()
	b.plain = false
	k.stand(now, b, head)
}

// skip releases an abandoned head that never had a term: two stamps are left
// free, and dirty stays what it was (docs/protocol.md 3.11, Release; C6). Where a dead
// session had it, nobody can say what was sent under it.
func (k *key) skip(now Now) {
	r := k.view.row
	if _, foreign := k.stranger(); foreign {
		if k.forsaken(now) || (k.front().forced && k.seize && k.view.vouched == r.Base) {
			k.start(now, lwt{why: skipping, swap: Release(r, k.c.opts.Window, true, now.Clk)})
		}
		return
	}
	k.start(now, lwt{why: skipping, swap: Release(r, 2, r.DirtySince(k.closed), now.Clk)})
}

// expel releases an own head that memory does not know: nobody can say what
// was sent under it.
func (k *key) expel(now Now) {
	k.start(now, lwt{why: expelling, swap: Release(k.view.row, k.c.opts.Window, true, now.Clk)})
}

// endTerm forgets a term whose Release is definite.
func (k *key) endTerm() {
	p, b := k.term.place, k.term.reserve
	k.answerUnlock(Released)
	k.term = nil
	if b != nil {
		k.drop(b)
	}
	if k.front() == p {
		k.pop()
	}
}

// loseTerm forgets a term that is no more. Where somebody else may have taken
// its reference over, that one is not told to be lost: the row knows more.
func (k *key) loseTerm(now Now) {
	t, how := k.term, State(0)
	if k.final(t.place.ref) {
		how = LostState
	}
	k.close(now, how)
	if t.unlock.op != 0 && how == 0 {
		k.ask(ask{op: t.unlock.op, what: askUnlock, ref: t.place.ref, until: t.unlock.until})
		t.unlock.op = 0
	}
	k.answerUnlock(LostState)
	k.dropChecks()
	delete(k.c.running, k.term.synch.cmd)
	k.endTerm()
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
