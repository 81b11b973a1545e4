package musiccore

import (
	"cmp"
	"fmt"
	"time"
)

// alarmingLead is how far an epoch may be ahead of the clock before a person is told (I12), every
// aheadToldEvery.
const (
	alarmingLead   = Stamp(time.Hour / time.Microsecond)
	aheadToldEvery = time.Minute
)

// term is one holder's time on one epoch, the unit of fencing (docs/protocol.md 3.5, Poll, Begin,
// End). A block that is handed on in memory is one term.
type term struct {
	id     uint64
	holder *entry
	window window
	cleanness
	broken      bool // an invariant failed: nothing is told any more
	open        bool // the holder may begin operations
	closedAt    time.Duration
	noPiggyback bool // its Release enqueues nobody: one that did was refused
	ops         operations
	synch       synchState
	renewal     renewal
	lastRef     LockRef     // its last reference: the holder's, or the block's last
	block       *localBlock // whose references it hands out; nil if the holder is in no retained block
}

// cleanness is what is known of writes that can still surface in a term (docs/protocol.md 2.3, D; 3.9, Synch).
type cleanness struct {
	dirty     bool // D at entry, or by a later raise of closed
	unfenced  bool // the row was Unfenced at entry, and nothing has ended that
	synced    bool // synchronised
	unsettled bool // a put whose acknowledgement never came
}

// window is the range of a term's stamps: epoch+2 … epoch+W-3.
type window struct {
	epoch     Stamp
	seq       Stamp   // epoch+seq is the next free stamp; it only grows
	oldEpochs []Stamp // from before own Renews, as long as operations with their stamps are in flight
	far       bool    // it may lie above a closed, or a strictBelow, that was chosen after it
	released  Stamp   // not 0: the epoch of the row, which was released when it was made (once.go)
}

// next returns the next free stamp.
func (w *window) next() Stamp { return w.epoch + w.seq }

// operations are those of a term: in flight, waiting for the term, or waiting for a verdict.
type operations struct {
	flight  flight
	waiting []waitingOp
	checks  []check   // of a strict table
	unlock  waitingOp // an UNLOCK to be answered when the term has drained
	lentTo  SessionID // that has the loan, if one is out
	run     []LockRef // those that it may have passed the lock on to
	known   known
}

// known is what a put wrote that no stamp has followed, as the caller of its End noted it.
type known struct {
	note any
	next Stamp // the first stamp that was free then
}

// waitingOp is an operation that waits until a term can serve it.
type waitingOp struct {
	op    OpID
	kind  Kind
	until time.Duration

	lendTo SessionID // not zero: its ticket may be a loan to that session
}

// clean reports whether no write of an older term, or of this one, can still surface.
func (t *term) clean() bool {
	return t.synch.cmd == 0 && !t.unsettled && (!t.dirty || t.synced)
}

// ready reports whether an operation may begin at once. Behind an operation that waits for a Synch,
// it must wait, too: puts in flight would delay the Synch. While a loan is out, all wait.
func (k *key) ready(kind Kind) bool {
	t := k.term
	if t.ops.flight.loans > 0 {
		return false // what its borrower is told, or told of as unknown, comes before
	}
	if kind == FencedPut {
		return k.mayFence()
	}
	if !t.clean() && (kind != BlindPut || len(t.ops.waiting) > 0 || !k.mayPutBlind()) {
		return false
	}
	return kind == Get || (!t.renewal.blocksPuts && t.window.seq < k.windowSize()-2)
}

// begin is Begin of docs/protocol.md 3.6 (paper §IV, criticalPut and criticalGet).
func (k *key) begin(now Now, b waitingOp, r LockRef) Ticket {
	t := k.term
	if t == nil || t.holder.ref != r {
		k.beginWithoutTerm(now, b, r)
		return Ticket{}
	}
	k.expireOps(now)
	left := t.holder.deadline - now.Boot
	if t.open && t.silenced(now) {
		k.expireLease(now)
	}
	if !t.open {
		k.beginWithoutTerm(now, b, r)
		return Ticket{}
	}
	t.holder.via = b.lendTo
	t.holder.setDeadline(now.Boot + t.holder.lease)
	if k.ready(b.kind) {
		tk := k.issueTicket(now, b, left)
		if t.renewal.wanted && k.lwt == nil {
			k.step(now)
		}
		return tk
	}
	if b.kind == FencedPut {
		k.c.answer(Answer{Op: b.op, Err: ErrSynchronising})
		return Ticket{}
	}
	k.recall()
	t.ops.waiting = append(t.ops.waiting, b)
	k.c.addPending(b.op, k, nil)
	k.step(now)
	return Ticket{}
}

