package musiccore

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// loanLasts is for how long operations begin under a loan: the lender hears of the client at least
// that often, and waits for a loan no longer.
const loanLasts = time.Second

// held is a reference of a key.
type held struct {
	key Key
	ref LockRef
}

// lending is what this session has lent and borrowed, and what it asks other sessions for.
type lending struct {
	out       map[lentID]lentOut          // what was lent from here, until it is given back
	borrowed  map[held]*loan              // under which operations begin here
	loans     map[uint64]*loan            // by id; also those that are being given back
	elsewhere map[lockToken]OpID          // LOCKs that wait at another proxy
	silent    map[SessionID]time.Duration // who is not asked for a place until then
	notBefore time.Duration               // loans that were asked for until then are not used
	stood     int64                       // Session.stood when it was read last
}

// lentID is a loan as its lender knows it, see Ticket.
type lentID struct{ term, number uint64 }

// lentOut is a loan that may still be in use.
type lentOut struct {
	at      Now
	key     Key
	changed bool // its table has changed since
}

// lockToken is the token of a LOCK of a key.
type lockToken struct {
	key   Key
	token [16]byte
}

// loan is what another session has lent to this proxy for one of its references: stamps, and the
// right to tell success for some time (docs/protocol.md 3.21, Loans).
type loan struct {
	c       *Core
	held    held
	id      uint64
	ticket  Ticket // the lender's, with what the last put under the loan wrote, if that is known
	used    Stamp  // how many of its stamps
	valid   deadline
	stood   int64         // Session.stood when it was taken
	usable  time.Duration // operations begin until then
	run     []Next        // that the lock can still be passed on to
	flight  []OpID        // operations between Begin and End
	unknown bool          // the outcome of a put is
	closed  bool          // no operation begins any more
	back    bool          // its Return was emitted
	waiting []OpID        // operations whose verdict the lender has to tell
	timer   timer
}

// Return is a loan that is given back: the caller asks the lender's End, with Ticket and Outcome,
// and hands its verdict to Returned.
type Return struct {
	Loan    uint64
	Ticket  Ticket
	Outcome Outcome
}

// Borrower returns the session that a lender is told to lend to; zero, so that it lends for one
// operation only, while the own session is not valid, since the lender observes who has borrowed, and at
// shutdown.
func (c *Core) Borrower(now Now) SessionID {
	if !c.self.Valid(now) || c.draining {
		return SessionID{}
	}
	return c.self.id
}

// Borrow takes a loan. sent is from before the lender was asked: the lent time counts from then. A
// loan of the same reference that is here ends. One that was asked for before a change of its table
// is not used.
func (c *Core) Borrow(now, sent Now, tk Ticket) Effects {
	if !c.checkSession(now) {
		return c.takeEffects() // the lender waits until it is over
	}
	h := held{tk.Key, tk.Ref}
	c.closeLoan(h)
	c.last.loan++
	l := &loan{
		c: c, held: h, id: c.last.loan, ticket: tk, usable: now.Boot + loanLasts, valid: lentUntil(sent, tk.Lent.Valid), stood: c.self.stood.Load(),
		run: tk.Lent.Run,
	}
	l.timer.who = l
	c.lending.loans[l.id] = l
	if sent.Boot <= c.lending.notBefore || c.draining {
		l.close()
		return c.takeEffects()
	}
	c.lending.borrowed[h] = l
	c.timers.set(&l.timer, l.usable)
	return c.takeEffects()
}

// lentUntil returns the end of a lent time on every clock.
func lentUntil(sent Now, valid time.Duration) deadline {
	return deadline{boot: sent.Boot + valid, raw: sent.Raw + valid, wall: sent.Wall + Stamp(valid/time.Microsecond)}
}

// BorrowedTicket returns a ticket of a loan for an operation under a reference of another session. It
// returns none if the lender has to be asked: the loan that is here, if any, then ends.
func (c *Core) BorrowedTicket(now Now, op OpID, id Key, r LockRef, kind Kind) (Ticket, Effects) {
	h := held{id, r}
	l := c.lending.borrowed[h]
	if l == nil || !c.checkSession(now) {
		return Ticket{}, c.takeEffects()
	}
	if !l.isUsable(now) || kind == FencedPut || (kind != Get && l.used == l.ticket.Lent.Stamps) {
		c.closeLoan(h)
		return Ticket{}, c.takeEffects()
	}
	tk := l.ticket
	tk.Op, tk.Ref, tk.Kind, tk.Loan, tk.Lent = op, r, kind, l.id, nil
	tk.Left, tk.Stamp = tk.Lease, 0
	if kind != Get {
		l.ticket.Known = nil
		tk.Kind, tk.Stamp, tk.Known = Put, l.next(), nil
		l.used++
	}
	l.flight = append(l.flight, op)
	return tk, c.takeEffects()
}

