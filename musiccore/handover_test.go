package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// docs/protocol.md 3.17: after the Renew that makes the holder plain was sent, nothing is handed
// over.
func TestAPlainHolderHandsNothingOver(t *testing.T) {
	h, s := blockHeld(t)
	next := h.lock(Request{Wait: time.Minute})
	h.advance(h.opts.Retain + time.Millisecond)
	id, renew := commandOf[Apply](h)
	h.unlock(2)
	h.expectWaiting(next)
	h.reply(id, s.apply(renew.Swap))
	s.answerAll()
	require.EqualValues(t, 10, h.expectState(next, StateHeld).Ref)
}

// docs/protocol.md 3.17, Blocks: a reference is handed over only when no operation of the one
// before is in flight.
func TestHandOverWaitsForWhatIsInFlight(t *testing.T) {
	h, s := blockHeld(t)
	put, _ := h.begin(2, Put)
	next := h.lock(Request{Wait: time.Minute})
	h.unlock(2)
	s.answerAll()
	h.expectWaiting(next)
	require.Equal(t, VerdictUncertain, h.end(put, OutcomeUnknown))
	h.expectWaiting(next) // unsettled
	id, c := commandOf[Synch](h)
	require.Less(t, put.Stamp, c.Fence)
	h.reply(id, Result{Status: StatusDone})
	h.expectState(next, StateHeld)
}

// The next reference of a block inherits dirty and seq from the one before.
func TestABlockInheritsWhatIsDirty(t *testing.T) {
	h, s := blockHeld(t)
	h.unlock(2)
	h.runFor(s, time.Second)
	s.row.Dirty = true
	h.core.Dropped(h.time(), h.table) // memory is gone
	h.core.idle.put(h.key(), idleKey{row: *s.row, nextBlockSize: 8})
	first := h.lock(Request{})
	s.answerAll()
	r := h.expectState(first, StateHeld).Ref
	h.unlock(r)
	second := h.lock(Request{})
	s.answerAll()
	_, get := h.begin(h.expectState(second, StateHeld).Ref, Get)
	_, done := h.answers[get]
	require.False(t, done, "a get before the synchronise")
	_, c := commandOf[Synch](h)
	require.Equal(t, c.Fence, s.row.Epoch+2, "fence %d, epoch %d", c.Fence, s.row.Epoch)
}

// If a put of unknown outcome cannot be settled, the term is released dirty. The block goes on with
// its next reference.
func TestABlockThatCannotBeSettledIsReleasedDirty(t *testing.T) {
	h, s := blockHeld(t)
	put, _ := h.begin(2, Put)
	next := h.lock(Request{Wait: time.Minute})
	h.unlock(2)
	h.end(put, OutcomeUnknown)
	s.copy = Result{Status: StatusUnknown}
	h.runFor(s, 100*time.Millisecond)
	g := h.expectState(next, StateHeld)
	require.EqualValues(t, 3, g.Ref, "grant %+v, row %+v", g, s.row)
	require.EqualValues(t, 3, s.row.Head, "grant %+v", g)
	require.EqualValues(t, 9, s.row.Guard, "grant %+v", g)
	require.True(t, s.row.Dirty, "grant %+v, row %+v", g, s.row)
	_, tk := h.begin(3, Get)
	h.expectWaiting(tk)
}

// A client that arrives while the Release is under way is not handed a reference that the Release
// ends.
func TestNothingIsHandedOverOnceTheReleaseIsSent(t *testing.T) {
	h, s := blockHeld(t)
	h.unlock(2)
	h.advance(h.opts.Retain + time.Millisecond)
	id, release := commandOf[Apply](h)
	op := h.lock(Request{})
	h.expectWaiting(op)
	h.reply(id, s.apply(release.Swap))
	s.answerAll()
	require.EqualValues(t, 10, h.expectState(op, StateHeld).Ref)
}

// docs/protocol.md 3.19, Shutdown: the holder is made plain, the rest of the block is released.
func TestDrainMakesTheHolderOfABlockPlain(t *testing.T) {
	h, s := blockHeld(t)
	waits := h.lock(Request{Wait: time.Minute})
	h.collect(h.core.Drain(h.time()))
	h.expectError(waits, ErrDraining)
	require.False(t, h.core.Quiet(), "quiet before the holder is plain")
	s.answerAll()
	require.True(t, h.core.Quiet(), "row %+v", s.row)
	require.Equal(t, h.session.ID(), s.row.Owner)
	require.EqualValues(t, 2, s.row.Head)

	h, s = blockHeld(t)
	h.unlock(2)
	h.collect(h.core.Drain(h.time()))
	s.answerAll()
	require.True(t, h.core.Quiet(), "row %+v", s.row)
	require.EqualValues(t, 10, s.row.Head)
}

// A Renew for a new window does not make the holder of a block plain.
func TestARenewInsideABlockLeavesItKept(t *testing.T) {
	h, s := blockHeld(t)
	before, _ := h.begin(2, Put)
	h.end(before, OutcomeAcked)
	h.collect(h.core.Altered(h.time(), h.table, 0))
	s.answerAll()
	require.Equal(t, SessionID{}, s.row.Owner)
	require.True(t, s.row.retained(s.row.Head), "row %+v", s.row)
	require.Equal(t, 1, s.lwts(), "row %+v", s.row)
	h.unlock(2)
	r, stamp := h.shortSection(s)
	require.EqualValues(t, 3, r, "reference %d at %d, row %+v", r, stamp, s.row)
	require.Greater(t, stamp, before.Stamp+h.opts.Window/2, "reference %d at %d, row %+v", r, stamp, s.row)
	require.EqualValues(t, 2, s.row.Head, "reference %d at %d", r, stamp)
}
