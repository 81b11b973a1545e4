package musiccore

import (
	"slices"
	"time"
)

// What a proxy lends to another one (docs/protocol.md 3.21, Loans): the right to do operations
// under a reference of its own session. To the lender a loan is one put in flight, that takes its
// stamps when it begins and ends when it is given back, or at the latest after Options.OpTimeout:
// nothing else begins, and nothing is handed over, released or synchronised meanwhile. So whatever
// becomes of the borrower, what comes after knows whether a put may still surface.

// loanStamps is how many stamps a loan has. Those that are not used are lost.
const loanStamps = 32

// LoanRequest asks for a loan to the session To, whose client has the reference, or at least for a ticket
// for one operation of the kind.
type LoanRequest struct {
	Key  Key
	Ref  LockRef
	Kind Kind
	To   SessionID
}

// Lend is Begin for the proxy of another session. The ticket is a loan if the term is clean and its
// operations are not checked.
func (c *Core) Lend(now Now, op OpID, q LoanRequest) (Ticket, Effects) {
	return c.beginOp(now, waitingOp{op: op, kind: q.Kind, lendTo: q.To}, q.Key, q.Ref)
}

// canLend reports whether the term's operations can be lent: whatever kind they are, the lender need
// not be asked before one of them. No put may be in flight: the borrower would not hear that its
// outcome is unknown, and gets would go on (C9).
func (k *key) canLend() bool {
	t := k.term
	return t.clean() && t.ops.flight.puts == 0 && !t.broken && !k.isChecked() && !k.c.draining && !t.renewal.blocksPuts && t.window.seq+loanStamps < k.windowSize()-2
}

// recall asks for everything that is lent of the term. A client may come with its reference to another
// proxy than the one that has the loan.
func (k *key) recall() {
	t := k.term
	if t == nil || t.ops.flight.loans == 0 {
		return
	}
	for _, r := range append([]LockRef{t.holder.ref}, t.ops.run...) {
		k.c.out.Hints = append(k.c.out.Hints, Hint{Key: k.id, To: t.ops.lentTo, Kind: HintRecall, Last: r})
	}
}

// lend makes a put that was just issued a loan.
func (k *key) lend(now Now, tk *Ticket, to SessionID) {
	t := k.term
	t.ops.lentTo = to
	t.ops.flight.lend()
	t.holder.via = to
	t.window.seq += loanStamps - 1
	tk.Lent = &Lent{Stamps: loanStamps, Valid: k.c.lentTime(now), Run: k.lendRun(to)}
	k.c.lending.out[lentID{t.id, tk.Number}] = lentOut{at: now, key: k.id}
}

// runLength is how many sections a borrower may do one after the other: the way from one to the next
// through the lender would cost each of them a round trip.
const runLength = 3

// runSearch is how many waiters are looked at for those of a run. The others are overtaken by at most
// runLength-1 of them, who bring nobody along themselves.
const runSearch = 64

// lendRun gives the next references of the block to entries whose clients wait at the borrower.
func (k *key) lendRun(to SessionID) []Next {
	t, b := k.term, k.term.block
	t.ops.run = nil
	if !t.canHandOver() || t.ops.flight.ops > 1 { // a get of the holder's could be told after the next one is granted
		return nil
	}
	var run []Next
	for i := 0; i < runLength-1 && b.bring(i, to, !t.holder.overtook); i++ {
		e := b.waiters[i]
		e.assignRef()
		t.ops.run = append(t.ops.run, e.ref)
		run = append(run, Next{Ref: e.ref, Token: e.identity.token, Lease: e.lease})
	}
	return run
}

// bring moves an entry whose client waits at another proxy to the i-th place of the block's line, and
// reports whether there is one. Entries that have a reference are not overtaken.
func (b *localBlock) bring(i int, at SessionID, mayOvertake bool) bool {
	if i < b.numbered {
		return b.waiters[i].waitsAt(at)
	}
	last := min(len(b.waiters), i+runSearch)
	if !mayOvertake {
		last = min(last, i+1)
	}
	for j := i; j < last; j++ {
		if e := b.waiters[j]; e.waitsAt(at) {
			copy(b.waiters[i+1:j+1], b.waiters[i:j])
			b.waiters[i], e.overtook = e, j > i
			return true
		}
	}
	return false
}

