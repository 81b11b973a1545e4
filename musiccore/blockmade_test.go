package musiccore

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// waitersWithReferences returns a key that clients wait for who were told their references, each
// one of its own: 3 to 6 behind the holder, 2.
func waitersWithReferences(t *testing.T) (*harness, *fakeStore) {
	t.Helper()
	h, s := blockHeld(t)
	h.runFor(s, h.opts.Retain+time.Millisecond) // the holder is made plain
	for range 4 {
		h.lock(Request{AtOnce: true})
		s.answerAll()
	}
	require.EqualValues(t, 13, s.row.Guard)
	require.False(t, s.row.retained(10), "row %+v", s.row)
	s.actions = nil
	return h, s
}

// Waiters that each have a reference would cost an LWT each; a Release makes them one block. They
// keep their order and the numbers that they were told.
func TestWaitersWithReferencesOfTheirOwnBecomeOneBlock(t *testing.T) {
	h, s := waitersWithReferences(t)
	h.unlock(2)
	s.answerAll()
	require.EqualValues(t, 10, s.row.Head)
	require.True(t, s.row.retained(10), "row %+v", s.row)
	require.Equal(t, s.row.Guard, s.row.endOfBlock(10))
	require.GreaterOrEqual(t, s.row.Guard, LockRef(14))
	require.Equal(t, 1, s.lwts(), "row %+v", s.row)
	for r := LockRef(10); r <= 13; r++ {
		op := h.lock(Request{Ref: r})
		s.answerAll()
		h.expectState(op, StateHeld)
		h.unlock(r)
		s.answerAll()
	}
	op := h.lock(Request{})
	s.answerAll()
	g := h.expectState(op, StateHeld)
	require.EqualValues(t, 14, g.Ref)
	require.Zero(t, s.lwts(), "grant %+v", g)
}

// A reference that its client gave back is not given to another client.
func TestANumberThatWasToldIsNotGivenAgain(t *testing.T) {
	h, s := waitersWithReferences(t)
	for r := LockRef(10); r <= 13; r++ {
		if r != 11 {
			h.unlock(r)
		}
	}
	h.lock(Request{Wait: time.Minute})
	h.unlock(2)
	s.answerAll()
	op := h.lock(Request{Ref: 11})
	s.answerAll()
	h.expectState(op, StateHeld)
	h.unlock(11)
	s.answerAll()
	next := h.lock(Request{Wait: time.Minute})
	h.unlock(14)
	s.answerAll()
	g := h.expectState(next, StateHeld)
	require.EqualValues(t, 15, g.Ref, "grant %+v, row %+v", g, s.row)
}

// A client that gives its reference back takes no place in its block any more: the next one gets
// the reference that follows.
func TestANumberGivenBackInABlockLeavesNoPlace(t *testing.T) {
	h, s := waitersWithReferences(t)
	h.unlock(2)
	s.answerAll()
	h.unlock(12)
	for _, r := range []LockRef{10, 11, 13} {
		h.expectState(h.lock(Request{Ref: r}), StateHeld)
		h.unlock(r)
	}
	require.EqualValues(t, 14, h.expectState(h.lock(Request{}), StateHeld).Ref)
}

// The Release of a holder that was made plain passes over those that were silent for too long:
// they cost no LWT of their own.
func TestTheSilentArePassedOverBehindAHolderWhoStays(t *testing.T) {
	h, s := waitersWithReferences(t)
	h.unlock(2)
	s.answerAll()
	for range 4 {
		h.runFor(s, h.opts.QueuedLease/3)
		for _, r := range []LockRef{10, 12, 13} {
			h.lock(Request{Ref: r, AtOnce: true})
		}
	}
	s.actions = nil
	h.unlock(10)
	s.answerAll()
	h.expectState(h.lock(Request{Ref: 12}), StateHeld)
	require.EqualValues(t, 12, s.row.Head, "row %+v", s.row)
	require.Equal(t, 1, s.lwts())
	op := h.lock(Request{Ref: 11})
	s.answerAll()
	h.expectState(op, StateLost)
}

