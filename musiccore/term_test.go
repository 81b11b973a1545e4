package musiccore

import (
	"errors"
	"testing"
	"time"
)

func (d *desk) theTerm() *term { return d.core.keys[d.key()].term }

// released is the Release that an UNLOCK of reference r sends.
func (d *desk) released(r LockRef) Row {
	d.t.Helper()
	d.unlock(r)
	_, a := only[Apply](d)
	return a.Swap.Set.Row
}

func TestStampsCountUpInTheWindow(t *testing.T) {
	d, _ := held(t)
	one, _ := d.begin(1, Put)
	get, _ := d.begin(1, Get)
	two, _ := d.begin(1, Put)
	if two.Stamp != one.Stamp+1 || get.Stamp != 0 || one.Epoch != two.Epoch || one.Stamp <= one.Epoch {
		t.Fatalf("%+v %+v %+v", one, get, two)
	}
	for _, tk := range []Ticket{two, get, one} {
		if v := d.end(tk, OutcomeAcked); v != VerdictTell {
			t.Fatalf("verdict %v", v)
		}
	}
	if v := d.end(one, OutcomeAcked); v != VerdictUncertain {
		t.Fatal("a ticket ends once")
	}
	if r := d.released(1); r.Epoch <= two.Stamp {
		t.Fatalf("I12: epoch %d after stamp %d", r.Epoch, two.Stamp)
	}
}

func TestRefusedPutIsClean(t *testing.T) {
	d, _ := held(t)
	tk, _ := d.begin(1, Put)
	if v := d.end(tk, OutcomeRefused); v != VerdictTell {
		t.Fatalf("verdict %v", v)
	}
	if r := d.released(1); r.Dirty {
		t.Fatal("nothing was written")
	}
}

func TestC9SettledBeforeTheNextGet(t *testing.T) {
	d, _ := held(t)
	tk, _ := d.begin(1, Put)
	if v := d.end(tk, OutcomeUnknown); v != VerdictUncertain {
		t.Fatalf("verdict %v", v)
	}
	get, op := d.begin(1, Get)
	if get.OK() {
		t.Fatal("a get after an unsettled put reads what may come or go")
	}
	id, c := only[Synch](d)
	if c.Fence <= tk.Stamp {
		t.Fatalf("fence %d must lie above the put's %d", c.Fence, tk.Stamp)
	}
	d.reply(id, Result{Status: StatusDone})
	if !d.answered(op).Ticket.OK() {
		t.Fatal("no ticket after the settling")
	}
}

func TestC7SynchIsExclusive(t *testing.T) {
	d, _ := held(t)
	lost, _ := d.begin(1, Put)
	slow, _ := d.begin(1, Put)
	d.end(lost, OutcomeUnknown)
	_, op := d.begin(1, Put)
	d.none()
	if v := d.end(slow, OutcomeAcked); v != VerdictTell {
		t.Fatalf("verdict %v", v)
	}
	id, c := only[Synch](d)
	if c.Fence <= slow.Stamp {
		t.Fatal("an acknowledged put must lie below the fence, and be read by it")
	}
	d.waits(op)
	d.reply(id, Result{Status: StatusDone})
	if tk := d.answered(op).Ticket; tk.Stamp <= c.Fence+1 {
		t.Fatalf("stamp %d within the synchronise's", tk.Stamp)
	}
}

func TestC7CleanReleaseWaitsForWhatIsInFlight(t *testing.T) {
	d, _ := held(t)
	put, _ := d.begin(1, Put)
	get, _ := d.begin(1, Get)
	un := d.unlock(1)
	d.waits(un)
	_, late := d.begin(1, Put)
	d.waits(late)
	d.end(put, OutcomeAcked)
	d.none()
	if v := d.end(get, OutcomeAcked); v != VerdictTell {
		t.Fatal("begun while the term was open")
	}
	_, a := only[Apply](d)
	if a.Swap.Set.Row.Dirty {
		t.Fatal("all is settled")
	}
	d.state(un, StateReleased)
}

