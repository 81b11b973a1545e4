package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// heldStrict returns a harness whose reference 1 holds a key of a strict table.
func heldStrict(t *testing.T) (*harness, *fakeStore) {
	t.Helper()
	h := newHarness(t)
	h.collect(h.core.Strict(h.time(), h.table, true, h.session.ID()))
	s := newFakeStore(h)
	op := h.lock(Request{})
	s.answerAll()
	h.expectState(op, StateHeld)
	_, get := h.begin(1, Get)
	s.answerAll()
	require.Equal(t, VerdictTell, h.end(h.answerOf(get).Ticket, OutcomeRefused), "what was not done needs no check")
	return h, s
}

// pendingOp begins and ends an operation; its verdict comes to the operation named.
func (h *harness) pendingOp(kind Kind) OpID {
	h.t.Helper()
	tk, op := h.begin(1, kind)
	require.True(h.t, tk.OK(), "ticket %+v of operation %d", tk, op)
	require.Equal(h.t, op, tk.Op, "ticket %+v of operation", tk)
	require.Equal(h.t, VerdictPending, h.end(tk, OutcomeAcked))
	return op
}

func (h *harness) expectVerdict(op OpID, want Verdict) {
	h.t.Helper()
	a := h.answerOf(op)
	require.NoError(h.t, a.Err, "%+v, want %v", a, want)
	require.Equal(h.t, want, a.Verdict)
}

// docs/protocol.md 3.8, check: strict mode reads the lock row after the operation.
func TestStrictTellsAfterAQuorumRead(t *testing.T) {
	h, s := heldStrict(t)
	put := h.pendingOp(Put)
	id, read := commandOf[ReadRow](h)
	require.True(t, read.Quorum, "one replica says nothing (M6)")
	get := h.pendingOp(Get)
	h.expectNoCommand()
	h.reply(id, s.read())
	h.expectVerdict(put, VerdictTell)
	h.expectWaiting(get) // that read began before the operation ended
	s.answerAll()
	h.expectVerdict(get, VerdictTell)
	tk, _ := h.begin(1, Put)
	require.Equal(t, VerdictUncertain, h.end(tk, OutcomeUnknown), "what the store did not acknowledge needs no check")
	h.expectNoCommand()
}

// In a strict table an operation is not acknowledged if the row shows another term.
func TestStrictHearsThatTheTermWasTaken(t *testing.T) {
	h, s := heldStrict(t)
	put, get := h.pendingOp(Put), h.pendingOp(Get)
	row, _ := Preempt(*s.row, 2, h.opts.Window, 0).Apply(s.row)
	s.row = &row
	s.answerAll()
	h.expectVerdict(put, VerdictLost)
	h.expectVerdict(get, VerdictLost)
	require.Empty(t, h.alarms, "anybody may")
	_, op := h.begin(1, Put)
	s.answerAll()
	h.expectError(op, ErrLost)
}

// After a Takeover the reference is still the head: only the epoch shows that the term is another
// session's. The client goes on there and reads the outcome of its write.
func TestStrictHearsThatItsReferenceWasTakenOver(t *testing.T) {
	h, s := heldStrict(t)
	put := h.pendingOp(Put)
	row, _ := Takeover(*s.row, session(9), h.opts.Window, 0).Apply(s.row)
	s.row = &row
	s.answerAll()
	h.expectVerdict(put, VerdictUncertain)
}

// In a strict table the epoch of an own Renew counts as the term's own, also while its outcome is
// unknown.
func TestStrictKnowsItsOwnRenews(t *testing.T) {
	h, s := heldStrict(t)
	tk, _ := h.begin(1, Put)
	h.collect(h.core.Altered(h.time(), h.table, 0))
	id, renew := commandOf[Apply](h)
	s.apply(renew.Swap)
	h.reply(id, unknown)
	h.end(tk, OutcomeAcked)
	id, _ = commandOf[ReadRow](h)
	h.reply(id, s.read())
	h.expectVerdict(tk.Op, VerdictTell) // the epoch of a Renew whose outcome is not known yet
	h.advance(time.Second)
	s.answerAll()
	before := h.pendingOp(Get)
	s.answerAll()
	h.expectVerdict(before, VerdictTell)
}

// A QUORUM read that shows an epoch below that of the stamp has missed the newest commit: it
// decides nothing and is repeated.
func TestStrictReadsAgainWhatIsBehind(t *testing.T) {
	h, s := heldStrict(t)
	old := *s.row
	h.collect(h.core.Altered(h.time(), h.table, 0))
	s.answerAll()
	put := h.pendingOp(Put)
	id, _ := commandOf[ReadRow](h)
	h.reply(id, sees(old))
	h.expectWaiting(put)
	h.advance(100 * time.Millisecond)
	s.answerAll()
	h.expectVerdict(put, VerdictTell)
}

