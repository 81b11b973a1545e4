package musiccore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// newKeyHeld is a harness whose client holds a key that had no lock row, and the epoch.
func newKeyHeld(t *testing.T) (*harness, Stamp) {
	t.Helper()
	h := newHarness(t)
	op := h.lock(Request{})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone})
	id, w := commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	h.expectState(op, StateHeld)
	return h, w.Swap.Set.Row.Epoch
}

// blindPut begins a put that reads nothing, of a key whose highest stamp is top.
func (h *harness) blindPut(top Stamp) Ticket {
	h.t.Helper()
	tk, op := h.begin(1, BlindPut)
	require.False(h.t, tk.OK(), "a ticket before the stamps of the key are known")
	id, _ := commandOf[ReadStamps](h)
	h.reply(id, Result{Status: StatusDone, Stamp: top})
	return h.answers[op].Ticket
}

// A first section of one put reads the key's write times instead of a Synch, and leaves the row
// dirty.
func TestAPutOfANewKeyNeedsNoSynch(t *testing.T) {
	h, epoch := newKeyHeld(t)
	tk := h.blindPut(epoch - 1)
	require.True(t, tk.OK(), "ticket %+v", tk)
	require.Equal(t, Put, tk.Kind)
	require.Equal(t, epoch+2, tk.Stamp)
	next, _ := h.begin(1, BlindPut)
	require.True(t, next.OK(), "the next ticket: %+v", next)
	require.Equal(t, epoch+3, next.Stamp, "the next ticket")
	require.Equal(t, VerdictTell, h.end(next, OutcomeAcked))
	h.end(tk, OutcomeAcked)
	h.expectState(h.unlock(1), StateReleased)
	_, w := commandOf[Apply](h)
	require.True(t, w.Swap.Set.Row.Dirty, "release %+v", w.Swap)
}

// A get, and a put that needs a read, wait for a Synch, and so does a put behind them.
func TestAGetOfANewKeySynchronises(t *testing.T) {
	for _, kind := range []Kind{Get, Put} {
		h, epoch := newKeyHeld(t)
		tk := h.blindPut(epoch - 1)
		h.end(tk, OutcomeAcked)
		first, get := h.begin(1, kind)
		second, put := h.begin(1, BlindPut)
		require.False(t, first.OK(), "a ticket before the Synch")
		require.False(t, second.OK(), "a ticket before the Synch")
		id, c := commandOf[Synch](h)
		require.Less(t, tk.Stamp, c.Fence, "the fence %d is not above the put", c.Fence)
		h.reply(id, Result{Status: StatusDone})
		require.True(t, h.answerOf(get).Ticket.OK(), "no tickets after the Synch")
		require.True(t, h.answerOf(put).Ticket.OK(), "no tickets after the Synch")
	}
}

// A write time at or above the put's stamp would hide the put, so the key is synchronised.
func TestAPutBelowTheStampsOfItsKeySynchronises(t *testing.T) {
	h, epoch := newKeyHeld(t)
	tk := h.blindPut(epoch + 2)
	require.False(t, tk.OK(), "ticket %+v", tk)
	commandOf[Synch](h)
}

// If the write times cannot be read, or not soon, the key is synchronised.
func TestAPutOfANewKeyWhoseStampsAreNotRead(t *testing.T) {
	t.Run("failed", func(t *testing.T) {
		h, _ := newKeyHeld(t)
		h.begin(1, BlindPut)
		id, _ := commandOf[ReadStamps](h)
		h.reply(id, Result{})
		commandOf[Synch](h)
	})
	t.Run("slow", func(t *testing.T) {
		h, _ := newKeyHeld(t)
		h.begin(1, BlindPut)
		commandOf[ReadStamps](h)
		h.advance(h.opts.OpTimeout / 8)
		commandOf[Synch](h)
	})
}

// After a raise of closed, plain writes may lie above the term, so the key is synchronised.
func TestAPutBelowClosedIsFenced(t *testing.T) {
	h, epoch := newKeyHeld(t)
	tk := h.blindPut(epoch - 1)
	h.end(tk, OutcomeAcked)
	h.collect(h.core.Closed(h.time(), h.table, epoch+1000))
	tk, _ = h.begin(1, BlindPut)
	require.False(t, tk.OK(), "ticket %+v", tk)
}

