package musiccore

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// foreign is a desk at a store whose lock row other sessions made; 9 holds.
func foreign(t *testing.T, r Row) (*desk, *store) {
	t.Helper()
	d := newDesk(t)
	s := newStore(d)
	s.row = &r
	return d, s
}

// theirs is a row that session 9 holds, with 8 behind it and 9 behind that.
func theirs() Row {
	return Row{Guard: 3, Head: 1, Epoch: 1000, Queue: []Block{block(1, 1, 9, 1), block(2, 1, 8, 1), block(3, 1, 9, 2)}}
}

func (d *desk) elsewhere(op OpID, n byte) {
	d.t.Helper()
	var e *ElsewhereError
	if a := d.answered(op); !errors.As(a.Err, &e) || e.Session != session(n) {
		d.t.Fatalf("%+v, want elsewhere at %d", a, n)
	}
}

func (s *store) swaps() []Swap {
	var all []Swap
	for _, a := range s.seen {
		if w, ok := a.(Apply); ok {
			all = append(all, w.Swap)
		}
	}
	return all
}

// docs/protocol.md 3.13, Takeover: the owner ended by itself.
func TestTakeoverOfAnEndedSessionAtOnce(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)] = EndedBeat
	tk, op := d.begin(1, Put)
	if tk.OK() {
		t.Fatal("no ticket before the Takeover")
	}
	s.run()
	tk = d.answered(op).Ticket
	w := s.swaps()[0]
	want := Row{Epoch: max(1000+d.opts.Window, w.Set.Row.Epoch), Head: 1, Dirty: true, Owner: session(1)}
	if w.If != (If{What: IfEpoch, Epoch: 1000}) || !w.Set.Row.sameTerm(want) {
		t.Fatalf("takeover %+v", w)
	}
	if c, ok := s.seen[len(s.seen)-1].(Synch); !ok || c.Fence != s.row.Epoch+2 || tk.Stamp != s.row.Epoch+4 {
		t.Fatalf("a synchronise first: %+v, ticket %+v", s.seen, tk)
	}
	if v := d.end(tk, OutcomeAcked); v != VerdictTell {
		t.Fatalf("verdict %v", v)
	}
	if !slices.ContainsFunc(d.notes, func(n Note) bool { return n.Kind == NoteTakenOver && n.Ref == 1 }) {
		t.Fatalf("notes %+v", d.notes)
	}
	d.state(d.unlock(1), StateReleased)
	s.run()
	if s.row.Head != 2 || s.row.Dirty || s.row.Owner != (SessionID{}) {
		t.Fatalf("released clean: %+v", *s.row)
	}
}

func TestTakeoverWaitsUntilTheOwnerIsDead(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)] = 5
	for {
		op := d.lock(Request{Ref: 1})
		s.run()
		d.pass(20 * time.Millisecond)
		s.run()
		if a := d.answered(op); a.Err == nil {
			break
		}
		d.elsewhere(op, 9)
		if len(s.swaps()) > 0 {
			t.Fatal("a takeover from the living")
		}
		for range 30 {
			d.pass(100 * time.Millisecond)
			s.run()
		}
	}
	if d.now < time.Hour+d.opts.DeadAfter(0) {
		t.Fatalf("dead after %v", d.now-time.Hour)
	}
	op := d.lock(Request{Ref: 1})
	if g := d.state(op, StateHeld); g.Ref != 1 || g.Lease != d.opts.ClientLease {
		t.Fatalf("%+v", g)
	}
	if s.row.Owner != session(1) || !s.row.Dirty {
		t.Fatalf("%+v", *s.row)
	}
}

// docs/protocol.md 3.13, Takeover: an earlier session of this process saw its deadline pass.
func TestTakeoverFromTheOwnEarlierSessionAtOnce(t *testing.T) {
	d, s := held(t)
	d.jump(11 * time.Second)
	d.session = NewSession(session(2), d.opts)
	d.take(d.core.Rejoin(d.time(), d.session))
	d.beat()
	_, op := d.begin(1, Get)
	s.run()
	if tk := d.answered(op).Ticket; !tk.OK() || tk.Epoch != s.row.Epoch || s.row.Owner != session(2) {
		t.Fatalf("%+v on %+v", tk, *s.row)
	}
}

