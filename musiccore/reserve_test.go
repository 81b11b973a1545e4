package musiccore

import (
	"testing"
	"time"
)

// kept is a desk whose key has come back after a short section: its last grant
// was of a block, and reference 2 holds.
func kept(t *testing.T, change ...func(*Options)) (*desk, *store) {
	t.Helper()
	retain := func(o *Options) { o.Retain = 200 * time.Millisecond }
	d, s := held(t, append([]func(*Options){retain}, change...)...)
	d.unlock(1)
	s.run()
	op := d.lock(Request{})
	s.run()
	if g := d.state(op, StateHeld); g.Ref != 2 || s.row.Guard != 9 || !s.row.Queue[0].Retained {
		t.Fatalf("grant %+v on %+v: no block", g, s.row)
	}
	s.seen = nil
	return d, s
}

// cost counts the LWTs since it was asked last.
func (s *store) cost() int {
	n := len(s.swaps())
	s.seen = nil
	return n
}

// section locks, puts and unlocks, and answers the reference and the stamp.
func (d *desk) section(s *store) (LockRef, Stamp) {
	d.t.Helper()
	op := d.lock(Request{})
	s.run()
	r := d.state(op, StateHeld).Ref
	tk, _ := d.begin(r, Put)
	if !tk.OK() {
		d.t.Fatalf("reference %d has to wait for its put", r)
	}
	d.end(tk, OutcomeAcked)
	d.unlock(r)
	s.run()
	return r, tk.Stamp
}

// docs/protocol.md 3.17: an uncontended key that comes back to the same proxy costs no LWT.
func TestAKeyThatComesBackCostsNoLWT(t *testing.T) {
	d, s := kept(t)
	d.unlock(2)
	last := Stamp(0)
	for want := LockRef(3); want <= 9; want++ {
		r, stamp := d.section(s)
		if r != want || stamp <= last {
			t.Fatalf("reference %d at %d after %d, want %d", r, stamp, last, want)
		}
		last = stamp
		if want < 9 && s.cost() != 0 {
			t.Fatalf("reference %d has cost an LWT", r)
		}
	}
	if s.cost() != 1 || s.row.Head != 10 || s.row.Epoch <= last || s.row.Dirty {
		t.Fatalf("a block that is used up is released: %+v", s.row)
	}
	d.lock(Request{})
	s.run()
	if s.row.Guard != 9+64 {
		t.Fatalf("the next one is larger: %+v", s.row)
	}
}

func TestNothingIsKeptWithoutRetain(t *testing.T) {
	d, s := held(t)
	d.unlock(1)
	s.run()
	d.section(s)
	if s.row.Head != 3 || s.row.Guard != 2 || s.row.Queue[0].Retained {
		t.Fatalf("row %+v", s.row)
	}
}

func TestABlockInNobodysHandsIsGivenUp(t *testing.T) {
	d, s := kept(t)
	d.unlock(2)
	d.serve(s, d.opts.Retain-20*time.Millisecond)
	if s.row.Head != 2 {
		t.Fatal("given up early")
	}
	d.serve(s, 40*time.Millisecond)
	if s.row.Head != 10 || s.row.Owner != (SessionID{}) || len(d.core.keys) != 0 {
		t.Fatalf("row %+v", s.row)
	}
}

// A long section is no block's: what it was worth is forgotten.
func TestLongSectionsAreNotKept(t *testing.T) {
	d, s := kept(t)
	d.serve(s, d.opts.Retain+time.Millisecond)
	if s.row.Owner != d.session.ID() || s.row.Head != 2 || s.cost() != 1 {
		t.Fatalf("who holds for long is made plain: %+v", s.row)
	}
	if s.row.retained(2) {
		t.Fatal("nobody may take it over")
	}
	d.unlock(2)
	s.run()
	if s.row.Head != 10 {
		t.Fatalf("the release of a plain one ends the tuple: %+v", s.row)
	}
	d.lock(Request{})
	s.run()
	if s.row.Guard != 10 {
		t.Fatalf("row %+v", s.row)
	}
}