// onceMore unlocks the key, locks it again and returns the Releases's and the Enqueue's LWTs.
func (h *harness) onceMore(ref LockRef) (left, begun Row) {
	h.t.Helper()
	h.unlock(ref)
	id, w := commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	op := h.lock(Request{})
	id, next := commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	h.expectState(op, StateHeld)
	return w.Swap.Set.Row, next.Swap.Set.Row
}

// If the puts of a new key read nothing and are all acknowledged, such puts need no Synch in the
// following terms either, however many: the row says that it is unfenced.
func TestTheNextSectionsOfAKeyThatNobodyReads(t *testing.T) {
	h, epoch := newKeyHeld(t)
	tk := h.blindPut(epoch - 1)
	h.end(tk, OutcomeAcked)
	for ref := LockRef(1); ref < 4; ref++ {
		left, begun := h.onceMore(ref)
		require.True(t, left.Dirty && left.Unfenced, "%+v", left)
		require.True(t, begun.Dirty && begun.Unfenced, "%+v", begun)
		tk, _ = h.begin(ref+1, BlindPut)
		require.True(t, tk.OK(), "ticket %+v", tk)
		require.Equal(t, begun.Epoch+2, tk.Stamp)
		h.end(tk, OutcomeAcked)
	}
	h.expectNoCommand()
}

// A get in a term that began unfenced waits for a Synch, and so does everything behind it. Then the
// row is clean; or dirty, if the Synch may have left something.
func TestAGetOfAnUnfencedKeySynchronises(t *testing.T) {
	for _, synch := range []Status{StatusDone, StatusUnknown} {
		h, epoch := newKeyHeld(t)
		h.end(h.blindPut(epoch-1), OutcomeAcked)
		h.onceMore(1)
		before, _ := h.begin(2, BlindPut)
		tk, get := h.begin(2, Get)
		require.False(t, tk.OK(), "a ticket before the Synch")
		tk, put := h.begin(2, BlindPut)
		require.False(t, tk.OK(), "a ticket before the get's")
		h.expectNoCommand()
		h.end(before, OutcomeAcked)
		id, _ := commandOf[Synch](h)
		h.reply(id, Result{Status: synch})
		if synch == StatusDone {
			h.end(h.answerOf(get).Ticket, OutcomeAcked)
			h.end(h.answerOf(put).Ticket, OutcomeAcked)
		}
		left, _ := h.onceMore(2)
		require.Equal(t, [2]bool{synch != StatusDone, false}, [2]bool{left.Dirty, left.Unfenced}, "%v: %+v", synch, left)
	}
}

// A row is not left unfenced if a write of the term may still surface, or if the term did not begin
// with the lock row or unfenced, or if plain writes may lie above its epoch.
func TestWhatEndsAnUnfencedKey(t *testing.T) {
	settles := func(h *harness) {
		h.advance(h.opts.OpTimeout)
		for id, tries := CommandID(0), 0; tries < h.opts.SettleTries; tries++ {
			id, _ = commandOf[Synch](h)
			h.reply(id, Result{})
			h.advance(h.opts.OpTimeout)
		}
	}
	for name, c := range map[string]struct {
		during func(h *harness, epoch Stamp) // in the term, after an acknowledged put
		after  func(h *harness)              // after its UNLOCK
	}{
		"an unknown put": {func(h *harness, _ Stamp) {
			tk, _ := h.begin(2, BlindPut)
			h.end(tk, OutcomeUnknown)
		}, settles},
		"a put without an End": {func(h *harness, _ Stamp) { h.begin(2, BlindPut) }, settles},
		"closed is raised": {during: func(h *harness, epoch Stamp) {
			h.collect(h.core.Closed(h.time(), h.table, epoch+1000))
		}},
		"closed is raised to an epoch before": {during: func(h *harness, epoch Stamp) {
			h.collect(h.core.Closed(h.time(), h.table, epoch-1))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h, epoch := newKeyHeld(t)
			h.end(h.blindPut(epoch-1), OutcomeAcked)
			_, begun := h.onceMore(1)
			tk, _ := h.begin(2, BlindPut)
			require.True(t, tk.OK())
			h.end(tk, OutcomeAcked)
			c.during(h, begun.Epoch)
			h.unlock(2)
			if c.after != nil {
				c.after(h)
			}
			_, w := commandOf[Apply](h)
			require.True(t, w.Swap.Set.Row.Dirty, "%+v", w.Swap)
			require.False(t, w.Swap.Set.Row.Unfenced, "%+v", w.Swap)
		})
	}
}