// In a strict table, an operation whose check gets no read in time is unknown, and the term is not
// released before.
func TestStrictVerdictComesInTime(t *testing.T) {
	h, s := heldStrict(t)
	tk, put := h.begin(1, Put)
	require.Equal(t, VerdictPending, h.end(tk, OutcomeAcked), "an End counts once")
	require.Equal(t, VerdictUncertain, h.end(tk, OutcomeAcked), "an End counts once")
	un := h.unlock(1)
	id, _ := commandOf[ReadRow](h)
	h.expectNoCommand() // a term is not released before its operations are told
	h.expectWaiting(un)
	h.reply(id, unknown)
	for end := h.now + h.opts.OpTimeout; h.now < end; {
		h.advance(100 * time.Millisecond)
		for len(h.open) > 0 {
			if _, ok := h.open[0].Action.(ReadRow); !ok {
				break
			}
			id, _ := commandOf[ReadRow](h)
			h.reply(id, unknown)
		}
	}
	h.expectVerdict(put, VerdictUncertain)
	h.runFor(s, time.Second)
	require.EqualValues(t, 2, s.row.Head)
}

// In a strict table the verdict of a client that went away is told to nobody, and its term ends as
// usual.
func TestStrictVerdictOfAClientThatIsGone(t *testing.T) {
	h, s := heldStrict(t)
	put := h.pendingOp(Put)
	h.collect(h.core.ClientGone(h.time(), put))
	s.answerAll()
	h.expectWaiting(put)
	require.Zero(t, h.term().ops.flight.ops, "still in flight")
}

// docs/protocol.md 3.14, Force: on a strict table any proxy may force, at once.
func TestForceOfALivingSessionsHeadInAStrictTable(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)] = 1
	h.collect(h.core.Strict(h.time(), h.table, true, h.session.ID()))
	op := h.force()
	h.runFor(s, 100*time.Millisecond)
	g := h.expectState(op, StateReleased)
	require.True(t, g.Applied, "%+v on %+v", g, *s.row)
	require.EqualValues(t, 1, g.Ref, "%+v on %+v", g, *s.row)
	require.EqualValues(t, 2, s.row.Head, "%+v", g)
	require.True(t, s.row.Dirty, "%+v on %+v", g, *s.row)
	require.GreaterOrEqual(t, s.row.Epoch, 1000+h.opts.Window, "%+v", g)
	h.expectForced(1)
}

// The mode belongs to the term: a put of a term that others could end is checked by the lock row,
// even if the table is no longer strict when the put ends.
func TestATermStaysStrictThatOthersMayEnd(t *testing.T) {
	for name, taken := range map[string]bool{"taken": true, "not taken": false} {
		h, s := heldStrict(t)
		tk, put := h.begin(1, Put)
		if taken {
			s.row.Head, s.row.Epoch, s.row.Dirty = 2, s.row.Epoch+h.opts.Window, true // another proxy's Force
		}
		h.collect(h.core.ModeChanging(h.time(), h.table))
		h.collect(h.core.Strict(h.time(), h.table, false, h.session.ID()))
		v := h.end(tk, OutcomeAcked)
		require.Equal(t, VerdictPending, v, "%s: told %v by the clock", name, v)
		s.answerAll()
		h.expectVerdict(put, map[bool]Verdict{true: VerdictLost, false: VerdictTell}[taken])
		require.Empty(t, h.alarms, name)
	}
}

// While a table becomes strict, every operation that ends after ModeChanging is checked, also one
// in flight. Once the table is no longer strict, terms of a later epoch are checked by the clock.
func TestOperationsAreCheckedWhileTheModeChanges(t *testing.T) {
	h, s := newHolder(t)
	tk, put := h.begin(1, Put)
	h.collect(h.core.ModeChanging(h.time(), h.table))
	require.Equal(t, VerdictPending, h.end(tk, OutcomeAcked), "told by the clock")
	s.answerAll()
	h.expectVerdict(put, VerdictTell)
	h.collect(h.core.Strict(h.time(), h.table, true, h.session.ID()))
	h.clkOff = true
	h.collect(h.core.Strict(h.time(), h.table, false, h.session.ID()))
	h.clkOff = false
	require.True(t, h.core.keys[h.key()].isChecked(), "without clk() no epoch is known to lie above the others: it stays as it is")
	require.False(t, h.core.keys[h.key()].table.forceLiving, "without clk() no epoch is known to lie above the others: it stays as it is")
	h.collect(h.core.Strict(h.time(), h.table, false, h.session.ID()))
	require.True(t, h.core.keys[h.key()].isChecked(), "the term began before")
	h.term().window.epoch = Closing(h.time(), 0)
	require.False(t, h.core.keys[h.key()].isChecked(), "a term that nobody else could end")
}

// While the mode changes, this proxy does not force a living session's head: the owner may not
// check by the row yet.
func TestNobodyForcesWhileTheModeChanges(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)] = 1
	h.collect(h.core.Strict(h.time(), h.table, true, h.session.ID()))
	h.collect(h.core.ModeChanging(h.time(), h.table))
	op := h.force()
	h.runFor(s, 100*time.Millisecond)
	h.expectElsewhere(op, 9)
	require.EqualValues(t, 1, s.row.Head)
}

