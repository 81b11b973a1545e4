package musiccore

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// desk is one Core with a test's hands on the other side: it keeps the
// commands that were not answered and the answers that came.
type desk struct {
	t       *testing.T
	core    *Core
	session *Session
	opts    Options
	now     time.Duration
	rawOff  time.Duration // the raw clock is ahead of BOOTTIME
	clkOff  bool
	open    []Command
	answers map[OpID]Answer
	alarms  []Alarm
	notes   []Note
	hints   []Hint
	wake    time.Duration
	lastOp  OpID
	table   [16]byte
}

func session(n byte) SessionID { return SessionID{n} }

func newDesk(t *testing.T, change ...func(*Options)) *desk {
	t.Helper()
	o := Defaults()
	o.Retain = 0
	for _, c := range change {
		c(&o)
	}
	d := &desk{t: t, opts: o, now: time.Hour, answers: map[OpID]Answer{}, table: [16]byte{1}}
	d.session = NewSession(session(1), o)
	d.core = New(d.session, o)
	d.beat()
	return d
}

func (d *desk) time() Now {
	wall := t0 + Stamp(d.now.Microseconds())
	n := Now{Boot: d.now, Raw: d.now + d.rawOff, Wall: wall, Clk: wall}
	if d.clkOff {
		n.Clk = 0
	}
	return n
}

func (d *desk) beat() {
	if n, ok := d.session.Beat(d.time()); ok {
		d.session.Acked(d.time(), d.time(), n)
	}
}

func (d *desk) key() Key { return Key{Table: d.table, PK: "k"} }

func (d *desk) take(fx Effects) {
	d.open = append(d.open, fx.Commands...)
	for _, a := range fx.Answers {
		if _, twice := d.answers[a.Op]; twice {
			d.t.Fatalf("operation %d is answered twice", a.Op)
		}
		d.answers[a.Op] = a
	}
	d.alarms = append(d.alarms, fx.Alarms...)
	d.notes = append(d.notes, fx.Notes...)
	d.hints = append(d.hints, fx.Hints...)
	d.wake = fx.Wake
}

// pass lets time go by, ticking whenever the core wants, with beats.
func (d *desk) pass(by time.Duration) {
	end := d.now + by
	for d.now < end {
		next := min(end, d.now+d.opts.SessionLease/3)
		if d.wake != 0 && d.wake < next {
			next = max(d.wake, d.now+time.Nanosecond)
		}
		d.now = next
		d.beat()
		d.take(d.core.Tick(d.time()))
	}
}

// jump lets time go by without a beat or a tick.
func (d *desk) jump(by time.Duration) { d.now += by }

func (d *desk) op() OpID { d.lastOp++; return d.lastOp }

func (d *desk) lock(q Request) OpID {
	op := d.op()
	d.take(d.core.Lock(d.time(), op, d.key(), q))
	return op
}

func (d *desk) unlock(r LockRef) OpID {
	op := d.op()
	d.take(d.core.Unlock(d.time(), op, d.key(), r))
	return op
}

// begin answers the ticket if it came at once.
func (d *desk) begin(r LockRef, kind Kind) (Ticket, OpID) {
	op := d.op()
	tk, fx := d.core.Begin(d.time(), op, d.key(), r, kind)
	d.take(fx)
	return tk, op
}

func (d *desk) end(tk Ticket, o Outcome) Verdict {
	v, fx := d.core.End(d.time(), tk, o)
	d.take(fx)
	return v
}

// only takes the single open command and demands its kind.
func only[A Action](d *desk) (CommandID, A) {
	d.t.Helper()
	for i, c := range d.open {
		if a, ok := c.Action.(A); ok {
			d.open = slices.Delete(d.open, i, i+1)
			return c.ID, a
		}
	}
	var want A
	d.t.Fatalf("no command %T among %+v", want, d.open)
	return 0, want
}

func (d *desk) none() {
	d.t.Helper()
	if len(d.open) > 0 {
		d.t.Fatalf("commands nobody expected: %+v", d.open)
	}
}

func (d *desk) reply(id CommandID, r Result) { d.take(d.core.Reply(d.time(), id, r)) }

func (d *desk) answered(op OpID) Answer {
	d.t.Helper()
	a, ok := d.answers[op]
	if !ok {
		d.t.Fatalf("operation %d has no answer; open commands %+v", op, d.open)
	}
	return a
}

func (d *desk) waits(op OpID) {
	d.t.Helper()
	if a, ok := d.answers[op]; ok {
		d.t.Fatalf("operation %d is answered: %+v", op, a)
	}
}

