package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// blockHeld returns a harness whose key has come back after a short section: its last grant was of
// a block, and reference 2 holds.
func blockHeld(t *testing.T) (*harness, *fakeStore) {
	t.Helper()
	h, s := newHolder(t, func(o *Options) { o.Retain = 200 * time.Millisecond })
	h.unlock(1)
	s.answerAll()
	op := h.lock(Request{})
	s.answerAll()
	g := h.expectState(op, StateHeld)
	require.EqualValues(t, 2, g.Ref, "grant %+v on %+v: no block", g, s.row)
	require.EqualValues(t, 9, s.row.Guard, "grant %+v on %+v: no block", g, s.row)
	require.True(t, s.row.Queue[0].Retained, "grant %+v on %+v: no block", g, s.row)
	s.actions = nil
	return h, s
}

// shortSection locks, puts and unlocks, and answers the reference and the stamp.
func (h *harness) shortSection(s *fakeStore) (LockRef, Stamp) {
	h.t.Helper()
	op := h.lock(Request{})
	s.answerAll()
	r := h.expectState(op, StateHeld).Ref
	tk, _ := h.begin(r, Put)
	require.True(h.t, tk.OK(), "reference %d has to wait for its put", r)
	h.end(tk, OutcomeAcked)
	h.unlock(r)
	s.answerAll()
	return r, tk.Stamp
}

// docs/protocol.md 3.17: an uncontended key that comes back to the same proxy costs no LWT.
func TestAKeyThatComesBackCostsNoLWT(t *testing.T) {
	h, s := blockHeld(t)
	h.unlock(2)
	last := Stamp(0)
	for want := LockRef(3); want <= 9; want++ {
		r, stamp := h.shortSection(s)
		require.Equal(t, want, r, "reference %d at %d after %d", r, stamp, last)
		require.Greater(t, stamp, last, "reference %d at %d after %d, want %d", r, stamp, last, want)
		last = stamp
		if want < 9 {
			require.Zero(t, s.lwts(), "reference %d has cost an LWT", r)
		}
	}
	require.Equal(t, 1, s.lwts(), "a block that is used up is released: %+v", s.row)
	require.EqualValues(t, 10, s.row.Head, "a block that is used up is released")
	require.Greater(t, s.row.Epoch, last, "a block that is used up is released")
	require.False(t, s.row.Dirty, "a block that is used up is released: %+v", s.row)
	h.lock(Request{})
	s.answerAll()
	require.EqualValues(t, 9+64, s.row.Guard, "the next one is larger")
}

// With Options.Retain 0 no block is reserved, however short sections are.
func TestNoBlockWithoutRetain(t *testing.T) {
	h, s := newHolder(t)
	h.unlock(1)
	s.answerAll()
	h.shortSection(s)
	require.EqualValues(t, 3, s.row.Head)
	require.EqualValues(t, 2, s.row.Guard)
	require.False(t, s.row.Queue[0].Retained, "row %+v", s.row)
}

// A block without a holder is released after Options.Retain.
func TestAnIdleBlockIsReleased(t *testing.T) {
	h, s := blockHeld(t)
	h.unlock(2)
	h.runFor(s, h.opts.Retain-20*time.Millisecond)
	require.EqualValues(t, 2, s.row.Head, "given up early")
	h.runFor(s, 40*time.Millisecond)
	require.EqualValues(t, 10, s.row.Head)
	require.Equal(t, SessionID{}, s.row.Owner)
	require.Empty(t, h.core.keys, "row %+v", s.row)
}

// After a long section, an Enqueue reserves no block: the measure of short sections starts again.
func TestLongSectionsReserveNoBlock(t *testing.T) {
	h, s := blockHeld(t)
	h.runFor(s, h.opts.Retain+time.Millisecond)
	require.Equal(t, h.session.ID(), s.row.Owner, "who holds for long is made plain")
	require.EqualValues(t, 2, s.row.Head, "who holds for long is made plain")
	require.Equal(t, 1, s.lwts(), "who holds for long is made plain: %+v", s.row)
	require.False(t, s.row.retained(2), "nobody may take it over")
	h.unlock(2)
	s.answerAll()
	require.EqualValues(t, 10, s.row.Head, "the release of a plain one ends the tuple")
	h.lock(Request{})
	s.answerAll()
	require.EqualValues(t, 10, s.row.Guard)
}