// Whose session dies while it waits keeps its reference, and its turn.
func TestWaiterOfTheOwnEarlierSessionIsServed(t *testing.T) {
	d, s := held(t)
	waiter, hasty := d.lock(Request{Wait: time.Hour}), d.lock(Request{Wait: time.Hour, NoWait: true})
	s.run()
	d.state(hasty, StateBusy)
	d.jump(11 * time.Second)
	d.session = NewSession(session(2), d.opts)
	d.take(d.core.Rejoin(d.time(), d.session))
	if g := d.state(waiter, StateQueued); g.Ref != 2 {
		t.Fatalf("%+v", g)
	}
	d.beat()
	again := d.lock(Request{Ref: 2, Wait: time.Hour})
	for range 10 {
		d.pass(d.opts.Grace / 8)
		s.run()
	}
	if g := d.state(again, StateHeld); g.Ref != 2 || !g.OwnerDied || s.row.Owner != session(2) {
		t.Fatalf("%+v on %+v", g, *s.row)
	}
}

func TestTakeoverIsOneTermEvenWhenItsFateIsUnknown(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)] = EndedBeat
	op := d.lock(Request{Ref: 1})
	for len(d.open) > 0 {
		c := d.open[0]
		if a, ok := c.Action.(Apply); ok {
			d.open = d.open[1:]
			s.apply(a.Swap)
			d.reply(c.ID, unknown)
			break
		}
		id, what := c.ID, c.Action
		d.open = d.open[1:]
		d.reply(id, s.do(what))
		d.pass(20 * time.Millisecond)
	}
	d.waits(op)
	base := s.row.Epoch
	d.pass(time.Second)
	s.run()
	d.pass(time.Second)
	s.run()
	op = d.lock(Request{Ref: 1})
	if g := d.state(op, StateHeld); g.Ref != 1 || s.row.Epoch != base {
		t.Fatalf("%+v on %+v", g, *s.row)
	}
	d.state(d.unlock(1), StateReleased)
	s.run()
	_, late := d.begin(1, Put)
	s.run()
	d.fails(late, ErrLost)
}

func TestTakeoverLostToAnotherProxy(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)], s.beat[session(7)] = EndedBeat, 3
	_, op := d.begin(1, Put)
	for len(s.swaps()) == 0 {
		if a, ok := d.open[0].Action.(Apply); ok {
			row, _ := Takeover(*s.row, session(7), d.opts.Window, 0).Apply(s.row)
			s.row = &row
			_ = a
		}
		c := d.open[0]
		d.open = d.open[1:]
		s.seen = append(s.seen, c.Action)
		d.reply(c.ID, s.do(c.Action))
		d.pass(20 * time.Millisecond)
	}
	s.run()
	d.pass(100 * time.Millisecond)
	s.run()
	d.elsewhere(op, 7)
	if s.row.Owner != session(7) || len(d.core.keys) != 0 {
		t.Fatalf("%+v, keys %d", *s.row, len(d.core.keys))
	}
}

// A reference that waits moves as well: it takes over when it is the head.
func TestAWaitingReferenceOfADeadSessionGoesOnHere(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = EndedBeat, EndedBeat
	op := d.lock(Request{Ref: 2, Wait: time.Minute})
	_, early := d.begin(2, Put)
	d.serve(s, time.Second)
	d.fails(early, ErrNotHeld)
	d.waits(op)
	if s.row.Epoch != 1000 {
		t.Fatalf("the grace is for the head's client: %+v", *s.row)
	}
	d.serve(s, 2*time.Second)
	if g := d.state(op, StateHeld); g.Ref != 2 {
		t.Fatalf("%+v", g)
	}
	if s.row.Head != 2 || s.row.Owner != session(1) {
		t.Fatalf("the preemption did not pass over the guest: %+v", *s.row)
	}
}

// serve lets time go by with a store that answers.
func (d *desk) serve(s *store, by time.Duration) {
	for end := d.now + by; d.now < end; {
		s.run()
		d.pass(20 * time.Millisecond)
	}
	s.run()
}

func TestUnlockOfADeadSessionsReference(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = EndedBeat, 4
	behind, head := d.unlock(3), d.unlock(1)
	d.serve(s, 100*time.Millisecond)
	if g := d.state(head, StateReleased); !g.Applied {
		t.Fatalf("%+v", g)
	}
	d.state(behind, StateReleased)
	if s.row.Head != 2 || !s.row.Dirty || s.row.Epoch < 1000+d.opts.Window {
		t.Fatalf("nobody knows what was sent under it: %+v", *s.row)
	}
	if len(d.hints) != 1 || d.hints[0] != (Hint{Key: d.key(), To: session(8), Kind: HintYourTurn}) {
		t.Fatalf("hints %+v", d.hints)
	}
	next := Release(*s.row, 2, false, 0)
	row, _ := next.Apply(s.row)
	s.row = &row
	d.serve(s, 2*time.Second)
	if s.row.Head != 4 {
		t.Fatalf("the abandoned one is released when it is the head: %+v", *s.row)
	}
}

