package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A window that is nearly used up is renewed while operations go on.
func TestRenewNearTheEndOfTheWindow(t *testing.T) {
	h, _ := newHolder(t, func(o *Options) { o.Window = 32 })
	var last Ticket
	for len(h.open) == 0 {
		last, _ = h.begin(1, Put)
		h.end(last, OutcomeAcked)
	}
	id, a := commandOf[Apply](h)
	r := a.Swap.Set.Row
	require.GreaterOrEqual(t, r.Epoch, last.Epoch+32)
	require.True(t, r.Dirty, "%+v", r)
	require.Equal(t, session(1), r.Owner)
	require.EqualValues(t, 1, r.Head)
	for range 100 { // meanwhile operations go on, but none at seq = W-2
		tk, _ := h.begin(1, Put)
		if !tk.OK() {
			break
		}
		last = tk
		h.end(tk, OutcomeAcked)
	}
	require.Less(t, last.Stamp, last.Epoch+32-2, "I12: stamp %d of window %d", last.Stamp, last.Epoch)
	get, _ := h.begin(1, Get)
	require.True(t, get.OK(), "gets need no stamp")
	h.reply(id, Result{Status: StatusDone})
	tk := Ticket{}
	for _, answer := range h.answers {
		if answer.Ticket.OK() && answer.Ticket.Epoch == a.Swap.Set.Row.Epoch {
			tk = answer.Ticket
		}
	}
	require.Equal(t, a.Swap.Set.Row.Epoch+2, tk.Stamp, "who waited goes on in the new window")
}

// A Renew is dirty while a put is in flight.
func TestRenewSaysDirtyWhatIsInFlight(t *testing.T) {
	h, _ := newHolder(t)
	h.begin(1, Put)
	h.collect(h.core.Altered(h.time(), h.table, 0))
	_, a := commandOf[Apply](h)
	require.True(t, a.Swap.Set.Row.Dirty, "a put in flight")
}

// A Renew that was refused because somebody else changed the term ends it.
func TestRenewThatCameTooLateLosesTheTerm(t *testing.T) {
	h, s := newHolder(t)
	h.collect(h.core.Altered(h.time(), h.table, 0))
	id, _ := commandOf[Apply](h)
	h.reply(id, Result{Status: StatusRefused})
	id, _ = commandOf[ReadRow](h)
	row, _ := Preempt(*s.row, 2, h.opts.Window, 0).Apply(s.row)
	h.reply(id, sees(row))
	s.row = &row
	op := h.lock(Request{Ref: 1})
	s.answerAll()
	h.expectState(op, StateLost)
}

// A term is not released before its Renew is definite.
func TestReleaseWaitsForTheRenew(t *testing.T) {
	h, _ := newHolder(t)
	h.collect(h.core.Altered(h.time(), h.table, 0))
	id, a := commandOf[Apply](h)
	h.expectState(h.unlock(1), StateReleased)
	h.expectNoCommand()
	h.reply(id, Result{Status: StatusDone})
	_, rel := commandOf[Apply](h)
	require.Equal(t, a.Swap.Set.Row.Epoch, rel.Swap.If.Epoch, "released on the old epoch")
}

// After a schema change puts wait for a new window; gets do not.
func TestPutsWaitAfterASchemaEvent(t *testing.T) {
	h, _ := newHolder(t)
	h.collect(h.core.Altered(h.time(), h.table, 0))
	id, a := commandOf[Apply](h)
	tk, op := h.begin(1, Put)
	require.False(t, tk.OK(), "a stamp that lags behind a column added again is shadowed")
	get, _ := h.begin(1, Get)
	require.True(t, get.OK(), "gets go on")
	h.collect(h.core.Altered(h.time(), h.table, 0)) // and again, meanwhile
	h.reply(id, Result{Status: StatusDone})
	h.expectWaiting(op)
	id, again := commandOf[Apply](h)
	require.Equal(t, a.Swap.Set.Row.Epoch, again.Swap.If.Epoch, "no second Renew")
	h.reply(id, Result{Status: StatusDone})
	require.Equal(t, again.Swap.Set.Row.Epoch, h.answerOf(op).Ticket.Epoch)
}

