package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var unknown = Result{Status: StatusUnknown}

// sees is a reply to a ReadRow.
func sees(r Row) Result { return Result{Status: StatusDone, Row: &r} }

// enqueueUnderWay returns a harness with a LOCK whose first Enqueue is under way on row r, or on a
// new key.
func enqueueUnderWay(t *testing.T, r *Row) (*harness, OpID, CommandID, Apply) {
	t.Helper()
	h := newHarness(t)
	op := h.lock(Request{Token: [16]byte{1}})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone, Row: r})
	id, a := commandOf[Apply](h)
	return h, op, id, a
}

// Of one key only one LWT is under way at a time.
func TestOneLWTAtATime(t *testing.T) {
	h, first, id, _ := enqueueUnderWay(t, nil)
	second, third := h.lock(Request{}), h.lock(Request{})
	h.expectNoCommand()
	h.reply(id, Result{Status: StatusDone})
	h.expectState(first, StateHeld)
	id, a := commandOf[Apply](h)
	b := a.Swap.Set.Row.Queue[1]
	require.EqualValues(t, 2, b.N, "waiters that came meanwhile share the next one")
	require.EqualValues(t, 2, b.First, "waiters that came meanwhile share the next one")
	require.False(t, b.Retained, "waiters that came meanwhile share the next one: %+v", b)
	h.expectNoCommand()
	h.reply(id, Result{Status: StatusDone})
	h.expectWaiting(second)
	h.advance(1500 * time.Millisecond)
	h.expectQueued(second, 2, 1)
	h.expectQueued(third, 3, 2)
}

// H3: an LWT of unknown outcome is sent again, the same to the last literal.
func TestH3UnknownIsSentAgainWithTheSameLiterals(t *testing.T) {
	h, op, id, first := enqueueUnderWay(t, nil)
	for range 5 {
		h.reply(id, unknown)
		h.expectNoCommand()
		h.advance(time.Second)
		var again Apply
		id, again = commandOf[Apply](h)
		require.Equal(t, again.Swap, first.Swap)
	}
	h.expectState(op, StateQueued)
	h.reply(id, Result{Status: StatusDone})
	op = h.lock(Request{Token: [16]byte{1}})
	require.EqualValues(t, 1, h.expectState(op, StateHeld).Ref)
}

// A refused LWT counts as applied if the row shows that an earlier sending was.
func TestRefusedAndItWasMe(t *testing.T) {
	h, op, id, a := enqueueUnderWay(t, nil)
	h.reply(id, unknown)
	h.advance(20 * time.Millisecond)
	id, _ = commandOf[Apply](h)
	h.reply(id, Result{Status: StatusRefused})
	h.expectWaiting(op)
	id, read := commandOf[ReadRow](h)
	require.True(t, read.Quorum, "only a QUORUM read decides")
	row, _ := a.Swap.Apply(nil)
	h.reply(id, sees(row))
	require.EqualValues(t, 1, h.expectState(op, StateHeld).Ref)
	h.expectNoCommand()
}

// After a refusal, the Enqueue is made anew from the row that refused it.
func TestRefusedAndItWasAnother(t *testing.T) {
	h, op, id, _ := enqueueUnderWay(t, nil)
	h.reply(id, Result{Status: StatusRefused})
	id, _ = commandOf[ReadRow](h)
	h.reply(id, sees(Row{Guard: 1, Head: 1, Queue: []Block{block(1, 1, 9, 1)}, Epoch: 5, Dirty: true}))
	_, a := commandOf[Apply](h)
	require.Equal(t, If{What: IfGuard, Guard: 1}, a.Swap.If, "asks again on the new row")
	require.EqualValues(t, 2, a.Swap.Set.Row.Queue[1].First, "asks again on the new row: %+v", a.Swap)
	h.expectWaiting(op)
}

// If the row still shows the state from before the refusal, nothing is decided, and the same LWT is
// sent again.
func TestRefusedAndTheRowIsStillTheOld(t *testing.T) {
	old := Row{Guard: 3, Head: 4, Epoch: 50}
	h, _, id, first := enqueueUnderWay(t, &old)
	h.reply(id, Result{Status: StatusRefused})
	id, _ = commandOf[ReadRow](h)
	h.reply(id, sees(old)) // commit level below QUORUM: S_(n-1)
	h.advance(time.Second)
	_, again := commandOf[Apply](h)
	require.Equal(t, again.Swap, first.Swap, "nothing was decided: the same again")
}

