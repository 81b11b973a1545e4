package musiccore

import (
	"testing"
	"time"
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
	if v := h.end(get, OutcomeAcked); v != VerdictTell {
		t.Fatal("begun while the term was open")
	}
	_, a := commandOf[Apply](h)
	if a.Swap.Set.Row.Dirty {
		t.Fatal("all is settled")
	}
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
	if !a.Swap.Set.Row.Dirty {
		t.Fatal("an unsettled put may surface: dirty")
	}
}

// After UNLOCK an unsettled term is settled before its Release.
func TestUnlockSettles(t *testing.T) {
	h, _ := newHolder(t)
	tk, _ := h.begin(1, Put)
	h.end(tk, OutcomeUnknown)
	h.unlock(1)
	id, _ := commandOf[Synch](h)
	h.reply(id, Result{Status: StatusDone})
	if _, a := commandOf[Apply](h); a.Swap.Set.Row.Dirty {
		t.Fatal("settled, and dirty")
	}
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
	if r := h.release(1); !r.Dirty {
		t.Fatal("nobody has synchronised")
	}
}

// C6: the Release of an abandoned head leaves the row as dirty as it was.
func TestC6AbandonedDirtyHeadStaysDirty(t *testing.T) {
	for _, dirty := range []bool{true, false} {
		h := newHarness(t)
		op := h.lock(Request{})
		id, _ := commandOf[ReadRow](h)
		base := t0 * 2
		h.reply(id, sees(Row{Guard: 3, Head: 4, Epoch: base, Dirty: dirty}))
		h.collect(h.core.Gone(h.time(), op))
		id, a := commandOf[Apply](h)
		h.reply(id, Result{Status: StatusDone})
		granted := a.Swap.Set.Row.Epoch
		id, a = commandOf[Apply](h)
		r := a.Swap.Set.Row
		if r.Dirty != dirty || r.Head != 5 || r.Epoch != granted+2 {
			t.Fatalf("dirty %v: %+v", dirty, r)
		}
		h.reply(id, Result{Status: StatusDone})
		if h.expectNoCommand(); len(h.core.keys) > 0 {
			t.Fatal("something is left")
		}
	}
}

// C17: a Release after closed was raised is dirty.
func TestC17ClosedIsNotForgottenByARelease(t *testing.T) {
	h, _ := newHolder(t)
	h.collect(h.core.Closed(h.time(), h.table, t0*2))
	if r := h.release(1); !r.Dirty {
		t.Fatal("epoch < closed, never synchronised, and released clean")
	}
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
	if !a.Swap.Set.Row.Dirty {
		t.Fatal("the epoch was chosen without knowing that the table closed")
	}
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
	if !read.Quorum {
		t.Fatal("D = epoch < closed: dirty, so QUORUM")
	}
	h.reply(id, s.read())
	h.expectState(next, StateHeld)
	if tk, _ := h.begin(2, Put); tk.OK() {
		t.Fatal("D is forgotten")
	}
	s.answerAll() // Renew, above closed, and only then the Synch
	if fence := h.synchs(s)[0].Fence; fence < 2*t0 {
		t.Fatalf("fence %d below closed: a plain write may lie above it and surface later", fence)
	}
}

// released is the Release that an UNLOCK of reference r sends.
func (h *harness) release(r LockRef) Row {
	h.t.Helper()
	h.unlock(r)
	_, a := commandOf[Apply](h)
	return a.Swap.Set.Row
}
