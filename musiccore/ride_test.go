package musiccore

import (
	"testing"
	"time"
)

// contended is a desk that wants a key which session 9 holds, with 8 behind it, and whose Enqueues are refused each time.
func contended(t *testing.T) (d *desk, s *store, op OpID) {
	t.Helper()
	d, s = retaining(t)
	op = d.lock(Request{Wait: time.Minute})
	s.refuseAll()
	return d, s, op
}

// retaining is a desk that keeps keys, and knows one that session 9 holds, with 8 behind it.
func retaining(t *testing.T) (*desk, *store) {
	t.Helper()
	d, s := foreign(t, theirs())
	d.opts.Retain = 200 * time.Millisecond
	d.core.opts.Retain = d.opts.Retain
	s.beat[session(9)], s.beat[session(8)] = 1, 1
	return d, s
}

// refuseAll refuses Enqueues, since another has come first each time, until others are asked; what is said then is all that is kept.
func (s *store) refuseAll() {
	s.d.t.Helper()
	for range delegateAfter {
		id, _ := untilApply(s.d, s)
		s.joined(8)
		s.d.reply(id, Result{Status: StatusRefused})
	}
	s.d.hints = nil
	s.run()
}

// untilApply answers all commands but an LWT.
func untilApply(d *desk, s *store) (CommandID, Apply) {
	d.t.Helper()
	for range 10 {
		all := d.open
		d.open = nil
		for _, c := range all {
			if a, ok := c.Action.(Apply); ok {
				return c.ID, a
			}
			d.reply(c.ID, s.do(c.Action))
		}
	}
	d.t.Fatal("no LWT")
	return 0, Apply{}
}

// rider is the block that the others are asked for.
func (d *desk) rider() Hint {
	d.t.Helper()
	if len(d.hints) == 0 || d.hints[0].Kind != HintPiggyback {
		d.t.Fatalf("hints %+v", d.hints)
	}
	return d.hints[0]
}

// enqueueFor has the head's session take a block along with its Release.
func (s *store) enqueueFor(b Block) {
	s.d.t.Helper()
	r := *s.row
	if s.apply(combine(Enqueue(&r, b, 0, t0), Release(r, 2, false, 0))).Status != StatusDone {
		s.d.t.Fatal("refused")
	}
}

// Whose Enqueues are refused again and again asks all who are in the queue, and sends no LWT meanwhile.
func TestWhoIsRefusedAgainAndAgainAsksToBeTakenAlong(t *testing.T) {
	d, s, op := contended(t)
	h := d.rider()
	d.hinted(
		Hint{To: session(9), Kind: HintPiggyback, Block: h.Block, Last: s.row.Guard},
		Hint{To: session(8), Kind: HintPiggyback, Block: h.Block, Last: s.row.Guard},
	)
	if h.Block.Session != d.session.ID() || h.Block.N != 1 || h.Block.First != 0 {
		t.Fatalf("block %+v", h.Block)
	}
	s.seen = nil
	d.serve(s, 100*time.Millisecond)
	s.enqueueFor(h.Block)
	d.serve(s, 40*time.Millisecond)
	if n := s.cost(); n != 0 {
		t.Fatalf("%d LWTs", n)
	}
	for range 4 {
		s.apply(Release(*s.row, 2, false, 0))
	}
	d.serve(s, time.Second)
	if g := d.state(op, StateHeld); g.Ref != 6 {
		t.Fatalf("grant %+v of %+v", g, s.row)
	}
}

// Who comes into the queue meanwhile is asked, too.
func TestWhoComesIntoTheQueueIsAskedToo(t *testing.T) {
	d, s, _ := contended(t)
	h := d.rider()
	d.hints = nil
	s.joined(7)
	d.serve(s, 40*time.Millisecond)
	d.hinted(Hint{To: session(7), Kind: HintPiggyback, Block: h.Block, Last: s.row.Guard})
}

