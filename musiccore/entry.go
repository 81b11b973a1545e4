package musiccore

import "time"

// phase is how far an entry has come; it only rises.
type phase uint8

const (
	phaseUnnumbered phase = iota // no reference yet
	phaseWaiting                 // a reference, never a term
	phaseHolding                 // a term
	phaseEnded                   // never again (C15)
)

// entry is one reference of this proxy from LOCK to its end: it waits in the queue, and then holds
// the lock. It does not belong to a connection.
type entry struct {
	k         *key
	ref       LockRef
	phase     phase
	abandoned bool // released when it becomes the head
	adopted   bool // the reference is of another session, which is dead
	grantFacts
	since    time.Duration // when LOCK came; then when it was granted
	deadline time.Duration // when the waiting operation is answered, or silence ends the entry
	lease    time.Duration
	identity identity
	wait     wait
	takeover takeover
	block    *localBlock // in which it waits, or for which it stands in the queue
	origin
	timer timer
}

// origin says what an entry's LOCK asked for, and where its client is.
type origin struct {
	once   Kind // not 0: its client wants the lock for one statement of this kind
	behind bool // Request.Behind
	place  Place
	via    SessionID // that of the proxy at which the client is, if that takes loans; zero: this one
}

// grantFacts say how a holder got the lock.
type grantFacts struct {
	ownerDied bool // the holder before did not release the lock
	inBlock   bool // handed over in memory
	passed    bool // by the proxy of its client, which has told it
	overtook  bool // in a run, before others that had come earlier
}

// identity is what the client of an entry says about itself.
type identity struct {
	name   string // as LOCK … AS gives it
	client Client
	token  [16]byte
}

// wait is the operation that waits for an entry.
type wait struct {
	op     OpID // 0: none
	noWait bool
	atOnce bool
}

// takeover is what only an adopted entry needs.
type takeover struct {
	epoch  Stamp       // made by its own Takeover
	ops    []waitingOp // operations that wait for its term
	forced bool        // ended by Force although its session lives: the table is strict
}

// due is called when the timer of the entry rings: its operation is answered, or its client was
// silent for too long.
func (e *entry) due(now Now) {
	k := e.k
	switch {
	case e.phase == phaseEnded || e.abandoned:
		return
	case e.block != nil && e.ref == 0 && e.wait.op != 0 && now.Boot >= e.numberBy() && !k.blockMoves(e.block):
		k.queue.requeueFrom(e)
	case e.ref == 0 && e.wait.op != 0 && now.Boot < e.deadline && now.Boot >= e.numberBy():
		k.c.timers.set(&e.timer, e.deadline)
	case e.phase == phaseHolding && e.clientProxyDead(now):
		k.expireLease(now)
	case now.Boot < e.deadline:
		k.c.timers.set(&e.timer, e.wake())
		return
	case e.phase == phaseHolding && !k.term.silenced(now):
		e.setDeadline(now.Boot + loanLasts)
	case e.phase == phaseHolding:
		k.expireLease(now)
	case e.wait.op != 0:
		k.answerTimedOut(now, e)
	default:
		e.abandon(0)
	}
	k.step(now)
}

// setDeadline sets when the waiting operation is answered or, without one, when the silence of the
// client ends the entry.
func (e *entry) setDeadline(until time.Duration) {
	e.deadline = until
	if until = e.wake(); e.ref == 0 {
		until = e.numberBy()
	}
	e.k.c.timers.set(&e.timer, until)
}

// maySilence returns for how long the client of an entry that waits may be silent.
func (e *entry) maySilence() time.Duration {
	if e.passed { // it was told that it holds the lock
		return e.lease
	}
	return e.k.c.opts.QueuedLease
}

// wake returns when the entry is to be looked at again.
func (e *entry) wake() time.Duration {
	if e.via == (SessionID{}) || e.phase != phaseHolding {
		return e.deadline
	}
	return min(e.deadline, e.k.c.now+beatEvery)
}

