package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// storeTime reads the clocks, and the store's, which is ahead by as long as the own ones stood still.
func storeTime(h *harness, ahead time.Duration) Now {
	n := h.time()
	n.Store = n.Wall + Stamp(ahead.Microseconds())
	return n
}

// Clocks that stood still between the question and the arrival of the loan, and were found to.
func TestALoanThatWasAskedForBeforeClocksStoodStill(t *testing.T) {
	p := lent(t)
	b := p.borrower
	n, _ := b.session.Beat(storeTime(b, 0))
	b.session.Acked(storeTime(b, 0), storeTime(b, 0), n)
	sent := b.time()
	loan := p.lend() // lent at once …
	// … but the borrower's machine stops for six seconds with the answer on its way; the lender's goes on.
	const frozen = 6 * time.Second
	p.runFor(p.store, frozen)
	b.now += time.Millisecond
	require.NoError(t, b.session.Saw(storeTime(b, frozen), b.session.Look(b.time()), n)) // the look finds that out
	require.EqualValues(t, 1, b.session.stood.Load())
	b.collect(b.core.Borrow(b.time(), sent, loan))
	tk := p.borrowed(Put)
	if tk.OK() {
		v := b.end(tk, OutcomeAcked)
		t.Logf("told %v; the lender has the loan still: %v, unsettled %v", v, !p.term().ops.flight.over(loan.Number), p.term().unsettled)
		require.NotEqual(t, VerdictTell, v, "the lender has given the loan up")
	}
}

// A lender whose clocks were found to have stood still asks for what it has lent: by them its session was valid for longer
// than by others'.
func TestALenderWhoseClocksStoodStillAsksForItsLoans(t *testing.T) {
	p := lent(t)
	n, _ := p.session.Beat(storeTime(p.harness, 0))
	p.session.Acked(storeTime(p.harness, 0), storeTime(p.harness, 0), n)
	loan := p.borrow(p.now)
	p.now += time.Millisecond
	require.NoError(t, p.session.Saw(storeTime(p.harness, 6*time.Second), p.session.Look(p.time()), n))
	p.collect(p.core.Tick(p.time()))
	p.expectHints(Hint{To: session(2), Kind: HintRecall, Last: p.ref})
	p.collect(p.core.Tick(p.time()))
	p.expectHints()
	require.Equal(t, VerdictTell, p.end(loan, OutcomeAcked))
}

// The same, and the look ended the session: the next session of the process uses a loan that the one before asked for.
func TestALoanThatTheSessionBeforeAskedFor(t *testing.T) {
	p := lent(t)
	b := p.borrower
	n, _ := b.session.Beat(storeTime(b, 0))
	b.session.Acked(storeTime(b, 0), storeTime(b, 0), n)
	sent := b.time()
	loan := p.lend()
	const frozen = 20 * time.Second
	p.runFor(p.store, frozen)
	b.now += time.Millisecond
	require.NoError(t, b.session.Saw(storeTime(b, frozen), b.session.Look(b.time()), n))
	require.True(t, b.session.Dead())
	b.session = NewSession(session(4), b.opts)
	b.collect(b.core.Rejoin(b.time(), b.session))
	b.beat()
	b.collect(b.core.Borrow(b.time(), sent, loan))
	if tk := p.borrowed(Put); tk.OK() {
		require.NotEqual(t, VerdictTell, b.end(tk, OutcomeAcked), "the lender has given the loan up %v ago", frozen-p.opts.OpTimeout)
	}
}

// A get in flight at the lender when it lends a run is told after the lock was passed on.
func TestAGetInFlightIsToldBeforeARun(t *testing.T) {
	p := &runOut{pair: lent(t)}
	token := [16]byte{1}
	p.there[0] = p.lock(Request{Place: PlaceBlock, Via: session(2), Token: token, Wait: time.Minute})
	p.here[0] = p.borrower.op()
	p.borrower.core.AddRemoteWait(p.here[0], p.key(), token)
	get, _ := p.begin(2, Get) // its page is on the way, through the lender
	require.True(t, get.OK())
	p.borrow(p.now)
	p.section(2)
	_, passed := p.unlockHere(2)
	if !passed {
		return
	}
	p.borrower.expectState(p.here[0], StateHeld)
	p.section(3) // the next holder writes, in the middle of its section
	require.NotEqual(t, VerdictTell, p.end(get, OutcomeAcked), "E2: reference 2 is told a get after 3 was granted, with what 3 wrote")
}

