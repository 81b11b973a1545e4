package musiccore

import (
	"testing"
	"time"
)

// strict is a desk whose first reference holds a key of a strict table.
func strict(t *testing.T) (*desk, *store) {
	t.Helper()
	d := newDesk(t)
	d.take(d.core.Strict(d.time(), d.table, true))
	s := newStore(d)
	op := d.lock(Request{})
	s.run()
	d.state(op, StateHeld)
	_, get := d.begin(1, Get)
	s.run()
	if v := d.end(d.answered(get).Ticket, OutcomeRefused); v != VerdictTell {
		t.Fatalf("what was not done needs no check: %v", v)
	}
	return d, s
}

// acked begins and ends an operation; its verdict comes to the operation named.
func (d *desk) acked(kind Kind) OpID {
	d.t.Helper()
	tk, op := d.begin(1, kind)
	if !tk.OK() || tk.Op != op {
		d.t.Fatalf("ticket %+v of operation %d", tk, op)
	}
	if v := d.end(tk, OutcomeAcked); v != VerdictPending {
		d.t.Fatalf("verdict %v", v)
	}
	return op
}

func (d *desk) verdict(op OpID, want Verdict) {
	d.t.Helper()
	if a := d.answered(op); a.Err != nil || a.Verdict != want {
		d.t.Fatalf("%+v, want %v", a, want)
	}
}

// docs/protocol.md 3.8, check: strict mode reads the lock row after the operation.
func TestStrictTellsAfterAQuorumRead(t *testing.T) {
	d, s := strict(t)
	put := d.acked(Put)
	id, read := only[ReadRow](d)
	if !read.Quorum {
		t.Fatal("one replica says nothing (M6)")
	}
	get := d.acked(Get)
	d.none()
	d.reply(id, s.read())
	d.verdict(put, VerdictTell)
	d.waits(get) // that read began before the operation ended
	s.run()
	d.verdict(get, VerdictTell)
	tk, _ := d.begin(1, Put)
	if v := d.end(tk, OutcomeUnknown); v != VerdictUncertain {
		t.Fatalf("what the store did not acknowledge needs no check: %v", v)
	}
	d.none()
}

func TestStrictHearsThatTheTermWasTaken(t *testing.T) {
	d, s := strict(t)
	put, get := d.acked(Put), d.acked(Get)
	row, _ := Preempt(*s.row, 2, d.opts.Window, 0).Apply(s.row)
	s.row = &row
	s.run()
	d.verdict(put, VerdictLost)
	d.verdict(get, VerdictLost)
	if len(d.alarms) > 0 {
		t.Fatalf("anybody may: %+v", d.alarms)
	}
	_, op := d.begin(1, Put)
	s.run()
	d.fails(op, ErrLost)
}

// Who takes a reference over leaves it the head: the epoch alone tells that the term is another's. Its client goes on there, and sees what
// became of the write.
func TestStrictHearsThatItsReferenceWasTakenOver(t *testing.T) {
	d, s := strict(t)
	put := d.acked(Put)
	row, _ := Takeover(*s.row, session(9), d.opts.Window, 0).Apply(s.row)
	s.row = &row
	s.run()
	d.verdict(put, VerdictUncertain)
}

func TestStrictKnowsItsOwnRenews(t *testing.T) {
	d, s := strict(t)
	tk, _ := d.begin(1, Put)
	d.take(d.core.Altered(d.time(), d.table))
	id, renew := only[Apply](d)
	s.apply(renew.Swap)
	d.reply(id, unknown)
	d.end(tk, OutcomeAcked)
	id, _ = only[ReadRow](d)
	d.reply(id, s.read())
	d.verdict(tk.Op, VerdictTell) // the epoch of a Renew whose outcome is not known yet
	d.pass(time.Second)
	s.run()
	before := d.acked(Get)
	s.run()
	d.verdict(before, VerdictTell)
}

// A read of a quorum that has missed the newest commit shows less than the
// epoch of the stamp: it decides nothing.
func TestStrictReadsAgainWhatIsBehind(t *testing.T) {
	d, s := strict(t)
	old := *s.row
	d.take(d.core.Altered(d.time(), d.table))
	s.run()
	put := d.acked(Put)
	id, _ := only[ReadRow](d)
	d.reply(id, sees(old))
	d.waits(put)
	d.pass(100 * time.Millisecond)
	s.run()
	d.verdict(put, VerdictTell)
}

func TestStrictVerdictComesInTime(t *testing.T) {
	d, s := strict(t)
	tk, put := d.begin(1, Put)
	if d.end(tk, OutcomeAcked) != VerdictPending || d.end(tk, OutcomeAcked) != VerdictUncertain {
		t.Fatal("an End counts once")
	}
	un := d.unlock(1)
	id, _ := only[ReadRow](d)
	d.none() // a term is not released before its operations are told
	d.waits(un)
	d.reply(id, unknown)
	for end := d.now + d.opts.OpTimeout; d.now < end; {
		d.pass(100 * time.Millisecond)
		for len(d.open) > 0 {
			if _, ok := d.open[0].Action.(ReadRow); !ok {
				break
			}
			id, _ := only[ReadRow](d)
			d.reply(id, unknown)
		}
	}
	d.verdict(put, VerdictUncertain)
	d.serve(s, time.Second)
	if s.row.Head != 2 {
		t.Fatalf("%+v", *s.row)
	}
}

