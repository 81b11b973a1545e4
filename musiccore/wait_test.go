package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// LOCK is answered in time even if the outcome of its LWT is unknown; a LOCK with the same token
// finds the reference later.
func TestLockIsAnsweredInTimeThoughItsLWTIsUndecided(t *testing.T) {
	h, op, id, _ := enqueueUnderWay(t, nil)
	h.advance(1500*time.Millisecond - 1)
	h.expectWaiting(op)
	h.advance(1)
	g := h.expectState(op, StateQueued)
	require.Zero(t, g.Ref, "lock_ref is null")
	require.False(t, g.Applied, "lock_ref is null: %+v", g)
	h.reply(id, Result{Status: StatusDone})
	h.advance(h.opts.QueuedLease - time.Second)
	again := h.lock(Request{Token: [16]byte{1}, Lease: time.Minute})
	g = h.expectState(again, StateHeld)
	require.EqualValues(t, 1, g.Ref, "the same TOKEN finds it")
	require.Equal(t, time.Minute, g.Lease, "the same TOKEN finds it")
}

// Without a token no client can ask for such a reference again, so it is abandoned.
func TestUndecidedWithoutATokenLeavesNothingBehind(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone})
	id, _ = commandOf[Apply](h)
	h.advance(1500 * time.Millisecond)
	h.expectState(op, StateQueued)
	h.reply(id, Result{Status: StatusDone})
	_, a := commandOf[Apply](h)
	require.EqualValues(t, 2, a.Swap.Set.Row.Head, "nobody can name it: released at once")
}

// A reference whose client was not told it is kept for Options.QueuedLease.
func TestUntoldReferenceIsHeldTenSeconds(t *testing.T) {
	h, _, id, _ := enqueueUnderWay(t, nil)
	h.advance(2 * time.Second)
	h.reply(id, Result{Status: StatusDone})
	h.advance(h.opts.QueuedLease - time.Millisecond)
	h.expectNoCommand()
	h.advance(time.Millisecond)
	commandOf[Apply](h)
}

// So is a reference that was granted after its client was told QUEUED.
func TestLateGrantIsHeldTenSeconds(t *testing.T) {
	h, s := newHolder(t)
	op := h.lock(Request{})
	s.answerAll()
	h.advance(1500 * time.Millisecond)
	h.expectState(op, StateQueued)
	h.unlock(1)
	s.answerAll()
	h.advance(9 * time.Second)
	op = h.lock(Request{Ref: 2})
	g := h.expectState(op, StateHeld)
	require.Equal(t, h.opts.ClientLease, g.Lease, "told now, so its lease counts")
}

// A queued reference is abandoned after Options.QueuedLease without a word of its client.
func TestQueuedIsKeptTenSecondsOfSilence(t *testing.T) {
	h, s := newHolder(t)
	tk, _ := h.begin(1, Get)
	h.end(tk, OutcomeAcked)
	h.lock(Request{})
	s.answerAll()
	for range 3 {
		h.advance(10 * time.Second)
		h.begin(1, Get)
		op := h.lock(Request{Ref: 2})
		h.expectWaiting(op)
	}
	h.advance(1500*time.Millisecond + h.opts.QueuedLease)
	s.answerAll()
	h.unlock(1)
	s.answerAll()
	require.EqualValues(t, 3, s.row.Head, "silent for 10 s, and still there")
	op := h.lock(Request{Ref: 2})
	s.answerAll()
	h.expectState(op, StateLost)
}

// LOCK waits for as long as its WAIT says.
func TestWaitIsHonoured(t *testing.T) {
	h, s := newHolder(t)
	op := h.lock(Request{Wait: 5 * time.Second})
	s.answerAll()
	h.advance(5*time.Second - 1)
	h.expectWaiting(op)
	h.advance(1)
	h.expectState(op, StateQueued)
}

// With WAIT 0s, LOCK is answered at once: with the lock if nobody is ahead, else with the
// reference.
func TestWaitZero(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	first := h.lock(Request{AtOnce: true})
	s.answerAll()
	h.expectState(first, StateHeld)
	second, third := h.lock(Request{AtOnce: true}), h.lock(Request{AtOnce: true})
	s.answerAll()
	h.expectQueued(second, 2, 1)
	h.expectQueued(third, 3, 2)
	h.expectState(h.lock(Request{AtOnce: true, Ref: 3}), StateQueued)
	h.unlock(1)
	h.unlock(2)
	h.unlock(3)
	next := h.lock(Request{AtOnce: true})
	s.answerAll()
	require.EqualValues(t, 4, h.expectState(next, StateHeld).Ref, "what was given back is not waited for")
}

// BUSY and QUEUED say who holds.
func TestBusyTellsTheHolder(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	op := h.lock(Request{Owner: "anna"})
	s.answerAll()
	h.expectState(op, StateHeld)
	g := h.expectState(h.lock(Request{NoWait: true}), StateBusy)
	require.Equal(t, "anna", g.Holder)
	require.Zero(t, g.Ref)
}