func TestC7UnsettledReleaseIsDirty(t *testing.T) {
	d, _ := held(t)
	tk, _ := d.begin(1, Put)
	d.end(tk, OutcomeUnknown)
	d.unlock(1)
	for range d.opts.SettleTries {
		id, _ := only[Synch](d)
		d.reply(id, unknown)
		d.pass(time.Second)
	}
	_, a := only[Apply](d)
	if !a.Swap.Set.Row.Dirty {
		t.Fatal("an unsettled put may surface: dirty")
	}
}

func TestUnlockSettles(t *testing.T) {
	d, _ := held(t)
	tk, _ := d.begin(1, Put)
	d.end(tk, OutcomeUnknown)
	d.unlock(1)
	id, _ := only[Synch](d)
	d.reply(id, Result{Status: StatusDone})
	if _, a := only[Apply](d); a.Swap.Set.Row.Dirty {
		t.Fatal("settled, and dirty")
	}
}

func TestUnlockIsAnsweredInTimeThoughNothingSettles(t *testing.T) {
	d, _ := held(t)
	d.begin(1, Put)
	un := d.unlock(1)
	d.pass(d.opts.Wait - time.Millisecond)
	d.waits(un)
	d.pass(time.Millisecond)
	d.state(un, StateReleased)
	d.pass(d.opts.OpTimeout)
	only[Synch](d)
}

func TestC6ReleaseBeforeTheSynchIsDirty(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	d.lock(Request{})
	s.run()
	if r := d.released(1); !r.Dirty {
		t.Fatal("nobody has synchronised")
	}
}

func TestC6AbandonedDirtyHeadStaysDirty(t *testing.T) {
	for _, dirty := range []bool{true, false} {
		d := newDesk(t)
		op := d.lock(Request{})
		id, _ := only[ReadRow](d)
		base := t0 * 2
		d.reply(id, sees(Row{Guard: 3, Head: 4, Epoch: base, Dirty: dirty}))
		d.take(d.core.Gone(d.time(), op))
		id, a := only[Apply](d)
		d.reply(id, Result{Status: StatusDone})
		granted := a.Swap.Set.Row.Epoch
		id, a = only[Apply](d)
		r := a.Swap.Set.Row
		if r.Dirty != dirty || r.Head != 5 || r.Epoch != granted+2 {
			t.Fatalf("dirty %v: %+v", dirty, r)
		}
		d.reply(id, Result{Status: StatusDone})
		if d.none(); len(d.core.keys) > 0 {
			t.Fatal("something is left")
		}
	}
}

func TestC16OverIsOver(t *testing.T) {
	d, _ := held(t)
	tk, _ := d.begin(1, Put)
	d.jump(d.opts.OpTimeout)
	get, op := d.begin(1, Get)
	if get.OK() {
		t.Fatal("the put is over and unsettled, though nobody ticked")
	}
	id, c := only[Synch](d)
	if c.Fence <= tk.Stamp {
		t.Fatal("fenced below")
	}
	if v := d.end(tk, OutcomeAcked); v != VerdictUncertain {
		t.Fatal("an acknowledgement that comes after the put was fenced away is told")
	}
	d.reply(id, Result{Status: StatusDone})
	if !d.answered(op).Ticket.OK() {
		t.Fatal("no ticket")
	}
}

func TestEndOfALateGet(t *testing.T) {
	d, _ := held(t)
	tk, _ := d.begin(1, Get)
	d.jump(d.opts.OpTimeout)
	if v := d.end(tk, OutcomeAcked); v != VerdictUncertain {
		t.Fatalf("verdict %v", v)
	}
	if r := d.released(1); r.Dirty {
		t.Fatal("a get leaves nothing")
	}
}

func TestC17ClosedIsNotForgottenByARelease(t *testing.T) {
	d, _ := held(t)
	d.take(d.core.Closed(d.time(), d.table, t0*2))
	if r := d.released(1); !r.Dirty {
		t.Fatal("epoch < closed, never synchronised, and released clean")
	}
}