// Where nobody takes it along in time, it tries by itself again. What comes after that is released in its turn.
func TestARideThatComesLateIsReleased(t *testing.T) {
	d, s, op := contended(t)
	h := d.rider()
	s.seen = nil
	d.serve(s, time.Second)
	if n := s.cost(); n != 1 {
		t.Fatalf("%d LWTs", n)
	}
	s.enqueueFor(h.Block)
	for range 4 {
		s.apply(Release(*s.row, 2, false, 0))
	}
	d.serve(s, time.Second)
	d.unlock(d.state(op, StateHeld).Ref)
	d.serve(s, time.Second)
	if s.row.Head != 8 || s.row.Guard != 7 {
		t.Fatalf("row %+v", s.row)
	}
}

// A ride is remembered until a quorum shows that the tenures are over whose Releases could have brought it (H3): one replica may
// have missed just that.
func TestARideIsOverWhenAQuorumSaysSo(t *testing.T) {
	d, s, op := contended(t)
	h := d.rider()
	d.take(d.core.Gone(d.time(), op))
	for quorum := false; !quorum; d.pass(10 * time.Millisecond) {
		s.run()
		quorum = d.now > time.Hour+time.Second && len(s.seen) > 0 && s.seen[len(s.seen)-1] == Action(ReadRow{Quorum: true})
	}
	s.run()
	before := *s.row
	s.enqueueFor(h.Block)
	for range 4 {
		s.apply(Release(*s.row, 2, false, 0))
	}
	partial := *s.row
	partial.Guard, partial.Queue = before.Guard, before.Queue
	d.hear(HintReleasing)
	id, near := only[ReadRow](d)
	d.reply(id, Result{Status: StatusDone, Row: &partial})
	id, firm := only[ReadRow](d)
	if near.Quorum || !firm.Quorum {
		t.Fatalf("%+v, then %+v", near, firm)
	}
	d.reply(id, s.read())
	d.serve(s, time.Second)
	if s.row.Head != 7 {
		t.Fatalf("what came is not given back: %+v", s.row)
	}
}

// An Enqueue that takes longer than sections do is asked for as well; whichever comes first is its block.
func TestASlowEnqueueIsAskedForAsWell(t *testing.T) {
	d, s := retaining(t)
	op := d.lock(Request{Wait: time.Minute})
	id, a := untilApply(d, s)
	d.hints = nil
	d.pass(200 * time.Millisecond)
	h := d.rider()
	if h.Block.Req != a.Swap.Set.Row.newestBlock().Req {
		t.Fatalf("%+v instead of %+v", h.Block, a.Swap)
	}
	s.joined(7)
	s.enqueueFor(h.Block) // 5
	for range 3 {
		s.apply(Release(*s.row, 2, false, 0))
	}
	d.serve(s, time.Second)
	if g := d.state(op, StateHeld); g.Ref != 5 {
		t.Fatalf("grant %+v of %+v", g, s.row)
	}
	d.reply(id, s.do(a)) // refused, and nobody minds
	d.serve(s, time.Second)
	if s.row.Guard != 5 || d.theTerm() == nil {
		t.Fatalf("row %+v", s.row)
	}
}

// A Release takes riders along before its own, each once, and none that it is not to.
func TestAReleaseTakesRidersAlong(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Hint)
		later  time.Duration
		taken  bool
	}{
		"as asked":                   {taken: true},
		"of an earlier tenure":       {change: func(h *Hint) { h.Last = 3 }},
		"of nobody":                  {change: func(h *Hint) { h.Block.N = 0 }},
		"of too many":                {change: func(h *Hint) { h.Block.N = maxBlock + 1 }},
		"of this session":            {change: func(h *Hint) { h.Block.Session = session(1) }},
		"that is in the queue":       {change: func(h *Hint) { h.Block.Session, h.Block.Req = session(9), 1 }},
		"whose session asks no more": {later: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			d, s, _, _ := brisk(t)
			h := Hint{Key: d.key(), To: d.session.ID(), Kind: HintPiggyback, Block: Block{N: 2, Session: session(8), Req: 5}, Last: 5}
			if tc.change != nil {
				tc.change(&h)
			}
			d.take(d.core.Hear(d.time(), h))
			d.take(d.core.Hear(d.time(), h))
			d.serve(s, tc.later)
			d.unlock(4)
			s.run()
			b, ok := s.row.Find(session(8), 5)
			if ok != tc.taken || tc.taken && (b.First != 6 || s.row.Guard != 9 || s.row.newestBlock().Session != d.session.ID()) {
				t.Fatalf("row %+v", s.row)
			}
		})
	}
}