// LOCKs with one token have one reference.
func TestTokenIsIdempotent(t *testing.T) {
	h, s := newHolder(t)
	q := Request{Token: [16]byte{7}, Wait: time.Minute}
	one := h.lock(q)
	two := h.lock(q)
	h.expectState(one, StateQueued)
	s.answerAll()
	h.unlock(1)
	s.answerAll()
	g := h.expectState(two, StateHeld)
	require.EqualValues(t, 2, g.Ref, "%+v %+v", g, s.row)
	require.EqualValues(t, 2, s.row.Guard, "%+v", g)
	require.EqualValues(t, 2, h.expectState(h.lock(q), StateHeld).Ref)
	h.unlock(2)
	three := h.lock(q)
	s.answerAll()
	require.EqualValues(t, 3, h.expectState(three, StateHeld).Ref, "a new acquisition after the end")
}

// LOCK with NOWAIT is HELD or BUSY, and leaves no reference behind.
func TestNowait(t *testing.T) {
	h, s := newHolder(t)
	h.expectState(h.lock(Request{NoWait: true}), StateBusy)
	h.expectNoCommand()
	h.expectState(h.unlock(1), StateReleased)
	op := h.lock(Request{NoWait: true})
	s.answerAll()
	h.expectState(op, StateHeld) // the Release was under way: nobody is ahead
	h.unlock(2)
	s.answerAll()

	s.row.Guard, s.row.Queue = 3, []Block{block(3, 1, 9, 1)} // behind our back
	op = h.lock(Request{NoWait: true})
	s.answerAll()
	h.expectState(op, StateBusy)
	require.EqualValues(t, 3, s.row.Guard, "something is left behind")
}

// LOCK with NOWAIT is BUSY if its LWT is not decided in time.
func TestNowaitUndecidedIsBusy(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{NoWait: true, Token: [16]byte{3}})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone})
	id, _ = commandOf[Apply](h)
	h.advance(h.opts.Wait)
	h.expectState(op, StateBusy)
	h.reply(id, Result{Status: StatusDone})
	_, a := commandOf[Apply](h)
	require.EqualValues(t, 2, a.Swap.Set.Row.Head, "its reference is released as soon as it is the head")
}

// A client that goes away abandons its reference, which is released in its turn.
func TestGoneAbandonsTheReference(t *testing.T) {
	h, s := newHolder(t)
	a := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	b := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	c := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	h.collect(h.core.ClientGone(h.time(), a))
	h.collect(h.core.ClientGone(h.time(), b))
	h.collect(h.core.ClientGone(h.time(), 999))
	h.expectNoCommand() // C8: no abandon LWT
	h.unlock(1)
	s.answerAll()
	g := h.expectState(c, StateHeld)
	require.EqualValues(t, 4, g.Ref)
	require.False(t, g.OwnerDied, "%+v", g)
	h.expectWaiting(a)
	h.expectWaiting(b)
}

// A client that goes away before it has a reference leaves nothing behind.
func TestGoneBeforeTheEnqueueLeavesNothing(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{})
	id, _ := commandOf[ReadRow](h)
	h.collect(h.core.ClientGone(h.time(), op))
	h.reply(id, Result{Status: StatusDone})
	h.expectNoCommand()
	require.Zero(t, len(h.core.keys)+len(h.core.timers)+len(h.core.commands), "something is left")
}

// A LOCK beyond Options.Waiters is refused.
func TestTooManyWaiters(t *testing.T) {
	h, _ := newHolder(t, func(o *Options) { o.Waiters = 2 })
	h.lock(Request{})
	h.lock(Request{})
	h.expectError(h.lock(Request{}), ErrTooManyWaiters)
}

// Twenty thousand waiting clients can give up within a moment.
func TestManyWaitersStayCheap(t *testing.T) {
	h, s := newHolder(t)
	const n = 20_000
	for range n {
		h.lock(Request{Wait: time.Second})
	}
	s.answerAll()
	start := time.Now()
	h.advance(time.Second + h.opts.QueuedLease)
	h.unlock(1)
	s.answerAll()
	require.EqualValues(t, n+2, s.row.Head)
	require.LessOrEqual(t, time.Since(start), 10*time.Second, "%d waiters took", n)
}

// docs/design.md 9: N waiters of one proxy share one LWT.
func TestWaitersShareTheirLWT(t *testing.T) {
	h, s := newHolder(t)
	before := len(s.swapsSeen())
	for range 3 {
		h.lock(Request{Wait: time.Minute}) // the first is under way alone
		for range 999 {
			h.lock(Request{Wait: time.Minute})
		}
		s.answerAll()
	}
	require.LessOrEqual(t, len(s.swapsSeen())-before, 6, "LWTs for 3 times 1000 waiters")
	require.EqualValues(t, 3001, s.row.Guard)
}