func (d *desk) state(op OpID, want State) Grant {
	d.t.Helper()
	a := d.answered(op)
	if a.Err != nil || a.Grant.State != want {
		d.t.Fatalf("operation %d: %+v, want %v", op, a, want)
	}
	return a.Grant
}

func (d *desk) fails(op OpID, want error) {
	d.t.Helper()
	if a := d.answered(op); !errors.Is(a.Err, want) {
		d.t.Fatalf("operation %d: %+v, want error %v", op, a, want)
	}
}

// store is the honest store for tests that do not care how it answers: it
// runs every open command at once.
type store struct {
	d    *desk
	row  *Row
	beat map[SessionID]int64
	copy Result
	seen []Action
}

func newStore(d *desk) *store {
	return &store{d: d, beat: map[SessionID]int64{}, copy: Result{Status: StatusDone}}
}

// run answers until nothing is open.
func (s *store) run() {
	for len(s.d.open) > 0 {
		c := s.d.open[0]
		s.d.open = s.d.open[1:]
		s.seen = append(s.seen, c.Action)
		s.d.reply(c.ID, s.do(c.Action))
	}
}

func (s *store) do(a Action) Result {
	switch a := a.(type) {
	case ReadRow:
		return s.read()
	case Apply:
		return s.apply(a.Swap)
	case Synch:
		return s.copy
	case ReadBeat:
		return Result{Status: StatusDone, Beat: s.beat[a.Session]}
	}
	s.d.t.Fatalf("unknown action %T", a)
	return Result{}
}

func (s *store) read() Result {
	if s.row == nil {
		return Result{Status: StatusDone}
	}
	row := *s.row
	return Result{Status: StatusDone, Row: &row}
}

func (s *store) apply(w Swap) Result {
	row, ok := w.Apply(s.row)
	if !ok {
		return Result{Status: StatusRefused}
	}
	s.row = &row
	return Result{Status: StatusDone}
}

// held is a desk whose first reference holds a synchronised term.
func held(t *testing.T, change ...func(*Options)) (*desk, *store) {
	t.Helper()
	d := newDesk(t, change...)
	s := newStore(d)
	op := d.lock(Request{})
	s.run()
	d.state(op, StateHeld)
	_, get := d.begin(1, Get)
	s.run()
	d.end(d.answered(get).Ticket, OutcomeAcked)
	return d, s
}

func TestLockPutUnlock(t *testing.T) {
	d := newDesk(t)
	op := d.lock(Request{Owner: "me"})
	id, read := only[ReadRow](d)
	if read.Quorum {
		t.Fatal("the first look is local")
	}
	d.reply(id, Result{Status: StatusDone})
	id, w := only[Apply](d)
	if w.Swap.If.What != IfAbsent || !w.Swap.Set.Row.Dirty {
		t.Fatalf("new key: %+v", w.Swap)
	}
	d.reply(id, Result{Status: StatusDone})
	if g := d.state(op, StateHeld); g.Ref != 1 || g.Lease != d.opts.ClientLease || g.Holder != "me" || !g.Applied {
		t.Fatalf("grant %+v", g)
	}
	tk, put := d.begin(1, Put)
	if tk.OK() {
		t.Fatal("a dirty term gives no ticket before the synchronise")
	}
	id, c := only[Synch](d)
	if c.Fence != w.Swap.Set.Row.Epoch+2 {
		t.Fatalf("fence %d", c.Fence)
	}
	d.reply(id, Result{Status: StatusDone})
	tk = d.answered(put).Ticket
	if tk.Stamp != w.Swap.Set.Row.Epoch+4 {
		t.Fatalf("stamp %d after fence and cells", tk.Stamp)
	}
	if v := d.end(tk, OutcomeAcked); v != VerdictTell {
		t.Fatalf("verdict %v", v)
	}
	un := d.unlock(1)
	if g := d.state(un, StateReleased); !g.Applied {
		t.Fatal("applied")
	}
	id, w = only[Apply](d)
	if w.Swap.Set.Row.Dirty || w.Swap.Set.Row.Head != 2 || w.Swap.Set.Row.Epoch <= tk.Stamp {
		t.Fatalf("release %+v", w.Swap)
	}
	d.reply(id, Result{Status: StatusDone})
	d.none()
	if len(d.core.keys) != 0 || len(d.core.ops) != 0 || len(d.core.commands) != 0 || len(d.core.timers) != 0 {
		t.Fatal("an idle key leaves memory behind")
	}
	op = d.lock(Request{})
	_, w = only[Apply](d)
	if w.Swap.If.What != IfGuardEpoch || w.Swap.Set.Row.Dirty {
		t.Fatalf("the row of an idle key is remembered: %+v", w.Swap)
	}
	d.waits(op)
}