func TestC17ClosedWhileTheReleaseIsUnderWay(t *testing.T) {
	d, _ := held(t)
	d.unlock(1)
	id, _ := only[Apply](d)
	next := d.lock(Request{})
	d.take(d.core.Closed(d.time(), d.table, t0))
	d.reply(id, Result{Status: StatusDone})
	id, a := only[Apply](d)
	if !a.Swap.Set.Row.Dirty {
		t.Fatal("the epoch was chosen without knowing that the table closed")
	}
	d.reply(id, Result{Status: StatusDone})
	d.state(next, StateHeld)
}

func TestC17HandOverOnABaseBeforeClosed(t *testing.T) {
	d, s := held(t)
	next := d.lock(Request{Wait: time.Hour})
	s.run()
	d.unlock(1)
	id, a := only[Apply](d) // clean
	d.take(d.core.Closed(d.time(), d.table, 2*t0))
	d.reply(id, s.do(a))
	d.waits(next)
	id, read := only[ReadRow](d)
	if !read.Quorum {
		t.Fatal("D = epoch < closed: dirty, so QUORUM")
	}
	d.reply(id, s.read())
	d.state(next, StateHeld)
	if tk, _ := d.begin(2, Put); tk.OK() {
		t.Fatal("D is forgotten")
	}
	s.run() // Renew, above closed, and only then the Synch
	if fence := d.copies(s)[0].Fence; fence < 2*t0 {
		t.Fatalf("fence %d below closed: a plain write may lie above it and surface later", fence)
	}
}

// copies are the Synchs that the store has seen since the first term's.
func (d *desk) copies(s *store) []Synch {
	var all []Synch
	for _, a := range s.seen {
		if c, ok := a.(Synch); ok {
			all = append(all, c)
		}
	}
	return all[1:]
}

func TestRaiseOfClosedUnsynchronises(t *testing.T) {
	d, _ := held(t) // dirty at entry, synchronised since
	d.take(d.core.Closed(d.time(), d.table, 1))
	if tk, _ := d.begin(1, Get); tk.OK() {
		t.Fatal("synched=false in every open term of the table")
	}
	id, _ := only[Synch](d)
	d.take(d.core.Closed(d.time(), d.table, 2))
	d.reply(id, Result{Status: StatusDone})
	id, _ = only[Synch](d) // the first did not see what came before the raise
	d.reply(id, Result{Status: StatusDone})
	if !d.theTerm().synced {
		t.Fatal("not synchronised")
	}
}

func TestC10EachAttemptHasAFreshFence(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	d.lock(Request{})
	s.run()
	_, op := d.begin(1, Put)
	last := Stamp(0)
	for range 4 {
		id, c := only[Synch](d)
		if c.Fence < last+2 && last != 0 {
			t.Fatalf("fence %d after %d", c.Fence, last)
		}
		last = c.Fence
		d.reply(id, unknown)
		d.none() // not at once
		d.pass(500 * time.Millisecond)
	}
	id, _ := only[Synch](d)
	d.reply(id, Result{Status: StatusDone})
	if tk := d.answered(op).Ticket; tk.Stamp <= last+1 {
		t.Fatal("stamps overlap")
	}
}

func TestBeginWaitsAtMostItsTime(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	d.lock(Request{})
	s.run()
	_, op := d.begin(1, Put)
	id, _ := only[Synch](d)
	d.pass(d.opts.OpTimeout)
	d.fails(op, ErrSynchronising)

	// The synchronise goes on, however long it takes, and is not begun anew for those who come meanwhile.
	for range 5 {
		_, op = d.begin(1, Put)
		d.pass(d.opts.OpTimeout)
		d.fails(op, ErrSynchronising)
	}
	_, op = d.begin(1, Put)
	d.none()
	d.reply(id, Result{Status: StatusDone})
	if !d.answered(op).Ticket.OK() {
		t.Fatal("no ticket")
	}
}

