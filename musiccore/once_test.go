package musiccore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// lockOnce asks for a lock for one statement on a key without a lock row, and returns the commands
// that make the row and read the key's stamps.
func lockOnce(t *testing.T, kind Kind, behind ...bool) (h *harness, lock OpID, row CommandID, swap Swap, stamps CommandID) {
	t.Helper()
	h = newHarness(t)
	lock = h.lock(Request{Once: kind, Behind: len(behind) > 0})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone})
	row, a := commandOf[Apply](h)
	stamps, _ = commandOf[ReadStamps](h)
	return h, lock, row, a.Swap, stamps
}

// Where the lock is to be released behind the answer, its row is an ordinary one. A statement on an empty key
// still makes its fence itself, as its first operation, and is told without another look at the row.
func TestOnceReleasedBehind(t *testing.T) {
	h, lock, row, swap, stamps := lockOnce(t, Get, true)
	require.False(t, swap.Set.Row.Empty(), "%+v", swap)
	h.reply(stamps, Result{Status: StatusDone, Empty: true})
	h.reply(row, Result{Status: StatusDone})
	require.True(t, h.answerOf(lock).Grant.Empty)
	tk, _ := h.begin(1, FencedPut)
	require.Equal(t, tk.Stamp-1, tk.Fence)
	require.Equal(t, VerdictTell, h.end(tk, OutcomeAcked))
	h.unlock(1)
	_, release := commandOf[Apply](h)
	require.False(t, release.Swap.Set.Row.Dirty, "%+v", release.Swap)
}

// If plain writes ended only while the put was under way, they may lie above its fence.
func TestOnceReleasedBehindIsClosedMeanwhile(t *testing.T) {
	h, _, row, swap, stamps := lockOnce(t, Get, true)
	h.reply(stamps, Result{Status: StatusDone, Empty: true})
	h.reply(row, Result{Status: StatusDone})
	tk, _ := h.begin(1, FencedPut)
	h.collect(h.core.Closed(h.time(), h.table, swap.Set.Row.Epoch+1000))
	h.end(tk, OutcomeAcked)
	h.unlock(1)
	_, release := commandOf[Apply](h)
	require.True(t, release.Swap.Set.Row.Dirty && !release.Swap.Set.Row.Unfenced, "%+v", release.Swap)
}

// A key of which it is not known that it is empty is synchronised before it is read.
func TestOnceReleasedBehindOfAKeyWithRows(t *testing.T) {
	h, lock, row, _, stamps := lockOnce(t, Get, true)
	h.reply(row, Result{Status: StatusDone})
	require.False(t, h.answerOf(lock).Grant.Empty, "it is not known yet")
	h.reply(stamps, Result{Status: StatusDone, Stamp: 1})
	_, op := h.begin(1, FencedPut)
	require.ErrorIs(t, h.answerOf(op).Err, ErrSynchronising)
	h.begin(1, Get)
	commandOf[Synch](h)
}

// A lock for one put leaves the row released and dirty. The put is told when a read of the row at
// SERIAL that began after its answer shows the same epoch; nothing is released.
func TestOnce(t *testing.T) {
	h, lock, row, swap, stamps := lockOnce(t, BlindPut)
	require.True(t, swap.Set.Row.Empty() && swap.Set.Row.Dirty, "%+v", swap)
	h.reply(row, Result{Status: StatusDone})
	h.reply(stamps, Result{Status: StatusDone})
	h.expectState(lock, StateHeld)
	tk, op := h.begin(1, BlindPut)
	require.True(t, tk.OK())
	require.Less(t, tk.Stamp, swap.Set.Row.Epoch)
	require.Equal(t, VerdictPending, h.end(tk, OutcomeAcked))
	h.unlock(1)
	id, read := commandOf[ReadRow](h)
	require.True(t, read.Serial)
	h.reply(id, Result{Status: StatusDone, Row: &swap.Set.Row})
	require.Equal(t, VerdictTell, h.answerOf(op).Verdict)
	h.expectNoCommand()
}

