package musiccore

import (
	"errors"
	"testing"
	"time"
)

// stranger is a row whose head is of session 9.
func stranger() Row {
	return Row{Guard: 1, Head: 1, Queue: []Block{block(1, 1, 9, 1)}, Epoch: 500}
}

func TestHandOverBetweenLocalWaiters(t *testing.T) {
	d, s := held(t)
	a, b := d.lock(Request{Owner: "a"}), d.lock(Request{Owner: "b"})
	s.run()
	d.waits(a)
	d.unlock(1)
	id, _ := only[Apply](d)
	d.waits(a)
	d.reply(id, Result{Status: StatusDone})
	if g := d.state(a, StateHeld); g.Ref != 2 || g.OwnerDied || g.Holder != "a" {
		t.Fatalf("%+v", g)
	}
	d.none() // clean: T is known from the own literals
	if tk, _ := d.begin(2, Get); !tk.OK() {
		t.Fatal("a clean term needs no synchronise")
	}
	d.pass(1500 * time.Millisecond)
	if g := d.state(b, StateQueued); g.Holder != "a" || g.Position != 1 {
		t.Fatalf("%+v", g)
	}
}

func TestM6DirtyHandOverReadsAtQuorumFirst(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	d.lock(Request{})
	s.run()
	next := d.lock(Request{})
	s.run()
	d.unlock(1) // never synchronised: dirty
	id, a := only[Apply](d)
	before := *s.row
	s.do(a)
	d.reply(id, Result{Status: StatusDone})
	d.waits(next)
	id, read := only[ReadRow](d)
	if !read.Quorum {
		t.Fatal("dirty: QUORUM")
	}
	d.reply(id, sees(before)) // another epoch
	d.waits(next)
	d.pass(time.Second)
	s.run()
	d.state(next, StateHeld)
}

func TestPollRefusesATermThatWasTakenOver(t *testing.T) {
	d := newDesk(t)
	op := d.lock(Request{Wait: time.Minute})
	id, _ := only[ReadRow](d)
	d.reply(id, sees(stranger()))
	id, a := only[Apply](d)
	d.reply(id, Result{Status: StatusDone})
	row := stranger()
	row, _ = a.Swap.Apply(&row)
	row.Head, row.Epoch, row.Owner = 2, 900, session(8)
	for len(d.answers) == 0 {
		d.pass(100 * time.Millisecond)
		open := d.open
		d.open = nil
		for _, c := range open {
			if _, ok := c.Action.(ReadRow); ok {
				d.reply(c.ID, sees(row))
			}
		}
	}
	d.fails(op, ErrElsewhere)
}

func TestC15AStaleRowOpensNothingAgain(t *testing.T) {
	d, s := held(t)
	before := *s.row
	tk, _ := d.begin(1, Put)
	d.end(tk, OutcomeAcked)
	next := d.lock(Request{Wait: time.Minute})
	s.run()
	d.unlock(1)
	id, _ := only[Apply](d)
	d.lock(Request{Ref: 77})
	read, _ := only[ReadRow](d)
	d.reply(id, Result{Status: StatusDone})
	d.state(next, StateHeld)
	d.reply(read, sees(before))
	if k := d.core.keys[d.key()]; k.term == nil || k.term.holder.ref != 2 || k.view.row.Head != 2 {
		t.Fatal("a stale row after the own Release")
	}
	if got, op := d.begin(1, Put); got.OK() {
		t.Fatal("granted twice")
	} else {
		d.fails(op, ErrLost)
	}
}

func TestC15AfterMemoryWasFreed(t *testing.T) {
	d, s := held(t)
	before := *s.row
	d.unlock(1)
	s.run()
	d.core.idle = newIdle(4)
	op := d.lock(Request{})
	id, _ := only[ReadRow](d)
	d.reply(id, sees(before)) // head 1, our session: released long ago
	id, a := only[Apply](d)
	if a.Swap.If.What != IfGuard {
		t.Fatalf("%+v", a.Swap)
	}
	d.reply(id, Result{Status: StatusRefused})
	d.waits(op)
	if k := d.core.keys[d.key()]; k.term != nil {
		t.Fatal("opened on a stale row")
	}
}