func TestBeginOfOneWhoLeft(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	d.lock(Request{})
	s.run()
	_, op := d.begin(1, Put)
	d.take(d.core.Gone(d.time(), op))
	s.run()
	d.waits(op)
	if len(d.theTerm().ops.waiting) > 0 || d.theTerm().ops.flight.ops > 0 {
		t.Fatal("a ticket for nobody")
	}
}

func TestAboveRenewsAndStartsAgain(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	d.lock(Request{})
	s.run()
	_, op := d.begin(1, Put)
	id, c := only[Synch](d)
	above := c.Fence + 10*d.opts.Window
	d.reply(id, Result{Status: StatusAbove, Stamp: above})
	id, a := only[Apply](d)
	r := a.Swap.Set.Row
	if r.Epoch != above+1 || r.Head != 1 || !r.Dirty || r.Owner != session(1) {
		t.Fatalf("%+v", r)
	}
	d.reply(id, Result{Status: StatusDone})
	d.pass(time.Second)
	id, c = only[Synch](d)
	if c.Fence <= above {
		t.Fatal("still below")
	}
	d.reply(id, Result{Status: StatusDone})
	if tk := d.answered(op).Ticket; tk.Stamp <= c.Fence+1 || tk.Epoch != above+1 {
		t.Fatalf("%+v", tk)
	}
}

func TestPoisonedKeyIsRefusedByName(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	d.lock(Request{})
	s.run()
	_, op := d.begin(1, Put)
	id, _ := only[Synch](d)
	d.reply(id, Result{Status: StatusAbove, Stamp: poison})
	d.fails(op, ErrPoisoned)
	_, a := only[Apply](d)
	if !a.Swap.Set.Row.Dirty || a.Swap.Set.Row.Head != 2 {
		t.Fatalf("released dirty: %+v", a.Swap)
	}
}

func TestTooLarge(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	d.lock(Request{})
	s.run()
	_, op := d.begin(1, Put)
	id, _ := only[Synch](d)
	cause := errors.New("a row of 17 MiB")
	d.reply(id, Result{Status: StatusTooLarge, Cause: cause})
	if err := d.answered(op).Err; !errors.Is(err, ErrTooLarge) || !errors.Is(err, cause) {
		t.Fatal(err)
	}
	if r := d.released(1); !r.Dirty {
		t.Fatal("clean")
	}
}

func TestRenewNearTheEndOfTheWindow(t *testing.T) {
	d, _ := held(t, func(o *Options) { o.Window = 32 })
	var last Ticket
	for len(d.open) == 0 {
		last, _ = d.begin(1, Put)
		d.end(last, OutcomeAcked)
	}
	id, a := only[Apply](d)
	if r := a.Swap.Set.Row; r.Epoch < last.Epoch+32 || !r.Dirty || r.Owner != session(1) || r.Head != 1 {
		t.Fatalf("%+v", r)
	}
	for range 100 { // meanwhile operations go on, but none at seq = W-2
		tk, _ := d.begin(1, Put)
		if !tk.OK() {
			break
		}
		last = tk
		d.end(tk, OutcomeAcked)
	}
	if last.Stamp >= last.Epoch+32-2 {
		t.Fatalf("I12: stamp %d of window %d", last.Stamp, last.Epoch)
	}
	if get, _ := d.begin(1, Get); !get.OK() {
		t.Fatal("gets need no stamp")
	}
	d.reply(id, Result{Status: StatusDone})
	tk := Ticket{}
	for _, answer := range d.answers {
		if answer.Ticket.OK() && answer.Ticket.Epoch == a.Swap.Set.Row.Epoch {
			tk = answer.Ticket
		}
	}
	if tk.Stamp != a.Swap.Set.Row.Epoch+2 {
		t.Fatalf("who waited goes on in the new window: %+v", tk)
	}
}

func TestRenewSaysDirtyWhatIsInFlight(t *testing.T) {
	d, _ := held(t)
	d.begin(1, Put)
	d.take(d.core.Altered(d.time(), d.table))
	if _, a := only[Apply](d); !a.Swap.Set.Row.Dirty {
		t.Fatal("a put in flight")
	}
}