// If another term has begun, the outcome is unknown.
func TestOnceOvertaken(t *testing.T) {
	h, _, row, swap, stamps := lockOnce(t, BlindPut)
	h.reply(row, Result{Status: StatusDone})
	h.reply(stamps, Result{Status: StatusDone})
	tk, op := h.begin(1, BlindPut)
	h.end(tk, OutcomeAcked)
	id, _ := commandOf[ReadRow](h)
	later := swap.Set.Row
	later.Epoch++
	h.reply(id, Result{Status: StatusDone, Row: &later})
	require.Equal(t, VerdictLost, h.answerOf(op).Verdict)
}

// If the key has data, or was closed or altered meanwhile, the reference is given up and the client
// gets another one in the ordinary way.
func TestOnceThatDoesNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		kind    Kind
		stamps  Result
		between func(*harness) // instead of an answer to the read of the stamps
	}{
		"data":         {kind: Get, stamps: Result{Status: StatusDone, Stamp: 1}},
		"a high stamp": {kind: BlindPut, stamps: Result{Status: StatusDone, Stamp: poison}},
		"unread":       {kind: Get},
		"closed":       {kind: BlindPut, between: func(h *harness) { h.collect(h.core.Closed(h.time(), h.table, poison)) }},
		"altered":      {kind: BlindPut, between: func(h *harness) { h.collect(h.core.Altered(h.time(), h.table, poison)) }},
	} {
		t.Run(name, func(t *testing.T) {
			h, lock, row, swap, stamps := lockOnce(t, c.kind)
			h.reply(row, Result{Status: StatusDone})
			if c.between != nil {
				c.between(h)
			} else {
				h.reply(stamps, c.stamps)
			}
			id, again := commandOf[Apply](h)
			require.Equal(t, IfGuardEpoch, again.Swap.If.What)
			require.Equal(t, swap.Set.Row.Epoch, again.Swap.If.Epoch)
			h.reply(id, Result{Status: StatusDone})
			h.expectState(lock, StateHeld)
		})
	}
}

// Below closed, no lock is for one statement.
func TestOnceBelowClosed(t *testing.T) {
	h := newHarness(t)
	h.collect(h.core.Closed(h.time(), h.table, Closing(h.time(), 0)))
	h.lock(Request{Once: BlindPut})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone})
	_, a := commandOf[Apply](h)
	require.False(t, a.Swap.Set.Row.Empty(), "%+v", a.Swap)
}

// A put that has fenced an empty key leaves it settled: the next term of the same proxy is clean.
func TestOnceFencesAnEmptyKey(t *testing.T) {
	h, lock, row, swap, stamps := lockOnce(t, Get)
	h.reply(stamps, Result{Status: StatusDone, Empty: true})
	h.reply(row, Result{Status: StatusDone})
	require.True(t, h.answerOf(lock).Grant.Empty)
	tk, op := h.begin(1, FencedPut)
	require.Equal(t, tk.Stamp-1, tk.Fence)
	h.end(tk, OutcomeAcked)
	h.unlock(1)
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone, Row: &swap.Set.Row})
	require.Equal(t, VerdictTell, h.answerOf(op).Verdict)
	h.lock(Request{})
	_, next := commandOf[Apply](h)
	require.False(t, next.Swap.Set.Row.Dirty, "%+v", next.Swap)
}

// A put of unknown outcome leaves the row dirty, also after one that has fenced the key.
func TestOnceLeavesWhatIsUnknown(t *testing.T) {
	h, _, row, swap, stamps := lockOnce(t, Get)
	h.reply(stamps, Result{Status: StatusDone, Empty: true})
	h.reply(row, Result{Status: StatusDone})
	tk, _ := h.begin(1, FencedPut)
	h.end(tk, OutcomeAcked)
	tk, _ = h.begin(1, Put)
	require.True(t, tk.OK())
	h.end(tk, OutcomeUnknown)
	h.unlock(1)
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone, Row: &swap.Set.Row})
	h.lock(Request{})
	_, next := commandOf[Apply](h)
	require.True(t, next.Swap.Set.Row.Dirty, "%+v", next.Swap)
}

// A put may fence nothing but an empty key, as its first operation.
func TestOnceFencesNothingElse(t *testing.T) {
	h, _, row, _, stamps := lockOnce(t, BlindPut)
	h.reply(row, Result{Status: StatusDone})
	h.reply(stamps, Result{Status: StatusDone, Stamp: 1})
	tk, op := h.begin(1, FencedPut)
	require.False(t, tk.OK())
	require.ErrorIs(t, h.answerOf(op).Err, ErrSynchronising)
}
