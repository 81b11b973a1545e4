package musiccore

import (
	"reflect"
	"testing"
	"time"
)

var unknown = Result{Status: StatusUnknown}

// sees is a reply to a ReadRow.
func sees(r Row) Result { return Result{Status: StatusDone, Row: &r} }

// asked is a desk with a LOCK whose first Enqueue is under way on row r, or on
// a new key.
func asked(t *testing.T, r *Row) (*desk, OpID, CommandID, Apply) {
	t.Helper()
	d := newDesk(t)
	op := d.lock(Request{Token: [16]byte{1}})
	id, _ := only[ReadRow](d)
	d.reply(id, Result{Status: StatusDone, Row: r})
	id, a := only[Apply](d)
	return d, op, id, a
}

func TestOneLWTAtATime(t *testing.T) {
	d, first, id, _ := asked(t, nil)
	second, third := d.lock(Request{}), d.lock(Request{})
	d.none()
	d.reply(id, Result{Status: StatusDone})
	d.state(first, StateHeld)
	id, a := only[Apply](d)
	if b := a.Swap.Set.Row.Queue[1]; b.N != 2 || b.First != 2 || b.Retained {
		t.Fatalf("waiters that came meanwhile share the next one: %+v", b)
	}
	d.none()
	d.reply(id, Result{Status: StatusDone})
	d.waits(second)
	d.pass(1500 * time.Millisecond)
	if g := d.state(second, StateQueued); g.Ref != 2 || g.Position != 1 {
		t.Fatalf("%+v", g)
	}
	if g := d.state(third, StateQueued); g.Ref != 3 || g.Position != 2 {
		t.Fatalf("%+v", g)
	}
}

func TestH3UnknownIsSentAgainWithTheSameLiterals(t *testing.T) {
	d, op, id, first := asked(t, nil)
	for range 5 {
		d.reply(id, unknown)
		d.none()
		d.pass(time.Second)
		var again Apply
		id, again = only[Apply](d)
		if !reflect.DeepEqual(first, again) {
			t.Fatalf("%+v is not %+v", again, first)
		}
	}
	d.state(op, StateQueued)
	d.reply(id, Result{Status: StatusDone})
	op = d.lock(Request{Token: [16]byte{1}})
	if g := d.state(op, StateHeld); g.Ref != 1 {
		t.Fatalf("%+v", g)
	}
}

func TestRefusedAndItWasMe(t *testing.T) {
	d, op, id, a := asked(t, nil)
	d.reply(id, unknown)
	d.pass(20 * time.Millisecond)
	id, _ = only[Apply](d)
	d.reply(id, Result{Status: StatusRefused})
	d.waits(op)
	id, read := only[ReadRow](d)
	if !read.Quorum {
		t.Fatal("only a QUORUM read decides")
	}
	row, _ := a.Swap.Apply(nil)
	d.reply(id, sees(row))
	if g := d.state(op, StateHeld); g.Ref != 1 {
		t.Fatalf("%+v", g)
	}
	d.none()
}

func TestRefusedAndItWasAnother(t *testing.T) {
	d, op, id, _ := asked(t, nil)
	d.reply(id, Result{Status: StatusRefused})
	id, _ = only[ReadRow](d)
	d.reply(id, sees(Row{Guard: 1, Head: 1, Queue: []Block{block(1, 1, 9, 1)}, Epoch: 5, Dirty: true}))
	_, a := only[Apply](d)
	if a.Swap.If != (If{What: IfGuard, Guard: 1}) || a.Swap.Set.Row.Queue[1].First != 2 {
		t.Fatalf("asks again on the new row: %+v", a.Swap)
	}
	d.waits(op)
}

func TestRefusedAndTheRowIsStillTheOld(t *testing.T) {
	old := Row{Guard: 3, Head: 4, Epoch: 50}
	d, _, id, first := asked(t, &old)
	d.reply(id, Result{Status: StatusRefused})
	id, _ = only[ReadRow](d)
	d.reply(id, sees(old)) // commit level below QUORUM: S_(n-1)
	d.pass(time.Second)
	_, again := only[Apply](d)
	if !reflect.DeepEqual(first, again) {
		t.Fatal("nothing was decided: the same again")
	}
}