func TestStrictVerdictOfAClientThatIsGone(t *testing.T) {
	d, s := strict(t)
	put := d.acked(Put)
	d.take(d.core.Gone(d.time(), put))
	s.run()
	d.waits(put)
	if d.theTerm().ops.flight.ops != 0 {
		t.Fatal("still in flight")
	}
}

// docs/protocol.md 3.14, Force: on a strict table by anybody, at once.
func TestForceOfALivingStrangersHeadInAStrictTable(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)] = 1
	d.take(d.core.Strict(d.time(), d.table, true))
	op := d.force()
	d.serve(s, 100*time.Millisecond)
	if g := d.state(op, StateReleased); !g.Applied || g.Ref != 1 || s.row.Head != 2 || !s.row.Dirty || s.row.Epoch < 1000+d.opts.Window {
		t.Fatalf("%+v on %+v", g, *s.row)
	}
	d.forced(1)
}

// The mode belongs to the term: a put of a term that others could end, and perhaps did, is told by the lock row, also where the table
// is strict no more when it ends.
func TestATermStaysStrictThatOthersMayEnd(t *testing.T) {
	for name, taken := range map[string]bool{"taken": true, "not taken": false} {
		d, s := strict(t)
		tk, put := d.begin(1, Put)
		if taken {
			s.row.Head, s.row.Epoch, s.row.Dirty = 2, s.row.Epoch+d.opts.Window, true // another proxy's Force
		}
		d.take(d.core.ModeChanging(d.time(), d.table))
		d.take(d.core.Strict(d.time(), d.table, false))
		if v := d.end(tk, OutcomeAcked); v != VerdictPending {
			t.Fatalf("%s: told %v by the clock", name, v)
		}
		s.run()
		d.verdict(put, map[bool]Verdict{true: VerdictLost, false: VerdictTell}[taken])
		if len(d.alarms) > 0 {
			t.Fatalf("%s: %+v", name, d.alarms)
		}
	}
}

// A table becomes strict: what begins and ends from ModeChanging on is checked, also what is in flight; and once it is strict no more, terms
// of a later epoch are told by the clock.
func TestOperationsAreCheckedWhileTheModeChanges(t *testing.T) {
	d, s := held(t)
	tk, put := d.begin(1, Put)
	d.take(d.core.ModeChanging(d.time(), d.table))
	if v := d.end(tk, OutcomeAcked); v != VerdictPending {
		t.Fatalf("told %v by the clock", v)
	}
	s.run()
	d.verdict(put, VerdictTell)
	d.take(d.core.Strict(d.time(), d.table, true))
	d.clkOff = true
	d.take(d.core.Strict(d.time(), d.table, false))
	d.clkOff = false
	if !d.core.keys[d.key()].isChecked() || d.core.keys[d.key()].table.forceLiving {
		t.Fatal("without clk() no epoch is known to lie above the others: it stays as it is")
	}
	d.take(d.core.Strict(d.time(), d.table, false))
	if !d.core.keys[d.key()].isChecked() {
		t.Fatal("the term began before")
	}
	d.theTerm().window.epoch = Closing(d.time(), 0)
	if d.core.keys[d.key()].isChecked() {
		t.Fatal("a term that nobody else could end")
	}
}

// While the mode changes no living head is ended from here: its proxy may not check yet.
func TestNobodyForcesWhileTheModeChanges(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)] = 1
	d.take(d.core.Strict(d.time(), d.table, true))
	d.take(d.core.ModeChanging(d.time(), d.table))
	op := d.force()
	d.serve(s, 100*time.Millisecond)
	d.elsewhere(op, 9)
	if s.row.Head != 1 {
		t.Fatalf("%+v", *s.row)
	}
}

// A Force of when the table was strict, that has not been sent, is not sent any more.
func TestAForceOfBeforeEndsNothing(t *testing.T) {
	d, s := foreign(t, theirs())
	s.beat[session(9)] = 1
	d.take(d.core.Strict(d.time(), d.table, true))
	d.force()
	id, _ := untilApply(d, s)
	s.row.Epoch += d.opts.Window // its proxy has renewed its term
	d.reply(id, Result{Status: StatusRefused})
	d.take(d.core.ModeChanging(d.time(), d.table))
	d.take(d.core.Strict(d.time(), d.table, false))
	d.serve(s, 3*time.Second)
	if s.row.Head != 1 {
		t.Fatalf("%+v", *s.row)
	}
}

func TestLeaseModeCostsNothing(t *testing.T) {
	d, _ := held(t)
	if n := testing.AllocsPerRun(100, func() {
		tk, _ := d.core.Begin(d.time(), 1<<40, d.key(), 1, Get)
		d.core.End(d.time(), tk, OutcomeAcked)
	}); n != 0 {
		t.Fatalf("%v allocations an operation", n)
	}
}