// docs/protocol.md 3.17: nothing is handed over after the Renew that makes plain is sent.
func TestNothingIsHandedOverFromWhoIsMadePlain(t *testing.T) {
	d, s := kept(t)
	next := d.lock(Request{Wait: time.Minute})
	d.pass(d.opts.Retain + time.Millisecond)
	id, renew := only[Apply](d)
	d.unlock(2)
	d.waits(next)
	d.reply(id, s.apply(renew.Swap))
	s.run()
	if g := d.state(next, StateHeld); g.Ref != 10 {
		t.Fatalf("grant %+v", g)
	}
}

func TestTheLineIsServedInOrderWithoutLWTs(t *testing.T) {
	d, s := kept(t)
	var ops []OpID
	for range 5 {
		ops = append(ops, d.lock(Request{Wait: time.Minute}))
	}
	s.run()
	if list := d.core.List(d.time()); len(list) != 6 || list[0].Ref != 2 || list[1].Ref != 0 || list[1].State != StateQueued {
		t.Fatalf("list %+v", list)
	}
	for i, op := range ops {
		d.waits(op)
		d.unlock(LockRef(i + 2))
		s.run()
		if g := d.state(op, StateHeld); g.Ref != LockRef(i+3) {
			t.Fatalf("grant %d: %+v", i, g)
		}
	}
	if n := s.cost(); n != 0 {
		t.Fatalf("%d LWTs", n)
	}
}

// Those who ask together share a tuple, which nobody else's references part: it
// is a block wherever it stands in the queue.
func TestWaitersOfAProxyAreOneTenure(t *testing.T) {
	d, s := kept(t)
	d.unlock(2)
	d.serve(s, time.Second)
	s.joined(9) // 10
	s.seen = nil
	var ops []OpID
	for range 3 {
		ops = append(ops, d.lock(Request{Wait: time.Minute}))
	}
	s.run() // refused: another one's reference is new
	for _, b := range s.row.Queue {
		if b.Session == d.session.ID() && (b.N != 3 || !b.Retained) {
			t.Fatalf("queue %+v", s.row.Queue)
		}
	}
	s.beat[session(9)] = 1
	s.handOn()
	s.seen = nil
	for i, op := range ops {
		g := d.state(op, StateHeld)
		if g.Ref != LockRef(11+i) {
			t.Fatalf("grant %+v", g)
		}
		d.unlock(g.Ref)
		s.run()
	}
	if n := s.cost(); n != 1 || s.row.Head != 14 {
		t.Fatalf("%d LWTs, row %+v", n, s.row)
	}
}

// docs/protocol.md 3.17: given up on a hint. Who stands in line has come before.
func TestABlockThatIsWantedTakesNobodyMore(t *testing.T) {
	d, s := kept(t)
	early := d.lock(Request{Wait: time.Minute})
	s.joined(9) // 10
	s.beat[session(9)] = 1
	d.hear(HintWaiting)
	s.run()
	late := d.lock(Request{Wait: time.Minute})
	s.run()
	d.unlock(2)
	s.run()
	if g := d.state(early, StateHeld); g.Ref != 3 {
		t.Fatalf("grant %+v", g)
	}
	d.unlock(3)
	s.run()
	d.waits(late)
	if s.row.Head != 10 {
		t.Fatalf("row %+v", s.row)
	}
}

// The hint may be lost: somebody looks.
func TestABlockLooksWhoWaits(t *testing.T) {
	d, s := kept(t)
	s.joined(9)
	for r := LockRef(2); s.row.Head == 2; r++ {
		if r == 9 {
			t.Fatal("used up before anybody looked")
		}
		d.serve(s, d.opts.Retain/2)
		d.unlock(r)
		d.lock(Request{})
		s.run()
	}
	if s.row.Head != 10 {
		t.Fatalf("row %+v", s.row)
	}
}

// A client hears of a reference only when nothing of it can be lost with the
// block: who has to be told one gets one of its own, and all behind it too.
func TestWhoMustBeToldAReferenceGetsOneOfItsOwn(t *testing.T) {
	d, s := kept(t)
	op := d.lock(Request{Wait: 2 * time.Second})
	behind := d.lock(Request{Wait: time.Minute})
	s.run()
	for d.now < time.Hour+3*time.Second {
		if tk, _ := d.begin(2, Get); tk.OK() {
			d.end(tk, OutcomeAcked)
		}
		d.serve(s, 100*time.Millisecond)
	}
	if g := d.state(op, StateQueued); g.Ref != 10 {
		t.Fatalf("queued %+v", g)
	}
	d.unlock(2)
	s.run()
	d.waits(behind)
	op = d.lock(Request{Ref: 10})
	s.run()
	d.state(op, StateHeld)
	d.unlock(10)
	s.run()
	if g := d.state(behind, StateHeld); g.Ref != 11 {
		t.Fatalf("grant %+v", g)
	}
}