// Only a read that began after the refusal decides a refused LWT.
func TestAReadBegunBeforeTheRefusalDecidesNothing(t *testing.T) {
	h, _, id, a := enqueueUnderWay(t, nil)
	un := h.unlock(7) // asks for the row at QUORUM while the LWT is under way
	early, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusRefused})
	h.reply(early, Result{Status: StatusDone}) // "no such row", from before
	h.expectError(un, ErrNotHeld)
	h.advance(50 * time.Millisecond)
	id, _ = commandOf[ReadRow](h)
	row, _ := a.Swap.Apply(nil)
	h.reply(id, sees(row))
	h.expectNoCommand()
	k := h.core.keys[h.key()]
	require.NotNil(t, k.term, "the later read shows that it was me")
	require.EqualValues(t, 1, k.term.holder.ref, "the later read shows that it was me")
}

// A Release of unknown outcome is repeated until it is definite, and nobody enters before.
func TestReleaseOfUnknownOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		row  func(released Row) Row
		done bool
	}{
		"it was me":              {func(r Row) Row { return r }, true},
		"already preempted":      {func(r Row) Row { r.Epoch += 99; r.Dirty = true; return r }, true},
		"the epoch still stands": {func(r Row) Row { r.Epoch -= 2; r.Head--; r.Dirty = true; return r }, false},
	} {
		h, s := newHolder(t)
		h.unlock(1)
		id, a := commandOf[Apply](h)
		h.reply(id, unknown)
		h.advance(20 * time.Millisecond)
		id, again := commandOf[Apply](h)
		require.Equal(t, again, a, "another Release")
		h.reply(id, Result{Status: StatusRefused})
		id, _ = commandOf[ReadRow](h)
		row, _ := a.Swap.Apply(s.row)
		if name == "the epoch still stands" {
			row.Epoch = a.Swap.If.Epoch + 2
		}
		h.reply(id, sees(c.row(row)))
		_, busy := h.core.keys[h.key()]
		assert.NotEqual(t, c.done, busy, "%s: key in memory", name)
		assert.Empty(t, h.alarms, name)
	}
}

// The reply to an own LWT does not replace a later row that was read before the reply came.
func TestARowSeenBeforeTheReplyIsNotWrittenOver(t *testing.T) {
	h, _, id, a := enqueueUnderWay(t, &Row{Guard: 1, Head: 1, Queue: []Block{block(1, 1, 9, 1)}, Epoch: 50})
	un := h.unlock(7)
	read, _ := commandOf[ReadRow](h)
	row, _ := a.Swap.Apply(&Row{Guard: 1, Head: 1, Queue: []Block{block(1, 1, 9, 1)}, Epoch: 50})
	later := Enqueue(&row, block(0, 1, 9, 2), 0, 0)
	row, _ = later.Apply(&row)
	h.reply(read, sees(row))
	h.expectError(un, ErrNotHeld)
	h.reply(id, Result{Status: StatusDone})
	require.EqualValues(t, 3, h.core.keys[h.key()].view.row.Guard, "guard fell back")
}

// A reply to a command that was sent before the key was dropped from memory changes nothing.
func TestAReplyOfAnEarlierLifeIsNobodys(t *testing.T) {
	h, _ := newHolder(t)
	h.core.keys[h.key()].term.synced = false
	h.core.keys[h.key()].term.dirty = true
	h.begin(1, Get)
	id, _ := commandOf[Synch](h)
	h.advanceUnticked(time.Minute)
	h.session = NewSession(session(2), h.opts)
	h.collect(h.core.Rejoin(h.time(), h.session))
	h.beat()
	h.reply(id, Result{Status: StatusDone})
	h.expectNoCommand()
	require.Empty(t, h.core.keys, "a dead key came back")
}

// I1: an LWT that would move the row backwards is not sent; the term ends, with an alarm.
func TestI1NothingUnsoundIsSent(t *testing.T) {
	h, _ := newHolder(t)
	h.core.keys[h.key()].term.window.seq = -5
	h.unlock(1)
	h.expectNoCommand()
	require.NotEmpty(t, h.alarms)
	require.Equal(t, "I1", h.alarms[0].Rule, "%+v", h.alarms)
}