// beginWithoutTerm answers an operation whose reference has no open term here, or makes it wait.
func (k *key) beginWithoutTerm(now Now, b waitingOp, r LockRef) {
	switch e := cmp.Or(k.liveEntry(r), k.silentEntry(r)); {
	case e != nil && e.mayHoldElsewhere() && !k.view.isHead(e):
		k.addQuery(b.query(r))
	case e != nil:
		k.awaitTerm(b, e)
	default:
		k.queryEnding(b.query(r))
	}
	k.step(now)
}

// query returns the query for an operation whose reference has no term here.
func (b waitingOp) query(r LockRef) query {
	return query{op: b.op, kind: queryBegin, ref: r, opKind: b.kind, until: b.until}
}

// issueTicket counts an operation as in flight, and gives a put its stamp v2s(lockRef, seq):
// unique, and inside the window (I2, I12).
func (k *key) issueTicket(now Now, b waitingOp, left time.Duration) Ticket {
	t, c, kind := k.term, k.c, b.kind
	fences := kind == FencedPut
	lends := b.lendTo != (SessionID{}) && !fences && k.canLend()
	if lends {
		kind = Put
	}
	if kind == BlindPut || fences {
		kind = Put
	}
	tk := Ticket{Op: b.op, Key: k.id, Ref: t.holder.ref, Epoch: t.window.epoch, Kind: kind, Left: max(left, 1), Lease: t.holder.lease, Term: t.id}
	tk.Number = t.ops.flight.add(now.Boot, kind == Put)
	c.timers.set(&k.timer, now.Boot+c.opts.OpTimeout)
	if kind != Put {
		if t.ops.known.next == t.window.next() {
			tk.Known = t.ops.known.note
		}
		return tk
	}
	if fences {
		tk.Fence = t.window.next()
		t.window.seq++
	}
	tk.Stamp = t.window.next()
	t.window.seq++
	if lends {
		k.lend(now, &tk, b.lendTo)
	}
	if t.renewal.due(t.window.seq, k.windowSize()) {
		t.renewal.wanted = true
	}
	return tk
}

// end is End of docs/protocol.md 3.7. An operation without an End in time is over: its client is
// told "unknown", whatever arrives later (C16).
func (k *key) end(now Now, tk Ticket, o Outcome) Verdict {
	t := k.term
	k.expireOps(now)
	if k.isChecked() && o == OutcomeAcked && k.deferVerdict(now, tk) {
		k.takeOverRun(now, tk)
		k.fenced(tk)
		return VerdictPending
	}
	if !t.ops.flight.end(tk.Number) {
		return VerdictUncertain
	}
	if o == OutcomeUnknown && tk.Kind == Put {
		t.unsettled = true
	}
	k.takeOverRun(now, tk)
	if o == OutcomeAcked {
		k.fenced(tk)
	}
	if tk.Lent != nil && t.open {
		t.holder.setDeadline(now.Boot + t.holder.lease)
	}
	if tk.Known != nil && o == OutcomeAcked && tk.Stamp+1 == t.window.next() {
		t.ops.known = known{tk.Known, t.window.next()}
	}
	v := t.verdict(tk.Kind, o)
	if !t.open || len(t.ops.waiting) > 0 || k.c.draining {
		k.step(now)
	}
	return v
}

// verdict is check(term) in lease mode: the session was found valid when the call began, and the
// term was open at Begin, or there were no ticket.
func (t *term) verdict(kind Kind, o Outcome) Verdict {
	switch {
	case o == OutcomeRefused:
		return VerdictTell
	case t.broken, o == OutcomeUnknown && kind == Put:
		return VerdictUncertain
	}
	return VerdictTell
}

// expireOps ends operations that took too long, those without an End and those that wait for the
// term.
func (k *key) expireOps(now Now) {
	t, c := k.term, k.c
	if t.ops.flight.expire(now.Boot - c.opts.OpTimeout) {
		t.unsettled = true
	}
	if t.ops.flight.loans == 0 {
		k.loseRun(now)
	}
	if len(t.ops.checks) > 0 {
		k.expireChecks()
	}
	for len(t.ops.waiting) > 0 && t.ops.waiting[0].until <= now.Boot {
		c.answer(Answer{Op: t.ops.waiting[0].op, Err: ErrSynchronising})
		t.ops.waiting = t.ops.waiting[1:]
	}
	if t.ops.unlock.op != 0 && t.ops.unlock.until <= now.Boot {
		k.answerUnlock(StateReleased)
	}
}

// serveOps gives tickets to the waiting operations, or starts the Synch that they wait for.
func (k *key) serveOps(now Now) {
	k.expireQueries(now)
	k.expireAwaiting(now)
	t := k.term
	if t == nil {
		return
	}
	k.expireOps(now)
	if t.open && (t.clean() || k.mayPutBlind()) {
		k.admitWaiting(now)
	}
	if k.wantsSynch(now) {
		k.startSynch(now)
	}
}