// Clients that wait in a block are granted its references in the order of their LOCKs, without an
// LWT.
func TestABlockServesItsWaitersInOrderWithoutLWTs(t *testing.T) {
	h, s := blockHeld(t)
	var ops []OpID
	for range 5 {
		ops = append(ops, h.lock(Request{Wait: time.Minute}))
	}
	s.answerAll()
	list := h.core.List(h.time(), Key{}, 100)
	require.Len(t, list, 6)
	require.EqualValues(t, 2, list[0].Ref)
	require.Zero(t, list[1].Ref)
	require.Equal(t, StateQueued, list[1].State)
	for i, op := range ops {
		h.expectWaiting(op)
		h.unlock(LockRef(i + 2))
		s.answerAll()
		require.Equal(t, LockRef(i+3), h.expectState(op, StateHeld).Ref, "grant %d", i)
	}
	require.Zero(t, s.lwts(), "LWTs")
}

// LOCKs that arrive together share one entry of the queue, which holds no references of other
// sessions, so it can be a block anywhere in the queue.
func TestWaitersOfAProxyShareOneTerm(t *testing.T) {
	h, s := blockHeld(t)
	h.unlock(2)
	h.runFor(s, time.Second)
	s.enqueueOther(9) // 10
	s.actions = nil
	var ops []OpID
	for range 3 {
		ops = append(ops, h.lock(Request{Wait: time.Minute}))
	}
	s.answerAll() // refused: another one's reference is new
	for _, b := range s.row.Queue {
		require.True(t, b.Session != h.session.ID() || (b.N == 3 && b.Retained), "queue %+v", s.row.Queue)
	}
	s.beat[session(9)] = 1
	s.releaseHead()
	s.actions = nil
	for i, op := range ops {
		g := h.expectState(op, StateHeld)
		require.Equal(t, LockRef(11+i), g.Ref)
		h.unlock(g.Ref)
		s.answerAll()
	}
	require.Equal(t, 1, s.lwts(), "LWTs, row %+v", s.row)
	require.EqualValues(t, 14, s.row.Head)
}

// docs/protocol.md 3.17: after a hint that others wait, a block takes no new clients. Clients that
// were already in its line are still served.
func TestABlockThatOthersWaitForTakesNobodyMore(t *testing.T) {
	h, s := blockHeld(t)
	early := h.lock(Request{Wait: time.Minute})
	s.enqueueOther(9) // 10
	s.beat[session(9)] = 1
	h.receive(HintWaiting)
	s.answerAll()
	late := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	h.unlock(2)
	s.answerAll()
	require.EqualValues(t, 3, h.expectState(early, StateHeld).Ref)
	h.unlock(3)
	s.answerAll()
	h.expectWaiting(late)
	require.EqualValues(t, 10, s.row.Head)
}

// The hint that others wait may be lost, so a block also finds out by reading the row.
func TestABlockFindsOutWhoWaitsBehindIt(t *testing.T) {
	h, s := blockHeld(t)
	s.enqueueOther(9)
	for r := LockRef(2); s.row.Head == 2; r++ {
		require.NotEqual(t, LockRef(9), r, "used up before anybody looked")
		h.runFor(s, h.opts.Retain/2)
		h.unlock(r)
		h.lock(Request{})
		s.answerAll()
	}
	require.EqualValues(t, 10, s.row.Head)
}