// A reference in a block that its session handed out in memory is nobody's
// once that session is dead (B1), unless it was made plain.
func TestNoTakeoverInsideARetainedBlock(t *testing.T) {
	r := Row{Guard: 4, Head: 1, Epoch: 1000, Queue: []Block{{First: 1, N: 4, Session: session(9), Req: 1, Retained: true}}}
	d, s := foreign(t, r)
	s.beat[session(9)] = EndedBeat
	_, begin := d.begin(1, Put)
	lock := d.lock(Request{Ref: 2})
	d.serve(s, 100*time.Millisecond)
	d.fails(begin, ErrLost)
	d.state(lock, StateLost)
	if s.row.Head != 5 {
		t.Fatalf("told to be lost, and not passed over: %+v", *s.row)
	}

	r.Owner = session(9)
	d, s = foreign(t, r)
	s.beat[session(9)] = EndedBeat
	_, begin = d.begin(1, Put)
	d.serve(s, 100*time.Millisecond)
	if !d.answered(begin).Ticket.OK() {
		t.Fatal("T.owner set is plain")
	}
}

// A row that names this session does not grant what memory does not know.
func TestAnOwnReferenceOfAnEarlierLifeIsNeverGranted(t *testing.T) {
	r := Row{Guard: 2, Head: 1, Epoch: 1000, Queue: []Block{block(1, 2, 1, 1)}}
	for _, owner := range []SessionID{{}, session(1)} {
		r.Owner = owner
		d, s := foreign(t, r)
		_, begin := d.begin(1, Put)
		lock, waiting := d.lock(Request{Ref: 1}), d.lock(Request{Ref: 2})
		d.serve(s, time.Second)
		d.fails(begin, ErrNotHeld)
		d.state(lock, StateLost) // by then it is released
		d.fails(waiting, ErrNotHeld)
	}
}

// A Begin may be the first that this proxy hears of a key: what it synchronises
// must lie above closed all the same (C17).
func TestATakeoverKnowsWhenTheTableWasClosed(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)] = EndedBeat
	closed := t0 * 2
	d.take(d.core.Closed(d.time(), d.table, closed))
	_, op := d.begin(1, Put)
	s.run()
	if tk := d.answered(op).Ticket; tk.Stamp <= closed {
		t.Fatalf("stamp %d below closed %d", tk.Stamp, closed)
	}
}

func TestDrainingTakesNothingOver(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)] = EndedBeat
	d.take(d.core.Drain(d.time()))
	op := d.lock(Request{Ref: 1})
	d.serve(s, 100*time.Millisecond)
	d.fails(op, ErrDraining)
	if s.row.Epoch != 1000 || !d.core.Quiet() {
		t.Fatalf("%+v", *s.row)
	}
}

func TestAGuestWhoseClientGoesAwayIsReleased(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = EndedBeat, 1
	d.clkOff = true
	op := d.lock(Request{Ref: 1})
	d.serve(s, 100*time.Millisecond)
	d.waits(op)
	d.take(d.core.Gone(d.time(), op))
	d.clkOff = false
	d.serve(s, 100*time.Millisecond)
	if s.row.Head != 2 || len(s.swaps()) != 1 {
		t.Fatalf("%+v", *s.row)
	}
}

func TestHintLooksAndNeverGrants(t *testing.T) {
	r := theirs()
	r.Queue[1].Session, r.Queue[1].Req = session(1), 77 // an earlier life of the key: 2 is nobody's
	d, s := foreign(t, r)
	s.beat[session(9)] = 1
	op := d.lock(Request{Wait: time.Minute, Token: [16]byte{1}})
	d.serve(s, 900*time.Millisecond)
	seen := len(s.seen)
	d.take(d.core.Hear(d.time(), Hint{Key: d.key(), To: session(5), Kind: HintYourTurn}))
	d.none()
	d.take(d.core.Hear(d.time(), Hint{Key: Key{PK: "other"}, To: session(1), Kind: HintYourTurn}))
	d.none()
	d.take(d.core.Hear(d.time(), Hint{Key: d.key(), To: session(1), Kind: HintYourTurn}))
	s.run()
	if got := s.seen[seen:]; len(got) != 2 || got[0] != (ReadRow{}) || got[1] != (ReadRow{Quorum: true}) {
		t.Fatalf("LOCAL_ONE, and QUORUM as that says otherwise: %+v", got)
	}
	d.waits(op)
	row := *s.row
	row.Head, row.Epoch = 4, 2000
	s.row, seen = &row, len(s.seen)
	d.take(d.core.Hear(d.time(), Hint{Key: d.key(), To: session(1), Kind: HintYourTurn}))
	s.run()
	if got := s.seen[seen:]; len(got) != 1 {
		t.Fatalf("one read is enough: %+v", got)
	}
	d.state(op, StateHeld)
}

