package musiccore

import (
	"testing"
	"time"
)

// brisk is a desk whose key has short sections: reference 2 holds, another session waits behind it, and two clients here
// ask. Nothing has been sent for them.
func brisk(t *testing.T) (d *desk, s *store, first, second OpID) {
	t.Helper()
	d, s = held(t, func(o *Options) { o.Retain = 200 * time.Millisecond })
	s.beat[session(9)] = 1
	d.unlock(1)
	s.run()
	s.joined(9)
	s.apply(Release(*s.row, 2, false, 0))
	s.joined(9)
	op := d.lock(Request{Wait: time.Minute})
	s.run()
	s.handOn()
	if g := d.state(op, StateHeld); g.Ref != 4 {
		t.Fatalf("grant %+v of %+v", g, s.row)
	}
	s.joined(9)
	d.hear(HintWaiting)
	s.run()
	s.seen, d.hints = nil, nil
	first, second = d.lock(Request{Wait: time.Minute}), d.lock(Request{Wait: time.Minute})
	s.run()
	if n := s.cost(); n != 0 {
		t.Fatalf("%d LWTs for who can wait for the Release", n)
	}
	return d, s, first, second
}

// Where sections are short, who asks while the lock is here waits for its Release, which enqueues them with one LWT, and
// in one block.
func TestAReleaseTakesAlongWhoAsks(t *testing.T) {
	d, s, first, second := brisk(t)
	d.unlock(4)
	s.run()
	if s.row.Head != 5 || s.row.Guard != 7 || s.cost() != 1 {
		t.Fatalf("row %+v", s.row)
	}
	if b := s.row.newestBlock(); b.Session != d.session.ID() || b.N != 2 || !b.Retained {
		t.Fatalf("queue %+v", s.row.Queue)
	}
	d.hinted(Hint{To: session(9), Kind: HintReleasing}, Hint{To: session(9), Kind: HintYourTurn}, Hint{To: session(9), Kind: HintWaiting})
	s.handOn()
	d.state(first, StateHeld)
	d.unlock(6)
	s.run()
	if g := d.state(second, StateHeld); g.Ref != 7 {
		t.Fatalf("grant %+v", g)
	}
}

// roomy is brisk, later: a block of two references waits behind another session, and one client in its line.
func roomy(t *testing.T) (d *desk, s *store, third OpID) {
	t.Helper()
	d, s, _, _ = brisk(t)
	d.unlock(4)
	s.run()
	s.handOn()
	third = d.lock(Request{Wait: time.Minute})
	s.joined(9)
	d.hear(HintWaiting)
	s.run()
	d.unlock(6)
	s.run()
	d.unlock(7)
	s.run()
	if b := s.row.newestBlock(); b.First != 9 || b.N != 2 || b.Session != d.session.ID() {
		t.Fatalf("queue %+v", s.row.Queue)
	}
	return d, s, third
}

// Who is fast to come back finds a place in the block that waits.
func TestWhoComesBackJoinsTheBlockThatWaits(t *testing.T) {
	d, s, third := roomy(t)
	s.seen = nil
	fourth := d.lock(Request{Wait: time.Minute})
	s.run()
	if n := s.cost(); n != 0 {
		t.Fatalf("%d LWTs", n)
	}
	s.joined(9)
	s.handOn()
	d.unlock(d.state(third, StateHeld).Ref)
	s.run()
	if g := d.state(fourth, StateHeld); g.Ref != 10 {
		t.Fatalf("grant %+v", g)
	}
}

// … unless somebody else is known to wait behind it.
func TestWhoComesBackStaysBehindThoseWhoWait(t *testing.T) {
	d, s, _ := roomy(t)
	s.joined(9) // 11
	d.serve(s, time.Second)
	d.lock(Request{Wait: time.Minute})
	s.run()
	if b := s.row.newestBlock(); b.First != 12 || b.Session != d.session.ID() {
		t.Fatalf("queue %+v", s.row.Queue)
	}
}