// untilAnswered lets time go by until an operation is answered, and tells how long that took.
func (d *desk) untilAnswered(s *store, op OpID) time.Duration {
	d.t.Helper()
	began := d.now
	for d.answers[op].Op == 0 && d.now < began+5*time.Second {
		s.run()
		d.pass(5 * time.Millisecond)
	}
	return d.now - began
}

// A key that has become free is not waited for by a ride: nobody is left who could bring it.
func TestARideDoesNotLeaveAKeyFree(t *testing.T) {
	d, s, op := contended(t)
	for !s.row.Empty() {
		s.apply(Release(*s.row, 2, false, 0))
	}
	d.hear(HintYourTurn)
	if took := d.untilAnswered(s, op); took > 100*time.Millisecond {
		t.Fatalf("free for %v", took)
	}
	d.state(op, StateHeld)
}

// Who must be told a reference soon does not wait for others to enqueue him.
func TestWhoMustHearSoonWaitsForNoRide(t *testing.T) {
	for name, q := range map[string]Request{"at once": {AtOnce: true}, "soon": {Wait: 700 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			d, s, _ := contended(t)
			op := d.lock(q)
			if took := d.untilAnswered(s, op); took > max(100*time.Millisecond, q.Wait+5*time.Millisecond) {
				t.Errorf("answered after %v", took)
			}
			if g := d.state(op, StateQueued); g.Ref == 0 {
				t.Errorf("%+v", g)
			}
		})
	}
}

// … nor in the line of a block that a ride has brought for others.
func TestARideSeatsNobodyWhoMustHearSoon(t *testing.T) {
	d, s := retaining(t)
	gone := d.lock(Request{Wait: time.Minute})
	d.lock(Request{Wait: time.Minute})
	d.core.keys[d.key()].blocks.nextSize = 1
	s.refuseAll()
	h := d.rider()
	d.take(d.core.Gone(d.time(), gone))
	op := d.lock(Request{AtOnce: true})
	s.enqueueFor(h.Block)
	if took := d.untilAnswered(s, op); !h.Block.Retained || took > 100*time.Millisecond {
		t.Fatalf("answered after %v", took)
	}
}

// NOWAIT is not for those behind whom a rider will be.
func TestNowaitBehindARiderIsBusy(t *testing.T) {
	d, s := held(t, func(o *Options) { o.Retain = 200 * time.Millisecond })
	tk, _ := d.begin(1, Get) // under way when the UNLOCK comes
	d.unlock(1)
	d.take(d.core.Hear(d.time(), Hint{Key: d.key(), To: d.session.ID(), Kind: HintPiggyback, Block: Block{N: 1, Session: session(8), Req: 5}, Last: 5}))
	op := d.lock(Request{NoWait: true})
	d.end(tk, OutcomeAcked)
	if took := d.untilAnswered(s, op); took > 100*time.Millisecond {
		t.Fatalf("answered after %v", took)
	}
	s.run()
	if d.state(op, StateBusy); s.row.Guard != 2 {
		t.Fatalf("row %+v", s.row)
	}
}

// A ride that nobody waits for is not asked for any more.
func TestARideForNobodyIsNotAskedFor(t *testing.T) {
	for name, end := range map[string]func(*desk, OpID) Effects{
		"gone":     func(d *desk, op OpID) Effects { return d.core.Gone(d.time(), op) },
		"draining": func(d *desk, _ OpID) Effects { return d.core.Drain(d.time()) },
	} {
		t.Run(name, func(t *testing.T) {
			d, s, op := contended(t)
			d.take(end(d, op))
			d.hints = nil
			s.joined(7)
			d.serve(s, 60*time.Millisecond)
			d.hinted()
		})
	}
}

// A part of a ride that was passed over leaves the rest to this session, which gives it back.
func TestTheRestOfARideIsGivenBack(t *testing.T) {
	d, s, op := contended(t)
	b := d.rider().Block
	b.N = 2
	d.take(d.core.Gone(d.time(), op))
	s.enqueueFor(b)
	for s.row.Head < s.row.Guard {
		s.apply(Release(*s.row, 2, false, 0))
	}
	d.serve(s, 10*time.Second)
	if !s.row.Empty() {
		t.Fatalf("row %+v", s.row)
	}
}
