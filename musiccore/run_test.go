package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// runOut is a pair of which the lender has lent a run: behind the holder two clients of the borrower wait,
// and before them one of the lender's that came earlier.
type runOut struct {
	*pair
	own   OpID    // the lender's own waiter
	there [2]OpID // the LOCKs of the two at the lender
	here  [2]OpID // … and at the borrower
}

// lentRun returns a run whose loan was just taken.
func lentRun(t *testing.T) *runOut {
	t.Helper()
	p := &runOut{pair: lent(t)}
	p.own = p.lock(Request{Wait: time.Minute})
	for i := range p.there {
		token := [16]byte{byte(i + 1)}
		p.there[i] = p.lock(Request{Place: PlaceBlock, Via: session(2), Token: token, Wait: time.Minute})
		p.here[i] = p.borrower.op()
		p.borrower.core.AddRemoteWait(p.here[i], p.key(), token)
	}
	p.borrow(p.now)
	return p
}

// unlockHere unlocks a reference at the borrower, and reports whether it has passed the lock on; if not, back
// is the loan.
func (p *runOut) unlockHere(r LockRef) (back Return, passed bool) {
	back, passed, fx := p.borrower.core.GiveBack(p.borrower.time(), p.key(), r)
	p.borrower.collect(fx)
	return back, passed
}

// calledBack has the borrower hear that the lender wants the loan of a reference back.
func (p *runOut) calledBack(r LockRef) Effects {
	fx := p.borrower.core.Hear(p.borrower.time(), Hint{Key: p.key(), To: session(2), Kind: HintRecall, Last: r})
	p.borrower.collect(fx)
	return fx
}

// section does a put under a reference at the borrower, and returns its stamp.
func (p *runOut) section(r LockRef) Stamp {
	p.t.Helper()
	p.ref = r
	tk := p.borrowed(Put)
	require.True(p.t, tk.OK())
	require.Equal(p.t, r, tk.Ref)
	require.Equal(p.t, VerdictTell, p.borrower.end(tk, OutcomeAcked))
	return tk.Stamp
}

// The lock goes through a run without its lender, which hears of it at the end: the references are
// granted in their order, each put has a higher stamp than those before, and the lender's own client
// is next.
func TestARunIsPassedOn(t *testing.T) {
	p := lentRun(t)
	last := p.section(2)
	for i, op := range p.here {
		_, passed := p.unlockHere(LockRef(i + 2))
		require.True(t, passed)
		require.Equal(t, LockRef(i+3), p.borrower.expectState(op, StateHeld).Ref)
		require.False(t, p.borrowed(Put).OK(), "the reference before is over")
		stamp := p.section(LockRef(i + 3))
		require.Greater(t, stamp, last)
		last = stamp
	}
	back, passed := p.unlockHere(4)
	require.False(t, passed)
	require.Equal(t, LockRef(4), back.Ticket.Lent.Passed)
	p.end(back.Ticket, back.Outcome)
	p.expectState(p.there[0], StateReleased)
	require.Equal(t, LockRef(4), p.expectState(p.there[1], StateHeld).Ref)
	p.expectWaiting(p.own)
	p.unlock(4)
	require.Equal(t, LockRef(5), p.expectState(p.own, StateHeld).Ref)
	tk, _ := p.begin(5, Put)
	require.Greater(t, tk.Stamp, last)
}

// The notes of a run, which the metrics of held locks and the audit rest on: each reference of the block was
// held from its grant to its end.
func TestARunIsNoted(t *testing.T) {
	p := lentRun(t)
	p.notes = nil
	for _, r := range []LockRef{2, 3} {
		p.advance(100 * time.Millisecond)
		p.borrower.now = p.now
		_, passed := p.unlockHere(r)
		require.True(t, passed)
	}
	p.advance(100 * time.Millisecond)
	back, _ := p.unlockHere(4)
	p.end(back.Ticket, back.Outcome)
	p.advance(100 * time.Millisecond)
	p.unlock(4)
	held := map[LockRef]time.Duration{}
	for _, n := range p.notes {
		if n.Kind == NoteEnded {
			held[n.Ref] = n.Duration
			require.True(t, n.InBlock, "%+v", n)
		}
	}
	require.Equal(t, map[LockRef]time.Duration{2: 300 * time.Millisecond, 3: 0, 4: 100 * time.Millisecond}, held)
}

// A loan that is given back in the middle of a run tells who has the lock; the rest of the run waits.
func TestARunIsGivenBackInTheMiddle(t *testing.T) {
	p := lentRun(t)
	_, passed := p.unlockHere(2)
	require.True(t, passed)
	p.advance(loanLasts)
	p.borrower.now = p.now
	fx := p.borrower.core.Tick(p.borrower.time())
	require.Len(t, fx.Returns, 1)
	p.end(fx.Returns[0].Ticket, OutcomeAcked)
	require.Equal(t, LockRef(3), p.expectState(p.there[0], StateHeld).Ref)
	p.expectWaiting(p.there[1])
	_, op := p.begin(2, Put)
	p.expectError(op, ErrReleased)
	tk, _ := p.begin(3, Put)
	require.True(t, tk.OK())
}