// The mode holds for the session for which it was read: while there was none that lives, others may
// have changed it unseen. Until it has been read for the next session, every operation is checked,
// and no living holder is forced.
func TestTheModeIsReadAgainForEachSession(t *testing.T) {
	for _, strict := range []bool{false, true} {
		h, s := heldByOther(t, theirs())
		s.beat[session(9)] = 1
		checked := func() bool { return h.core.keys[h.key()].isChecked() }
		h.lock(Request{AtOnce: true})
		h.collect(h.core.Strict(h.time(), h.table, strict, h.session.ID()))
		require.Equal(t, strict, checked())
		h.session.End()
		before := h.session.ID()
		h.session = NewSession(session(2), h.opts)
		h.collect(h.core.Rejoin(h.time(), h.session))
		h.beat()
		h.lock(Request{AtOnce: true})
		require.True(t, checked(), "nobody has waited for this proxy meanwhile")
		h.collect(h.core.Strict(h.time(), h.table, strict, before)) // read for the session before, and late
		op := h.force()
		h.runFor(s, 100*time.Millisecond)
		h.expectElsewhere(op, 9)
		h.lock(Request{AtOnce: true})
		require.True(t, checked())
		h.collect(h.core.Strict(h.time(), h.table, strict, h.session.ID()))
		require.Equal(t, strict, checked())
		op = h.force()
		h.runFor(s, 100*time.Millisecond)
		if strict {
			require.True(t, h.expectState(op, StateReleased).Applied)
		} else {
			h.expectElsewhere(op, 9)
		}
	}
}

// A Force that was made while the table was strict and has not been sent is not sent later.
func TestAForceOfBeforeEndsNothing(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)] = 1
	h.collect(h.core.Strict(h.time(), h.table, true, h.session.ID()))
	h.force()
	id, _ := untilApply(h, s)
	s.row.Epoch += h.opts.Window // its proxy has renewed its term
	h.reply(id, Result{Status: StatusRefused})
	h.collect(h.core.ModeChanging(h.time(), h.table))
	h.collect(h.core.Strict(h.time(), h.table, false, h.session.ID()))
	h.runFor(s, 3*time.Second)
	require.EqualValues(t, 1, s.row.Head)
}

// What is said of a table again, as after each reading of the schema, touches none of its keys: there
// may be a million.
func TestWhatIsKnownOfATableTouchesNoKey(t *testing.T) {
	h, _ := newHolder(t)
	k := h.core.keys[h.key()]
	say := func() {
		h.collect(h.core.ClientLease(h.time(), h.table, time.Hour))
		h.collect(h.core.Strict(h.time(), h.table, true, h.session.ID()))
	}
	say()
	require.Equal(t, time.Hour, k.table.lease)
	require.True(t, k.table.strict)
	k.table = tableFacts{}
	say()
	require.Zero(t, k.table)
}

// In a table that is not strict an operation allocates nothing.
func TestLeaseModeCostsNothing(t *testing.T) {
	h, _ := newHolder(t)
	n := testing.AllocsPerRun(100, func() {
		tk, _ := h.core.Begin(h.time(), 1<<40, h.key(), 1, Get)
		h.core.End(h.time(), tk, OutcomeAcked)
	})
	require.Zero(t, n, "allocations an operation")
}

// untilApply answers all commands but an LWT.
func untilApply(h *harness, s *fakeStore) (CommandID, Apply) {
	h.t.Helper()
	for range 10 {
		all := h.open
		h.open = nil
		for _, c := range all {
			if a, ok := c.Action.(Apply); ok {
				return c.ID, a
			}
			h.reply(c.ID, s.do(c.Action))
		}
	}
	require.Fail(h.t, "no LWT")
	return 0, Apply{}
}

// After a new session nobody gets a reference before the table has been read for it: while there was no session nobody waited for
// this proxy to follow a change.
func TestNobodyGetsAReferenceBeforeTheTableIsReadForTheSession(t *testing.T) {
	h := newHarness(t)
	h.collect(h.core.Strict(h.time(), h.table, false, h.session.ID()))
	h.session.End()
	expectReferencesOnceRead(h)
}

// The same is true of a table that became critical, and was read, while there was no session.
func TestNobodyGetsAReferenceOfATableThatWasReadForNoSession(t *testing.T) {
	h := newHarness(t)
	h.session.End()
	h.collect(h.core.Strict(h.time(), h.table, false, SessionID{}))
	expectReferencesOnceRead(h)
}

// expectReferencesOnceRead begins a new session, and expects the first reference when the table has been read for it.
func expectReferencesOnceRead(h *harness) {
	s := newFakeStore(h)
	h.session = NewSession(session(7), h.opts)
	h.collect(h.core.Rejoin(h.time(), h.session))
	h.beat()
	op := h.lock(Request{Wait: time.Minute})
	h.runFor(s, time.Second)
	h.expectWaiting(op)
	require.Nil(h.t, s.row)
	h.collect(h.core.Strict(h.time(), h.table, false, session(1)))
	h.runFor(s, time.Second)
	h.expectWaiting(op)
	h.collect(h.core.Strict(h.time(), h.table, false, h.session.ID()))
	s.answerAll()
	h.expectState(op, StateHeld)
}
