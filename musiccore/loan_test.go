package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pair is a proxy that has lent, and one that has borrowed.
type pair struct {
	*harness // the lender
	store    *fakeStore
	borrower *harness
	ref      LockRef
	back     []Return // what the borrower gives back
}

// lent returns a pair: a client of the borrower holds reference 2 in a block of the lender, which has lent.
func lent(t *testing.T) *pair {
	t.Helper()
	h, s := blockHeld(t)
	b := newHarness(t)
	b.session = NewSession(session(2), b.opts)
	b.core = New(b.session, b.opts)
	b.beat()
	return &pair{harness: h, store: s, borrower: b, ref: 2}
}

// lend lends to the borrower.
func (p *pair) lend() Ticket {
	tk, fx := p.core.Lend(p.time(), p.op(), LoanRequest{Key: p.key(), Ref: p.ref, Kind: Put, To: p.borrower.session.ID()})
	p.collect(fx)
	tk.Lender = p.session.ID()
	return tk
}

// borrow has the borrower take a loan that it asked for at that moment.
func (p *pair) borrow(sent time.Duration) Ticket {
	p.t.Helper()
	tk := p.lend()
	require.NotNil(p.t, tk.Lent)
	require.EqualValues(p.t, loanStamps, tk.Lent.Stamps)
	from := p.borrower.time()
	from.Boot, from.Raw = sent, sent
	p.borrower.collect(p.borrower.core.Borrow(p.borrower.time(), from, tk))
	return tk
}

// borrowed begins an operation under the loan.
func (p *pair) borrowed(kind Kind) Ticket {
	tk, fx := p.borrower.core.BorrowedTicket(p.borrower.time(), p.borrower.op(), p.key(), p.ref, kind)
	p.borrower.collect(fx)
	p.back = append(p.back, fx.Returns...)
	return tk
}

// A loan is stamps of the lender's window, each used once, until there are no more.
func TestALoanHasStamps(t *testing.T) {
	p := lent(t)
	loan := p.borrow(p.now)
	for i := range loan.Lent.Stamps {
		tk := p.borrowed(Put)
		require.Equal(t, loan.Stamp+i, tk.Stamp)
		require.Zero(t, p.borrowed(Get).Stamp)
		require.Equal(t, VerdictTell, p.borrower.end(tk, OutcomeAcked))
		require.Equal(t, VerdictUncertain, p.borrower.end(tk, OutcomeAcked), "it ends once")
	}
	require.False(t, p.borrowed(Put).OK())
}

// While a loan is out nothing else begins at the lender, nor is anything handed over: its borrower is
// asked to give it back, and what its clients were told comes before.
func TestNothingBeginsWhileALoanIsOut(t *testing.T) {
	p := lent(t)
	loan := p.borrow(p.now)
	tk, op := p.begin(p.ref, Get)
	require.False(t, tk.OK())
	p.expectHints(Hint{To: session(2), Kind: HintRecall, Last: p.ref})
	next := p.lock(Request{Wait: time.Minute})
	p.expectWaiting(op)
	require.Equal(t, VerdictTell, p.end(loan, OutcomeAcked))
	require.Greater(t, p.answerOf(op).Ticket.Number, loan.Number)
	p.end(p.answerOf(op).Ticket, OutcomeAcked)
	p.borrow(p.now)
	p.unlock(p.ref)
	p.expectWaiting(next)
}

// A loan that is not given back leaves the term unsettled: the next section synchronises.
func TestALoanThatIsNotGivenBack(t *testing.T) {
	p := lent(t)
	loan := p.borrow(p.now)
	next := p.lock(Request{Wait: time.Minute})
	p.unlock(p.ref)
	p.advance(p.opts.OpTimeout)
	p.expectWaiting(next)
	_, c := commandOf[Synch](p.harness)
	require.GreaterOrEqual(t, c.Fence, loan.Stamp+loan.Lent.Stamps, "above every stamp that was lent")
	require.Equal(t, VerdictUncertain, p.end(loan, OutcomeAcked))
}