func TestNoTermWithoutClockOrSession(t *testing.T) {
	d := newDesk(t)
	d.clkOff = true
	d.fails(d.lock(Request{}), ErrClock)
	d.clkOff = false
	op := d.lock(Request{Wait: time.Minute})
	id, _ := only[ReadRow](d)
	d.clkOff = true
	d.reply(id, Result{Status: StatusDone})
	d.none()
	d.waits(op)

	cold := &desk{t: t, opts: Defaults(), answers: map[OpID]Answer{}}
	cold.session = NewSession(session(1), cold.opts)
	cold.core = New(cold.session, cold.opts)
	cold.fails(cold.lock(Request{}), ErrNoSession)
	cold.fails(cold.unlock(1), ErrNoSession)
	_, at := cold.begin(1, Put)
	cold.fails(at, ErrNoSession)
}

func TestGrantHeldBackUntilTheClocksAgree(t *testing.T) {
	d, s := held(t)
	next := d.lock(Request{Wait: time.Minute})
	s.run()
	d.clkOff = true
	d.unlock(1)
	s.run()
	d.waits(next)
	d.clkOff = false
	d.pass(time.Second)
	d.state(next, StateHeld)
}

func TestSessionDeathEndsEverything(t *testing.T) {
	d, s := held(t)
	tk, _ := d.begin(1, Put)
	waiter := d.lock(Request{Wait: time.Hour})
	s.run()
	d.jump(11 * time.Second)
	if v := d.end(tk, OutcomeAcked); v != VerdictUncertain {
		t.Fatalf("C12: verdict %v after the lease", v)
	}
	d.state(waiter, StateQueued)
	_, op := d.begin(1, Put)
	d.fails(op, ErrNoSession)
	if len(d.core.keys)+len(d.core.ops)+len(d.core.timers) != 0 {
		t.Fatal("something is left")
	}
	d.session = NewSession(session(2), d.opts)
	d.take(d.core.Rejoin(d.time(), d.session))
	d.beat()
	op = d.lock(Request{Wait: time.Minute})
	s.run()
	d.waits(op)
	for range 10 { // the old session is known to be dead: only the grace, for both of its references
		d.pass(d.opts.Grace / 8)
		s.run()
	}
	if g := d.state(op, StateHeld); g.Ref != 3 || !g.OwnerDied {
		t.Fatalf("%+v", g)
	}
}

// preempted runs a LOCK behind a stranger for a while and reports whether it
// was preempted.
func preempted(t *testing.T, d *desk, s *store, beat func(time.Duration) int64, gap time.Duration) bool {
	t.Helper()
	row := stranger()
	s.row = &row
	op := d.lock(Request{Wait: time.Hour})
	for end := d.now + gap; d.now < end; {
		s.beat[session(9)] = beat(d.now)
		s.run()
		d.pass(50 * time.Millisecond)
	}
	_, held := d.answers[op]
	return held
}

func TestPreemptTheDead(t *testing.T) {
	wait := Defaults().DeadAfter(0) + Defaults().Grace
	stands := func(time.Duration) int64 { return 5 }
	for name, c := range map[string]struct {
		beat func(time.Duration) int64
		wait time.Duration
		want bool
	}{
		"too early":          {stands, wait - time.Second, false},
		"a beat stands":      {stands, wait + 1500*time.Millisecond, true},
		"absence stands":     {func(time.Duration) int64 { return 0 }, wait + 1500*time.Millisecond, true},
		"a beat goes on":     {func(at time.Duration) int64 { return int64(at / (9 * time.Second)) }, time.Minute, false},
		"ended, in grace":    {func(time.Duration) int64 { return EndedBeat }, Defaults().Grace - 100*time.Millisecond, false},
		"ended, after grace": {func(time.Duration) int64 { return EndedBeat }, Defaults().Grace + 1500*time.Millisecond, true},
	} {
		d := newDesk(t)
		s := newStore(d)
		if got := preempted(t, d, s, c.beat, c.wait); got != c.want {
			t.Errorf("%s: preempted %v", name, got)
		}
		if c.want && (s.row.Head != 2 || s.row.Epoch < 500+d.opts.Window || !s.row.Dirty) {
			t.Errorf("%s: %+v", name, s.row)
		}
	}
}

