package musiccore

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A holder that is silent for its lease loses the lock; every operation and LOCK renews the lease.
func TestClientLease(t *testing.T) {
	h, s := newHolder(t)
	next := h.lock(Request{Wait: time.Hour})
	s.answerAll()
	h.advance(29 * time.Second)
	tk, _ := h.begin(1, Put)
	require.Equal(t, time.Second, tk.Left, "left %v of %v", tk.Left, tk.Lease)
	require.Equal(t, 30*time.Second, tk.Lease, "left %v", tk.Left)
	h.end(tk, OutcomeAcked)
	h.advance(29 * time.Second)
	require.Equal(t, 30*time.Second, h.expectState(h.lock(Request{Ref: 1}), StateHeld).Lease, "every accepted statement renews")
	h.advance(30*time.Second - 1)
	h.expectWaiting(next)
	h.advance(1)
	s.answerAll()
	require.True(t, h.expectState(next, StateHeld).OwnerDied, "the holder did not give it back")
	_, op := h.begin(1, Put)
	h.expectError(op, ErrLost)
	h.expectState(h.lock(Request{Ref: 1}), StateLost)
	require.False(t, h.expectState(h.unlock(1), StateLost).Applied, "applied")
}

// A lease ends at its time even if Tick is late.
func TestLeaseIsOverThoughNobodyTicked(t *testing.T) {
	h, s := newHolder(t)
	for range 11 {
		h.advanceUnticked(3 * time.Second)
		h.beat()
	}
	tk, op := h.begin(1, Put)
	require.False(t, tk.OK(), "a ticket after the lease")
	h.expectWaiting(op)
	s.answerAll()
	h.expectError(op, ErrLost)
}

// The next holder, and only that one, is told that the holder before did not give the lock back,
// also after the key was idle.
func TestOwnerDiedIsToldOnceAndRemembered(t *testing.T) {
	h, s := newHolder(t)
	h.advance(30 * time.Second)
	s.answerAll()
	require.Empty(t, h.core.keys, "not idle")
	op := h.lock(Request{})
	s.answerAll()
	require.True(t, h.expectState(op, StateHeld).OwnerDied, "forgotten")
	h.unlock(2)
	s.answerAll()
	op = h.lock(Request{})
	s.answerAll()
	require.False(t, h.expectState(op, StateHeld).OwnerDied, "told again")
}

// UNLOCK of a holder, of a waiter, and of a reference that is not held.
func TestUnlock(t *testing.T) {
	h, s := newHolder(t)
	op := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	require.True(t, h.expectState(h.unlock(2), StateReleased).Applied, "a place in the queue is given back")
	h.expectState(op, StateReleased)
	h.unlock(1)
	require.True(t, h.expectState(h.unlock(1), StateReleased).Applied, "again, and it was this client's UNLOCK")
	s.answerAll()
	again := h.unlock(1)
	require.True(t, h.expectState(again, StateReleased).Applied, "what a key's row is kept for is how its references ended, too")
	for r, want := range map[LockRef]error{0: ErrNotHeld, -3: ErrNotHeld, 99: ErrNotHeld} {
		op := h.unlock(r)
		s.answerAll()
		h.expectError(op, want)
	}
}

// An operation on a reference of a living session elsewhere is told which one.
func TestElsewhere(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	row := headOfSession9()
	s.row = &row
	_, put := h.begin(1, Put)
	s.answerAll()
	h.expectError(put, ErrElsewhere)
	var e *ElsewhereError
	require.ErrorAs(t, h.answers[put].Err, &e, "which session?")
	require.Equal(t, session(9), e.Session, "which session?")
	require.NotEqual(t, "", e.Error(), "which session?")
	op := h.lock(Request{Ref: 1})
	s.answerAll()
	h.expectError(op, ErrElsewhere)
	op = h.unlock(1)
	s.answerAll()
	h.expectError(op, ErrElsewhere)
}