// In a block, a client that was silent for too long is passed over in its turn, not before, and is
// then told that its reference is lost.
func TestTheSilentArePassedOverInABlock(t *testing.T) {
	h, s := waitersWithReferences(t)
	holds := h.lock(Request{Ref: 2})
	h.expectState(holds, StateHeld)
	h.runFor(s, h.opts.QueuedLease+time.Second)
	first, second := h.lock(Request{Ref: 11}), h.lock(Request{Ref: 13}) // they come back
	s.actions = nil
	h.unlock(2)
	s.answerAll()
	h.expectState(first, StateHeld)
	h.unlock(11)
	s.answerAll()
	h.expectState(second, StateHeld)
	require.Equal(t, 1, s.lwts(), "row %+v", s.row)
	for _, r := range []LockRef{10, 12} {
		op := h.lock(Request{Ref: r})
		s.answerAll()
		h.expectState(op, StateLost)
	}
}

// A block waits behind a holder that stays, and then goes on with the clients that were told
// references of it.
func TestABlockGoesOnBehindAHolderWhoStays(t *testing.T) {
	h, s := waitersWithReferences(t)
	h.unlock(2)
	s.answerAll()
	op := h.lock(Request{Ref: 10})
	s.answerAll()
	h.expectState(op, StateHeld)
	s.actions = nil
	h.runFor(s, h.opts.Retain+time.Millisecond)
	require.Equal(t, h.session.ID(), s.row.Owner, "not plain")
	require.Equal(t, 1, s.lwts(), "not plain: %+v", s.row)
	h.unlock(10)
	s.answerAll()
	op = h.lock(Request{Ref: 11})
	s.answerAll()
	h.expectState(op, StateHeld)
	require.EqualValues(t, 11, s.row.Head)
	require.True(t, s.row.retained(11), "row %+v", s.row)
	require.Equal(t, 1, s.lwts(), "row %+v", s.row)
	h.unlock(11)
	s.answerAll()
	op = h.lock(Request{Ref: 12})
	s.answerAll()
	h.expectState(op, StateHeld)
	require.Zero(t, s.lwts(), "row %+v", s.row)
}

// A clean shutdown takes nobody's turn: references of a block that clients were told become plain
// references.
func TestDrainMakesToldReferencesOfBlocksPlain(t *testing.T) {
	h, s := waitersWithReferences(t)
	h.unlock(2)
	s.answerAll()
	h.unlock(12) // given back before its turn
	s.actions = nil
	h.collect(h.core.Drain(h.time()))
	require.False(t, h.core.Quiet(), "quiet before the block is dissolved")
	s.answerAll()
	for r := LockRef(10); r <= s.row.Guard; r++ {
		plain := r == 11 || r == 13
		assert.True(t, s.row.retained(r) != plain || r == 10, "retained %v: reference %d of %+v", !plain, r, s.row)
	}
	assert.True(t, h.core.Quiet(), "row %+v", s.row)
	assert.Equal(t, 2, s.lwts(), "LWTs")
	assert.EqualValues(t, 10, s.row.Head)
	assert.Equal(t, h.session.ID(), s.row.Owner)
	h.unlock(10)
	s.answerAll()
	assert.EqualValues(t, 11, s.row.Head)
	assert.False(t, s.row.retained(11), "row %+v", s.row)
}

// While the outcome of a Dissolve is unknown, nothing of the block is handed over: its next
// reference may already be at another proxy.
func TestNothingIsHandedOverInABlockThatIsBeingDissolved(t *testing.T) {
	h, s := waitersWithReferences(t)
	h.unlock(2)
	s.answerAll()
	h.expectState(h.lock(Request{Ref: 10}), StateHeld)
	s.answerAll()
	tk, _ := h.begin(10, Put)
	require.True(t, tk.OK())
	h.unlock(10) // its holder is not made plain any more
	h.collect(h.core.Drain(h.time()))
	id, dissolve := commandOf[Apply](h)
	dissolved := s.apply(dissolve.Swap)
	h.end(tk, OutcomeAcked)
	h.expectState(h.lock(Request{Ref: 11}), StateQueued)
	h.reply(id, dissolved)
	s.answerAll()
	require.EqualValues(t, 11, s.row.Head)
	require.False(t, s.row.retained(11), "row %+v", s.row)
	require.Nil(t, h.core.keys[h.key()].term, "row %+v", s.row)
}