// attach makes an operation wait for the entry as the request says. An operation that already waits
// for it is answered.
func (e *entry) attach(now Now, op OpID, q Request) {
	k := e.k
	if e.wait.op != 0 {
		e.answer(k.grantOf(now, e))
	}
	if q.Lease > 0 {
		e.lease = q.Lease
	}
	if q.By != (Client{}) {
		e.identity.client = q.By
	}
	e.via = q.Via
	if e.phase == phaseHolding && k.awaitsRun() { // its client may have given it back, at the borrower
		q.Ref = e.ref
		k.addQuery(query{op: op, kind: queryLock, ref: e.ref, request: q, until: now.Boot + k.c.opts.Wait})
		return
	}
	if e.phase == phaseHolding {
		e.setDeadline(now.Boot + e.lease)
		k.c.answer(Answer{Op: op, Grant: k.grantOf(now, e)})
		return
	}
	e.wait.op, e.wait.atOnce = op, q.AtOnce
	switch {
	case e.passed, k.isLent(e): // its client may have been told that it holds the lock
		k.recall()
	case q.NoWait && q.Ref != 0 || q.AtOnce && e.ref != 0 || k.c.draining:
		k.answerTimedOut(now, e)
		return
	}
	k.c.addPending(op, k, e)
	e.setDeadline(now.Boot + k.c.answerWithin(q))
}

// grantOf returns the Grant with the state of an entry.
func (k *key) grantOf(now Now, e *entry) Grant {
	if e.phase == phaseHolding {
		return Grant{
			Applied: true, Ref: e.ref, State: StateHeld, Holder: e.identity.name, Lease: e.deadline - now.Boot, OwnerDied: e.ownerDied,
			Empty: e.once != 0 && k.mayFence(),
		}
	}
	return Grant{Ref: e.ref, State: StateQueued, Position: k.position(e), Holder: k.term.holderName()}
}

// busyGrant returns the Grant for a LOCK with NOWAIT that was not granted; its entry is dropped.
func (k *key) busyGrant() Grant { return Grant{State: StateBusy, Holder: k.term.holderName()} }

// holderName returns the name that the present holder gave itself, if it holds here.
func (t *term) holderName() string {
	if t != nil && t.open {
		return t.holder.identity.name
	}
	return ""
}

// answer answers the operation that waits for an entry, if any.
func (e *entry) answer(g Grant) {
	e.answerError(g, nil)
}

// answerError answers the operation that waits for an entry, if any, with an error (or, where
// err is nil, with g).
func (e *entry) answerError(g Grant, err error) {
	if e.wait.op == 0 {
		return
	}
	e.k.c.answer(Answer{Op: e.wait.op, Grant: g, Err: err})
	e.wait.op = 0
}

// answerTimedOut answers a LOCK whose time is up (docs/design.md 5): QUEUED, BUSY, or that the lock
// row could not even be read.
func (k *key) answerTimedOut(now Now, e *entry) {
	switch {
	case e.wait.noWait:
		e.answer(k.busyGrant())
		e.abandon(0)
	case e.phase == phaseUnnumbered && k.view.state == rowUnread:
		e.answerError(Grant{}, unavailable(k.view.read.err))
		e.abandon(0)
	default:
		e.assignRef()
		e.answer(k.grantOf(now, e))
		e.setDeadline(now.Boot + e.maySilence())
		if e.ref == 0 && e.identity.token == ([16]byte{}) {
			// Nobody can ever name it again.
			e.abandon(0)
		}
	}
}

// abandon gives an entry up. Without a reference it is removed; with one it is released when it
// becomes the head (C8: no LWT abandons a reference before). how is 0 if the client was silent and
// may still come back before that.
func (e *entry) abandon(how State) {
	k := e.k
	e.abandoned = true
	k.endings.record(e.ref, how)
	k.queue.dropToken(e)
	k.queryWaitingOps(e)
	k.c.timers.stop(&e.timer)
	if e.ref == 0 {
		k.queue.unnumbered = without(k.queue.unnumbered, e)
	}
	if e.block != nil && (e.ref == 0 || how != 0) && !e.standsForBlock() {
		e.block.remove(e)
	}
}

// lose ends an entry whose reference another session has ended.
func (e *entry) lose() {
	if e.phase == phaseEnded {
		return
	}
	e.end(StateLost)
	e.answer(Grant{Ref: e.ref, State: StateLost})
	if e.standsForBlock() {
		e.k.dropBlock(e.block)
	}
}

// end ends an entry for ever. how is 0 if its reference may go on elsewhere.
func (e *entry) end(how State) {
	k := e.k
	if !e.abandoned {
		k.endings.record(e.ref, how)
	}
	if e.phase == phaseHolding {
		k.note(endNote(how), e, how)
		k.lastHolder.ended = k.c.now
	}
	e.phase = phaseEnded
	k.queue.dropToken(e)
	k.queryWaitingOps(e)
	k.c.timers.stop(&e.timer)
}

// grantNote returns the kind of note for the entry's grant.
func (e *entry) grantNote() NoteKind {
	if e.adopted {
		return NoteTakenOver
	}
	return NoteGranted
}