// While the proxy is drained nothing new is granted, and what is held ends as usual.
func TestDrain(t *testing.T) {
	h, s := newHolder(t)
	put, _ := h.begin(1, Put)
	queued := h.lock(Request{Wait: time.Hour})
	s.answerAll()
	h.collect(h.core.Drain(h.time()))
	h.expectState(queued, StateQueued)
	h.expectError(h.lock(Request{}), ErrDraining)
	require.False(t, h.core.Quiet(), "a put is in flight")
	h.end(put, OutcomeUnknown)
	require.False(t, h.core.Quiet(), "unsettled")
	s.answerAll()
	require.True(t, h.core.Quiet(), "settled, and not quiet")
	require.EqualValues(t, 1, s.row.Head, "held references stay: their clients go elsewhere")
	h.unlock(1)
	s.answerAll()
	require.Nil(t, h.core.keys[h.key()].term, "released, and nobody granted")
	require.EqualValues(t, 2, s.row.Head, "released, and nobody granted")
}

// During a drain, a LOCK without a reference is refused.
func TestDrainSendsTheNamelessAway(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{})
	h.collect(h.core.Drain(h.time()))
	h.expectError(op, ErrDraining)
}

// When a table is dropped, its terms end and its waiters are told.
func TestDropped(t *testing.T) {
	h, s := newHolder(t)
	tk, _ := h.begin(1, Put)
	waiter := h.lock(Request{})
	s.answerAll()
	h.collect(h.core.Dropped(h.time(), h.table))
	h.expectError(waiter, ErrUnavailable)
	require.Equal(t, VerdictUncertain, h.end(tk, OutcomeAcked))
	h.expectNoCommand()
	require.Zero(t, len(h.core.keys)+len(h.core.idle.rows), "something is left")
}

// Of a table that is no longer critical nothing is kept: there may be any number of them, one after the other.
func TestOrdinary(t *testing.T) {
	h, s := newHolder(t)
	h.collect(h.core.Closed(h.time(), h.table, 5))
	h.collect(h.core.Strict(h.time(), h.table, true, h.session.ID()))
	waiter := h.lock(Request{})
	s.answerAll()
	h.collect(h.core.Ordinary(h.time(), h.table))
	h.expectError(waiter, ErrUnavailable)
	late := h.lock(Request{})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Gone: true})
	h.expectError(late, ErrUnavailable)
	h.expectNoCommand()
	require.Zero(t, len(h.core.keys)+len(h.core.idle.rows)+len(h.core.tables), "something is left")
}

// References of a table's next generation are higher than all references of the last one.
func TestReferencesOfTheNextGeneration(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	section := func(want LockRef) {
		t.Helper()
		op := h.lock(Request{})
		s.answerAll()
		require.Equal(t, want, h.expectState(op, StateHeld).Ref)
		h.unlock(want)
		s.answerAll()
	}
	section(1)
	h.collect(h.core.Dropped(h.time(), h.table))
	s.row = nil
	early := h.lock(Request{}) // its Enqueue counts from 1
	h.collect(h.core.FirstReference(h.time(), h.table, 65537))
	h.expectError(early, ErrUnavailable)
	h.open = nil
	section(65537)
	section(65538)
	op := h.lock(Request{Ref: 1})
	s.answerAll()
	h.expectState(op, StateLost)
	require.Empty(t, h.alarms)
}

// The number of rows kept for idle keys is bounded; the oldest is removed first.
func TestIdleRowsAreBounded(t *testing.T) {
	i := newIdle(3)
	for n := range 10 {
		i.put(Key{PK: string(rune('a' + n))}, idleKey{row: Row{Guard: LockRef(n + 1)}})
		i.put(Key{PK: "z"}, idleKey{row: Row{Guard: 99}})
	}
	require.LessOrEqual(t, len(i.rows), 3, "rows")
	require.LessOrEqual(t, len(i.ring), 3, "%d rows", len(i.rows))
	long := newIdle(3)
	for _, n := range []int{idleKeyBytes, idleKeyBytes + 1} {
		k := Key{PK: strings.Repeat("x", n)}
		long.put(k, idleKey{})
		_, kept := long.get(k)
		require.Equal(t, n == idleKeyBytes, kept, "a key of %d bytes", n)
	}
	off := newIdle(0)
	off.put(Key{}, idleKey{})
	_, ok := off.get(Key{})
	require.False(t, ok, "kept")
}

// The states have the names that clients see.
func TestStateWords(t *testing.T) {
	want := map[State]string{StateHeld: "HELD", StateQueued: "QUEUED", StateBusy: "BUSY", StateLost: "LOST", StateReleased: "RELEASED", 0: ""}
	for s, word := range want {
		assert.Equal(t, word, s.String())
	}
}
