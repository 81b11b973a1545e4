package musiccore

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// harness is one Core whose store is the test: it keeps the commands that were not answered, and
// the answers that came.
type harness struct {
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

// newHarness returns a harness with a valid session; change alters its options.
func newHarness(t *testing.T, change ...func(*Options)) *harness {
	t.Helper()
	o := Defaults()
	o.Retain = 0
	for _, c := range change {
		c(&o)
	}
	h := &harness{t: t, opts: o, now: time.Hour, answers: map[OpID]Answer{}, table: [16]byte{1}}
	h.session = NewSession(session(1), o)
	h.core = New(h.session, o)
	h.beat()
	return h
}

func (h *harness) time() Now {
	wall := t0 + Stamp(h.now.Microseconds())
	n := Now{Boot: h.now, Raw: h.now + h.rawOff, Wall: wall, Clk: wall}
	if h.clkOff {
		n.Clk = 0
	}
	return n
}

func (h *harness) beat() {
	if n, ok := h.session.Beat(h.time()); ok {
		h.session.Acked(h.time(), h.time(), n)
	}
}

func (h *harness) key() Key { return Key{Table: h.table, PK: "k"} }

// collect keeps the effects of a call.
func (h *harness) collect(fx Effects) {
	h.open = append(h.open, fx.Commands...)
	for _, a := range fx.Answers {
		_, twice := h.answers[a.Op]
		require.False(h.t, twice, "operation %d is answered twice", a.Op)
		h.answers[a.Op] = a
	}
	h.alarms = append(h.alarms, fx.Alarms...)
	h.notes = append(h.notes, fx.Notes...)
	h.hints = append(h.hints, fx.Hints...)
	h.wake = fx.Wake
}

// advance lets time go by, with beats, and ticks whenever the core wants.
func (h *harness) advance(by time.Duration) {
	end := h.now + by
	for h.now < end {
		next := min(end, h.now+h.opts.SessionLease/3)
		if h.wake != 0 && h.wake < next {
			next = max(h.wake, h.now+time.Nanosecond)
		}
		h.now = next
		h.beat()
		h.collect(h.core.Tick(h.time()))
		if h.wake != 0 {
			require.Greater(h.t, h.wake, h.now, "a tick leaves nothing to be done at once")
		}
	}
}

// advanceUnticked lets time go by without a beat or a tick.
func (h *harness) advanceUnticked(by time.Duration) { h.now += by }

// advanceWithBeats lets time go by without a tick.
func (h *harness) advanceWithBeats(by time.Duration) {
	for end := h.now + by; h.now < end; {
		h.advanceUnticked(h.opts.SessionLease / 4)
		h.beat()
	}
}

// runFor lets time go by with a store that answers.
func (h *harness) runFor(s *fakeStore, by time.Duration) {
	for end := h.now + by; h.now < end; {
		s.answerAll()
		h.advance(20 * time.Millisecond)
	}
	s.answerAll()
}

func (h *harness) op() OpID { h.lastOp++; return h.lastOp }

func (h *harness) lock(q Request) OpID {
	op := h.op()
	h.collect(h.core.Lock(h.time(), op, h.key(), q))
	return op
}

func (h *harness) clientLease(d time.Duration) {
	h.collect(h.core.ClientLease(h.time(), h.table, d))
}

func (h *harness) unlock(r LockRef) OpID {
	op := h.op()
	h.collect(h.core.Unlock(h.time(), op, h.key(), r))
	return op
}

func (h *harness) force() OpID {
	op := h.op()
	h.collect(h.core.Force(h.time(), op, h.key(), 0, "stuck"))
	return op
}

// begin answers the ticket if it came at once.
func (h *harness) begin(r LockRef, kind Kind) (Ticket, OpID) {
	op := h.op()
	tk, fx := h.core.Begin(h.time(), op, h.key(), r, kind)
	h.collect(fx)
	return tk, op
}

func (h *harness) end(tk Ticket, o Outcome) Verdict {
	v, fx := h.core.End(h.time(), tk, o)
	h.collect(fx)
	return v
}

func (h *harness) reply(id CommandID, r Result) { h.collect(h.core.Reply(h.time(), id, r)) }

// commandOf takes the first open command of a kind out, and fails the test where there is none.
func commandOf[A Action](h *harness) (CommandID, A) {
	h.t.Helper()
	for i, c := range h.open {
		if a, ok := c.Action.(A); ok {
			h.open = slices.Delete(h.open, i, i+1)
			return c.ID, a
		}
	}
	var want A
	require.Fail(h.t, "no such command", "%T among %+v", want, h.open)
	return 0, want
}

// expectNoCommand fails the test where a command is open.
func (h *harness) expectNoCommand() {
	h.t.Helper()
	require.Empty(h.t, h.open, "commands nobody expected")
}

// answerOf returns the answer of an operation, which must have come.
func (h *harness) answerOf(op OpID) Answer {
	h.t.Helper()
	a, ok := h.answers[op]
	require.True(h.t, ok, "operation %d has no answer; open commands %+v", op, h.open)
	return a
}

// expectWaiting fails the test where an operation has been answered.
func (h *harness) expectWaiting(op OpID) {
	h.t.Helper()
	a, ok := h.answers[op]
	require.False(h.t, ok, "operation %d is answered: %+v", op, a)
}

// expectState fails the test unless an operation was answered with a Grant of that state, and
// returns it.
func (h *harness) expectState(op OpID, want State) Grant {
	h.t.Helper()
	a := h.answerOf(op)
	require.NoError(h.t, a.Err, "operation %d: %+v, want %v", op, a, want)
	require.Equal(h.t, want, a.Grant.State, "operation %d", op)
	return a.Grant
}

// expectQueued fails the test unless an operation was answered with that reference, at that position.
func (h *harness) expectQueued(op OpID, ref LockRef, position int) {
	h.t.Helper()
	g := h.expectState(op, StateQueued)
	require.Equal(h.t, ref, g.Ref)
	require.Equal(h.t, position, g.Position)
}

// expectError fails the test unless an operation was answered with that error.
func (h *harness) expectError(op OpID, want error) {
	h.t.Helper()
	a := h.answerOf(op)
	require.ErrorIs(h.t, a.Err, want, "operation %d: %+v, want error", op, a)
}

func (h *harness) expectElsewhere(op OpID, n byte) {
	h.t.Helper()
	var e *ElsewhereError
	a := h.answerOf(op)
	require.ErrorAs(h.t, a.Err, &e, "%+v, want elsewhere at %d", a, n)
	require.Equal(h.t, session(n), e.Session, "%+v, want elsewhere at %d", a, n)
}

func (h *harness) expectForced(ref LockRef) {
	h.t.Helper()
	require.True(h.t, slices.ContainsFunc(h.notes, func(n Note) bool { return n.Kind == NoteForced && n.Ref == ref && n.Reason == "stuck" }), "no word of %d in the audit: %+v", ref, h.notes)
}

// fakeStore is an honest store for tests that do not care how it answers: answerAll runs every
// open command.
type fakeStore struct {
	h       *harness
	row     *Row
	beat    map[SessionID]int64
	copy    Result
	actions []Action
}

func newFakeStore(h *harness) *fakeStore {
	return &fakeStore{h: h, beat: map[SessionID]int64{}, copy: Result{Status: StatusDone}}
}

// answerAll answers until nothing is open.
func (s *fakeStore) answerAll() {
	for len(s.h.open) > 0 {
		c := s.h.open[0]
		s.h.open = s.h.open[1:]
		s.actions = append(s.actions, c.Action)
		s.h.reply(c.ID, s.do(c.Action))
	}
}

func (s *fakeStore) do(a Action) Result {
	switch a := a.(type) {
	case ReadRow:
		return s.read()
	case Apply:
		return s.apply(a.Swap)
	case Synch:
		return s.copy
	case ReadStamps:
		return Result{Status: StatusDone}
	case ReadBeat:
		return Result{Status: StatusDone, Beat: s.beat[a.Session]}
	}
	require.Fail(s.h.t, "unknown action", "%T", a)
	return Result{}
}

func (s *fakeStore) read() Result {
	if s.row == nil {
		return Result{Status: StatusDone}
	}
	row := *s.row
	return Result{Status: StatusDone, Row: &row}
}

func (s *fakeStore) apply(w Swap) Result {
	row, ok := w.Apply(s.row)
	if !ok {
		return Result{Status: StatusRefused}
	}
	s.row = &row
	return Result{Status: StatusDone}
}

// lwts counts the LWTs since it was asked last.
func (s *fakeStore) lwts() int {
	n := len(s.swapsSeen())
	s.actions = nil
	return n
}

func (s *fakeStore) swapsSeen() []Swap {
	var all []Swap
	for _, a := range s.actions {
		if w, ok := a.(Apply); ok {
			all = append(all, w.Swap)
		}
	}
	return all
}

// newHolder returns a harness whose reference 1 holds a synchronised term.
func newHolder(t *testing.T, change ...func(*Options)) (*harness, *fakeStore) {
	t.Helper()
	h := newHarness(t, change...)
	s := newFakeStore(h)
	op := h.lock(Request{})
	s.answerAll()
	h.expectState(op, StateHeld)
	_, get := h.begin(1, Get)
	s.answerAll()
	h.end(h.answerOf(get).Ticket, OutcomeAcked)
	return h, s
}

// newFirstPut returns a harness whose reference 1 holds a term that is not synchronised yet, and the
// put that waits for that.
func newFirstPut(t *testing.T) (*harness, *fakeStore, OpID) {
	t.Helper()
	h := newHarness(t)
	s := newFakeStore(h)
	h.lock(Request{})
	s.answerAll()
	_, op := h.begin(1, Put)
	return h, s, op
}

// heldByOther returns a harness at a store whose lock row other sessions made; session 9 holds.
func heldByOther(t *testing.T, r Row) (*harness, *fakeStore) {
	t.Helper()
	h := newHarness(t)
	s := newFakeStore(h)
	s.row = &r
	return h, s
}

// theirs is a row that session 9 holds, with 8 behind it and 9 behind that.
func theirs() Row {
	return Row{Guard: 3, Head: 1, Epoch: 1000, Queue: []Block{block(1, 1, 9, 1), block(2, 1, 8, 1), block(3, 1, 9, 2)}}
}