// A Release that takes others along is refused where somebody else has enqueued: the term is still its own, and is
// released alone, at once; they ask by themselves.
func TestAReleaseThatIsRefusedGoesAlone(t *testing.T) {
	d, s, first, _ := brisk(t)
	d.unlock(4)
	id, _ := only[Apply](d)
	s.joined(8)
	d.reply(id, Result{Status: StatusRefused})
	id, _ = only[ReadRow](d)
	d.reply(id, s.read())
	_, a := only[Apply](d)
	if a.Swap.If.What != IfEpoch || a.Swap.Set.Row.Head != 5 || a.Swap.Set.Row.Dirty {
		t.Fatalf("%+v", a.Swap)
	}
	d.reply(d.core.keys[d.key()].lwt.cmd, s.do(a))
	s.run()
	if b := s.row.newestBlock(); b.Session != d.session.ID() || b.First != 7 || b.N != 2 {
		t.Fatalf("queue %+v", s.row.Queue)
	}
	d.waits(first)
}

// … but not where it had been applied: the same refusal tells that, too (H3).
func TestAReleaseThatWasAppliedHasEnqueued(t *testing.T) {
	d, s, first, _ := brisk(t)
	d.unlock(4)
	id, a := only[Apply](d)
	s.apply(a.Swap)
	s.joined(8)
	s.apply(Release(*s.row, 2, false, 0)) // 6 is the head
	d.reply(id, Result{Status: StatusRefused})
	s.run()
	if g := d.state(first, StateHeld); g.Ref != 6 {
		t.Fatalf("grant %+v", g)
	}
	for _, b := range s.row.Queue {
		if b.Session == d.session.ID() && b.First > 6 {
			t.Fatalf("enqueued twice: %+v", s.row.Queue)
		}
	}
}

// Where somebody else has ended the term, who was to be taken along asks by itself.
func TestWhoWasToBeTakenAlongAsksAgain(t *testing.T) {
	d, s, first, _ := brisk(t)
	d.unlock(4)
	s.apply(Preempt(*s.row, 5, d.opts.Window, t0))
	id, _ := only[Apply](d)
	d.reply(id, Result{Status: StatusRefused})
	s.run()
	if b := s.row.newestBlock(); b.Session != d.session.ID() || b.First != 6 || b.N != 2 {
		t.Fatalf("queue %+v", s.row.Queue)
	}
	d.waits(first)
}

// A holder who stays keeps nobody from the queue.
func TestWhoAsksWaitsForAReleaseNoLongerThanRetain(t *testing.T) {
	d, s, _, _ := brisk(t)
	d.serve(s, d.opts.Retain)
	if b := s.row.newestBlock(); b.Session != d.session.ID() || b.N != 2 || s.row.Head != 4 {
		t.Fatalf("row %+v", s.row)
	}
}

// Others change the queue, too: an LWT on it is made from a fresh look at it, on one replica.
func TestAnEnqueueBehindOthersLooksFirst(t *testing.T) {
	d, s, _, _ := brisk(t)
	d.unlock(4)
	s.run()
	d.jump(rowFreshFor)
	s.joined(8)
	d.lock(Request{Wait: time.Minute})
	id, look := only[ReadRow](d)
	d.none()
	if look.Quorum {
		t.Fatal("one replica is enough")
	}
	d.reply(id, s.read())
	_, a := only[Apply](d)
	if r, ok := a.Swap.Apply(s.row); !ok || r.Guard != 9 {
		t.Fatalf("%+v", a.Swap)
	}
}

// … however long ago a quorum was asked, while nothing is waited for but the LWT.
func TestALookBeforeAnLWTAsksOneReplica(t *testing.T) {
	d, s, _, _ := brisk(t)
	d.serve(s, 2*time.Second)
	s.joined(8)
	d.lock(Request{AtOnce: true})
	if _, look := only[ReadRow](d); look.Quorum {
		t.Fatal("one replica is enough")
	}
}

// … but who was there and has left costs no look.
func TestAnEmptyQueueNeedsNoLook(t *testing.T) {
	d, s := held(t)
	d.unlock(1)
	s.run()
	s.joined(9)
	op := d.lock(Request{Wait: time.Minute})
	s.run()
	s.handOn()
	d.unlock(d.state(op, StateHeld).Ref)
	s.run()
	d.pass(time.Second)
	s.seen = nil
	op = d.lock(Request{})
	s.run()
	d.state(op, StateHeld)
	for _, a := range s.seen {
		if _, read := a.(ReadRow); read {
			t.Fatalf("%#v", s.seen)
		}
	}
}

