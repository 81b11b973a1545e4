package musiccore

import (
	"slices"
	"testing"
	"time"
)

// hinted takes the hints that were given, and demands them.
func (h *harness) expectHints(want ...Hint) {
	h.t.Helper()
	for i := range want {
		want[i].Key = h.key()
	}
	if !slices.Equal(h.hints, want) {
		h.t.Fatalf("hints %+v, want %+v", h.hints, want)
	}
	h.hints = nil
}

func (h *harness) receive(what HintKind) {
	h.collect(h.core.Hear(h.time(), Hint{Key: h.key(), To: h.session.ID(), Kind: what}))
}

// joined puts a reference of another session into the queue.
func (s *fakeStore) enqueueOther(n byte) {
	s.h.t.Helper()
	if s.apply(Enqueue(s.row, Block{N: 1, Session: session(n), Req: 1}, 0, t0)).Status != StatusDone {
		s.h.t.Fatal("refused")
	}
}

// handOn has another session give back the head, and tell so.
func (s *fakeStore) releaseHead() {
	s.apply(Release(*s.row, 2, false, 0))
	s.h.receive(HintYourTurn)
	s.answerAll()
}

// docs/protocol.md 3.16, Hints: "waiter -> owner (wanted)".
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
	h.collect(h.core.Gone(h.time(), first))
	h.collect(h.core.Gone(h.time(), second))
	s.apply(Release(*s.row, 2, false, 0))
	h.runFor(s, 2*time.Second)
	h.expectHints()
}

// No hint is sent to a session that is known to be dead.
func TestTheDeadAreToldNothing(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = EndedBeat, 1
	h.lock(Request{Ref: 3, Wait: time.Minute})
	h.runFor(s, h.opts.Grace+time.Second)
	h.expectHints(Hint{To: session(8), Kind: HintYourTurn}, Hint{To: session(8), Kind: HintWaiting})
}

// An owner that its own Enqueue has granted has never seen who came later.
func TestWaitingTellsTheHolderWhomToTell(t *testing.T) {
	h, s := newHolder(t)
	s.enqueueOther(7)
	h.receive(HintWaiting)
	id, read := commandOf[ReadRow](h)
	if !read.Quorum {
		t.Fatal("one replica may not have it")
	}
	h.reply(id, s.read())
	h.receive(HintWaiting)
	h.expectNoCommand() // the queue as known says it
	h.unlock(1)
	h.expectHints(Hint{To: session(7), Kind: HintReleasing})
	s.answerAll()
	h.expectHints(Hint{To: session(7), Kind: HintYourTurn})
}

// A commit is at every replica before the proxy whose Release it is hears of it, and tells: who is next looks for it
// meanwhile, not for ever.
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
	if n := looks(100 * time.Millisecond); n < 15 || n > 21 {
		t.Errorf("%d looks in 100 ms", n)
	}
	looks(releasingFor)
	if n := looks(10 * time.Second); n > 25 {
		t.Errorf("%d looks in 10 s, long after", n)
	}
	h.receive(HintReleasing)
	for range 3 {
		s.apply(Release(*s.row, 2, false, 0))
	}
	looks(2 * releasingPollEvery)
	h.expectState(op, StateHeld)
}

// What is behind an own reference is not known, though somebody is ahead of it.
func TestWaitingLooksBehindTheLastOwnReference(t *testing.T) {
	h, s := newHolder(t)
	s.enqueueOther(7)
	h.lock(Request{Wait: time.Minute})
	s.answerAll()
	s.enqueueOther(8)
	h.receive(HintWaiting)
	commandOf[ReadRow](h)
}

// A hint that comes while the Release is under way has the next head told after it.
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
		if len(h.core.ops) != 0 || late && len(h.core.keys) != 0 {
			t.Fatal("a hint leaves memory behind")
		}
	}
}

// An own head that memory does not know, behind which only other proxies wait.
func TestWaitingFindsAnOrphanedHead(t *testing.T) {
	r := theirs()
	r.Queue[0].Session = session(1)
	h, s := heldByOther(t, r)
	h.receive(HintWaiting)
	s.answerAll()
	if s.row.Head != 2 || !s.row.Dirty || s.row.Epoch < 1000+h.opts.Window {
		t.Fatalf("%+v", *s.row)
	}
	h.expectHints(Hint{To: session(8), Kind: HintYourTurn})
}

// A hint for a key that nobody uses here grants nothing, and leaves no memory behind.
func TestWaitingGrantsNothingAndLeavesNothing(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	h.receive(HintWaiting)
	s.answerAll()
	h.receive(HintWaiting)
	h.advance(h.opts.Wait) // the store says nothing
	if len(h.answers) != 0 || len(h.core.keys) != 0 || len(h.core.timers) != 0 || len(h.hints) != 0 {
		t.Fatalf("answers %+v, hints %+v, %d keys", h.answers, h.hints, len(h.core.keys))
	}
	if len(s.actions) != 1 || s.actions[0] != (ReadRow{Quorum: true}) {
		t.Fatalf("%+v", s.actions)
	}
}

// A hint is no read at QUORUM: a dirty head that one replica showed waits for one (M6).
func TestAHintGrantsNoDirtyHead(t *testing.T) {
	h, s := heldByOther(t, headOfSession9())
	s.beat[session(9)] = 1
	op := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	s.apply(Release(*s.row, 2, true, 0))
	h.advance(100 * time.Millisecond)
	id, read := commandOf[ReadRow](h)
	if read.Quorum {
		t.Fatal("a poll asks one replica")
	}
	h.reply(id, s.read())
	h.receive(HintYourTurn)
	h.expectWaiting(op)
	s.answerAll()
	h.expectState(op, StateHeld)
}

// Who has no reference yet hears how many there are, and not one more.
func TestPositionWithoutAReferenceIsAnEstimate(t *testing.T) {
	h, s := heldByOther(t, theirs())
	op := h.lock(Request{Token: [16]byte{1}})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, s.read())
	h.advance(h.opts.Wait)
	if g := h.expectState(op, StateQueued); g.Ref != 0 || g.Position != 3 {
		t.Fatalf("behind 1, 2 and 3: %+v", g)
	}
}
