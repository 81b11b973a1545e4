package musiccore

import (
	"errors"
	"testing"
	"time"
)

// A holder that is silent for its lease loses the lock; every operation and LOCK renews the lease.
func TestClientLease(t *testing.T) {
	h, s := newHolder(t)
	next := h.lock(Request{Wait: time.Hour})
	s.answerAll()
	h.advance(29 * time.Second)
	tk, _ := h.begin(1, Put)
	if tk.Left != time.Second || tk.Lease != 30*time.Second {
		t.Fatalf("left %v of %v", tk.Left, tk.Lease)
	}
	h.end(tk, OutcomeAcked)
	h.advance(29 * time.Second)
	if g := h.expectState(h.lock(Request{Ref: 1}), StateHeld); g.Lease != 30*time.Second {
		t.Fatalf("every accepted statement renews: %+v", g)
	}
	h.advance(30*time.Second - 1)
	h.expectWaiting(next)
	h.advance(1)
	s.answerAll()
	if g := h.expectState(next, StateHeld); !g.OwnerDied {
		t.Fatal("the holder did not give it back")
	}
	_, op := h.begin(1, Put)
	h.expectError(op, ErrLost)
	h.expectState(h.lock(Request{Ref: 1}), StateLost)
	if g := h.expectState(h.unlock(1), StateLost); g.Applied {
		t.Fatal("applied")
	}
}

// A lease ends at its time even if Tick is late.
func TestLeaseIsOverThoughNobodyTicked(t *testing.T) {
	h, s := newHolder(t)
	for range 11 {
		h.advanceUnticked(3 * time.Second)
		h.beat()
	}
	tk, op := h.begin(1, Put)
	if tk.OK() {
		t.Fatal("a ticket after the lease")
	}
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
	if len(h.core.keys) != 0 {
		t.Fatal("not idle")
	}
	op := h.lock(Request{})
	s.answerAll()
	if g := h.expectState(op, StateHeld); !g.OwnerDied {
		t.Fatal("forgotten")
	}
	h.unlock(2)
	s.answerAll()
	op = h.lock(Request{})
	s.answerAll()
	if g := h.expectState(op, StateHeld); g.OwnerDied {
		t.Fatal("told again")
	}
}

// UNLOCK of a holder, of a waiter, and of a reference that is not held.
func TestUnlock(t *testing.T) {
	h, s := newHolder(t)
	op := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	if g := h.expectState(h.unlock(2), StateReleased); !g.Applied {
		t.Fatal("a place in the queue is given back")
	}
	h.expectState(op, StateReleased)
	h.unlock(1)
	if g := h.expectState(h.unlock(1), StateReleased); !g.Applied {
		t.Fatal("again, and it was this client's UNLOCK")
	}
	s.answerAll()
	again := h.unlock(1)
	if g := h.expectState(again, StateReleased); !g.Applied {
		t.Fatal("what a key's row is kept for is how its references ended, too")
	}
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
	if !errors.As(h.answers[put].Err, &e) || e.Session != session(9) || e.Error() == "" {
		t.Fatal("which session?")
	}
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
	if h.core.Quiet() {
		t.Fatal("a put is in flight")
	}
	h.end(put, OutcomeUnknown)
	if h.core.Quiet() {
		t.Fatal("unsettled")
	}
	s.answerAll()
	if !h.core.Quiet() {
		t.Fatal("settled, and not quiet")
	}
	if s.row.Head != 1 {
		t.Fatal("held references stay: their clients go elsewhere")
	}
	h.unlock(1)
	s.answerAll()
	if h.core.keys[h.key()].term != nil || s.row.Head != 2 {
		t.Fatal("released, and nobody granted")
	}
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
	if v := h.end(tk, OutcomeAcked); v != VerdictUncertain {
		t.Fatalf("verdict %v", v)
	}
	h.expectNoCommand()
	if len(h.core.keys)+len(h.core.idle.rows) != 0 {
		t.Fatal("something is left")
	}
}

// References of a table's next generation are higher than all references of the last one.
func TestReferencesOfTheNextGeneration(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	section := func(want LockRef) {
		t.Helper()
		op := h.lock(Request{})
		s.answerAll()
		if g := h.expectState(op, StateHeld); g.Ref != want {
			t.Fatalf("reference %d, want %d", g.Ref, want)
		}
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
	if len(h.alarms) != 0 {
		t.Fatal(h.alarms)
	}
}

// The number of rows kept for idle keys is bounded; the oldest is removed first.
func TestIdleRowsAreBounded(t *testing.T) {
	i := newIdle(3)
	for n := range 10 {
		i.put(Key{PK: string(rune('a' + n))}, idleKey{row: Row{Guard: LockRef(n + 1)}})
		i.put(Key{PK: "z"}, idleKey{row: Row{Guard: 99}})
	}
	if len(i.rows) > 3 || len(i.ring) > 3 {
		t.Fatalf("%d rows", len(i.rows))
	}
	off := newIdle(0)
	off.put(Key{}, idleKey{})
	if _, ok := off.get(Key{}); ok {
		t.Fatal("kept")
	}
}

// The states have the names that clients see.
func TestStateWords(t *testing.T) {
	want := map[State]string{StateHeld: "HELD", StateQueued: "QUEUED", StateBusy: "BUSY", StateLost: "LOST", StateReleased: "RELEASED", 0: ""}
	for s, word := range want {
		if s.String() != word {
			t.Errorf("%d is %q", s, s.String())
		}
	}
}
