package musiccore

import (
	"slices"
	"testing"
	"time"
)

// hinted takes the hints that were given, and demands them.
func (d *desk) hinted(want ...Hint) {
	d.t.Helper()
	for i := range want {
		want[i].Key = d.key()
	}
	if !slices.Equal(d.hints, want) {
		d.t.Fatalf("hints %+v, want %+v", d.hints, want)
	}
	d.hints = nil
}

func (d *desk) hear(what HintKind) {
	d.take(d.core.Hear(d.time(), Hint{Key: d.key(), To: d.session.ID(), Kind: what}))
}

// joined puts a reference of another session into the queue.
func (s *store) joined(n byte) {
	s.d.t.Helper()
	if s.apply(Enqueue(s.row, Block{N: 1, Session: session(n), Req: 1}, 0, t0)).Status != StatusDone {
		s.d.t.Fatal("refused")
	}
}

// handOn has another session give back the head, and tell so.
func (s *store) handOn() {
	s.apply(Release(*s.row, 2, false, 0))
	s.d.hear(HintYourTurn)
	s.run()
}

// docs/protocol.md 3.16, Hints: "waiter -> owner (wanted)".
func TestWhoWaitsTellsTheHeadsSession(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = 1, 1
	first := d.lock(Request{Wait: time.Minute})
	s.run()
	d.hinted(Hint{To: session(9), Kind: HintWaiting})
	second := d.lock(Request{Wait: time.Minute})
	d.serve(s, time.Second)
	d.hinted()
	s.apply(Release(*s.row, 2, false, 0))
	d.serve(s, time.Second)
	d.hinted(Hint{To: session(8), Kind: HintWaiting})
	d.take(d.core.Gone(d.time(), first))
	d.take(d.core.Gone(d.time(), second))
	s.apply(Release(*s.row, 2, false, 0))
	d.serve(s, 2*time.Second)
	d.hinted()
}

func TestTheDeadAreToldNothing(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = EndedBeat, 1
	d.lock(Request{Ref: 3, Wait: time.Minute})
	d.serve(s, d.opts.Grace+time.Second)
	d.hinted(Hint{To: session(8), Kind: HintYourTurn}, Hint{To: session(8), Kind: HintWaiting})
}

// An owner that its own Enqueue has granted has never seen who came later.
func TestWantedTellsTheOwnerWhomToTell(t *testing.T) {
	d, s := held(t)
	s.joined(7)
	d.hear(HintWaiting)
	id, read := only[ReadRow](d)
	if !read.Quorum {
		t.Fatal("one replica may not have it")
	}
	d.reply(id, s.read())
	d.hear(HintWaiting)
	d.none() // the queue as known says it
	d.unlock(1)
	d.hinted(Hint{To: session(7), Kind: HintReleasing})
	s.run()
	d.hinted(Hint{To: session(7), Kind: HintYourTurn})
}

// A commit is at every replica before the proxy whose Release it is hears of it, and tells: who is next looks for it
// meanwhile, not for ever.
func TestYieldingLooksOftenForAWhile(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = 1, 1
	op := d.lock(Request{Wait: time.Minute})
	looks := func(span time.Duration) (n int) {
		s.seen = nil
		for end := d.now + span; d.now < end; d.pass(releasingPollEvery) {
			s.run()
		}
		for _, a := range s.seen {
			if _, ok := a.(ReadRow); ok {
				n++
			}
		}
		return n
	}
	looks(10 * time.Second)
	d.hear(HintReleasing)
	if n := looks(100 * time.Millisecond); n < 15 || n > 21 {
		t.Errorf("%d looks in 100 ms", n)
	}
	looks(releasingFor)
	if n := looks(10 * time.Second); n > 25 {
		t.Errorf("%d looks in 10 s, long after", n)
	}
	d.hear(HintReleasing)
	for range 3 {
		s.apply(Release(*s.row, 2, false, 0))
	}
	looks(2 * releasingPollEvery)
	d.state(op, StateHeld)
}

// What is behind an own reference is not known, though somebody is ahead of it.
func TestWantedLooksBehindTheLastOwnReference(t *testing.T) {
	d, s := held(t)
	s.joined(7)
	d.lock(Request{Wait: time.Minute})
	s.run()
	s.joined(8)
	d.hear(HintWaiting)
	only[ReadRow](d)
}

func TestWantedWhileTheRowIsReleased(t *testing.T) {
	for _, late := range []bool{false, true} {
		d, s := held(t)
		s.joined(7)
		d.unlock(1)
		id, release := only[Apply](d)
		s.apply(release.Swap)
		if !late {
			d.hear(HintWaiting)
			read, _ := only[ReadRow](d)
			d.reply(read, s.read())
			d.hinted()
		}
		d.reply(id, Result{Status: StatusDone})
		if late {
			d.hinted() // nobody knows of 7
			d.hear(HintWaiting)
			s.run()
		}
		d.hinted(Hint{To: session(7), Kind: HintYourTurn})
		if len(d.core.ops) != 0 || late && len(d.core.keys) != 0 {
			t.Fatal("a hint leaves memory behind")
		}
	}
}

// An own head that memory does not know, behind which only other proxies wait.
func TestWantedFindsAForgottenHead(t *testing.T) {
	r := theirs()
	r.Queue[0].Session = session(1)
	d, s := foreign(t, r)
	d.hear(HintWaiting)
	s.run()
	if s.row.Head != 2 || !s.row.Dirty || s.row.Epoch < 1000+d.opts.Window {
		t.Fatalf("%+v", *s.row)
	}
	d.hinted(Hint{To: session(8), Kind: HintYourTurn})
}

func TestWantedGrantsNothingAndIsForgotten(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	d.hear(HintWaiting)
	s.run()
	d.hear(HintWaiting)
	d.pass(d.opts.Wait) // the store says nothing
	if len(d.answers) != 0 || len(d.core.keys) != 0 || len(d.core.timers) != 0 || len(d.hints) != 0 {
		t.Fatalf("answers %+v, hints %+v, %d keys", d.answers, d.hints, len(d.core.keys))
	}
	if len(s.seen) != 1 || s.seen[0] != (ReadRow{Quorum: true}) {
		t.Fatalf("%+v", s.seen)
	}
}

// A hint is no read at QUORUM: a dirty head that one replica showed waits for one (M6).
func TestAHintGrantsNoDirtyHead(t *testing.T) {
	d, s := foreign(t, stranger())
	s.beat[session(9)] = 1
	op := d.lock(Request{Wait: time.Minute})
	s.run()
	s.apply(Release(*s.row, 2, true, 0))
	d.pass(100 * time.Millisecond)
	id, read := only[ReadRow](d)
	if read.Quorum {
		t.Fatal("a poll asks one replica")
	}
	d.reply(id, s.read())
	d.hear(HintYourTurn)
	d.waits(op)
	s.run()
	d.state(op, StateHeld)
}

// Who has no reference yet hears how many there are, and not one more.
func TestPositionWithoutAReferenceIsAnEstimate(t *testing.T) {
	d, s := foreign(t, theirs())
	op := d.lock(Request{Token: [16]byte{1}})
	id, _ := only[ReadRow](d)
	d.reply(id, s.read())
	d.pass(d.opts.Wait)
	if g := d.state(op, StateQueued); g.Ref != 0 || g.Position != 3 {
		t.Fatalf("behind 1, 2 and 3: %+v", g)
	}
}