// waitsAt reports whether the entry's client waits at the proxy of another session.
func (e *entry) waitsAt(s SessionID) bool {
	return e.via == s && e.wait.op != 0 && !e.wait.noWait && !e.abandoned && e.identity.token != ([16]byte{})
}

// isLent reports whether the lock may have been passed on to the entry under a loan that is out.
func (k *key) isLent(e *entry) bool {
	return k.term != nil && k.term.ops.flight.loans > 0 && e.ref != 0 && slices.Contains(k.term.ops.run, e.ref)
}

// awaitsRun reports whether it is not known here which reference of a run has the lock. None of them may
// survive this session until it is: one that was released could come back. The loan is asked for.
func (k *key) awaitsRun() bool {
	if k.term == nil || len(k.term.ops.run) == 0 {
		return false
	}
	k.recall()
	return true
}

// takeOverRun takes over what the borrower of a loan that is given back has done with the references of its
// run.
func (k *key) takeOverRun(now Now, tk Ticket) {
	t := k.term
	if tk.Lent == nil {
		return
	}
	run := t.ops.run
	defer func() { t.ops.run = nil }()
	if !slices.Contains(run, tk.Lent.Passed) {
		return
	}
	k.closeTerm(now, StateReleased)
	for _, r := range run {
		if e := t.block.find(r); e != nil && r <= tk.Lent.Passed {
			e.wasPassed(now, r == tk.Lent.Passed)
		}
	}
}

// wasPassed does what is left to do for an entry that the lock was passed on to: it still has the lock, or
// was released, too.
func (e *entry) wasPassed(now Now, has bool) {
	if has {
		e.passed, e.abandoned = true, false // whatever became of its LOCK here
		if e.wait.op == 0 {
			e.setDeadline(now.Boot + e.lease)
		}
		return
	}
	e.inBlock = true
	e.k.note(NoteGranted, e, 0)
	e.since = now.Boot // its borrower knows for how long it had the lock: here the sections of a run count as the first one's
	e.k.note(NoteEnded, e, StateReleased)
	e.answer(Grant{Ref: e.ref, State: StateReleased})
	e.abandon(StateReleased)
}

// mayBePassed reports whether the answer to a query of an entry depends on what a borrower does with the
// references of a run.
func (k *key) mayBePassed(kind queryKind, e *entry) bool {
	if kind == queryLock {
		return k.term != nil && k.term.holder == e && k.awaitsRun()
	}
	return kind == queryUnlock && k.isLent(e)
}

// leaveRun forgets the references of a run whose loan is out, when the session has ended. They are not told
// to be lost: what is done under the loan may still be told (E9).
func (k *key) leaveRun() {
	t := k.term
	for _, r := range t.ops.run {
		if e := t.block.find(r); e != nil && t.ops.flight.loans > 0 {
			t.block.remove(e)
			e.answerError(Grant{}, ErrUnavailable)
			e.end(0)
		}
	}
}

// loseRun ends the references of a run whose loan was not given back: which of them has the lock, and
// which were released already, is not known here.
func (k *key) loseRun(now Now) {
	t := k.term
	if len(t.ops.run) == 0 {
		return
	}
	for _, r := range t.ops.run {
		if e := t.block.find(r); e != nil {
			t.block.remove(e)
			e.lose()
		}
	}
	t.ops.run = nil
	k.closeTerm(now, StateLost)
}

// lentTime returns for how long the operations of a loan may be told without asking: the loan is in
// flight here for longer, also by BOOTTIME if that is slewed, and the session valid, also by a clock
// whose rate differs.
func (c *Core) lentTime(now Now) time.Duration {
	return time.Duration(float64(min(c.self.Left(now), c.opts.OpTimeout*4/5)) * (1 - 2*c.opts.Drift))
}

// HasLoansOut reports whether something that this session has lent may still be in use. Until that is over
// the session must not be ended by EndedBeat, since nobody would wait for it.
func (c *Core) HasLoansOut(now Now) bool {
	return c.anyOut(now, func(lentOut) bool { return true })
}

// LentBefore reports whether something may still be in use that was lent before its table changed. Until
// that is over this proxy has not followed the change: the borrower goes by what was known here.
func (c *Core) LentBefore(now Now) bool {
	return c.anyOut(now, func(l lentOut) bool { return l.changed })
}