func TestC5DeadCountsFromTheEndOfTheFirstReadToTheStartOfTheLast(t *testing.T) {
	d := newDesk(t)
	row := stranger()
	d.lock(Request{Wait: time.Hour})
	id, _ := only[ReadRow](d)
	d.reply(id, sees(row))
	id, a := only[Apply](d)
	row, _ = a.Swap.Apply(&row)
	d.reply(id, Result{Status: StatusDone})
	beat := func(d *desk) CommandID {
		for {
			for i, c := range d.open {
				if _, ok := c.Action.(ReadBeat); ok {
					d.open = append(d.open[:i:i], d.open[i+1:]...)
					return c.ID
				}
				if _, ok := c.Action.(ReadRow); ok {
					d.open = append(d.open[:i:i], d.open[i+1:]...)
					d.reply(c.ID, sees(row))
					break
				}
			}
			d.pass(time.Millisecond)
		}
	}
	first := beat(d)
	d.pass(8 * time.Second) // the first read is slow: its value may be that old
	d.reply(first, Result{Status: StatusDone, Beat: 5})
	since := d.now
	for !d.core.dead(session(9)) {
		d.reply(beat(d), Result{Status: StatusDone, Beat: 5})
	}
	if took := d.now - since; took < d.opts.DeadAfter(0) || took > d.opts.DeadAfter(0)+time.Second {
		t.Fatalf("dead after %v", took)
	}
}

func TestASlowLastReadProvesNothing(t *testing.T) {
	d := newDesk(t)
	w := d.core.watch(d.time(), session(9))
	d.reply(w.cmd, Result{Status: StatusDone, Beat: 5})
	d.pass(w.timer.at - d.now)
	d.jump(time.Minute) // the read was sent before, its answer is old
	d.reply(w.cmd, Result{Status: StatusDone, Beat: 5})
	if w.dead {
		t.Fatal("the START of the last read counts")
	}
}

func TestPreemptReadsTheRowAtQuorumFirst(t *testing.T) {
	d, s := held(t)
	d.jump(time.Minute)
	d.session = NewSession(session(2), d.opts)
	d.take(d.core.Rejoin(d.time(), d.session))
	d.pass(d.opts.Grace) // session 1 is known to be dead, and its grace is over
	d.lock(Request{Wait: time.Hour})
	id, read := only[ReadRow](d)
	d.reply(id, sees(*s.row))
	id, a := only[Apply](d)
	d.reply(id, s.do(a))
	if read.Quorum {
		t.Fatal("the first look is local")
	}
	id, read = only[ReadRow](d)
	if d.none(); !read.Quorum {
		t.Fatal("a preemption on what one replica says")
	}
	d.reply(id, s.read())
	if _, a = only[Apply](d); a.Swap.Set.Row.Head != 2 {
		t.Fatalf("%+v", a)
	}
}

func TestPreemptPassesOverAllThatDiedTogether(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	s.row = &Row{Guard: 4, Head: 1, Epoch: 500, Queue: []Block{block(1, 1, 9, 1), block(2, 2, 8, 1), block(4, 1, 7, 1)}}
	op := d.lock(Request{Wait: time.Hour})
	for end := d.now + d.opts.DeadAfter(0) + d.opts.Grace + 2*time.Second; d.now < end; {
		s.run()
		d.pass(50 * time.Millisecond)
	}
	if g := d.state(op, StateHeld); g.Ref != 5 || !g.OwnerDied {
		t.Fatalf("%+v", g)
	}
	swaps := 0
	for _, a := range s.seen {
		if _, ok := a.(Apply); ok {
			swaps++
		}
	}
	if swaps != 2 {
		t.Fatalf("%d LWTs for one Enqueue and one Preempt", swaps)
	}
}

func TestPollsReadAtQuorumEverySecond(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	preempted(t, d, s, func(at time.Duration) int64 { return int64(at) }, 10*time.Second)
	local, quorum := 0, 0
	for _, a := range s.seen {
		if r, ok := a.(ReadRow); ok && r.Quorum {
			quorum++
		} else if ok {
			local++
		}
	}
	if quorum < 5 || local+quorum > 40 {
		t.Fatalf("%d local and %d quorum reads in 10 s", local, quorum)
	}
}

func TestNowaitOnlyClientsGetRidOfADeadHolder(t *testing.T) {
	d, s := foreign(t, stranger())
	d.nowaits(s)
}