// Success is told for as long as was lent, counted from before the lender was asked; then the lender
// is asked, whose verdict counts.
func TestALoanIsToldInItsTime(t *testing.T) {
	p := lent(t)
	loan := p.borrow(p.now)
	require.Less(t, loan.Lent.Valid, p.opts.OpTimeout*4/5)
	inTime, late := p.borrowed(Put), p.borrowed(Get)
	p.borrower.advanceUnticked(loan.Lent.Valid - time.Millisecond)
	require.Equal(t, VerdictTell, p.borrower.end(inTime, OutcomeAcked))
	p.borrower.advanceUnticked(time.Millisecond)
	v, fx := p.borrower.core.End(p.borrower.time(), late, OutcomeAcked)
	require.Equal(t, VerdictPending, v)
	require.Len(t, fx.Returns, 1)
	p.borrower.collect(p.borrower.core.Returned(p.borrower.time(), fx.Returns[0].Loan, VerdictTell))
	require.Equal(t, VerdictTell, p.borrower.answerOf(late.Op).Verdict)
}

// A grant that was waited for leaves less of the lent time.
func TestALoanCountsFromTheQuestion(t *testing.T) {
	p := lent(t)
	p.borrow(p.now - 5*time.Second)
	require.False(t, p.borrowed(Put).OK())
}

// What is lent is over before the session of the lender can be.
func TestALoanEndsWithTheSession(t *testing.T) {
	p := lent(t)
	p.now += p.opts.SessionLease - time.Second
	tk := p.lend()
	require.Less(t, tk.Lent.Valid, time.Second)
	require.Positive(t, tk.Lent.Valid)
}

// A client is told that an outcome is unknown when the lender knows: it may go on at another proxy.
func TestAnUnknownPutUnderALoan(t *testing.T) {
	p := lent(t)
	p.borrow(p.now)
	unknown, other := p.borrowed(Put), p.borrowed(Put)
	v, fx := p.borrower.core.End(p.borrower.time(), unknown, OutcomeUnknown)
	require.Equal(t, VerdictPending, v)
	require.Empty(t, fx.Returns, "another operation is under way")
	v, fx = p.borrower.core.End(p.borrower.time(), other, OutcomeAcked)
	require.Equal(t, VerdictPending, v)
	require.Equal(t, OutcomeUnknown, fx.Returns[0].Outcome)
	p.borrower.collect(p.borrower.core.Returned(p.borrower.time(), fx.Returns[0].Loan, VerdictUncertain))
	for _, op := range []OpID{unknown.Op, other.Op} {
		assert.Equal(t, VerdictUncertain, p.borrower.answerOf(op).Verdict)
	}
}

// What changes a table ends what is lent of it, also what is under way.
func TestALoanEndsWithWhatIsKnownOfTheTable(t *testing.T) {
	for name, change := range map[string]func(*Core, Now, [16]byte) Effects{
		"closed":  func(c *Core, now Now, table [16]byte) Effects { return c.Closed(now, table, 1) },
		"altered": func(c *Core, now Now, table [16]byte) Effects { return c.Altered(now, table, 0) },
		"strict":  func(c *Core, now Now, table [16]byte) Effects { return c.ModeChanging(now, table) },
		"dropped": (*Core).Dropped,
	} {
		t.Run(name, func(t *testing.T) {
			p := lent(t)
			p.borrow(p.now)
			put := p.borrowed(Put)
			sent := p.borrower.now
			p.borrower.now += time.Millisecond
			p.borrower.collect(change(p.borrower.core, p.borrower.time(), p.table))
			require.False(t, p.borrowed(Put).OK())
			v, fx := p.borrower.core.End(p.borrower.time(), put, OutcomeAcked)
			require.Equal(t, VerdictPending, v, "the lender decides")
			require.Len(t, fx.Returns, 1)
			p.end(fx.Returns[0].Ticket, OutcomeAcked)
			p.borrow(sent)
			require.False(t, p.borrowed(Put).OK(), "it was lent before")
		})
	}
}

