package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// C7: a term is released only when its operations have ended.
func TestC7CleanReleaseWaitsForWhatIsInFlight(t *testing.T) {
	h, _ := newHolder(t)
	put, _ := h.begin(1, Put)
	get, _ := h.begin(1, Get)
	un := h.unlock(1)
	h.expectWaiting(un)
	_, late := h.begin(1, Put)
	h.expectWaiting(late)
	h.end(put, OutcomeAcked)
	h.expectNoCommand()
	require.Equal(t, VerdictTell, h.end(get, OutcomeAcked), "begun while the term was open")
	_, a := commandOf[Apply](h)
	require.False(t, a.Swap.Set.Row.Dirty, "all is settled")
	h.expectState(un, StateReleased)
}

// C7: a Release is dirty if a put has an unknown outcome.
func TestC7UnsettledReleaseIsDirty(t *testing.T) {
	h, _ := newHolder(t)
	tk, _ := h.begin(1, Put)
	h.end(tk, OutcomeUnknown)
	h.unlock(1)
	for range h.opts.SettleTries {
		id, _ := commandOf[Synch](h)
		h.reply(id, unknown)
		h.advance(time.Second)
	}
	_, a := commandOf[Apply](h)
	require.True(t, a.Swap.Set.Row.Dirty, "an unsettled put may surface: dirty")
}

// After UNLOCK an unsettled term is settled before its Release.
func TestUnlockSettles(t *testing.T) {
	h, _ := newHolder(t)
	tk, _ := h.begin(1, Put)
	h.end(tk, OutcomeUnknown)
	h.unlock(1)
	id, _ := commandOf[Synch](h)
	h.reply(id, Result{Status: StatusDone})
	_, a := commandOf[Apply](h)
	require.False(t, a.Swap.Set.Row.Dirty, "settled, and dirty")
}

// UNLOCK is answered in time even if no Synch succeeds.
func TestUnlockIsAnsweredInTimeThoughNothingSettles(t *testing.T) {
	h, _ := newHolder(t)
	h.begin(1, Put)
	un := h.unlock(1)
	h.advance(h.opts.Wait - time.Millisecond)
	h.expectWaiting(un)
	h.advance(time.Millisecond)
	h.expectState(un, StateReleased)
	h.advance(h.opts.OpTimeout)
	commandOf[Synch](h)
}

// C6: a term that never synchronised leaves the row as dirty as it found it.
func TestC6ReleaseBeforeTheSynchIsDirty(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	h.lock(Request{})
	s.answerAll()
	require.True(t, h.release().Dirty, "nobody has synchronised")
}

// C6: the Release of an abandoned head leaves the row as dirty as it was.
func TestC6AbandonedDirtyHeadStaysDirty(t *testing.T) {
	for _, dirty := range []bool{true, false} {
		h := newHarness(t)
		op := h.lock(Request{})
		id, _ := commandOf[ReadRow](h)
		base := t0 * 2
		h.reply(id, sees(Row{Guard: 3, Head: 4, Epoch: base, Dirty: dirty}))
		h.collect(h.core.ClientGone(h.time(), op))
		id, a := commandOf[Apply](h)
		h.reply(id, Result{Status: StatusDone})
		granted := a.Swap.Set.Row.Epoch
		id, a = commandOf[Apply](h)
		r := a.Swap.Set.Row
		require.Equal(t, dirty, r.Dirty)
		require.EqualValues(t, 5, r.Head, "dirty %v", dirty)
		require.Equal(t, granted+2, r.Epoch, "dirty %v", dirty)
		h.reply(id, Result{Status: StatusDone})
		h.expectNoCommand()
		require.Empty(t, h.core.keys, "something is left")
	}
}

// C17: a Release after closed was raised is dirty.
func TestC17ClosedIsNotForgottenByARelease(t *testing.T) {
	h, _ := newHolder(t)
	h.collect(h.core.Closed(h.time(), h.table, t0*2))
	require.True(t, h.release().Dirty, "epoch < closed, never synchronised, and released clean")
}

// C17: a raise of closed during the Release makes the next term dirty.
func TestC17ClosedWhileTheReleaseIsUnderWay(t *testing.T) {
	h, _ := newHolder(t)
	h.unlock(1)
	id, _ := commandOf[Apply](h)
	next := h.lock(Request{})
	h.collect(h.core.Closed(h.time(), h.table, t0))
	h.reply(id, Result{Status: StatusDone})
	id, a := commandOf[Apply](h)
	require.True(t, a.Swap.Set.Row.Dirty, "the epoch was chosen without knowing that the table closed")
	h.reply(id, Result{Status: StatusDone})
	h.expectState(next, StateHeld)
}

// C17: a term whose epoch was chosen before closed was raised is dirty.
func TestC17HandOverOnAnEpochBeforeClosed(t *testing.T) {
	h, s := newHolder(t)
	next := h.lock(Request{Wait: time.Hour})
	s.answerAll()
	h.unlock(1)
	id, a := commandOf[Apply](h) // clean
	h.collect(h.core.Closed(h.time(), h.table, 2*t0))
	h.reply(id, s.do(a))
	h.expectWaiting(next)
	id, read := commandOf[ReadRow](h)
	require.True(t, read.Quorum, "D = epoch < closed: dirty, so QUORUM")
	h.reply(id, s.read())
	h.expectState(next, StateHeld)
	tk, _ := h.begin(2, Put)
	require.False(t, tk.OK(), "D is forgotten")
	s.answerAll() // Renew, above closed, and only then the Synch
	require.GreaterOrEqual(t, h.synchs(s)[0].Fence, 2*t0, "fence below closed: a plain write may lie above it and surface later")
}

// release unlocks reference 1 and returns the row of the Release that is sent.
func (h *harness) release() Row {
	h.t.Helper()
	h.unlock(1)
	_, a := commandOf[Apply](h)
	return a.Swap.Set.Row
}