func TestNowaitOnlyClientsGetRidOfAForgottenHead(t *testing.T) {
	r := stranger()
	r.Queue = []Block{block(r.Head, 1, 1, 1), block(r.Head+1, 1, 7, 1)}
	r.Guard = r.Head + 1
	d, s := foreign(t, r)
	s.beat[session(7)] = EndedBeat
	d.nowaits(s)
}

// nowaits asks again and again, and never waits.
func (d *desk) nowaits(s *store) {
	d.t.Helper()
	for range 40 {
		op := d.lock(Request{NoWait: true})
		s.run()
		if d.answered(op).Grant.State == StateHeld {
			return
		}
		d.state(op, StateBusy)
		for range 10 {
			d.pass(50 * time.Millisecond)
			s.run()
		}
	}
	d.t.Fatal("nobody found out")
}

func TestLockIsAnsweredInTimeThoughItsLWTIsUndecided(t *testing.T) {
	d, op, id, _ := asked(t, nil)
	d.pass(1500*time.Millisecond - 1)
	d.waits(op)
	d.pass(1)
	if g := d.state(op, StateQueued); g.Ref != 0 || g.Applied {
		t.Fatalf("lock_ref is null: %+v", g)
	}
	d.reply(id, Result{Status: StatusDone})
	d.pass(d.opts.QueuedLease - time.Second)
	again := d.lock(Request{Token: [16]byte{1}, Lease: time.Minute})
	if g := d.state(again, StateHeld); g.Ref != 1 || g.Lease != time.Minute {
		t.Fatalf("the same TOKEN finds it: %+v", g)
	}
}

func TestUndecidedWithoutATokenLeavesNothingBehind(t *testing.T) {
	d := newDesk(t)
	op := d.lock(Request{})
	id, _ := only[ReadRow](d)
	d.reply(id, Result{Status: StatusDone})
	id, _ = only[Apply](d)
	d.pass(1500 * time.Millisecond)
	d.state(op, StateQueued)
	d.reply(id, Result{Status: StatusDone})
	if _, a := only[Apply](d); a.Swap.Set.Row.Head != 2 {
		t.Fatal("nobody can name it: released at once")
	}
}

func TestUntoldReferenceIsHeldTenSeconds(t *testing.T) {
	d, _, id, _ := asked(t, nil)
	d.pass(2 * time.Second)
	d.reply(id, Result{Status: StatusDone})
	d.pass(d.opts.QueuedLease - time.Millisecond)
	d.none()
	d.pass(time.Millisecond)
	only[Apply](d)
}

func TestLateGrantIsHeldTenSeconds(t *testing.T) {
	d, s := held(t)
	op := d.lock(Request{})
	s.run()
	d.pass(1500 * time.Millisecond)
	d.state(op, StateQueued)
	d.unlock(1)
	s.run()
	d.pass(9 * time.Second)
	op = d.lock(Request{Ref: 2})
	if g := d.state(op, StateHeld); g.Lease != d.opts.ClientLease {
		t.Fatalf("told now, so its lease counts: %+v", g)
	}
}

func TestQueuedIsKeptTenSecondsOfSilence(t *testing.T) {
	d, s := held(t)
	tk, _ := d.begin(1, Get)
	d.end(tk, OutcomeAcked)
	d.lock(Request{})
	s.run()
	for range 3 {
		d.pass(10 * time.Second)
		d.begin(1, Get)
		op := d.lock(Request{Ref: 2})
		d.waits(op)
	}
	d.pass(1500*time.Millisecond + d.opts.QueuedLease)
	s.run()
	d.unlock(1)
	s.run()
	if s.row.Head != 3 {
		t.Fatalf("silent for 10 s, and still there: %+v", s.row)
	}
	op := d.lock(Request{Ref: 2})
	s.run()
	d.state(op, StateLost)
}

func TestWaitIsHonoured(t *testing.T) {
	d, s := held(t)
	op := d.lock(Request{Wait: 5 * time.Second})
	s.run()
	d.pass(5*time.Second - 1)
	d.waits(op)
	d.pass(1)
	d.state(op, StateQueued)
}