// A borrower may hear of a change before its lender, and borrow then. So the lender has not followed the
// change before what it lent without knowing of it is back; what it lends after that does not count.
func TestAProxyHasNotFollowedWhileSomethingIsLent(t *testing.T) {
	for name, change := range map[string]func(*Core, Now, [16]byte) Effects{
		"closed":     func(c *Core, now Now, table [16]byte) Effects { return c.Closed(now, table, 1) },
		"altered":    func(c *Core, now Now, table [16]byte) Effects { return c.Altered(now, table, 0) },
		"strict":     func(c *Core, now Now, table [16]byte) Effects { return c.ModeChanging(now, table) },
		"dropped":    (*Core).Dropped,
		"generation": func(c *Core, now Now, table [16]byte) Effects { return c.FirstReference(now, table, 1000) },
	} {
		t.Run(name, func(t *testing.T) {
			p := lent(t)
			loan := p.borrow(p.now)
			require.False(t, p.core.LentBefore(p.time()))
			fx := change(p.core, p.time(), p.table)
			p.collect(fx)
			require.Contains(t, fx.Hints, Hint{Key: p.key(), To: session(2), Kind: HintRecall, Last: p.ref})
			require.True(t, p.core.LentBefore(p.time()))
			p.end(loan, OutcomeAcked)
			require.False(t, p.core.LentBefore(p.time()))
			require.False(t, p.core.HasLoansOut(p.time()))
		})
	}
}

// A loan that is given back too late says nothing of the next one of the term.
func TestALateReturnIsOfItsLoan(t *testing.T) {
	p := lent(t)
	late := p.borrow(p.now)
	p.runFor(p.store, p.opts.OpTimeout)
	op := p.op()
	_, fx := p.core.Lend(p.time(), op, LoanRequest{Key: p.key(), Ref: p.ref, Kind: Put, To: session(2)})
	p.collect(fx)
	p.runFor(p.store, 100*time.Millisecond) // the term is settled before
	require.Equal(t, late.Term, p.answerOf(op).Ticket.Term)
	p.collect(p.core.Altered(p.time(), p.table, 0))
	p.end(late, OutcomeAcked)
	require.True(t, p.core.LentBefore(p.time()))
}

// A lender does not wait for longer than the operation timeout, whatever becomes of the borrower.
func TestAChangeWaitsForALoanNoLongerThanItLasts(t *testing.T) {
	p := lent(t)
	p.borrow(p.now)
	p.collect(p.core.Dropped(p.time(), p.table))
	p.now += p.opts.OpTimeout - time.Millisecond
	require.True(t, p.core.LentBefore(p.time()))
	p.now += time.Millisecond
	require.False(t, p.core.LentBefore(p.time()))
}

// A session that has ended by itself is not dead at once for its own process while something that it
// has lent may be in use.
func TestRejoinWhileSomethingIsLent(t *testing.T) {
	p := lent(t)
	p.borrow(p.now)
	require.True(t, p.core.HasLoansOut(p.time()))
	p.collect(p.core.Rejoin(p.time(), NewSession(session(3), p.opts)))
	require.False(t, p.core.dead(session(1)))
	p.now += p.opts.OpTimeout
	require.False(t, p.core.HasLoansOut(p.time()))
}

// A lock whose client was at a proxy that is dead is not waited for longer than that of a dead session.
func TestTheProxyOfAHolderIsDead(t *testing.T) {
	p := lent(t)
	loan := p.borrow(p.now)
	p.end(loan, OutcomeAcked)
	next := p.lock(Request{Wait: time.Minute})
	p.runFor(p.store, p.opts.DeadAfter(0)+p.opts.Grace+3*time.Second)
	require.True(t, p.expectState(next, StateHeld).OwnerDied)
}