// Which reference of a run had the lock, and which were released, is not known if its loan is not given
// back: all of them have ended.
func TestARunThatIsNotGivenBack(t *testing.T) {
	p := lentRun(t)
	_, passed := p.unlockHere(2)
	require.True(t, passed)
	p.runFor(p.store, p.opts.OpTimeout+time.Second)
	for _, op := range p.there {
		p.expectState(op, StateLost)
	}
	require.Equal(t, LockRef(5), p.expectState(p.own, StateHeld).Ref)
	for r := LockRef(2); r < 5; r++ {
		_, op := p.begin(r, Put)
		p.expectError(op, ErrLost)
	}
}

// While a run is out, an operation under one of its references waits at the lender until it is known who
// has the lock.
func TestAnOperationAtTheLenderDuringARun(t *testing.T) {
	p := lentRun(t)
	_, passed := p.unlockHere(2)
	require.True(t, passed)
	_, op := p.begin(3, Get)
	state := p.lock(Request{Ref: 3, NoWait: true})
	p.expectWaiting(op)
	p.expectWaiting(state)
	back, _ := p.unlockHere(0)
	require.False(t, back.Ticket.OK())
	require.Empty(t, p.calledBack(2).Returns)
	fx := p.calledBack(3)
	require.Len(t, fx.Returns, 1, "a loan is called back by the reference that has the lock")
	p.end(fx.Returns[0].Ticket, OutcomeAcked)
	require.True(t, p.answerOf(op).Ticket.OK())
	p.expectState(state, StateHeld)
}

// An UNLOCK that comes to the lender is answered when what was done under the loan is known.
func TestAnUnlockAtTheLenderDuringARun(t *testing.T) {
	p := lentRun(t)
	_, passed := p.unlockHere(2)
	require.True(t, passed)
	op := p.unlock(3)
	p.runFor(p.store, 10*time.Millisecond)
	p.expectWaiting(op)
	p.end(p.calledBack(3).Returns[0].Ticket, OutcomeAcked)
	p.runFor(p.store, 100*time.Millisecond)
	p.expectState(op, StateReleased)
	p.expectState(p.there[1], StateHeld)
}

// FORCE during a run ends who has the lock by then, not the one with whom the run began.
func TestForceDuringARun(t *testing.T) {
	p := lentRun(t)
	_, passed := p.unlockHere(2)
	require.True(t, passed)
	op := p.force()
	p.runFor(p.store, 10*time.Millisecond)
	p.expectWaiting(op)
	p.end(p.calledBack(3).Returns[0].Ticket, OutcomeAcked)
	p.expectState(p.there[0], StateHeld)
	p.runFor(p.store, 100*time.Millisecond)
	g := p.expectState(op, StateReleased)
	require.True(t, g.Applied)
	require.Equal(t, LockRef(3), g.Ref)
	p.expectForced(3)
	_, op = p.begin(2, Put)
	p.expectError(op, ErrReleased)
	_, op = p.begin(3, Put)
	p.expectError(op, ErrLost)
	p.expectState(p.there[1], StateHeld)
}

// An operation that waits for a run and is cancelled, or has waited too long, gets no ticket: nobody would
// end it.
func TestAnOperationIsCancelledDuringARun(t *testing.T) {
	p := lentRun(t)
	_, passed := p.unlockHere(2)
	require.True(t, passed)
	_, op := p.begin(3, Put)
	p.collect(p.core.ClientGone(p.time(), op))
	p.end(p.calledBack(3).Returns[0].Ticket, OutcomeAcked)
	p.expectWaiting(op)
	require.Zero(t, p.term().ops.flight.ops)
}

// A client that was told HELD keeps its lock whatever becomes of its LOCK at the lender, and while that
// settles an unknown put.
func TestWhoWasPassedTheLockHasIt(t *testing.T) {
	for _, what := range []string{"its LOCK was cancelled", "begins", "renews"} {
		t.Run(what, func(t *testing.T) {
			p := lentRun(t)
			_, passed := p.unlockHere(2)
			require.True(t, passed)
			p.ref = 3
			put := p.borrowed(Put)
			if what == "its LOCK was cancelled" {
				p.collect(p.core.ClientGone(p.time(), p.there[0]))
			}
			_, fx := p.borrower.core.End(p.borrower.time(), put, OutcomeUnknown)
			p.end(fx.Returns[0].Ticket, fx.Returns[0].Outcome)
			if what == "renews" {
				op := p.lock(Request{Ref: 3, NoWait: true})
				p.runFor(p.store, 100*time.Millisecond)
				p.expectState(op, StateHeld)
				return
			}
			_, op := p.begin(3, Get)
			p.runFor(p.store, 100*time.Millisecond)
			require.NoError(t, p.answerOf(op).Err)
		})
	}
}