// next returns the loan's next stamp, if it has one more.
func (l *loan) next() Stamp { return l.ticket.Stamp + l.used }

// isUsable reports whether operations may begin under the loan.
func (l *loan) isUsable(now Now) bool { return !l.closed && now.Boot < l.usable && !l.over(now) }

// over reports whether the lent time has passed, or the clocks cannot tell.
func (l *loan) over(now Now) bool {
	return l.valid.passed(now) || l.c.self.stood.Load() != l.stood
}

// endBorrowed is End for a ticket of a loan. Success is told if the lent time has not passed after the
// store's answer, and the loan has not ended; else the lender decides.
func (c *Core) endBorrowed(now Now, tk Ticket, o Outcome) Verdict {
	l := c.lending.loans[tk.Loan]
	if l == nil || !slices.Contains(l.flight, tk.Op) {
		return VerdictUncertain
	}
	l.flight = slices.DeleteFunc(l.flight, func(op OpID) bool { return op == tk.Op })
	v := VerdictTell
	if unknown := o == OutcomeUnknown && tk.Kind == Put; unknown || o == OutcomeAcked && (l.closed || l.over(now)) {
		v = VerdictPending
		l.unknown = l.unknown || unknown
		l.waiting = append(l.waiting, tk.Op)
		c.closeLoan(l.held)
		l.close()
	}
	if o == OutcomeAcked && tk.Stamp+1 == l.next() {
		l.ticket.Known = tk.Known
	}
	l.giveBack()
	return v
}

// GiveBack is for an UNLOCK of a reference of another session. If the lock has been passed on to the next
// one of the loan's run, the UNLOCK is done. Otherwise the loan ends, and back is it if nothing is in flight:
// the caller gives it back together with the UNLOCK.
func (c *Core) GiveBack(now Now, id Key, r LockRef) (back Return, passed bool, fx Effects) {
	c.checkSession(now)
	l := c.lending.borrowed[held{id, r}]
	if l != nil && l.pass(now) {
		return back, true, c.takeEffects()
	}
	if l != nil {
		c.closeLoan(l.held)
	}
	fx = c.takeEffects()
	if n := len(fx.Returns); n > 0 {
		back = fx.Returns[n-1]
		fx.Returns = fx.Returns[:n-1]
		delete(c.lending.loans, back.Loan)
	}
	return back, false, fx
}

// pass gives the lock to the next reference of the run, if its client waits here and everything that was
// done under the loan is known to be done: what the lender would do with one UNLOCK more.
func (l *loan) pass(now Now) bool {
	if !l.isUsable(now) || len(l.flight) > 0 || l.used == l.ticket.Lent.Stamps || len(l.run) == 0 {
		return false
	}
	next := l.run[0]
	waiter := lockToken{l.held.key, next.Token}
	op, waits := l.c.lending.elsewhere[waiter]
	if !waits {
		return false
	}
	delete(l.c.lending.elsewhere, waiter)
	delete(l.c.lending.borrowed, l.held)
	l.held.ref, l.run = next.Ref, l.run[1:]
	l.c.lending.borrowed[l.held] = l
	l.ticket.Left, l.ticket.Lease = next.Lease, next.Lease
	l.c.answer(Answer{Op: op, Grant: Grant{Applied: true, Ref: next.Ref, State: StateHeld, Lease: next.Lease}})
	return true
}

// AddRemoteWait says that a LOCK with a token waits at another proxy. It is answered here if the lock is
// passed on to it, unless another LOCK with the token came after it, and at shutdown.
func (c *Core) AddRemoteWait(op OpID, id Key, token [16]byte) Effects {
	c.lending.elsewhere[lockToken{id, token}] = op
	if c.draining {
		c.turnAway()
	}
	return c.takeEffects()
}