// WAIT 0s waits for nobody: whoever is ahead, the answer comes with the reference. Where nobody is, it comes with the lock.
func TestWaitZero(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	first := d.lock(Request{AtOnce: true})
	s.run()
	d.state(first, StateHeld)
	second, third := d.lock(Request{AtOnce: true}), d.lock(Request{AtOnce: true})
	s.run()
	if g := d.state(second, StateQueued); g.Ref != 2 || g.Position != 1 {
		t.Fatalf("%+v", g)
	}
	if g := d.state(third, StateQueued); g.Ref != 3 || g.Position != 2 {
		t.Fatalf("%+v", g)
	}
	d.state(d.lock(Request{AtOnce: true, Ref: 3}), StateQueued)
	d.unlock(1)
	d.unlock(2)
	d.unlock(3)
	next := d.lock(Request{AtOnce: true})
	s.run()
	if g := d.state(next, StateHeld); g.Ref != 4 {
		t.Fatalf("what was given back is not waited for: %+v", g)
	}
}

func TestBusyTellsTheHolder(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	op := d.lock(Request{Owner: "anna"})
	s.run()
	d.state(op, StateHeld)
	if g := d.state(d.lock(Request{NoWait: true}), StateBusy); g.Holder != "anna" || g.Ref != 0 {
		t.Fatalf("%+v", g)
	}
}

func TestClientLease(t *testing.T) {
	d, s := held(t)
	next := d.lock(Request{Wait: time.Hour})
	s.run()
	d.pass(29 * time.Second)
	tk, _ := d.begin(1, Put)
	if tk.Left != time.Second || tk.Lease != 30*time.Second {
		t.Fatalf("left %v of %v", tk.Left, tk.Lease)
	}
	d.end(tk, OutcomeAcked)
	d.pass(29 * time.Second)
	if g := d.state(d.lock(Request{Ref: 1}), StateHeld); g.Lease != 30*time.Second {
		t.Fatalf("every accepted statement renews: %+v", g)
	}
	d.pass(30*time.Second - 1)
	d.waits(next)
	d.pass(1)
	s.run()
	if g := d.state(next, StateHeld); !g.OwnerDied {
		t.Fatal("the holder did not give it back")
	}
	_, op := d.begin(1, Put)
	d.fails(op, ErrLost)
	d.state(d.lock(Request{Ref: 1}), StateLost)
	if g := d.state(d.unlock(1), StateLost); g.Applied {
		t.Fatal("applied")
	}
}

func TestLeaseIsOverThoughNobodyTicked(t *testing.T) {
	d, s := held(t)
	for range 11 {
		d.jump(3 * time.Second)
		d.beat()
	}
	tk, op := d.begin(1, Put)
	if tk.OK() {
		t.Fatal("a ticket after the lease")
	}
	d.waits(op)
	s.run()
	d.fails(op, ErrLost)
}

func TestOwnerDiedIsToldOnceAndRemembered(t *testing.T) {
	d, s := held(t)
	d.pass(30 * time.Second)
	s.run()
	if len(d.core.keys) != 0 {
		t.Fatal("not idle")
	}
	op := d.lock(Request{})
	s.run()
	if g := d.state(op, StateHeld); !g.OwnerDied {
		t.Fatal("forgotten")
	}
	d.unlock(2)
	s.run()
	op = d.lock(Request{})
	s.run()
	if g := d.state(op, StateHeld); g.OwnerDied {
		t.Fatal("told again")
	}
}

func TestTokenIsIdempotent(t *testing.T) {
	d, s := held(t)
	q := Request{Token: [16]byte{7}, Wait: time.Minute}
	one := d.lock(q)
	two := d.lock(q)
	d.state(one, StateQueued)
	s.run()
	d.unlock(1)
	s.run()
	if g := d.state(two, StateHeld); g.Ref != 2 || s.row.Guard != 2 {
		t.Fatalf("%+v %+v", g, s.row)
	}
	if g := d.state(d.lock(q), StateHeld); g.Ref != 2 {
		t.Fatalf("%+v", g)
	}
	d.unlock(2)
	three := d.lock(q)
	s.run()
	if g := d.state(three, StateHeld); g.Ref != 3 {
		t.Fatalf("a new acquisition after the end: %+v", g)
	}
}