func TestAReadBegunBeforeTheRefusalDecidesNothing(t *testing.T) {
	d, _, id, a := asked(t, nil)
	un := d.unlock(7) // asks for the row at QUORUM while the LWT is under way
	early, _ := only[ReadRow](d)
	d.reply(id, Result{Status: StatusRefused})
	d.reply(early, Result{Status: StatusDone}) // "no such row", from before
	d.fails(un, ErrNotHeld)
	d.pass(50 * time.Millisecond)
	id, _ = only[ReadRow](d)
	row, _ := a.Swap.Apply(nil)
	d.reply(id, sees(row))
	d.none()
	if k := d.core.keys[d.key()]; k.term == nil || k.term.holder.ref != 1 {
		t.Fatal("the later read shows that it was me")
	}
}

func TestReleaseOfUnknownFate(t *testing.T) {
	for name, c := range map[string]struct {
		row  func(released Row) Row
		done bool
	}{
		"it was me":              {func(r Row) Row { return r }, true},
		"already preempted":      {func(r Row) Row { r.Epoch += 99; r.Dirty = true; return r }, true},
		"the epoch still stands": {func(r Row) Row { r.Epoch -= 2; r.Head--; r.Dirty = true; return r }, false},
	} {
		d, s := held(t)
		d.unlock(1)
		id, a := only[Apply](d)
		d.reply(id, unknown)
		d.pass(20 * time.Millisecond)
		id, again := only[Apply](d)
		if !reflect.DeepEqual(a, again) {
			t.Fatal("another Release")
		}
		d.reply(id, Result{Status: StatusRefused})
		id, _ = only[ReadRow](d)
		row, _ := a.Swap.Apply(s.row)
		if name == "the epoch still stands" {
			row.Epoch = a.Swap.If.Epoch + 2
		}
		d.reply(id, sees(c.row(row)))
		if _, busy := d.core.keys[d.key()]; busy == c.done {
			t.Errorf("%s: key in memory %v", name, busy)
		}
		if len(d.alarms) > 0 {
			t.Errorf("%s: %+v", name, d.alarms)
		}
	}
}

func TestARowSeenBeforeTheReplyIsNotWrittenOver(t *testing.T) {
	d, _, id, a := asked(t, &Row{Guard: 1, Head: 1, Queue: []Block{block(1, 1, 9, 1)}, Epoch: 50})
	un := d.unlock(7)
	read, _ := only[ReadRow](d)
	row, _ := a.Swap.Apply(&Row{Guard: 1, Head: 1, Queue: []Block{block(1, 1, 9, 1)}, Epoch: 50})
	later := Enqueue(&row, block(0, 1, 9, 2), 0, 0)
	row, _ = later.Apply(&row)
	d.reply(read, sees(row))
	d.fails(un, ErrNotHeld)
	d.reply(id, Result{Status: StatusDone})
	if got := d.core.keys[d.key()].view.row.Guard; got != 3 {
		t.Fatalf("guard fell back to %d", got)
	}
}

func TestAReplyOfAnEarlierLifeIsNobodys(t *testing.T) {
	d, _ := held(t)
	d.core.keys[d.key()].term.synced = false
	d.core.keys[d.key()].term.dirty = true
	d.begin(1, Get)
	id, _ := only[Synch](d)
	d.jump(time.Minute)
	d.session = NewSession(session(2), d.opts)
	d.take(d.core.Rejoin(d.time(), d.session))
	d.beat()
	d.reply(id, Result{Status: StatusDone})
	d.none()
	if len(d.core.keys) != 0 {
		t.Fatal("a dead key came back")
	}
}

func TestI1NothingUnsoundIsSent(t *testing.T) {
	d, _ := held(t)
	d.core.keys[d.key()].term.window.seq = -5
	d.unlock(1)
	d.none()
	if len(d.alarms) == 0 || d.alarms[0].Rule != "I1" {
		t.Fatalf("%+v", d.alarms)
	}
}