// blind is brisk, later: a Release that would take others along has waited for a look at a replica that does not answer.
func blind(t *testing.T) (*desk, *store) {
	t.Helper()
	d, s, _, _ := brisk(t)
	d.serve(s, 10*time.Millisecond)
	s.joined(8)
	d.unlock(4)
	only[ReadRow](d)
	d.none()
	d.pass(lookTimeout)
	return d, s
}

// A replica that does not answer holds nothing up.
func TestALookIsNotWaitedForLong(t *testing.T) {
	d, _ := blind(t)
	if _, a := only[Apply](d); a.Swap.Set.Row.Head != 5 {
		t.Fatalf("%+v", a.Swap)
	}
}

// … nor what a quorum has to tell of a refusal.
func TestALookThatHangsDoesNotKeepARefusalOpen(t *testing.T) {
	d, s := blind(t)
	id, a := only[Apply](d)
	d.reply(id, s.do(a))
	s.run()
	d.pass(lookTimeout)
	s.run()
	if s.row.Head != 5 {
		t.Fatalf("row %+v", s.row)
	}
}

// Who went away while the LWT for it was under way does not come back with its refusal, to hold what nobody gives back.
func TestWhoWentAwayIsNotGivenTheLock(t *testing.T) {
	d, s := kept(t)
	op := d.lock(Request{AtOnce: true})
	id, _ := only[Apply](d)
	d.take(d.core.Gone(d.time(), op))
	d.unlock(2)
	s.joined(9)
	d.reply(id, Result{Status: StatusRefused})
	s.run()
	d.serve(s, time.Second)
	if s.row.Head != 10 {
		t.Fatalf("row %+v", s.row)
	}
}

// alternating is a desk whose one client has come back at once after its last section, and holds again; session 9 waits
// behind it.
func alternating(t *testing.T) (d *desk, s *store) {
	t.Helper()
	d, s = held(t, func(o *Options) { o.Retain = 200 * time.Millisecond })
	s.beat[session(9)] = 1
	s.joined(9)
	d.hear(HintWaiting)
	s.run()
	s.seen = nil
	d.unlock(1)
	again := d.lock(Request{Wait: time.Minute})
	s.run()
	if n := s.cost(); n != 2 {
		t.Fatalf("%d LWTs for a client that nobody expected", n)
	}
	s.joined(9)
	s.handOn()
	d.state(again, StateHeld)
	d.hear(HintWaiting)
	s.run()
	s.seen = nil
	return d, s
}

// Who has come back at once is expected to do so again: the Release waits a moment, and takes it along.
func TestAReleaseWaitsForWhoComesBack(t *testing.T) {
	d, s := alternating(t)
	unlocked := d.unlock(3)
	d.state(unlocked, StateReleased)
	d.none()
	d.pass(returnWithin / 2)
	d.none()
	d.lock(Request{Wait: time.Minute})
	s.run()
	if b := s.row.newestBlock(); s.cost() != 1 || s.row.Head != 4 || b.First != 5 || b.Session != d.session.ID() {
		t.Fatalf("row %+v", s.row)
	}
}

// … not for long, and not again until it has come back again.
func TestAReleaseDoesNotWaitForWhoStaysAway(t *testing.T) {
	d, s := alternating(t)
	d.unlock(3)
	d.none()
	d.pass(returnWithin)
	s.run()
	if s.cost() != 1 || s.row.Head != 4 {
		t.Fatalf("row %+v", s.row)
	}
	d.pass(2 * returnWithin)
	op := d.lock(Request{Wait: time.Minute})
	s.run()
	s.joined(9)
	s.handOn()
	r := d.state(op, StateHeld).Ref
	d.hear(HintWaiting)
	s.run()
	s.seen = nil
	d.unlock(r)
	s.run()
	if s.cost() != 1 || s.row.Head != r+1 {
		t.Fatalf("row %+v", s.row)
	}
}
