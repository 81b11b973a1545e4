package musiccore

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// C9: after a put of unknown outcome the key is synchronised before the next get.
func TestC9SettledBeforeTheNextGet(t *testing.T) {
	h, _ := newHolder(t)
	tk, _ := h.begin(1, Put)
	require.Equal(t, VerdictUncertain, h.end(tk, OutcomeUnknown))
	get, op := h.begin(1, Get)
	require.False(t, get.OK(), "a get after an unsettled put reads what may come or go")
	id, c := commandOf[Synch](h)
	require.Less(t, tk.Stamp, c.Fence, "fence %d must lie above the put's", c.Fence)
	h.reply(id, Result{Status: StatusDone})
	require.True(t, h.answerOf(op).Ticket.OK(), "no ticket after the settling")
}

// C7: a Synch waits until no put is in flight, and operations wait for the Synch.
func TestC7SynchIsExclusive(t *testing.T) {
	h, _ := newHolder(t)
	lost, _ := h.begin(1, Put)
	slow, _ := h.begin(1, Put)
	h.end(lost, OutcomeUnknown)
	_, op := h.begin(1, Put)
	h.expectNoCommand()
	require.Equal(t, VerdictTell, h.end(slow, OutcomeAcked))
	id, c := commandOf[Synch](h)
	require.Less(t, slow.Stamp, c.Fence, "an acknowledged put must lie below the fence, and be read by it")
	h.expectWaiting(op)
	h.reply(id, Result{Status: StatusDone})
	require.Greater(t, h.answerOf(op).Ticket.Stamp, c.Fence+1, "stamp within the synchronise's")
}

// When closed is raised a synchronised term has to synchronise again.
func TestRaiseOfClosedUnsynchronises(t *testing.T) {
	h, _ := newHolder(t) // dirty at entry, synchronised since
	h.collect(h.core.Closed(h.time(), h.table, 1))
	tk, _ := h.begin(1, Get)
	require.False(t, tk.OK(), "synched=false in every open term of the table")
	id, _ := commandOf[Synch](h)
	h.collect(h.core.Closed(h.time(), h.table, 2))
	h.reply(id, Result{Status: StatusDone})
	id, _ = commandOf[Synch](h) // the first did not see what came before the raise
	h.reply(id, Result{Status: StatusDone})
	require.True(t, h.term().synced, "not synchronised")
}

// C10: each attempt to synchronise has a fence of its own.
func TestC10EachAttemptHasAFreshFence(t *testing.T) {
	h, _, op := newFirstPut(t)
	last := Stamp(0)
	for range 4 {
		id, c := commandOf[Synch](h)
		if last != 0 {
			require.GreaterOrEqual(t, c.Fence, last+2)
		}
		last = c.Fence
		h.reply(id, unknown)
		h.expectNoCommand() // not at once
		h.advance(500 * time.Millisecond)
	}
	id, _ := commandOf[Synch](h)
	h.reply(id, Result{Status: StatusDone})
	require.Greater(t, h.answerOf(op).Ticket.Stamp, last+1, "stamps overlap")
}

// A Synch that met a stamp above its fence is tried again in a window above that.
func TestAboveRenewsAndStartsAgain(t *testing.T) {
	h, _, op := newFirstPut(t)
	id, c := commandOf[Synch](h)
	above := c.Fence + 10*h.opts.Window
	h.reply(id, Result{Status: StatusAbove, Stamp: above})
	id, a := commandOf[Apply](h)
	r := a.Swap.Set.Row
	require.Equal(t, above+1, r.Epoch)
	require.EqualValues(t, 1, r.Head)
	require.True(t, r.Dirty, "%+v", r)
	require.Equal(t, session(1), r.Owner)
	h.reply(id, Result{Status: StatusDone})
	h.advance(time.Second)
	id, c = commandOf[Synch](h)
	require.Less(t, above, c.Fence, "still below")
	h.reply(id, Result{Status: StatusDone})
	tk := h.answerOf(op).Ticket
	require.Greater(t, tk.Stamp, c.Fence+1)
	require.Equal(t, above+1, tk.Epoch)
}

// A key with a stamp beyond every window is refused, and the error says so.
func TestPoisonedKeyIsRefusedByName(t *testing.T) {
	h, _, op := newFirstPut(t)
	id, _ := commandOf[Synch](h)
	h.reply(id, Result{Status: StatusAbove, Stamp: poison})
	h.expectError(op, ErrPoisoned)
	_, a := commandOf[Apply](h)
	require.True(t, a.Swap.Set.Row.Dirty, "released dirty: %+v", a.Swap)
	require.EqualValues(t, 2, a.Swap.Set.Row.Head, "released dirty")
}