// I1: a lock row that vanishes ends what is known of the key, with an alarm.
func TestI1TheRowVanishes(t *testing.T) {
	h, s := newHolder(t)
	tk, _ := h.begin(1, Put)
	waiter := h.lock(Request{})
	s.answerAll()
	h.lock(Request{Ref: 99}) // any reason to read
	s.answerAll()
	h.lock(Request{Ref: 99})
	h.advance(time.Second)
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone})
	require.NotEmpty(t, h.alarms)
	require.Equal(t, "I1", h.alarms[0].Rule, "%+v", h.alarms)
	require.Equal(t, VerdictUncertain, h.end(tk, OutcomeAcked))
	h.expectState(waiter, StateLost)
	s.row = nil
	_, op := h.begin(1, Put)
	s.answerAll()
	h.expectError(op, ErrNotHeld)
}

// I1: two rows that show different terms on one epoch end the term, with an alarm.
func TestI1OneEpochShowsTwoTerms(t *testing.T) {
	h, s := newHolder(t)
	tk, _ := h.begin(1, Put)
	h.lock(Request{Ref: 99})
	id, _ := commandOf[ReadRow](h)
	row := *s.row
	row.Head++
	h.reply(id, sees(row))
	require.NotEmpty(t, h.alarms)
	require.Equal(t, "I1", h.alarms[0].Rule, "%+v", h.alarms)
	require.Equal(t, VerdictUncertain, h.end(tk, OutcomeAcked))
	_, a := commandOf[Apply](h)
	r := a.Swap.Set.Row
	require.True(t, r.Dirty, "a broken term ends dirty, a window above: %+v", r)
	require.GreaterOrEqual(t, r.Epoch, a.Swap.If.Epoch+h.opts.Window, "a broken term ends dirty, a window above")
}

// I3: a term that was taken away under a valid session ends, with an alarm.
func TestI3ATermTakenAwayIsLost(t *testing.T) {
	h, s := newHolder(t)
	tk, _ := h.begin(1, Put)
	h.lock(Request{Ref: 99})
	id, _ := commandOf[ReadRow](h)
	row, _ := Preempt(*s.row, 2, h.opts.Window, 0).Apply(s.row)
	h.reply(id, sees(row))
	require.NotEmpty(t, h.alarms)
	require.Equal(t, "I3", h.alarms[0].Rule, "%+v", h.alarms)
	require.Equal(t, VerdictLost, h.end(tk, OutcomeAcked))
	s.row = &row
	op := h.lock(Request{Ref: 1})
	s.answerAll()
	h.expectState(op, StateLost)
}

// kindsOf returns what notes are about.
func kindsOf(notes []Note) (kinds []NoteKind) {
	for _, n := range notes {
		kinds = append(kinds, n.Kind)
	}
	return kinds
}

// An orphaned head of this session is released on a row that was read at QUORUM: dirty, and a whole
// window higher.
func TestAnOrphanedHeadIsReaped(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{})
	id, _ := commandOf[ReadRow](h)
	stray := Row{Guard: 4, Head: 4, Queue: []Block{block(4, 1, 1, 77)}, Epoch: 2 * t0} // ahead of the clock
	h.reply(id, sees(stray))
	id, _ = commandOf[Apply](h) // the Enqueue comes first, no LWT waits for a read
	h.reply(id, Result{Status: StatusDone})
	id, read := commandOf[ReadRow](h)
	require.True(t, read.Quorum, "a stale replica may show an own head that was released long ago")
	row := stray
	row.Guard, row.Queue = 5, append(row.Queue, block(5, 1, 1, 1))
	h.reply(id, sees(row))
	id, a := commandOf[Apply](h)
	r := a.Swap.Set.Row
	require.True(t, r.Dirty, "%+v", r)
	require.EqualValues(t, 5, r.Head)
	require.Equal(t, 2*t0+h.opts.Window, r.Epoch)
	h.reply(id, Result{Status: StatusDone})
	h.expectWaiting(op)
	id, read = commandOf[ReadRow](h)
	require.True(t, read.Quorum, "a dirty term is entered on a QUORUM read")
	row, _ = a.Swap.Apply(&row)
	h.reply(id, sees(row))
	g := h.expectState(op, StateHeld)
	require.True(t, g.OwnerDied, "%+v", g)
	require.EqualValues(t, 5, g.Ref)
	require.NotContains(t, kindsOf(h.notes), NotePreempted, "its session lives")
}