// anyOut reports whether a loan for which which is true may still be in use. It forgets those that
// are not.
func (c *Core) anyOut(now Now, which func(lentOut) bool) (any bool) {
	for id, l := range c.lending.out {
		if now.Since(l.at) >= c.opts.OpTimeout {
			delete(c.lending.out, id)
			continue
		}
		any = any || which(l)
	}
	return any
}

// silenced reports whether the holder's client was silent for its lease. While a loan is out its
// client speaks to another proxy.
func (t *term) silenced(now Now) bool {
	return t.holder.deadline <= now.Boot && t.ops.flight.loans == 0
}

// takesRemote reports whether a client of another proxy can wait here: references of the key are handed
// out in memory, and it would get one of them.
func (k *key) takesRemote(now Now) bool {
	if k.c.draining || k.c.opts.Retain == 0 || k.blocks.nextSize == 0 || k.waiterCount() >= k.c.opts.Waiters {
		return false
	}
	last, ok := k.view.row.Session(k.view.row.Guard)
	return ok && last == k.c.self.id && k.view.state == rowPresent && !k.view.row.Empty() && (k.term == nil || !k.term.open || now.Boot < k.term.holder.plainAt())
}

// farRetain is how many times longer than Options.Retain a section may take whose client is at another
// proxy: what it does has a long way.
const farRetain = 3

// shortLimit returns how long a holder may stay so that its section counts as short.
func (e *entry) shortLimit() time.Duration {
	d := e.k.c.opts.Retain
	if e.place == PlaceBlock {
		d *= farRetain
	}
	if t := e.k.term; t != nil && t.holder == e {
		d *= time.Duration(1 + len(t.ops.run))
	}
	return d
}

// plainAt returns when a holder in a block is made plain.
func (e *entry) plainAt() time.Duration { return e.since + e.shortLimit() }

// askElsewhere answers the unnumbered entries that can wait at another proxy: its session has the
// last references of the queue, and hands them out in memory. There they cost no LWT, and no site
// is farther from the row than another.
func (k *key) askElsewhere(now Now) {
	s, ok := k.lastBlockElsewhere()
	if !ok {
		return
	}
	k.c.watch(now, s) // nobody is asked who is dead
	here := k.queue.unnumbered[:0]
	for _, e := range k.queue.unnumbered {
		if !e.mayWaitElsewhere() {
			here = append(here, e)
			continue
		}
		e.answerError(Grant{}, &ElsewhereError{Session: s})
		e.end(0)
	}
	clear(k.queue.unnumbered[len(here):])
	k.queue.unnumbered = here
}

// lastBlockElsewhere returns the session of the queue's last references, if it is another, living
// one, and hands them out in memory.
func (k *key) lastBlockElsewhere() (SessionID, bool) {
	if k.c.opts.Retain == 0 || k.view.state != rowPresent || k.view.row.Empty() || len(k.queue.unnumbered) == 0 {
		return SessionID{}, false
	}
	last := k.view.row.newestBlock()
	return last.Session, last.Retained && last.Session != k.c.self.id && !k.c.dead(last.Session) && k.c.now >= k.c.lending.silent[last.Session]
}

// PeerSilent says that the proxy of a session has not answered: no LOCK is sent there for a while.
func (c *Core) PeerSilent(now Now, s SessionID) Effects {
	c.checkSession(now)
	for id, until := range c.lending.silent {
		if now.Boot >= until {
			delete(c.lending.silent, id)
		}
	}
	c.lending.silent[s] = now.Boot + c.opts.SessionLease
	return c.takeEffects()
}

// clientProxyDead reports whether the holder's client was at the proxy of a session that is dead, and has not
// come to another one since.
func (e *entry) clientProxyDead(now Now) bool {
	if e.via == (SessionID{}) || e.k.term.ops.flight.loans > 0 {
		return false
	}
	w := e.k.c.watch(now, e.via)
	return w.dead && now.Boot >= w.deadAt+e.k.c.opts.Grace
}

// mayWaitElsewhere reports whether the entry's client can be told by another proxy: it waits for the
// grant, and has not been sent back.
func (e *entry) mayWaitElsewhere() bool {
	return e.place == PlaceAny && e.wait.op != 0 && !e.wait.atOnce && !e.wait.noWait
}