// lockNewKey asks for a key without a lock row, and returns the command that makes it.
func (h *harness) lockNewKey(pk string) (CommandID, Apply) {
	h.t.Helper()
	h.collect(h.core.Lock(h.time(), h.op(), Key{Table: h.table, PK: pk}, Request{}))
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone})
	return commandOf[Apply](h)
}

// beginOn begins a put that reads nothing on another key.
func (h *harness) beginOn(pk string) Ticket {
	tk, fx := h.core.Begin(h.time(), h.op(), Key{Table: h.table, PK: pk}, 1, BlindPut)
	h.collect(fx)
	return tk
}

// If the last new key of the table began with a put, the write times are read beside the Enqueue,
// else not.
func TestTheStampsOfANewKeyAreReadBesideItsEnqueue(t *testing.T) {
	h, epoch := newKeyHeld(t)
	tk := h.blindPut(epoch - 1)
	h.end(tk, OutcomeAcked)
	id, _ := h.lockNewKey("l")
	read, early := commandOf[ReadStamps](h)
	require.True(t, early.Early, "%+v", early)
	h.reply(read, Result{Status: StatusDone})
	h.reply(id, Result{Status: StatusDone})
	require.True(t, h.beginOn("l").OK(), "no ticket at once")
	id, _ = h.lockNewKey("m")
	read, _ = commandOf[ReadStamps](h)
	h.reply(id, Result{Status: StatusDone})
	h.reply(read, Result{Status: StatusDone})
	h.collect(h.core.Unlock(h.time(), h.op(), Key{Table: h.table, PK: "m"}, 1))
	commandOf[Apply](h)
	h.lockNewKey("n")
	h.expectNoCommand()
}

// A read beside the Enqueue does not count if another session made the lock row or if closed was
// raised since; if it only failed, it is repeated.
func TestAnEarlyReadOfStampsThatCounts(t *testing.T) {
	for name, c := range map[string]struct {
		read    Result
		between func(*harness)
		again   bool
	}{
		"it failed":            {between: func(*harness) {}, again: true},
		"the key is large":     {read: Result{Status: StatusTooLarge}, between: func(*harness) {}},
		"a stamp is too high":  {read: Result{Status: StatusDone, Stamp: poison}, between: func(*harness) {}},
		"the table is altered": {read: Result{Status: StatusDone}, between: func(h *harness) { h.collect(h.core.Altered(h.time(), h.table, 0)) }, again: true},
		"it is closed anew":    {read: Result{Status: StatusDone}, between: func(h *harness) { h.collect(h.core.Closed(h.time(), h.table, 7)) }},
	} {
		t.Run(name, func(t *testing.T) {
			h, epoch := newKeyHeld(t)
			tk := h.blindPut(epoch - 1)
			h.end(tk, OutcomeAcked)
			id, _ := h.lockNewKey("l")
			read, _ := commandOf[ReadStamps](h)
			h.reply(read, c.read)
			c.between(h)
			h.reply(id, Result{Status: StatusDone})
			require.False(t, h.beginOn("l").OK(), "a ticket at once")
			if c.again {
				_, a := commandOf[ReadStamps](h)
				require.False(t, a.Early, "%+v", a)
				return
			}
			if _, renews := openCommand[Apply](h); !renews {
				commandOf[Synch](h)
			}
		})
	}
}

// openCommand finds an open command of a kind.
func openCommand[A Action](h *harness) (a A, found bool) {
	for _, c := range h.open {
		if a, found = c.Action.(A); found {
			return a, true
		}
	}
	return a, false
}