// RemoveRemoteWait says that a LOCK no longer waits at another proxy.
func (c *Core) RemoveRemoteWait(op OpID, id Key, token [16]byte) {
	if c.lending.elsewhere[lockToken{id, token}] == op {
		delete(c.lending.elsewhere, lockToken{id, token})
	}
}

// Returned takes the lender's verdict on a loan that was given back.
func (c *Core) Returned(now Now, id uint64, v Verdict) Effects {
	c.checkSession(now)
	if l := c.lending.loans[id]; l != nil {
		delete(c.lending.loans, id)
		l.tell(v)
	}
	return c.takeEffects()
}

// tell answers the operations that wait for the lender's verdict.
func (l *loan) tell(v Verdict) {
	for _, op := range l.waiting {
		l.c.answer(Answer{Op: op, Verdict: v})
	}
	l.waiting = nil
}

// closeLoan ends the loan of a reference under which operations begin, if there is one.
func (c *Core) closeLoan(h held) {
	if l := c.lending.borrowed[h]; l != nil {
		delete(c.lending.borrowed, h)
		l.close()
	}
}

// close ends a loan: it is given back once nothing is in flight.
func (l *loan) close() {
	l.closed = true
	l.c.timers.set(&l.timer, l.valid.boot)
	l.giveBack()
}

// giveBack emits the Return of a loan that has ended, once.
func (l *loan) giveBack() {
	if !l.closed || len(l.flight) > 0 || l.back {
		return
	}
	l.back = true
	l.c.timers.stop(&l.timer)
	o := OutcomeAcked
	if l.unknown {
		o = OutcomeUnknown
	}
	tk, lent := l.ticket, *l.ticket.Lent
	if lent.Run = nil; l.held.ref != tk.Ref {
		lent.Passed = l.held.ref
	}
	tk.Lent, tk.Known = &lent, nil
	l.c.out.Returns = append(l.c.out.Returns, Return{Loan: l.id, Ticket: tk, Outcome: o})
}

// due is called when no operation may begin any more, and when the lent time has passed while some
// are in flight: these are over, as they are to the lender, whatever is heard of them later.
func (l *loan) due(now Now) {
	switch {
	case !l.closed && now.Boot < l.usable:
		l.c.timers.set(&l.timer, l.usable)
	case !l.closed:
		l.c.closeLoan(l.held)
	case now.Boot < l.valid.boot:
		l.c.timers.set(&l.timer, l.valid.boot)
	default:
		l.unknown, l.flight = true, nil
		l.giveBack()
	}
}

// closeLoans ends the loans of a table that changes: what was lent rests on what the lender knew of it.
// One that is under way was lent before, too; and what was lent from here is asked for.
func (c *Core) closeLoans(table [16]byte) {
	for _, id := range c.sortedOut() {
		if l := c.lending.out[id]; l.key.Table == table {
			l.changed = true
			c.lending.out[id] = l
			c.recallLent(id)
		}
	}
	c.lending.notBefore = c.now
	for _, l := range c.sortedLoans() {
		if l.held.key.Table == table && !l.closed {
			c.closeLoan(l.held)
		}
	}
}

// recallLent asks for what was lent if it has not been given back.
func (c *Core) recallLent(id lentID) {
	if k := c.keys[c.lending.out[id].key]; k != nil && k.term != nil && k.term.id == id.term && !k.term.ops.flight.over(id.number) {
		k.recall()
	}
}

// loseLoans drops every loan: this session has ended. Their lenders wait for them.
func (c *Core) loseLoans() {
	for _, l := range c.sortedLoans() {
		c.timers.stop(&l.timer)
		l.tell(VerdictUncertain)
	}
	clear(c.lending.borrowed)
	clear(c.lending.loans)
}

// sortedOut returns what was lent from here in the order in which it was lent.
func (c *Core) sortedOut() []lentID {
	return slices.SortedFunc(maps.Keys(c.lending.out), func(a, b lentID) int { return cmp.Or(cmp.Compare(a.term, b.term), cmp.Compare(a.number, b.number)) })
}

// sortedLoans returns the loans in the order in which they were taken.
func (c *Core) sortedLoans() []*loan {
	return slices.SortedFunc(maps.Values(c.lending.loans), func(a, b *loan) int { return cmp.Compare(a.id, b.id) })
}