func TestWaitZeroBehindABlockIsToldItsReference(t *testing.T) {
	d, s := kept(t)
	op := d.lock(Request{AtOnce: true})
	s.run()
	if g := d.state(op, StateQueued); g.Ref != 10 {
		t.Fatalf("queued %+v", g)
	}
}

// Nobody can name a reference of a block that has not been granted.
func TestReferencesOfABlockAreNobodysBeforeTheGrant(t *testing.T) {
	d, s := kept(t)
	d.lock(Request{Wait: time.Minute})
	for _, r := range []LockRef{3, 9} {
		op := d.lock(Request{Ref: r})
		_, put := d.begin(r, Put)
		d.serve(s, 150*time.Millisecond)
		d.fails(op, ErrNotHeld)
		d.fails(put, ErrNotHeld)
	}
}

// docs/protocol.md 3.17, Blocks: nothing of the reference before is in flight.
func TestHandOverWaitsForWhatIsInFlight(t *testing.T) {
	d, s := kept(t)
	put, _ := d.begin(2, Put)
	next := d.lock(Request{Wait: time.Minute})
	d.unlock(2)
	s.run()
	d.waits(next)
	if v := d.end(put, OutcomeUnknown); v != VerdictUncertain {
		t.Fatalf("verdict %v", v)
	}
	d.waits(next) // unsettled
	id, c := only[Synch](d)
	if c.Fence <= put.Stamp {
		t.Fatalf("fence %d, put %d", c.Fence, put.Stamp)
	}
	d.reply(id, Result{Status: StatusDone})
	d.state(next, StateHeld)
}

// … and dirty is inherited with the count of stamps.
func TestABlockInheritsWhatIsDirty(t *testing.T) {
	d, s := kept(t)
	d.unlock(2)
	d.serve(s, time.Second)
	s.row.Dirty = true
	d.core.Dropped(d.time(), d.table) // memory is gone
	d.core.idle.put(d.key(), idleKey{row: *s.row, nextBlockSize: 8})
	first := d.lock(Request{})
	s.run()
	r := d.state(first, StateHeld).Ref
	d.unlock(r)
	second := d.lock(Request{})
	s.run()
	_, get := d.begin(d.state(second, StateHeld).Ref, Get)
	if _, done := d.answers[get]; done {
		t.Fatal("a get before the synchronise")
	}
	_, c := only[Synch](d)
	if c.Fence != s.row.Epoch+2 {
		t.Fatalf("fence %d, epoch %d", c.Fence, s.row.Epoch)
	}
}

// What cannot be settled ends the term, dirty. The block goes on with the next of its references.
func TestABlockThatCannotBeSettledIsReleasedDirty(t *testing.T) {
	d, s := kept(t)
	put, _ := d.begin(2, Put)
	next := d.lock(Request{Wait: time.Minute})
	d.unlock(2)
	d.end(put, OutcomeUnknown)
	s.copy = Result{Status: StatusUnknown}
	d.serve(s, 100*time.Millisecond)
	if g := d.state(next, StateHeld); g.Ref != 3 || s.row.Head != 3 || s.row.Guard != 9 || !s.row.Dirty {
		t.Fatalf("grant %+v, row %+v", g, s.row)
	}
	_, tk := d.begin(3, Get)
	d.waits(tk)
}

// Who comes while the Release is under way is not handed what it ends.
func TestNothingIsHandedOverOnceTheReleaseIsSent(t *testing.T) {
	d, s := kept(t)
	d.unlock(2)
	d.pass(d.opts.Retain + time.Millisecond)
	id, release := only[Apply](d)
	op := d.lock(Request{})
	d.waits(op)
	d.reply(id, s.apply(release.Swap))
	s.run()
	if g := d.state(op, StateHeld); g.Ref != 10 {
		t.Fatalf("grant %+v", g)
	}
}