// A column that was dropped by a clock that is ahead hides the stamps up to its drop, also those above
// clk(): the window of the next put lies above all of them, in an open term and in one that opens
// later.
func TestPutsAreAboveTheDropOfAColumn(t *testing.T) {
	h, s := newHolder(t)
	const ahead = Stamp(5 * time.Second / time.Microsecond)
	hidden := h.time().Clk + ahead
	h.collect(h.core.Altered(h.time(), h.table, hidden))
	_, op := h.begin(1, Put)
	s.answerAll()
	require.Greater(t, h.answerOf(op).Ticket.Stamp, hidden)

	h, s = newHolder(t)
	h.unlock(1)
	s.answerAll()
	hidden = h.time().Clk + ahead
	h.collect(h.core.Altered(h.time(), h.table, hidden))
	h.advance(time.Second)
	lock := h.lock(Request{})
	s.answerAll()
	tk, _ := h.begin(h.expectState(lock, StateHeld).Ref, Put)
	require.True(t, tk.OK())
	require.Greater(t, tk.Stamp, hidden, "its LOCK came after the change")

	h, s = behindOthers(t)
	hidden = h.time().Clk + ahead
	h.collect(h.core.Altered(h.time(), h.table, hidden))
	wait := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	for s.row.Head < 4 {
		s.apply(Release(*s.row, 2, false, 0))
	}
	h.runFor(s, time.Second)
	tk, _ = h.begin(h.expectState(wait, StateHeld).Ref, Put)
	require.True(t, tk.OK())
	require.Greater(t, tk.Stamp, hidden)
}

// A term that opens after a schema change, on an epoch from before it, is renewed before its first
// put: the epoch was chosen before the change.
func TestPutsWaitInATermThatOpensAfterASchemaEvent(t *testing.T) {
	h, s := behindOthers(t)
	op := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	h.advance(time.Second)
	h.collect(h.core.Altered(h.time(), h.table, 0))
	changed := h.time().Clk
	for s.row.Head < 4 {
		s.apply(Release(*s.row, 2, false, 0))
	}
	h.runFor(s, time.Second)
	tk, _ := h.begin(h.expectState(op, StateHeld).Ref, Put)
	require.True(t, tk.OK(), "the change was at %d, a stamp after it: %+v", changed, tk)
	require.GreaterOrEqual(t, tk.Epoch, changed, "the change was at %d, a stamp after it", changed)
}

// Without clk() no window is renewed.
func TestNoRenewByAClockThatIsOff(t *testing.T) {
	h, _ := newHolder(t)
	h.clkOff = true
	h.collect(h.core.Altered(h.time(), h.table, 0))
	h.expectNoCommand()
	h.clkOff = false
	h.advance(time.Second)
	commandOf[Apply](h)
}

// I12: an epoch far ahead of the clock raises an alarm.
func TestI12FarEpochAlarms(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, sees(Row{Guard: 3, Head: 4, Epoch: 2 * t0}))
	id, a := commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	h.expectState(op, StateHeld)
	require.Len(t, h.alarms, 1)
	require.Equal(t, "I12", h.alarms[0].Rule, "%+v", h.alarms)

	// A Synch that met a stamp of the future leaves such an epoch to each term until the clock has come there.
	s := newFakeStore(h)
	s.row = &a.Swap.Set.Row
	for ref := LockRef(4); ref < 14; ref++ {
		h.unlock(ref)
		s.answerAll()
		h.lock(Request{})
		s.answerAll()
	}
	require.Len(t, h.alarms, 1, "of 11 grants within a minute")
	h.advance(aheadToldEvery)
	h.unlock(14)
	s.answerAll()
	h.lock(Request{})
	s.answerAll()
	require.Len(t, h.alarms, 2)
}

// behindOthers returns a harness that reserves blocks, and knows a key that session 9 holds, with
// 8 behind it.
func behindOthers(t *testing.T) (*harness, *fakeStore) {
	t.Helper()
	h, s := heldByOther(t, theirs())
	h.opts.Retain = 200 * time.Millisecond
	h.core.opts.Retain = h.opts.Retain
	s.beat[session(9)], s.beat[session(8)] = 1, 1
	return h, s
}

// I11: a term that needs a Renew before its Synch is released without one while there is no clk() for it.
func TestATermEndsAlthoughItsRenewHasNoClock(t *testing.T) {
	h, s := newHolder(t)
	put, _ := h.begin(1, Put)
	h.clkOff = true
	h.collect(h.core.Altered(h.time(), h.table, 0))
	h.end(put, OutcomeUnknown)
	h.unlock(1)
	h.runFor(s, 2*time.Second)
	require.Greater(t, s.row.Head, LockRef(1))
	require.True(t, s.row.Dirty)
}