func TestRenewThatCameTooLateLosesTheTerm(t *testing.T) {
	d, s := held(t)
	d.take(d.core.Altered(d.time(), d.table))
	id, _ := only[Apply](d)
	d.reply(id, Result{Status: StatusRefused})
	id, _ = only[ReadRow](d)
	row, _ := Preempt(*s.row, 2, d.opts.Window, 0).Apply(s.row)
	d.reply(id, sees(row))
	s.row = &row
	op := d.lock(Request{Ref: 1})
	s.run()
	d.state(op, StateLost)
}

func TestReleaseWaitsForTheRenew(t *testing.T) {
	d, _ := held(t)
	d.take(d.core.Altered(d.time(), d.table))
	id, a := only[Apply](d)
	d.state(d.unlock(1), StateReleased)
	d.none()
	d.reply(id, Result{Status: StatusDone})
	if _, rel := only[Apply](d); rel.Swap.If.Epoch != a.Swap.Set.Row.Epoch {
		t.Fatalf("released on the old epoch: %+v", rel.Swap)
	}
}

func TestPutsWaitAfterASchemaEvent(t *testing.T) {
	d, _ := held(t)
	d.take(d.core.Altered(d.time(), d.table))
	id, a := only[Apply](d)
	tk, op := d.begin(1, Put)
	if tk.OK() {
		t.Fatal("a stamp that lags behind a column added again is shadowed")
	}
	if get, _ := d.begin(1, Get); !get.OK() {
		t.Fatal("gets go on")
	}
	d.take(d.core.Altered(d.time(), d.table)) // and again, meanwhile
	d.reply(id, Result{Status: StatusDone})
	d.waits(op)
	id, again := only[Apply](d)
	if again.Swap.If.Epoch != a.Swap.Set.Row.Epoch {
		t.Fatal("no second Renew")
	}
	d.reply(id, Result{Status: StatusDone})
	if tk := d.answered(op).Ticket; tk.Epoch != again.Swap.Set.Row.Epoch {
		t.Fatalf("%+v", tk)
	}
}

// A synchronise that was under way when the schema changed may have read the old one: it counts for nothing, and the operation that waits
// for it gets its stamp after another.
func TestASynchroniseUnderASchemaEventIsDoneAgain(t *testing.T) {
	d, s := held(t)
	tk, _ := d.begin(1, Put)
	d.end(tk, OutcomeUnknown)
	_, get := d.begin(1, Get)
	id, _ := only[Synch](d)
	d.take(d.core.Altered(d.time(), d.table))
	d.reply(id, Result{Status: StatusDone})
	d.waits(get)
	id, renew := only[Apply](d)
	s.apply(renew.Swap)
	d.reply(id, Result{Status: StatusDone})
	d.waits(get)
	id, again := only[Synch](d)
	if again.Fence <= renew.Swap.Set.Row.Epoch {
		t.Fatalf("fence %d in the old window, epoch %d", again.Fence, renew.Swap.Set.Row.Epoch)
	}
	d.reply(id, Result{Status: StatusDone})
	if !d.answered(get).Ticket.OK() {
		t.Fatal("it was synchronised under the new schema")
	}
}

func TestNoRenewByAClockThatIsOff(t *testing.T) {
	d, _ := held(t)
	d.clkOff = true
	d.take(d.core.Altered(d.time(), d.table))
	d.none()
	d.clkOff = false
	d.pass(time.Second)
	only[Apply](d)
}

func TestBeginWithoutATerm(t *testing.T) {
	d, s := held(t)
	d.lock(Request{})
	s.run()
	_, queued := d.begin(2, Put)
	d.fails(queued, ErrNotHeld)
	d.unlock(1)
	for name, c := range map[string]struct {
		ref  LockRef
		want error
	}{
		"negative": {-1, ErrNotHeld}, "none": {0, ErrNotHeld},
		"given back": {1, ErrReleased}, "never given": {7, ErrNotHeld},
	} {
		tk, op := d.begin(c.ref, Put)
		s.run()
		if tk.OK() {
			t.Errorf("%s: a ticket", name)
		}
		d.fails(op, c.want)
	}
}