// A key that cannot be written back is refused, and the error says why.
func TestTooLarge(t *testing.T) {
	h, _, op := newFirstPut(t)
	id, _ := commandOf[Synch](h)
	cause := errors.New("a row of 17 MiB")
	h.reply(id, Result{Status: StatusTooLarge, Cause: cause})
	err := h.answerOf(op).Err
	require.ErrorIs(t, err, ErrTooLarge)
	require.ErrorIs(t, err, cause)
	require.True(t, h.release().Dirty, "clean")
}

// A Synch that was under way when the schema changed may have read with the old schema: it does not
// count, and the operation that waits for it gets its stamp after another Synch.
func TestASynchroniseUnderASchemaEventIsDoneAgain(t *testing.T) {
	h, s := newHolder(t)
	tk, _ := h.begin(1, Put)
	h.end(tk, OutcomeUnknown)
	_, get := h.begin(1, Get)
	id, _ := commandOf[Synch](h)
	h.collect(h.core.Altered(h.time(), h.table, 0))
	h.reply(id, Result{Status: StatusDone})
	h.expectWaiting(get)
	id, renew := commandOf[Apply](h)
	s.apply(renew.Swap)
	h.reply(id, Result{Status: StatusDone})
	h.expectWaiting(get)
	id, again := commandOf[Synch](h)
	require.Greater(t, again.Fence, renew.Swap.Set.Row.Epoch, "a fence in the old window")
	h.reply(id, Result{Status: StatusDone})
	require.True(t, h.answerOf(get).Ticket.OK(), "it was synchronised under the new schema")
}

// I12: a Synch whose fence does not fit into the window waits for the next window.
func TestSynchDoesNotLeaveTheWindow(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Window = 16 })
	s := newFakeStore(h)
	h.lock(Request{})
	s.answerAll()
	base := h.term().window.epoch
	h.term().window.seq = 14
	_, op := h.begin(1, Put)
	id, c := commandOf[Synch](h)
	require.Equal(t, base+15, c.Fence+1, "the last two stamps of the window: %d", c.Fence-base)
	h.reply(id, unknown)
	h.advance(time.Second)
	id, a := commandOf[Apply](h)
	h.expectNoCommand()
	require.GreaterOrEqual(t, a.Swap.Set.Row.Epoch, base+16)
	require.True(t, a.Swap.Set.Row.Dirty, "I12: %+v", a.Swap)
	h.reply(id, Result{Status: StatusDone})
	id, c = commandOf[Synch](h)
	require.Equal(t, c.Fence, a.Swap.Set.Row.Epoch+2)
	h.reply(id, Result{Status: StatusDone})
	require.Equal(t, c.Fence+2, h.answerOf(op).Ticket.Stamp)
}

// If the store says at once that too few replicas live, the client is told at once, and the next
// operation tries again.
func TestASynchThatTheStoreCannotDoIsToldAtOnce(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	op := h.lock(Request{})
	s.answerAll()
	h.expectState(op, StateHeld)
	few := errors.New("required 2, alive 1")
	for range 5 {
		_, put := h.begin(1, Put)
		_, get := h.begin(1, Get)
		id, _ := commandOf[Synch](h)
		h.reply(id, Result{Status: StatusUnavailable, Cause: few})
		for _, op := range []OpID{put, get} {
			h.expectError(op, ErrSynchronising)
			h.expectError(op, few)
		}
		h.expectNoCommand()
	}
	_, put := h.begin(1, Put)
	s.answerAll()
	tk := h.answerOf(put).Ticket
	h.end(tk, OutcomeUnknown)
	h.unlock(1)
	for range h.opts.SettleTries {
		id, _ := commandOf[Synch](h)
		h.reply(id, Result{Status: StatusUnavailable, Cause: few})
		h.advance(time.Second)
	}
	s.answerAll()
	require.EqualValues(t, 2, s.row.Head, "released with what is unsettled")
	require.True(t, s.row.Dirty, "released with what is unsettled: %+v", *s.row)
}

// synchs are the Synchs that the store has seen since the first term's.
func (h *harness) synchs(s *fakeStore) []Synch {
	var all []Synch
	for _, a := range s.actions {
		if c, ok := a.(Synch); ok {
			all = append(all, c)
		}
	}
	return all[1:]
}

// A Synch waits for a get in flight: the get may have returned the value of a put that the Synch
// then leaves out.
func TestASynchWaitsForAGetInFlight(t *testing.T) {
	h, _ := newHolder(t)
	put, _ := h.begin(1, Put)
	get, _ := h.begin(1, Get)
	h.end(put, OutcomeUnknown)
	_, next := h.begin(1, Get)
	h.expectNoCommand()
	require.Equal(t, VerdictTell, h.end(get, OutcomeAcked))
	id, _ := commandOf[Synch](h)
	h.reply(id, Result{Status: StatusDone})
	require.True(t, h.answerOf(next).Ticket.OK(), "no ticket after the Synch")
}
