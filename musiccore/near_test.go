package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// grantedNear returns a harness whose reference 1 was granted by an INSERT that was committed in one data
// centre.
func grantedNear(t *testing.T) (*harness, *fakeStore) {
	t.Helper()
	h := newHarness(t)
	s := newFakeStore(h)
	op := h.lock(Request{})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, s.read())
	id, a := commandOf[Apply](h)
	require.True(t, a.Near, "an Enqueue may be committed in one data centre")
	r := s.apply(a.Swap)
	r.Near = true
	h.reply(id, r)
	h.expectState(op, StateHeld)
	h.expectNoCommand()
	return h, s
}

// Only the first sending of an Enqueue may be committed in one data centre. A repetition may be
// needed because the nodes there failed, and others rely on LWTs that end a term.
func TestOnlyAnEnqueueIsCommittedNear(t *testing.T) {
	h, s := grantedNear(t)
	h.unlock(1)
	id, a := commandOf[Apply](h)
	require.False(t, a.Near, "a Release was committed in one data centre")
	h.reply(id, s.apply(a.Swap))
	h.lock(Request{})
	id, a = commandOf[Apply](h)
	require.True(t, a.Near, "an Enqueue behind a Release is one, too")
	h.reply(id, Result{})
	h.advance(time.Second)
	_, again := commandOf[Apply](h)
	require.False(t, again.Near, "sent again, it was committed in one data centre")
}

// M6: strict tables check operations against the row, so nothing of them is committed in one data
// centre.
func TestStrictTablesCommitNothingNear(t *testing.T) {
	h := newHarness(t)
	h.collect(h.core.Strict(h.time(), h.table, true, h.session.ID()))
	h.lock(Request{})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone})
	_, a := commandOf[Apply](h)
	require.False(t, a.Near, "an Enqueue of a strict table was committed in one data centre")
}

// A commit that may have been lost on its way to other data centres is completed by a SERIAL read,
// repeated until it answers. The key is not forgotten before.
func TestANearCommitIsConfirmed(t *testing.T) {
	h, s := grantedNear(t)
	h.advance(confirmAfter - time.Millisecond)
	h.expectNoCommand()
	h.advance(time.Millisecond)
	for range 3 {
		id, a := commandOf[ReadRow](h)
		require.True(t, a.Serial, "%+v", a)
		h.reply(id, Result{})
		h.advance(time.Second)
	}
	id, _ := commandOf[ReadRow](h)
	h.reply(id, s.read())
	h.advance(5 * time.Second)
	h.expectNoCommand()
}

// A Release that follows puts the commit on a quorum, so no read is needed.
func TestAReleaseConfirmsANearCommit(t *testing.T) {
	h, s := grantedNear(t)
	h.unlock(1)
	s.answerAll()
	for h.advance(5 * time.Second); len(h.open) > 0; {
		_, a := commandOf[ReadRow](h)
		require.False(t, a.Serial, "%+v", a)
	}
}

// I1: a QUORUM read need not show an INSERT that was committed in one data centre; a SERIAL read
// must.
func TestANearInsertMayBeMissingAtQuorum(t *testing.T) {
	h, _ := grantedNear(t)
	h.receive(HintWaiting)
	id, a := commandOf[ReadRow](h)
	require.True(t, a.Quorum, "%+v", a)
	require.False(t, a.Serial, "%+v", a)
	h.reply(id, Result{Status: StatusDone})
	require.Empty(t, h.alarms)
	if tk, op := h.begin(1, Put); !tk.OK() {
		h.expectWaiting(op) // it may have to synchronise, and is not lost
	}
	h.open = nil
	h.advance(confirmAfter)
	id, a = commandOf[ReadRow](h)
	require.True(t, a.Serial, "%+v", a)
	h.reply(id, Result{Status: StatusDone})
	require.NotEmpty(t, h.alarms)
	require.Equal(t, "I1", h.alarms[0].Rule, "alarms %+v", h.alarms)
}

// Only a SERIAL read can tell that a reference was never given: an Enqueue of another proxy may not
// be on a quorum yet.
func TestNotHeldIsToldAtSerial(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	_, op := h.begin(7, Put)
	id, a := commandOf[ReadRow](h)
	require.True(t, a.Serial, "%+v", a)
	h.expectWaiting(op)
	h.reply(id, s.read())
	h.expectError(op, ErrNotHeld)
}