func TestI12FarBaseAlarms(t *testing.T) {
	d := newDesk(t)
	op := d.lock(Request{})
	id, _ := only[ReadRow](d)
	d.reply(id, sees(Row{Guard: 3, Head: 4, Epoch: 2 * t0}))
	id, _ = only[Apply](d)
	d.reply(id, Result{Status: StatusDone})
	d.state(op, StateHeld)
	if len(d.alarms) != 1 || d.alarms[0].Rule != "I12" {
		t.Fatalf("%+v", d.alarms)
	}
}

func BenchmarkPutOnACleanTerm(b *testing.B) {
	t := &testing.T{}
	d, _ := held(t)
	now, k := d.time(), d.key()
	d.core.opts.Window = 1 << 40
	for b.Loop() {
		tk, _ := d.core.Begin(now, 99, k, 1, Put)
		if v, _ := d.core.End(now, tk, OutcomeAcked); v != VerdictTell {
			b.Fatal(v)
		}
	}
}

func TestPutOnACleanTermAllocatesNothing(t *testing.T) {
	d, _ := held(t)
	now, k := d.time(), d.key()
	n := testing.AllocsPerRun(1000, func() {
		tk, _ := d.core.Begin(now, 99, k, 1, Put)
		d.core.End(now, tk, OutcomeAcked)
	})
	if n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestSynchDoesNotLeaveTheWindow(t *testing.T) {
	d := newDesk(t, func(o *Options) { o.Window = 16 })
	s := newStore(d)
	d.lock(Request{})
	s.run()
	base := d.theTerm().window.epoch
	d.theTerm().window.seq = 14
	_, op := d.begin(1, Put)
	id, c := only[Synch](d)
	if c.Fence+1 != base+15 {
		t.Fatalf("the last two stamps of the window: %d", c.Fence-base)
	}
	d.reply(id, unknown)
	d.pass(time.Second)
	id, a := only[Apply](d)
	d.none()
	if a.Swap.Set.Row.Epoch < base+16 || !a.Swap.Set.Row.Dirty {
		t.Fatalf("I12: %+v", a.Swap)
	}
	d.reply(id, Result{Status: StatusDone})
	id, c = only[Synch](d)
	if c.Fence != a.Swap.Set.Row.Epoch+2 {
		t.Fatalf("fence %d", c.Fence)
	}
	d.reply(id, Result{Status: StatusDone})
	if tk := d.answered(op).Ticket; tk.Stamp != c.Fence+2 {
		t.Fatalf("%+v", tk)
	}
}

// A keyspace of more replicas than live nodes: what the store says at once its client hears at once, and the next one has it tried again.
func TestASynchThatTheStoreCannotDoIsToldAtOnce(t *testing.T) {
	d := newDesk(t)
	s := newStore(d)
	op := d.lock(Request{})
	s.run()
	d.state(op, StateHeld)
	few := errors.New("required 2, alive 1")
	for range 5 {
		_, put := d.begin(1, Put)
		_, get := d.begin(1, Get)
		id, _ := only[Synch](d)
		d.reply(id, Result{Status: StatusUnavailable, Cause: few})
		for _, op := range []OpID{put, get} {
			d.fails(op, ErrSynchronising)
			d.fails(op, few)
		}
		d.none()
	}
	_, put := d.begin(1, Put)
	s.run()
	tk := d.answered(put).Ticket
	d.end(tk, OutcomeUnknown)
	d.unlock(1)
	for range d.opts.SettleTries {
		id, _ := only[Synch](d)
		d.reply(id, Result{Status: StatusUnavailable, Cause: few})
		d.pass(time.Second)
	}
	s.run()
	if s.row.Head != 2 || !s.row.Dirty {
		t.Fatalf("released with what is unsettled: %+v", *s.row)
	}
}