// A borrower that shuts down gives back what it has borrowed, and is not quiet before; it borrows nothing
// any more.
func TestABorrowerShutsDown(t *testing.T) {
	p := lentRun(t)
	_, passed := p.unlockHere(2)
	require.True(t, passed)
	fx := p.borrower.core.Drain(p.borrower.time())
	require.Len(t, fx.Returns, 1)
	require.False(t, p.borrower.core.Quiet())
	p.end(fx.Returns[0].Ticket, OutcomeAcked)
	p.borrower.collect(p.borrower.core.Returned(p.borrower.time(), fx.Returns[0].Loan, VerdictTell))
	require.True(t, p.borrower.core.Quiet())
	require.Equal(t, StateHeld, p.expectState(p.there[0], StateHeld).State)
	require.Zero(t, p.borrower.core.Borrower(p.borrower.time()))
	p.ref = 3
	fx = p.borrower.core.Borrow(p.borrower.time(), p.borrower.time(), p.lend())
	require.Len(t, fx.Returns, 1)
}

// The borrower passes nothing on unless all that was done is known to be done, the loan may be used, and
// somebody waits for it.
func TestWhatIsNotPassedOn(t *testing.T) {
	for name, spoil := range map[string]func(p *runOut){
		"a put is in flight": func(p *runOut) { p.borrowed(Put) },
		"the outcome of a put is unknown": func(p *runOut) {
			p.borrower.collect(second(p.borrower.core.End(p.borrower.time(), p.borrowed(Put), OutcomeUnknown)))
		},
		"operations no longer begin": func(p *runOut) { p.borrower.now += loanLasts },
		"the lent time is over":      func(p *runOut) { p.borrower.now += p.opts.OpTimeout },
		"no stamps are left": func(p *runOut) {
			for range loanStamps {
				p.section(2)
			}
		},
		"the client is gone": func(p *runOut) { p.borrower.core.RemoveRemoteWait(p.here[0], p.key(), [16]byte{1}) },
		"the loan was called back": func(p *runOut) {
			p.calledBack(2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := lentRun(t)
			spoil(p)
			_, passed := p.unlockHere(2)
			assert.False(t, passed)
			p.borrower.expectWaiting(p.here[0])
		})
	}
}

// second returns the effects of two results.
func second[T any](_ T, fx Effects) Effects { return fx }

// Those who came earlier are overtaken by the clients of one run, who bring nobody along.
func TestARunOvertakesOnce(t *testing.T) {
	p := lentRun(t)
	p.lock(Request{Place: PlaceBlock, Via: session(2), Token: [16]byte{9}, Wait: time.Minute})
	_, passed := p.unlockHere(2)
	require.True(t, passed)
	fx := p.calledBack(3)
	p.end(fx.Returns[0].Ticket, OutcomeAcked)
	p.ref = 3
	tk := p.lend()
	require.Len(t, tk.Lent.Run, 1)
	require.Equal(t, LockRef(4), tk.Lent.Run[0].Ref)
}

// No reference of a run survives the session before it is known which have ended.
func TestNothingOfARunIsMadePlain(t *testing.T) {
	p := lentRun(t)
	p.runFor(p.store, 4*farRetain*p.opts.Retain)
	require.False(t, p.term().block.plain)
	p.collect(p.core.Drain(p.time()))
	p.runFor(p.store, 100*time.Millisecond)
	require.False(t, p.term().block.plain)
	require.Zero(t, p.store.row.Owner)
}

// unsettledRun returns a run whose loan came back with the lock at reference 3, whose put has an unknown outcome: the
// lender has to settle it before it grants that reference. before is done while the loan is out.
func unsettledRun(t *testing.T, before func(*runOut)) *runOut {
	t.Helper()
	p := lentRun(t)
	_, passed := p.unlockHere(2)
	require.True(t, passed)
	p.ref = 3
	put := p.borrowed(Put)
	before(p)
	_, fx := p.borrower.core.End(p.borrower.time(), put, OutcomeUnknown)
	require.Len(t, fx.Returns, 1)
	p.end(fx.Returns[0].Ticket, fx.Returns[0].Outcome)
	return p
}

// A client was told at the borrower that it holds. It keeps the lock if the borrower no longer waits for what it
// had asked the lender.
func TestWhoWasPassedTheLockKeepsItWithoutItsQuestion(t *testing.T) {
	p := unsettledRun(t, func(*runOut) {})
	p.expectWaiting(p.there[0])
	p.collect(p.core.ClientGone(p.time(), p.there[0]))
	_, op := p.begin(3, Get)
	p.runFor(p.store, 100*time.Millisecond)
	require.True(t, p.answerOf(op).Ticket.OK())
}

// A LOCK of such a client at the lender is answered in its time, and the lock stays for its lease.
func TestWhoWasPassedTheLockIsAnsweredInTime(t *testing.T) {
	var op OpID
	p := unsettledRun(t, func(p *runOut) { op = p.lock(Request{Ref: 3, Wait: time.Second}) })
	p.expectWaiting(op)
	p.advance(time.Second)
	p.answerOf(op)
	p.advance(p.opts.QueuedLease + time.Second) // nothing can be settled so long
	_, get := p.begin(3, Get)
	p.runFor(p.store, 100*time.Millisecond)
	require.True(t, p.answerOf(get).Ticket.OK())
}
