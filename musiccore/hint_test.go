package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// expectHints takes the hints that were given, and demands them.
func (h *harness) expectHints(want ...Hint) {
	h.t.Helper()
	for i := range want {
		want[i].Key = h.key()
	}
	require.Equal(h.t, want, h.hints)
	h.hints = nil
}

func (h *harness) receive(what HintKind) {
	h.collect(h.core.Hear(h.time(), Hint{Key: h.key(), To: h.session.ID(), Kind: what}))
}

// enqueueOther puts a reference of another session into the queue.
func (s *fakeStore) enqueueOther(n byte) {
	s.h.t.Helper()
	require.Equal(s.h.t, StatusDone, s.apply(Enqueue(s.row, Block{N: 1, Session: session(n), Req: 1}, 0, t0)).Status)
}

// releaseHead has another session give back the head, and tell so.
func (s *fakeStore) releaseHead() {
	s.apply(Release(*s.row, 2, false, 0))
	s.h.receive(HintYourTurn)
	s.answerAll()
}

// docs/protocol.md 3.16, Hints: a proxy with a waiter tells the session of the head.
func TestAWaiterTellsTheHeadsSession(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = 1, 1
	first := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	h.expectHints(Hint{To: session(9), Kind: HintWaiting})
	second := h.lock(Request{Wait: time.Minute})
	h.runFor(s, time.Second)
	h.expectHints()
	s.apply(Release(*s.row, 2, false, 0))
	h.runFor(s, time.Second)
	h.expectHints(Hint{To: session(8), Kind: HintWaiting})
	h.collect(h.core.ClientGone(h.time(), first))
	h.collect(h.core.ClientGone(h.time(), second))
	s.apply(Release(*s.row, 2, false, 0))
	h.runFor(s, 2*time.Second)
	h.expectHints()
}

// No hint is sent to a session that was found dead.
func TestTheDeadAreToldNothing(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = EndedBeat, 1
	h.lock(Request{Ref: 3, Wait: time.Minute})
	h.runFor(s, h.opts.Grace+time.Second)
	h.expectHints(Hint{To: session(8), Kind: HintYourTurn}, Hint{To: session(8), Kind: HintWaiting})
}

// An owner that was granted the lock by its own Enqueue does not know who came later; the hint
// tells it.
func TestWaitingTellsTheHolderWhomToTell(t *testing.T) {
	h, s := newHolder(t)
	s.enqueueOther(7)
	h.receive(HintWaiting)
	id, read := commandOf[ReadRow](h)
	require.True(t, read.Quorum, "one replica may not have it")
	h.reply(id, s.read())
	h.receive(HintWaiting)
	h.expectNoCommand() // the queue as known says it
	h.unlock(1)
	h.expectHints(Hint{To: session(7), Kind: HintReleasing})
	s.answerAll()
	h.expectHints(Hint{To: session(7), Kind: HintYourTurn})
}

// After the hint that a Release is under way, the proxy reads often, and only for a while: the
// commit is at the replicas before the releasing proxy has its answer.
func TestReleasingIsPolledOftenForAWhile(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = 1, 1
	op := h.lock(Request{Wait: time.Minute})
	looks := func(span time.Duration) (n int) {
		s.actions = nil
		for end := h.now + span; h.now < end; h.advance(releasingPollEvery) {
			s.answerAll()
		}
		for _, a := range s.actions {
			if _, ok := a.(ReadRow); ok {
				n++
			}
		}
		return n
	}
	looks(10 * time.Second)
	h.receive(HintReleasing)
	n := looks(100 * time.Millisecond)
	assert.GreaterOrEqual(t, n, 15, "looks in 100 ms")
	assert.LessOrEqual(t, n, 21, "looks in 100 ms")
	looks(releasingFor)
	assert.LessOrEqual(t, looks(10*time.Second), 25, "looks in 10 s, long after")
	h.receive(HintReleasing)
	for range 3 {
		s.apply(Release(*s.row, 2, false, 0))
	}
	looks(2 * releasingPollEvery)
	h.expectState(op, StateHeld)
}