// If another session enqueues meanwhile, the Dissolve is made anew from the changed queue.
func TestABlockIsDissolvedInTheQueueThatThereIs(t *testing.T) {
	h, s := waitersWithReferences(t)
	h.unlock(2)
	s.answerAll()
	other := Enqueue(s.row, Block{N: 1, Session: SessionID{9}, Req: 1}, 0, 1)
	row, _ := other.Apply(s.row)
	s.row = &row
	h.collect(h.core.Drain(h.time()))
	s.answerAll()
	require.False(t, s.row.retained(11), "row %+v", s.row)
	require.False(t, s.row.retained(13), "row %+v", s.row)
	require.True(t, h.core.Quiet(), "row %+v", s.row)
}

// An adopted reference is not taken over once a late Release of its dead session has made it part
// of a block.
func TestAnAdoptedReferenceOfABlockIsNotTakenOver(t *testing.T) {
	r := Row{Guard: 3, Head: 2, Epoch: 10, Queue: []Block{{First: 2, N: 2, Session: SessionID{7}, Retained: true}}}
	k := &key{keyRow: &keyRow{view: view{row: r, state: rowPresent}}, queue: queue{numbered: []*entry{{ref: 2, phase: phaseWaiting, adopted: true}}}}
	require.False(t, k.adoptedHead(), "it would be taken over, though it may have been handed on")
	r.Owner = SessionID{7}
	k.view.row = r
	require.True(t, k.adoptedHead(), "a plain one is")
}

// joined moves no reference to another session, leaves none out, and makes exactly the given
// references one block.
func TestJoined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		self := SessionID{1}
		r := Row{Head: 1}
		n := rapid.IntRange(1, 6).Draw(t, "blocks")
		for i := range n {
			b := Block{First: r.Guard + 1, N: rapid.Int32Range(1, 4).Draw(t, "n"), Session: SessionID{rapid.ByteRange(1, 2).Draw(t, "session")}, Req: int64(i + 1)}
			b.Retained = rapid.Bool().Draw(t, "retained")
			r.Queue, r.Guard = append(r.Queue, b), b.Last()
		}
		from := LockRef(rapid.Int64Range(1, int64(r.Guard)).Draw(t, "from"))
		before := slices.Clone(r.Queue)
		to := Row{Head: 1, Guard: r.Guard, Queue: r.withOwnBlock(from, self)}
		if !slices.Equal(before, r.Queue) {
			require.Fail(t, "it has changed the row that it was made from")
		}
		next := LockRef(1)
		for _, b := range to.Queue {
			if b.First != next {
				require.Fail(t, "a reference is missing", "%d of %+v", next, to.Queue)
			}
			next = b.Last() + 1
		}
		if next != r.Guard+1 {
			require.Fail(t, "another end", "%+v ends with %d", to.Queue, next-1)
		}
		end := from - 1
		for ref := from; ref <= r.Guard; ref++ {
			s, _ := r.Session(ref)
			if s != self || (r.retained(ref) && ref < before[n-1].First) {
				break
			}
			end = ref
		}
		for ref := LockRef(1); ref <= r.Guard; ref++ {
			was, _ := r.Session(ref)
			if is, _ := to.Session(ref); is != was {
				require.Fail(t, "another owner", "%d is of %v, was of %v", ref, is, was)
			}
			if in := from <= ref && ref <= end; in && to.endOfBlock(ref) != end || !in && to.retained(ref) != r.retained(ref) {
				require.Fail(t, "another block", "%+v from %d to %d: reference %d of %+v", before, from, end, ref, to.Queue)
			}
		}
	})
}

// A block that waits behind another session stands still. A client that must be told a reference
// there gets one that survives the block.
func TestNobodyIsToldAReferenceOfABlockThatStandsStill(t *testing.T) {
	h, s := blockHeld(t)
	s.enqueueOther(7)
	h.receive(HintWaiting)
	s.answerAll()
	op := h.lock(Request{Wait: 2 * time.Second})
	h.lock(Request{Wait: time.Minute})
	h.unlock(2)
	s.answerAll()
	require.True(t, s.row.retained(11), "row %+v", s.row)
	require.EqualValues(t, 10, s.row.Head)
	h.runFor(s, 2*time.Second)
	g := h.expectState(op, StateQueued)
	require.NotZero(t, g.Ref, "queued %+v, row %+v", g, s.row)
	require.False(t, s.row.retained(g.Ref), "queued %+v, row %+v", g, s.row)
}
