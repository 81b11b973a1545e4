package musiccore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A section on a new key, command by command.
func TestLockPutUnlock(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{Owner: "me"})
	id, read := commandOf[ReadRow](h)
	require.False(t, read.Quorum, "the first look is local")
	h.reply(id, Result{Status: StatusDone})
	id, w := commandOf[Apply](h)
	require.Equal(t, IfAbsent, w.Swap.If.What, "new key")
	require.True(t, w.Swap.Set.Row.Dirty, "new key: %+v", w.Swap)
	h.reply(id, Result{Status: StatusDone})
	g := h.expectState(op, StateHeld)
	require.EqualValues(t, 1, g.Ref)
	require.Equal(t, h.opts.ClientLease, g.Lease)
	require.Equal(t, "me", g.Holder)
	require.True(t, g.Applied, "grant %+v", g)
	tk, put := h.begin(1, Put)
	require.False(t, tk.OK(), "a dirty term gives no ticket before the synchronise")
	id, c := commandOf[Synch](h)
	require.Equal(t, c.Fence, w.Swap.Set.Row.Epoch+2)
	h.reply(id, Result{Status: StatusDone})
	tk = h.answerOf(put).Ticket
	require.Equal(t, w.Swap.Set.Row.Epoch+4, tk.Stamp, "stamp after fence and cells")
	require.Equal(t, VerdictTell, h.end(tk, OutcomeAcked))
	un := h.unlock(1)
	require.True(t, h.expectState(un, StateReleased).Applied, "applied")
	id, w = commandOf[Apply](h)
	require.False(t, w.Swap.Set.Row.Dirty, "release %+v", w.Swap)
	require.EqualValues(t, 2, w.Swap.Set.Row.Head)
	require.Greater(t, w.Swap.Set.Row.Epoch, tk.Stamp)
	h.reply(id, Result{Status: StatusDone})
	h.expectNoCommand()
	require.Empty(t, h.core.keys, "an idle key leaves memory behind")
	require.Empty(t, h.core.ops, "an idle key leaves memory behind")
	require.Empty(t, h.core.commands, "an idle key leaves memory behind")
	require.Empty(t, h.core.timers, "an idle key leaves memory behind")
	op = h.lock(Request{})
	_, w = commandOf[Apply](h)
	require.Equal(t, IfGuardEpoch, w.Swap.If.What, "the row of an idle key is remembered")
	require.False(t, w.Swap.Set.Row.Dirty, "the row of an idle key is remembered: %+v", w.Swap)
	h.expectWaiting(op)
}
