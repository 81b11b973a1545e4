package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// future is how far the stamps of plain writes are ahead of the clock in these tests.
const future = Stamp(time.Minute / time.Microsecond)

// synchAbove answers the Synch under way: it has met a stamp of the future. The next one ends well.
func (h *harness) synchAbove(s *fakeStore) {
	h.t.Helper()
	id, _ := commandOf[Synch](h)
	h.reply(id, Result{Status: StatusAbove, Stamp: h.time().Clk + future})
	h.runFor(s, time.Second)
}

// A Release on an epoch that a Synch has put far above the clock leaves the row dirty: if the table
// is opened and closed once more, closed may lie below that epoch, and cannot tell that plain writes
// have come since.
func TestAFarEpochIsLeftDirty(t *testing.T) {
	h, s, op := newFirstPut(t)
	h.synchAbove(s)
	h.end(h.answerOf(op).Ticket, OutcomeAcked)
	h.unlock(1)
	s.answerAll()
	require.EqualValues(t, 2, s.row.Head)
	require.Greater(t, s.row.Epoch, Closing(h.time(), 0), "closed will lie above")
	require.True(t, s.row.Dirty && !s.row.Unfenced, "%+v", *s.row)
	h.collect(h.core.Closed(h.time(), h.table, Closing(h.time(), 0)))
	g := h.lock(Request{})
	s.answerAll()
	get, _ := h.begin(h.expectState(g, StateHeld).Ref, Get)
	require.False(t, get.OK(), "a get that reads what may come or go")
}

// An epoch is far where the closed of the slowest proxy may lie below it: nothing that clocks which
// agree, and terms that end by force, do to epochs.
func TestWhichEpochsAreFar(t *testing.T) {
	now := Now{Clk: t0}
	require.Greater(t, Closing(Now{Clk: t0 - clkAhead - clkBehind}, 0), t0+belowClosing, "a closed that is chosen now")
	require.False(t, now.far(t0+3*Defaults().Window))
	row := Row{Guard: 1, Head: 1, Epoch: t0 + belowClosing - 7}
	near := Release(row, 7, true, now.Clk).withUnfenced(true)
	require.Equal(t, near, near.dirtyIfFar(now))
	for _, unfenced := range []bool{false, true} {
		left := Release(row, 8, unfenced, now.Clk).withUnfenced(unfenced).dirtyIfFar(now).Set.Row
		require.True(t, left.Dirty && !left.Unfenced, "%+v", left)
	}
}

// A term that began clean, and was put far above the clock because of a put of unknown outcome, has
// to synchronise when closed is raised, although that lies below it.
func TestARaiseOfClosedReachesAFarTerm(t *testing.T) {
	h, s := newHolder(t)
	h.unlock(1)
	s.answerAll()
	h.lock(Request{})
	s.answerAll()
	require.False(t, h.term().dirty)
	put, _ := h.begin(2, Put)
	h.end(put, OutcomeUnknown)
	h.begin(2, Get)
	h.synchAbove(s)
	get, _ := h.begin(2, Get)
	require.True(t, get.OK())
	h.end(get, OutcomeAcked)
	h.collect(h.core.Closed(h.time(), h.table, Closing(h.time(), 0)))
	get, _ = h.begin(2, Get)
	require.False(t, get.OK(), "a get that reads what may come or go")
}

// A term on a far epoch that began while a table was strict stays checked by its lock row: a Force
// that was sent before may end it.
func TestAFarTermStaysChecked(t *testing.T) {
	h := newHarness(t)
	h.collect(h.core.Strict(h.time(), h.table, true, h.session.ID()))
	s := newFakeStore(h)
	h.lock(Request{})
	s.answerAll()
	_, op := h.begin(1, Put)
	h.synchAbove(s)
	h.collect(h.core.Strict(h.time(), h.table, false, h.session.ID()))
	first := h.answerOf(op).Ticket
	delete(h.answers, op)
	require.Equal(t, VerdictPending, h.end(first, OutcomeAcked), "told by the clock")
	s.answerAll()
	h.expectVerdict(op, VerdictTell)
	h.unlock(1)
	s.answerAll()
	h.lock(Request{})
	s.answerAll()
	_, op = h.begin(2, Put)
	s.answerAll()
	require.Equal(t, VerdictPending, h.end(h.answerOf(op).Ticket, OutcomeAcked), "its epoch may be from before")
}