func TestNowait(t *testing.T) {
	d, s := held(t)
	d.state(d.lock(Request{NoWait: true}), StateBusy)
	d.none()
	d.state(d.unlock(1), StateReleased)
	op := d.lock(Request{NoWait: true})
	s.run()
	d.state(op, StateHeld) // the Release was under way: nobody is ahead
	d.unlock(2)
	s.run()

	s.row.Guard, s.row.Queue = 3, []Block{block(3, 1, 9, 1)} // behind our back
	op = d.lock(Request{NoWait: true})
	s.run()
	d.state(op, StateBusy)
	if s.row.Guard != 3 {
		t.Fatal("something is left behind")
	}
}

func TestNowaitUndecidedIsBusy(t *testing.T) {
	d := newDesk(t)
	op := d.lock(Request{NoWait: true, Token: [16]byte{3}})
	id, _ := only[ReadRow](d)
	d.reply(id, Result{Status: StatusDone})
	id, _ = only[Apply](d)
	d.pass(d.opts.Wait)
	d.state(op, StateBusy)
	d.reply(id, Result{Status: StatusDone})
	if _, a := only[Apply](d); a.Swap.Set.Row.Head != 2 {
		t.Fatal("its reference is released as soon as it is the head")
	}
}

func TestGoneGivesUpThePlace(t *testing.T) {
	d, s := held(t)
	a := d.lock(Request{Wait: time.Minute})
	s.run()
	b := d.lock(Request{Wait: time.Minute})
	s.run()
	c := d.lock(Request{Wait: time.Minute})
	s.run()
	d.take(d.core.Gone(d.time(), a))
	d.take(d.core.Gone(d.time(), b))
	d.take(d.core.Gone(d.time(), 999))
	d.none() // C8: no abandon LWT
	d.unlock(1)
	s.run()
	if g := d.state(c, StateHeld); g.Ref != 4 || g.OwnerDied {
		t.Fatalf("%+v", g)
	}
	d.waits(a)
	d.waits(b)
}

func TestGoneBeforeTheEnqueueLeavesNothing(t *testing.T) {
	d := newDesk(t)
	op := d.lock(Request{})
	id, _ := only[ReadRow](d)
	d.take(d.core.Gone(d.time(), op))
	d.reply(id, Result{Status: StatusDone})
	d.none()
	if len(d.core.keys)+len(d.core.timers)+len(d.core.commands) != 0 {
		t.Fatal("something is left")
	}
}

func TestUnlock(t *testing.T) {
	d, s := held(t)
	op := d.lock(Request{Wait: time.Minute})
	s.run()
	if g := d.state(d.unlock(2), StateReleased); !g.Applied {
		t.Fatal("a place in the queue is given back")
	}
	d.state(op, StateReleased)
	d.unlock(1)
	if g := d.state(d.unlock(1), StateReleased); !g.Applied {
		t.Fatal("again, and it was this client's UNLOCK")
	}
	s.run()
	again := d.unlock(1)
	if g := d.state(again, StateReleased); !g.Applied {
		t.Fatal("what a key's row is kept for is how its references ended, too")
	}
	for r, want := range map[LockRef]error{0: ErrNotHeld, -3: ErrNotHeld, 99: ErrNotHeld} {
		op := d.unlock(r)
		s.run()
		d.fails(op, want)
	}
}

func TestElsewhere(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	row := stranger()
	s.row = &row
	_, put := d.begin(1, Put)
	s.run()
	d.fails(put, ErrElsewhere)
	var e *ElsewhereError
	if !errors.As(d.answers[put].Err, &e) || e.Session != session(9) || e.Error() == "" {
		t.Fatal("which session?")
	}
	op := d.lock(Request{Ref: 1})
	s.run()
	d.fails(op, ErrElsewhere)
	op = d.unlock(1)
	s.run()
	d.fails(op, ErrElsewhere)
}

func TestUnreadableRow(t *testing.T) {
	d := newDesk(t)
	cause := errors.New("no replica")
	op := d.lock(Request{})
	ask := d.unlock(3)
	for d.now < time.Hour+1500*time.Millisecond {
		for _, c := range d.open {
			d.open = d.open[1:]
			d.reply(c.ID, Result{Status: StatusUnknown, Cause: cause})
		}
		d.pass(10 * time.Millisecond)
	}
	d.fails(op, ErrUnavailable)
	d.fails(op, cause)
	d.fails(ask, ErrUnavailable)
	if len(d.core.keys) != 0 {
		t.Fatal("something is left")
	}
}