// The references behind the last own one are not known from memory: the hint has the row read,
// although other sessions are ahead.
func TestWaitingLooksBehindTheLastOwnReference(t *testing.T) {
	h, s := newHolder(t)
	s.enqueueOther(7)
	h.lock(Request{Wait: time.Minute})
	s.answerAll()
	s.enqueueOther(8)
	h.receive(HintWaiting)
	commandOf[ReadRow](h)
}

// If a hint arrives while the Release is under way, the next head is told after the Release.
func TestWaitingWhileTheRowIsReleased(t *testing.T) {
	for _, late := range []bool{false, true} {
		h, s := newHolder(t)
		s.enqueueOther(7)
		h.unlock(1)
		id, release := commandOf[Apply](h)
		s.apply(release.Swap)
		if !late {
			h.receive(HintWaiting)
			read, _ := commandOf[ReadRow](h)
			h.reply(read, s.read())
			h.expectHints()
		}
		h.reply(id, Result{Status: StatusDone})
		if late {
			h.expectHints() // nobody knows of 7
			h.receive(HintWaiting)
			s.answerAll()
		}
		h.expectHints(Hint{To: session(7), Kind: HintYourTurn})
		require.Empty(t, h.core.ops, "a hint leaves memory behind")
		if late {
			require.Empty(t, h.core.keys, "a hint leaves memory behind")
		}
	}
}

// The hint finds an orphaned head of this session behind which only other proxies wait.
func TestWaitingFindsAnOrphanedHead(t *testing.T) {
	r := theirs()
	r.Queue[0].Session = session(1)
	h, s := heldByOther(t, r)
	h.receive(HintWaiting)
	s.answerAll()
	require.EqualValues(t, 2, s.row.Head)
	require.True(t, s.row.Dirty, "%+v", *s.row)
	require.GreaterOrEqual(t, s.row.Epoch, 1000+h.opts.Window)
	h.expectHints(Hint{To: session(8), Kind: HintYourTurn})
}

// A hint for a key that this proxy does not use grants nothing and leaves nothing in memory.
func TestWaitingGrantsNothingAndLeavesNothing(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	h.receive(HintWaiting)
	s.answerAll()
	h.receive(HintWaiting)
	h.advance(h.opts.Wait) // the store says nothing
	require.Empty(t, h.answers, "answers %+v, hints %+v, %d keys", h.answers, h.hints, len(h.core.keys))
	require.Empty(t, h.core.keys, "answers %+v, hints %+v, %d keys", h.answers, h.hints, len(h.core.keys))
	require.Empty(t, h.core.timers, "answers %+v, hints %+v, %d keys", h.answers, h.hints, len(h.core.keys))
	require.Empty(t, h.hints, "answers %+v, hints %+v, %d keys", h.answers, h.hints, len(h.core.keys))
	require.Len(t, s.actions, 1)
	require.Equal(t, ReadRow{Quorum: true}, s.actions[0], "%+v", s.actions)
}

// After a hint, a dirty head that one replica showed is not granted before a QUORUM read (M6).
func TestAHintGrantsNoDirtyHead(t *testing.T) {
	h, s := heldByOther(t, headOfSession9())
	s.beat[session(9)] = 1
	op := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	s.apply(Release(*s.row, 2, true, 0))
	h.advance(100 * time.Millisecond)
	id, read := commandOf[ReadRow](h)
	require.False(t, read.Quorum, "a poll asks one replica")
	h.reply(id, s.read())
	h.receive(HintYourTurn)
	h.expectWaiting(op)
	s.answerAll()
	h.expectState(op, StateHeld)
}

// A client without a reference is told the number of references in the queue.
func TestPositionWithoutAReferenceIsAnEstimate(t *testing.T) {
	h, s := heldByOther(t, theirs())
	op := h.lock(Request{Token: [16]byte{1}})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, s.read())
	h.advance(h.opts.Wait)
	g := h.expectState(op, StateQueued)
	require.Zero(t, g.Ref, "behind 1, 2 and 3")
	require.Equal(t, 3, g.Position, "behind 1, 2 and 3")
}