// A LOCK of another proxy finds a place where references are handed out, and nowhere else.
func TestAPlaceForAnotherProxy(t *testing.T) {
	p := lent(t)
	there := p.lock(Request{Place: PlaceBlock, Wait: time.Minute})
	p.expectWaiting(there)
	p.unlock(p.ref)
	require.Equal(t, p.ref+1, p.expectState(there, StateHeld).Ref)
	p.advance(farRetain*p.opts.Retain + time.Millisecond)
	p.expectError(p.lock(Request{Place: PlaceBlock}), ErrNoBlock)
	idle := newHarness(t)
	idle.expectError(idle.lock(Request{Place: PlaceBlock}), ErrNoBlock)
}

// Operations of a strict table are checked one by one, and a term that is not clean must be
// synchronised before a get: neither is lent.
func TestWhatIsNotLent(t *testing.T) {
	strict, _ := heldStrict(t)
	unclean, _ := newKeyHeld(t)
	for _, h := range []*harness{strict, unclean} {
		op := h.op()
		tk, fx := h.core.Lend(h.time(), op, LoanRequest{Key: h.key(), Ref: 1, Kind: BlindPut, To: session(2)})
		h.collect(fx)
		if !tk.OK() {
			id, _ := commandOf[ReadStamps](h)
			h.reply(id, Result{Status: StatusDone})
			tk = h.answerOf(op).Ticket
		}
		require.True(t, tk.OK())
		require.Nil(t, tk.Lent)
	}
}

// While a put is in flight nothing is lent: its outcome may be unknown, and what begins under a loan does
// not wait for a Synch.
func TestNothingIsLentBesideAPut(t *testing.T) {
	p := lent(t)
	put, _ := p.begin(p.ref, Put)
	require.True(t, put.OK())
	alone := p.lend()
	require.True(t, alone.OK())
	require.Nil(t, alone.Lent)
	p.end(put, OutcomeUnknown)
	p.end(alone, OutcomeAcked)
	op := p.op()
	tk, fx := p.core.Lend(p.time(), op, LoanRequest{Key: p.key(), Ref: p.ref, Kind: Get, To: p.borrower.session.ID()})
	p.collect(fx)
	require.False(t, tk.OK(), "it waits for a Synch")
}

// Under a loan, too, what the last put wrote is known to the gets that follow.
func TestKnownPutUnderALoan(t *testing.T) {
	p := lent(t)
	p.borrow(p.now)
	known := func() any {
		tk := p.borrowed(Get)
		p.borrower.end(tk, OutcomeAcked)
		return tk.Known
	}
	assert.Nil(t, known(), "nothing was put")
	put := p.borrowed(Put)
	put.Known = "a"
	require.Equal(t, VerdictTell, p.borrower.end(put, OutcomeAcked))
	assert.Equal(t, "a", known())
	inFlight := p.borrowed(Put)
	assert.Nil(t, known(), "a later put")
	inFlight.Known = "b"
	require.Equal(t, VerdictTell, p.borrower.end(inFlight, OutcomeRefused))
	assert.Nil(t, known(), "of which nothing is known")
}

// I2: a proxy that has forgotten a key does not release its head while a borrower may go on with it.
func TestWhatIsLentIsNotReaped(t *testing.T) {
	p := lent(t)
	p.borrow(p.now)
	head := p.store.row.Head
	p.collect(p.core.Dropped(p.time(), p.key().Table))
	visit := func() LockRef {
		for range 5 {
			p.lock(Request{NoWait: true})
			p.store.answerAll()
			p.advance(100 * time.Millisecond)
			p.store.answerAll()
		}
		return p.store.row.Head
	}
	require.Equal(t, head, visit(), "released while it is lent")
	p.advance(p.opts.OpTimeout)
	require.Greater(t, visit(), head)
}

// Who waits behind what was forgotten while it was lent is served as soon as the loan is over.
func TestWhatWasLentIsReapedInTime(t *testing.T) {
	p := lent(t)
	p.borrow(p.now)
	p.collect(p.core.Dropped(p.time(), p.key().Table))
	next := p.lock(Request{Wait: time.Minute})
	p.runFor(p.store, p.opts.OpTimeout+2*time.Second)
	p.expectState(next, StateHeld)
}