// LOCK at the lender under the reference that the run began with, after it was unlocked at the borrower.
func TestWhoWasReleasedInARunIsNotToldHeld(t *testing.T) {
	for _, how := range []string{"USING LOCK", "token"} {
		t.Run(how, func(t *testing.T) {
			p := &runOut{pair: lent(t)}
			// the holder's LOCK had a token: begin with the next reference, so that it has one
			mine := [16]byte{42}
			op := p.lock(Request{Place: PlaceBlock, Via: session(2), Token: mine, Wait: time.Minute})
			p.unlock(2)
			require.Equal(t, LockRef(3), p.expectState(op, StateHeld).Ref)
			p.ref = 3
			token := [16]byte{1}
			p.there[0] = p.lock(Request{Place: PlaceBlock, Via: session(2), Token: token, Wait: time.Minute})
			p.here[0] = p.borrower.op()
			p.borrower.core.AddRemoteWait(p.here[0], p.key(), token)
			p.borrow(p.now)
			_, passed := p.unlockHere(3)
			require.True(t, passed, "the client is told RELEASED")
			require.Equal(t, LockRef(4), p.borrower.expectState(p.here[0], StateHeld).Ref)
			q := Request{Ref: 3, NoWait: true}
			if how == "token" {
				q = Request{Place: PlaceBlock, Via: session(2), Token: mine, Wait: time.Minute}
			}
			again := p.lock(q)
			if a, ok := p.answers[again]; ok {
				require.NotEqual(t, StateHeld, a.Grant.State, "3 was told RELEASED, and 4 HELD: %+v", a.Grant)
			}
		})
	}
}

// The lender's session ends before its lease is over: a reference of a run is told to be lost, and then success.
func TestARunIsNotLostWithItsLendersSession(t *testing.T) {
	p := lentRun(t)
	_, passed := p.unlockHere(2)
	require.True(t, passed)
	p.borrower.expectState(p.here[0], StateHeld)
	state := p.lock(Request{Ref: 3, NoWait: true}) // its client asks the lender, too
	p.expectWaiting(state)
	p.ref = 3
	put := p.borrowed(Put)
	p.session.End() // Session.Saw: the row is not that of this process
	p.collect(p.core.Tick(p.time()))
	a := p.answerOf(state)
	t.Logf("%+v", a)
	v := p.borrower.end(put, OutcomeAcked)
	assert.Equal(t, VerdictTell, v)
	require.NotEqual(t, StateLost, a.Grant.State, "E9: reference 3 was told to be lost, and then an outcome is told")
}

// An operation that waits when another one gets a loan: the loan is not asked for.
func TestALoanIsAskedForByWhoStillWaits(t *testing.T) {
	p := lent(t)
	loan := p.borrow(p.now)
	first := p.op() // a second one of the borrower's client
	_, fx := p.core.Lend(p.time(), first, LoanRequest{Key: p.key(), Ref: 2, Kind: Get, To: session(2)})
	p.collect(fx)
	_, second := p.begin(2, Get) // and one through the lender
	p.hints = nil
	p.end(loan, OutcomeAcked)
	require.NotNil(t, p.answerOf(first).Ticket.Lent)
	p.expectWaiting(second)
	require.NotEmpty(t, p.hints, "nobody asks for the loan that the second one waits for")
}

// A lender that shuts down tells QUEUED to a client that was told HELD.
func TestWhoWasPassedTheLockIsNotToldQueued(t *testing.T) {
	p := lentRun(t)
	_, passed := p.unlockHere(2)
	require.True(t, passed)
	p.borrower.expectState(p.here[0], StateHeld)
	p.collect(p.core.Drain(p.time()))
	state := p.lock(Request{Ref: 3, NoWait: true})
	if a, ok := p.answers[state]; ok {
		require.NotEqual(t, StateQueued, a.Grant.State, "it has been told HELD: %+v", a.Grant)
	}
}