// admitWaiting gives tickets to the operations that waited, in order.
func (k *key) admitWaiting(now Now) {
	t := k.term
	waiting, lent := t.ops.waiting, false
	t.ops.waiting = nil
	for _, b := range waiting {
		if !k.ready(b.kind) {
			t.ops.waiting = append(t.ops.waiting, b)
			continue
		}
		left := t.holder.deadline - now.Boot
		t.holder.setDeadline(now.Boot + t.holder.lease)
		tk := k.issueTicket(now, b, left)
		k.c.answer(Answer{Op: b.op, Ticket: tk})
		lent = lent || tk.Lent != nil
	}
	if lent && len(t.ops.waiting) > 0 {
		k.recall()
	}
}

// cancel takes a waiting operation away.
func (t *term) cancel(op OpID) {
	if t.ops.unlock.op == op {
		t.ops.unlock.op = 0
	}
	for i := range t.ops.checks {
		if t.ops.checks[i].op == op {
			t.ops.checks[i].op = 0
		}
	}
	for i, b := range t.ops.waiting {
		if b.op == op {
			t.ops.waiting = append(t.ops.waiting[:i:i], t.ops.waiting[i+1:]...)
			return
		}
	}
}

// enterTerm is Poll (docs/protocol.md 3.5): the head gets its term if it waits here. A reference
// gets at most one term, ever (C15), and a dirty one only on an epoch that was read at QUORUM
// (M6). Paper §IV, acquireLock.
func (k *key) enterTerm(now Now) {
	e := k.queue.first()
	if k.term != nil || k.lwt.changesTerm() || !k.view.isHead(e) || e.phase != phaseWaiting || e.abandoned {
		return
	}
	if now.Clk == 0 || k.c.draining || !k.c.self.Valid(now) {
		return
	}
	r := k.view.row
	if !k.view.row.grantsHead(e, k.c.self.id) {
		return
	}
	if r.leftOpen(k.table.closed) && k.view.quorumEpoch != r.Epoch {
		return
	}
	k.openTerm(now, e)
}

// grantsHead reports whether register T gives the head to the entry: by the queue, or, for an
// adopted entry, by its own Takeover.
func (r Row) grantsHead(e *entry, self SessionID) bool {
	if e.adopted {
		return r.Owner == self && r.Epoch == e.takeover.epoch
	}
	s, ok := r.Session(r.Head)
	return ok && s == self && r.Owner == (SessionID{})
}

// openTerm starts the term of the head (docs/protocol.md 3.5, Poll and Enqueue).
func (k *key) openTerm(now Now, e *entry) {
	c, r := k.c, k.view.row
	c.last.term++
	k.term = &term{
		id: c.last.term, holder: e, window: window{epoch: r.Epoch, seq: 2},
		cleanness: cleanness{dirty: r.DirtySince(k.table.closed), unfenced: r.UnfencedSince(k.table.closed)},
		lastRef:   r.endOfBlock(e.ref), block: e.block,
	}
	k.term.window.far = now.far(r.Epoch)
	if r.Epoch < max(k.table.altered, k.table.hidden) {
		k.term.renewal.require(0)
	}
	k.tellAhead(now, r.Epoch)
	if e.block != nil {
		e.phase = phaseEnded
		e.block.keepUntil = now.Boot + c.opts.Retain
		return
	}
	k.grant(now, e)
}

// tellAhead raises an alarm if an epoch is far ahead of the clock, at most once every aheadToldEvery for
// a table: until the clock has come there, each term of the key begins on such an epoch.
func (k *key) tellAhead(now Now, epoch Stamp) {
	told := k.c.tables[k.id.Table].aheadTold
	if epoch <= now.Clk+alarmingLead || told != 0 && now.Boot < told+aheadToldEvery {
		return
	}
	k.learn(func(f *tableFacts) { f.aheadTold = now.Boot })
	k.c.alarm(k.id, "I12", fmt.Sprintf("epoch %d is far ahead of the clock %d", epoch, now.Clk))
}

// grant makes an entry the holder.
func (k *key) grant(now Now, e *entry) {
	t := k.term
	t.holder, t.open, e.inBlock = e, true, t.block != nil
	k.note(e.grantNote(), e, 0)
	t.ops.waiting, e.takeover.ops = e.takeover.ops, nil
	e.phase, e.ownerDied, e.wait.noWait, k.lastHolder.died = phaseHolding, k.lastHolder.died, false, false
	k.blocks.lastWait, e.since = now.Boot-e.since, now.Boot
	if e.wait.op == 0 && len(t.ops.waiting) == 0 && !e.passed {
		e.setDeadline(now.Boot + k.c.opts.QueuedLease)
		return
	}
	e.setDeadline(now.Boot + e.lease)
	e.answer(k.grantOf(now, e))
}