func (d *desk) force() OpID {
	op := d.op()
	d.take(d.core.Force(d.time(), op, d.key(), 0, "stuck"))
	return op
}

func (d *desk) forced(ref LockRef) {
	d.t.Helper()
	if !slices.ContainsFunc(d.notes, func(n Note) bool { return n.Kind == NoteForced && n.Ref == ref && n.Reason == "stuck" }) {
		d.t.Fatalf("no word of %d in the audit: %+v", ref, d.notes)
	}
}

// docs/protocol.md 3.14, Force: by the owner's proxy, with bounded drain and settle.
func TestForceOfTheOwnHolder(t *testing.T) {
	d, s := held(t)
	tk, _ := d.begin(1, Put)
	op := d.force()
	d.none()
	d.waits(op)
	if v := d.end(tk, OutcomeUnknown); v != VerdictUncertain {
		t.Fatalf("verdict %v", v)
	}
	_, late := d.begin(1, Put)
	d.waits(late)
	s.run()
	d.fails(late, ErrLost)
	if g := d.state(op, StateReleased); !g.Applied || g.Ref != 1 {
		t.Fatalf("%+v", g)
	}
	if _, ok := s.seen[len(s.seen)-2].(Synch); !ok || s.row.Head != 2 || s.row.Dirty {
		t.Fatalf("settled, then released: %+v %+v", s.seen, *s.row)
	}
	d.forced(1)
	op = d.lock(Request{Ref: 1})
	s.run()
	d.state(op, StateLost)
	op = d.force()
	s.run()
	if g := d.state(op, StateReleased); g.Applied || g.Ref != 0 {
		t.Fatalf("nobody holds: %+v", g)
	}
}

func TestForceIsForTheOwner(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = 1, 1
	op := d.force()
	d.serve(s, 100*time.Millisecond)
	d.elsewhere(op, 9)
	if len(s.swaps()) != 0 {
		t.Fatal("a live session is preempted")
	}
	s.beat[session(9)] = EndedBeat
	d.serve(s, 2*time.Second)
	op = d.force()
	d.serve(s, 100*time.Millisecond)
	if g := d.state(op, StateReleased); !g.Applied || g.Ref != 1 || s.row.Head != 2 || !s.row.Dirty {
		t.Fatalf("a dead one is passed over without the grace: %+v on %+v", g, *s.row)
	}
	d.forced(1)
}

func TestForceOfAnOwnHeadThatMemoryDoesNotKnow(t *testing.T) {
	d, s := foreign(t, Row{Guard: 1, Head: 1, Epoch: 1000, Queue: []Block{block(1, 1, 1, 1)}})
	op := d.force()
	d.serve(s, 100*time.Millisecond)
	if g := d.state(op, StateReleased); !g.Applied || s.row.Head != 2 || !s.row.Dirty {
		t.Fatalf("%+v on %+v", g, *s.row)
	}
}

// docs/design.md 9: N waiters of one proxy share one LWT.
func TestWaitersShareTheirLWT(t *testing.T) {
	d, s := held(t)
	before := len(s.swaps())
	for range 3 {
		d.lock(Request{Wait: time.Minute}) // the first is under way alone
		for range 999 {
			d.lock(Request{Wait: time.Minute})
		}
		s.run()
	}
	if got := len(s.swaps()) - before; got > 6 {
		t.Fatalf("%d LWTs for 3 times 1000 waiters", got)
	}
	if s.row.Guard != 3001 {
		t.Fatalf("guard %d", s.row.Guard)
	}
}

// A Takeover that takes longer than an operation waits goes on: try again.
func TestAnOperationWaitsForATakeoverInItsTime(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)] = EndedBeat
	d.clkOff = true
	_, first := d.begin(1, Put)
	d.serve(s, time.Second)
	_, gone := d.begin(1, Get)
	d.take(d.core.Gone(d.time(), gone))
	d.serve(s, d.opts.OpTimeout)
	d.fails(first, ErrSynchronising)
	d.waits(gone)
	d.clkOff = false
	_, again := d.begin(1, Put)
	d.serve(s, time.Second)
	if !d.answered(again).Ticket.OK() {
		t.Fatal("no ticket")
	}
}

func TestForceWhileTheTermIsReleased(t *testing.T) {
	d, s := held(t)
	d.state(d.unlock(1), StateReleased)
	op := d.force()
	if g := d.state(op, StateReleased); g.Applied || g.Ref != 1 {
		t.Fatalf("it was given back: %+v", g)
	}
	s.run()
}

func TestForceWithoutASession(t *testing.T) {
	d, _ := held(t)
	d.jump(11 * time.Second)
	d.fails(d.force(), ErrNoSession)
}