func TestI1TheRowVanishes(t *testing.T) {
	d, s := held(t)
	tk, _ := d.begin(1, Put)
	waiter := d.lock(Request{})
	s.run()
	d.lock(Request{Ref: 99}) // any reason to read
	s.run()
	d.lock(Request{Ref: 99})
	d.pass(time.Second)
	id, _ := only[ReadRow](d)
	d.reply(id, Result{Status: StatusDone})
	if len(d.alarms) == 0 || d.alarms[0].Rule != "I1" {
		t.Fatalf("%+v", d.alarms)
	}
	if v := d.end(tk, OutcomeAcked); v != VerdictUncertain {
		t.Fatalf("verdict %v", v)
	}
	d.state(waiter, StateLost)
	s.row = nil
	_, op := d.begin(1, Put)
	s.run()
	d.fails(op, ErrNotHeld)
}

func TestI1OneBaseShowsTwoTerms(t *testing.T) {
	d, s := held(t)
	tk, _ := d.begin(1, Put)
	d.lock(Request{Ref: 99})
	id, _ := only[ReadRow](d)
	row := *s.row
	row.Head++
	d.reply(id, sees(row))
	if len(d.alarms) == 0 || d.alarms[0].Rule != "I1" {
		t.Fatalf("%+v", d.alarms)
	}
	if v := d.end(tk, OutcomeAcked); v != VerdictUncertain {
		t.Fatalf("verdict %v", v)
	}
	_, a := only[Apply](d)
	if r := a.Swap.Set.Row; !r.Dirty || r.Epoch < a.Swap.If.Epoch+d.opts.Window {
		t.Fatalf("a broken term ends dirty, a window above: %+v", r)
	}
}

func TestI3ATermTakenAwayIsLost(t *testing.T) {
	d, s := held(t)
	tk, _ := d.begin(1, Put)
	d.lock(Request{Ref: 99})
	id, _ := only[ReadRow](d)
	row, _ := Preempt(*s.row, 2, d.opts.Window, 0).Apply(s.row)
	d.reply(id, sees(row))
	if len(d.alarms) == 0 || d.alarms[0].Rule != "I3" {
		t.Fatalf("%+v", d.alarms)
	}
	if v := d.end(tk, OutcomeAcked); v != VerdictLost {
		t.Fatalf("verdict %v", v)
	}
	s.row = &row
	op := d.lock(Request{Ref: 1})
	s.run()
	d.state(op, StateLost)
}

func TestOwnHeadThatMemoryDoesNotKnow(t *testing.T) {
	d := newDesk(t)
	op := d.lock(Request{})
	id, _ := only[ReadRow](d)
	stray := Row{Guard: 4, Head: 4, Queue: []Block{block(4, 1, 1, 77)}, Epoch: 2 * t0} // ahead of the clock
	d.reply(id, sees(stray))
	id, _ = only[Apply](d) // the Enqueue comes first, no LWT waits for a read
	d.reply(id, Result{Status: StatusDone})
	id, read := only[ReadRow](d)
	if !read.Quorum {
		t.Fatal("a stale replica may show an own head that was released long ago")
	}
	row := stray
	row.Guard, row.Queue = 5, append(row.Queue, block(5, 1, 1, 1))
	d.reply(id, sees(row))
	id, a := only[Apply](d)
	if r := a.Swap.Set.Row; !r.Dirty || r.Head != 5 || r.Epoch != 2*t0+d.opts.Window {
		t.Fatalf("%+v", r)
	}
	d.reply(id, Result{Status: StatusDone})
	d.waits(op)
	id, read = only[ReadRow](d)
	if !read.Quorum {
		t.Fatal("a dirty term is entered on a QUORUM read")
	}
	row, _ = a.Swap.Apply(&row)
	d.reply(id, sees(row))
	if g := d.state(op, StateHeld); !g.OwnerDied || g.Ref != 5 {
		t.Fatalf("%+v", g)
	}
}
