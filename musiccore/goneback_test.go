package musiccore

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// idleAfterOlder returns a harness whose key is idle, at a store whose lock row is that of an earlier
// section again: replicas that lost power together have forgotten what they acknowledged last.
func idleAfterOlder(t *testing.T) (*harness, *fakeStore) {
	t.Helper()
	h := newHarness(t)
	s := newFakeStore(h)
	var before Row
	for section := range LockRef(2) {
		h.lock(Request{})
		s.answerAll()
		h.unlock(section + 1)
		s.answerAll()
		if section == 0 {
			before = *s.row
		}
	}
	require.Empty(t, h.core.keys)
	s.row = &before
	return h, s
}

// I1: a lock row that has gone back is no reason never to lock its key again.
func TestI1TheRowGoesBack(t *testing.T) {
	h, s := idleAfterOlder(t)
	op := h.lock(Request{Wait: time.Minute})
	h.runFor(s, 5*time.Second)
	require.EqualValues(t, 3, h.expectState(op, StateHeld).Ref, "1 and 2 were given")
	require.Equal(t, "I1", h.alarms[0].Rule, "%+v", h.alarms)
	require.Len(t, h.alarms, 1)
}

// What was done under the lock that the lock row has lost lies below the fence of the next one, although
// the row says that nothing is left.
func TestTheRowGoesBackUnderALock(t *testing.T) {
	h, s := newHolder(t)
	h.unlock(1)
	s.answerAll()
	before := *s.row
	require.False(t, before.Dirty)
	h.lock(Request{})
	s.answerAll()
	tk, _ := h.begin(2, Put)
	s.row = &before
	require.Equal(t, VerdictTell, h.end(tk, OutcomeAcked), "no clock of this proxy shows it")
	h.unlock(2)
	next := h.lock(Request{Wait: time.Minute})
	h.runFor(s, 5*time.Second)
	require.EqualValues(t, 3, h.expectState(next, StateHeld).Ref)
	s.actions = nil
	_, get := h.begin(3, Get)
	h.runFor(s, time.Second)
	require.True(t, h.answerOf(get).Ticket.OK())
	var fence Stamp
	for _, a := range s.actions {
		if synch, ok := a.(Synch); ok {
			fence = synch.Fence
		}
	}
	require.Greater(t, fence, tk.Stamp)
}

// What is known of a lock that the lock row has lost outlives the key in memory: nobody waits for it when it is
// released. The replicas show the row before the lock, or that of the lock before it, whose head is an orphan by now,
// or none.
func TestTheRowIsLostWhileNobodyWaits(t *testing.T) {
	h, s := newHolder(t)
	held := *s.row
	h.unlock(1)
	s.answerAll()
	released := *s.row
	require.False(t, released.Dirty)
	for name, shown := range map[string]*Row{"released": &released, "held": &held, "none": nil} {
		t.Run(name, func(t *testing.T) { expectNothingGivenAgain(t, shown) })
	}
}

// expectNothingGivenAgain has the lock row of the second section be another one, and expects the third section to have a
// reference and stamps above those of the second.
func expectNothingGivenAgain(t *testing.T, shown *Row) {
	h, s := newHolder(t)
	h.unlock(1)
	s.answerAll()
	h.lock(Request{})
	s.answerAll()
	tk, _ := h.begin(2, Put)
	s.row = shown
	require.Equal(t, VerdictUncertain, h.end(tk, OutcomeUnknown))
	h.unlock(2)
	h.runFor(s, 30*time.Second)
	require.Len(t, h.alarms, 1)
	require.Empty(t, h.core.keys)
	next := h.lock(Request{})
	s.answerAll()
	require.EqualValues(t, 3, h.expectState(next, StateHeld).Ref, "1 and 2 were given")
	require.Greater(t, s.row.Epoch, tk.Stamp)
	require.True(t, s.row.Dirty, "the put of 2 may still surface")
	_, old := h.begin(2, Put)
	s.answerAll()
	h.expectError(old, ErrLost)
}

// So it does where somebody waits, but the session ends before he gets a reference, as it may while replicas come back
// that have lost the row.
func TestTheRowIsLostAndThenTheSession(t *testing.T) {
	h, s := newHolder(t)
	s.row = nil
	h.lock(Request{Wait: time.Minute})
	for len(h.alarms) == 0 {
		id, action := h.open[0].ID, h.open[0].Action
		h.open = h.open[1:]
		result := Result{Status: StatusRefused}
		if read, ok := action.(ReadRow); ok {
			result = s.do(read)
		}
		h.reply(id, result)
	}
	h.open = nil // what gives him one comes nowhere
	h.advanceUnticked(time.Minute)
	h.session = NewSession(session(2), h.opts)
	h.collect(h.core.Rejoin(h.time(), h.session))
	h.beat()
	require.Empty(t, h.core.keys)
	next := h.lock(Request{Wait: time.Minute})
	h.runFor(s, 5*time.Second)
	require.EqualValues(t, 2, h.expectState(next, StateHeld).Ref, "1 was given")
	_, old := h.begin(1, Put)
	s.answerAll()
	h.expectError(old, ErrLost)
}

// A read that began before the present row was known does not show that this one is lost: it may have been
// decided meanwhile.
func TestALateReadDoesNotShowThatTheRowWentBack(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	h.lock(Request{})
	s.answerAll()
	next := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	h.unlock(1)
	id, a := commandOf[Apply](h)
	before := *s.row
	s.do(a)
	h.reply(id, Result{Status: StatusDone})
	for range 2 {
		id, _ := commandOf[ReadRow](h)
		h.reply(id, sees(before))
		h.advance(time.Second)
	}
	late, read := commandOf[ReadRow](h)
	require.True(t, read.Completes)
	h.lock(Request{Wait: time.Minute})
	h.advance(200 * time.Millisecond)
	id, a = commandOf[Apply](h)
	require.Equal(t, StatusDone, s.do(a).Status)
	h.reply(id, Result{Status: StatusDone})
	h.reply(late, sees(before))
	require.Empty(t, h.alarms)
	s.answerAll()
	h.runFor(s, 2*time.Second)
	h.expectState(next, StateHeld)
}

// An LWT under way is not given up where the row has gone back, or is gone: it could be applied later, beside
// the next one (H3).
func TestTheRowGoesBackUnderAnLWT(t *testing.T) {
	h, s := idleAfterOlder(t)
	goesUnderAnLWT(t, h, s, sees(*s.row), 3)
	h, s = idleAfterOlder(t)
	s.row = nil
	goesUnderAnLWT(t, h, s, Result{Status: StatusDone}, 3)
}

// goesUnderAnLWT sends an LWT, has the lock row read as it is shown while it is under way, and expects the next reference.
func goesUnderAnLWT(t *testing.T, h *harness, s *fakeStore, shown Result, next LockRef) {
	t.Helper()
	op := h.lock(Request{Wait: time.Minute})
	id, _ := commandOf[Apply](h)
	for range 6 {
		h.begin(9, Put) // asks whether that was given
		for _, c := range slices.Clone(h.open) {
			_, isRead := c.Action.(ReadRow)
			require.True(t, isRead, "beside the LWT under way: %+v", c.Action)
			read, _ := commandOf[ReadRow](h)
			h.reply(read, shown)
		}
		h.advance(time.Second)
	}
	h.reply(id, Result{Status: StatusRefused})
	h.runFor(s, 5*time.Second)
	require.EqualValues(t, next, h.expectState(op, StateHeld).Ref)
	require.Len(t, h.alarms, 1)
}