func TestCrowded(t *testing.T) {
	d, _ := held(t, func(o *Options) { o.Waiters = 2 })
	d.lock(Request{})
	d.lock(Request{})
	d.fails(d.lock(Request{}), ErrTooManyWaiters)
}

func TestDrain(t *testing.T) {
	d, s := held(t)
	put, _ := d.begin(1, Put)
	queued := d.lock(Request{Wait: time.Hour})
	s.run()
	d.take(d.core.Drain(d.time()))
	d.state(queued, StateQueued)
	d.fails(d.lock(Request{}), ErrDraining)
	if d.core.Quiet() {
		t.Fatal("a put is in flight")
	}
	d.end(put, OutcomeUnknown)
	if d.core.Quiet() {
		t.Fatal("unsettled")
	}
	s.run()
	if !d.core.Quiet() {
		t.Fatal("settled, and not quiet")
	}
	if s.row.Head != 1 {
		t.Fatal("held references stay: their clients go elsewhere")
	}
	d.unlock(1)
	s.run()
	if d.core.keys[d.key()].term != nil || s.row.Head != 2 {
		t.Fatal("released, and nobody granted")
	}
}

func TestDrainSendsTheNamelessAway(t *testing.T) {
	d := newDesk(t)
	op := d.lock(Request{})
	d.take(d.core.Drain(d.time()))
	d.fails(op, ErrDraining)
}

func TestDropped(t *testing.T) {
	d, s := held(t)
	tk, _ := d.begin(1, Put)
	waiter := d.lock(Request{})
	s.run()
	d.take(d.core.Dropped(d.time(), d.table))
	d.fails(waiter, ErrUnavailable)
	if v := d.end(tk, OutcomeAcked); v != VerdictUncertain {
		t.Fatalf("verdict %v", v)
	}
	d.none()
	if len(d.core.keys)+len(d.core.idle.rows) != 0 {
		t.Fatal("something is left")
	}
}

// A table's next generation goes on above all references of the last.
func TestReferencesOfTheNextGeneration(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	section := func(want LockRef) {
		t.Helper()
		op := d.lock(Request{})
		s.run()
		if g := d.state(op, StateHeld); g.Ref != want {
			t.Fatalf("reference %d, want %d", g.Ref, want)
		}
		d.unlock(want)
		s.run()
	}
	section(1)
	d.take(d.core.Dropped(d.time(), d.table))
	s.row = nil
	early := d.lock(Request{}) // its Enqueue counts from 1
	d.take(d.core.FirstReference(d.time(), d.table, 65537))
	d.fails(early, ErrUnavailable)
	d.open = nil
	section(65537)
	section(65538)
	op := d.lock(Request{Ref: 1})
	s.run()
	d.state(op, StateLost)
	if len(d.alarms) != 0 {
		t.Fatal(d.alarms)
	}
}

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

func TestWatchesAreForgotten(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	d.core.watch(d.time(), session(9))
	for range 200 {
		s.beat[session(9)]++
		s.run()
		d.pass(50 * time.Millisecond)
	}
	if len(d.core.watches) != 0 {
		t.Fatal("nobody asked for it any more")
	}
	for n := range 2 * maxDeadSessions {
		w := d.core.watch(d.time(), SessionID{byte(n), byte(n >> 8), 5})
		d.reply(w.cmd, Result{Status: StatusDone, Beat: EndedBeat})
	}
	if len(d.core.watches) > maxDeadSessions {
		t.Fatalf("%d verdicts", len(d.core.watches))
	}
}

func TestManyWaitersStayCheap(t *testing.T) {
	d, s := held(t)
	const n = 20_000
	for range n {
		d.lock(Request{Wait: time.Second})
	}
	s.run()
	start := time.Now()
	d.pass(time.Second + d.opts.QueuedLease)
	d.unlock(1)
	s.run()
	if s.row.Head != n+2 {
		t.Fatalf("%+v", s.row.Head)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Fatalf("%d waiters took %v", n, took)
	}
}

func TestStateWords(t *testing.T) {
	want := map[State]string{StateHeld: "HELD", StateQueued: "QUEUED", StateBusy: "BUSY", StateLost: "LOST", StateReleased: "RELEASED", 0: ""}
	for s, word := range want {
		if s.String() != word {
			t.Errorf("%d is %q", s, s.String())
		}
	}
}