// A client is told a reference only if the reference survives its block. A client that must be told
// one gets a reference outside of the block, and so do all clients behind it.
func TestAClientThatMustBeToldGetsAReferenceOfItsOwn(t *testing.T) {
	h, s := blockHeld(t)
	op := h.lock(Request{Wait: 2 * time.Second})
	behind := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	for h.now < time.Hour+3*time.Second {
		if tk, _ := h.begin(2, Get); tk.OK() {
			h.end(tk, OutcomeAcked)
		}
		h.runFor(s, 100*time.Millisecond)
	}
	require.EqualValues(t, 10, h.expectState(op, StateQueued).Ref)
	h.unlock(2)
	s.answerAll()
	h.expectWaiting(behind)
	op = h.lock(Request{Ref: 10})
	s.answerAll()
	h.expectState(op, StateHeld)
	h.unlock(10)
	s.answerAll()
	require.EqualValues(t, 11, h.expectState(behind, StateHeld).Ref)
}

// LOCK with WAIT 0s must be told a reference at once, so it gets one behind the block.
func TestWaitZeroBehindABlockIsToldItsReference(t *testing.T) {
	h, s := blockHeld(t)
	op := h.lock(Request{AtOnce: true})
	s.answerAll()
	require.EqualValues(t, 10, h.expectState(op, StateQueued).Ref)
}

// No client is told a reference of a block before it is granted.
func TestReferencesOfABlockAreNotToldBeforeTheGrant(t *testing.T) {
	h, s := blockHeld(t)
	h.lock(Request{Wait: time.Minute})
	for _, r := range []LockRef{3, 9} {
		op := h.lock(Request{Ref: r})
		_, put := h.begin(r, Put)
		h.runFor(s, 150*time.Millisecond)
		h.expectError(op, ErrNotHeld)
		h.expectError(put, ErrNotHeld)
	}
}

// docs/protocol.md 3.17: no reference of a dead session's block is taken over, and one Preempt
// passes over the whole block.
func TestADeadSessionsBlockIsPassedOverWhole(t *testing.T) {
	retained := theirs()
	retained.Queue[0] = Block{First: retained.Head, N: 40, Session: session(9), Req: 1, Retained: true}
	retained.Queue = retained.Queue[:1]
	retained.Guard = retained.Queue[0].Last()
	h, s := heldByOther(t, retained)
	s.beat[session(9)] = EndedBeat
	op := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	h.runFor(s, 100*time.Millisecond)
	require.Equal(t, retained.Guard+1, h.expectState(op, StateHeld).Ref)
}

// A session that finds a block of its own in the row, and has no memory of it, releases the whole
// block.
func TestAnOrphanedBlockIsReapedWhole(t *testing.T) {
	h, s := blockHeld(t)
	h.collect(h.core.Dropped(h.time(), h.table))
	op := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	g := h.expectState(op, StateHeld)
	require.EqualValues(t, 10, g.Ref, "grant %+v, row %+v", g, s.row)
	require.True(t, s.row.Dirty, "grant %+v, row %+v", g, s.row)
	require.LessOrEqual(t, s.lwts(), 3, "the Enqueue behind it, the Release, perhaps an Enqueue again")
}

// When a block is taken away, its waiters get new references; clients that have gone get none.
func TestWaitersOutliveTheirBlock(t *testing.T) {
	h, s := blockHeld(t)
	op := h.lock(Request{Wait: time.Minute})
	gone := h.lock(Request{Wait: time.Minute})
	h.collect(h.core.ClientGone(h.time(), gone))
	s.apply(Preempt(*s.row, 10, h.opts.Window, 0)) // though its session lives: the table is strict
	h.collect(h.core.Strict(h.time(), h.table, true, h.session.ID()))
	tk, _ := h.begin(2, Get)
	h.end(tk, OutcomeAcked)
	s.answerAll()
	require.EqualValues(t, 10, h.expectState(op, StateHeld).Ref)
	require.Len(t, h.core.List(h.time(), Key{}, 100), 1)
}

// LOCK with NOWAIT is granted the next reference of a block without a holder.
func TestNoWaitIsGrantedAnIdleBlock(t *testing.T) {
	h, s := blockHeld(t)
	h.expectState(h.lock(Request{NoWait: true}), StateBusy)
	h.unlock(2)
	op := h.lock(Request{NoWait: true})
	require.EqualValues(t, 3, h.expectState(op, StateHeld).Ref)
	require.Zero(t, s.lwts(), "LWTs")
}