// docs/protocol.md 3.19, Shutdown: who holds is made plain, the rest is given up.
func TestDrainMakesTheHolderOfABlockPlain(t *testing.T) {
	d, s := kept(t)
	waits := d.lock(Request{Wait: time.Minute})
	d.take(d.core.Drain(d.time()))
	d.fails(waits, ErrDraining)
	if d.core.Quiet() {
		t.Fatal("quiet before the holder is plain")
	}
	s.run()
	if !d.core.Quiet() || s.row.Owner != d.session.ID() || s.row.Head != 2 {
		t.Fatalf("row %+v", s.row)
	}

	d, s = kept(t)
	d.unlock(2)
	d.take(d.core.Drain(d.time()))
	s.run()
	if !d.core.Quiet() || s.row.Head != 10 {
		t.Fatalf("row %+v", s.row)
	}
}

// docs/protocol.md 3.17: no reference of a dead session's block goes on elsewhere, and it
// is passed over at once and whole.
func TestADeadSessionsBlockIsPassedOverWhole(t *testing.T) {
	retained := theirs()
	retained.Queue[0] = Block{First: retained.Head, N: 40, Session: session(9), Req: 1, Retained: true}
	retained.Queue = retained.Queue[:1]
	retained.Guard = retained.Queue[0].Last()
	d, s := foreign(t, retained)
	s.beat[session(9)] = EndedBeat
	op := d.lock(Request{Wait: time.Minute})
	s.run()
	d.serve(s, 100*time.Millisecond)
	if g := d.state(op, StateHeld); g.Ref != retained.Guard+1 {
		t.Fatalf("grant %+v", g)
	}
}

// A session that comes upon a block of its own that it knows nothing of ends it whole.
func TestAnOwnBlockThatMemoryDoesNotKnowIsEndedWhole(t *testing.T) {
	d, s := kept(t)
	d.take(d.core.Dropped(d.time(), d.table))
	op := d.lock(Request{Wait: time.Minute})
	s.run()
	if g := d.state(op, StateHeld); g.Ref != 10 || !s.row.Dirty {
		t.Fatalf("grant %+v, row %+v", g, s.row)
	}
	if n := s.cost(); n > 3 { // the Enqueue behind it, the Release, perhaps an Enqueue again
		t.Fatalf("%d LWTs", n)
	}
}

// A new window does not say that the references may be taken over.
func TestARenewInsideABlockLeavesItKept(t *testing.T) {
	d, s := kept(t)
	before, _ := d.begin(2, Put)
	d.end(before, OutcomeAcked)
	d.take(d.core.Altered(d.time(), d.table))
	s.run()
	if s.row.Owner != (SessionID{}) || !s.row.retained(s.row.Head) || s.cost() != 1 {
		t.Fatalf("row %+v", s.row)
	}
	d.unlock(2)
	if r, stamp := d.section(s); r != 3 || stamp <= before.Stamp+d.opts.Window/2 || s.row.Head != 2 {
		t.Fatalf("reference %d at %d, row %+v", r, stamp, s.row)
	}
}

func TestTheLineOutlivesItsBlock(t *testing.T) {
	d, s := kept(t)
	op := d.lock(Request{Wait: time.Minute})
	gone := d.lock(Request{Wait: time.Minute})
	d.take(d.core.Gone(d.time(), gone))
	s.apply(Preempt(*s.row, 10, d.opts.Window, 0)) // though its session lives: the table is strict
	d.take(d.core.Strict(d.time(), d.table, true))
	tk, _ := d.begin(2, Get)
	d.end(tk, OutcomeAcked)
	s.run()
	if g := d.state(op, StateHeld); g.Ref != 10 {
		t.Fatalf("grant %+v", g)
	}
	if list := d.core.List(d.time()); len(list) != 1 {
		t.Fatalf("list %+v", list)
	}
}

func TestNowaitGetsWhatNobodyHas(t *testing.T) {
	d, s := kept(t)
	d.state(d.lock(Request{NoWait: true}), StateBusy)
	d.unlock(2)
	op := d.lock(Request{NoWait: true})
	if g := d.state(op, StateHeld); g.Ref != 3 {
		t.Fatalf("grant %+v", g)
	}
	if n := s.cost(); n != 0 {
		t.Fatalf("%d LWTs", n)
	}
}
