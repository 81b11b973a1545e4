package musiccore

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// docs/protocol.md 3.13, Takeover: a session that ended by itself is taken over at once.
func TestTakeoverOfAnEndedSessionAtOnce(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)] = EndedBeat
	tk, op := h.begin(1, Put)
	require.False(t, tk.OK(), "no ticket before the Takeover")
	s.answerAll()
	tk = h.answerOf(op).Ticket
	w := s.swapsSeen()[0]
	want := Row{Epoch: max(1000+h.opts.Window, w.Set.Row.Epoch), Head: 1, Dirty: true, Owner: session(1)}
	require.Equal(t, If{What: IfEpoch, Epoch: 1000}, w.If)
	require.True(t, w.Set.Row.sameTerm(want), "takeover %+v", w)
	c, ok := s.actions[len(s.actions)-1].(Synch)
	require.True(t, ok, "a synchronise first: %+v, ticket %+v", s.actions, tk)
	require.Equal(t, c.Fence, s.row.Epoch+2, "a synchronise first: %+v, ticket %+v", s.actions, tk)
	require.Equal(t, s.row.Epoch+4, tk.Stamp, "a synchronise first: %+v", s.actions)
	require.Equal(t, VerdictTell, h.end(tk, OutcomeAcked))
	require.True(t, slices.ContainsFunc(h.notes, func(n Note) bool { return n.Kind == NoteTakenOver && n.Ref == 1 }), "notes %+v", h.notes)
	h.expectState(h.unlock(1), StateReleased)
	s.answerAll()
	require.EqualValues(t, 2, s.row.Head, "released clean")
	require.False(t, s.row.Dirty, "released clean: %+v", *s.row)
	require.Equal(t, SessionID{}, s.row.Owner, "released clean")
}

// A reference is taken over only when its session is found dead.
func TestTakeoverWaitsUntilTheOwnerIsDead(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)] = 5
	for {
		op := h.lock(Request{Ref: 1})
		s.answerAll()
		h.advance(20 * time.Millisecond)
		s.answerAll()
		if a := h.answerOf(op); a.Err == nil {
			break
		}
		h.expectElsewhere(op, 9)
		require.Empty(t, s.swapsSeen(), "a takeover from the living")
		for range 30 {
			h.advance(100 * time.Millisecond)
			s.answerAll()
		}
	}
	require.GreaterOrEqual(t, h.now, time.Hour+h.opts.DeadAfter(0), "dead after %v", h.now-time.Hour)
	op := h.lock(Request{Ref: 1})
	g := h.expectState(op, StateHeld)
	require.EqualValues(t, 1, g.Ref)
	require.Equal(t, h.opts.ClientLease, g.Lease)
	require.Equal(t, session(1), s.row.Owner)
	require.True(t, s.row.Dirty, "%+v", *s.row)
}

// docs/protocol.md 3.13, Takeover: so is an earlier session of this process, which saw its own
// deadline pass.
func TestTakeoverFromTheOwnEarlierSessionAtOnce(t *testing.T) {
	h, s := newHolder(t)
	h.advanceUnticked(11 * time.Second)
	h.session = NewSession(session(2), h.opts)
	h.collect(h.core.Rejoin(h.time(), h.session))
	h.beat()
	_, op := h.begin(1, Get)
	s.answerAll()
	tk := h.answerOf(op).Ticket
	require.True(t, tk.OK(), "%+v on %+v", tk, *s.row)
	require.Equal(t, s.row.Epoch, tk.Epoch)
	require.Equal(t, session(2), s.row.Owner, "%+v", tk)
}

// A waiter whose session dies keeps its reference and its turn.
func TestWaiterOfTheOwnEarlierSessionIsServed(t *testing.T) {
	h, s := newHolder(t)
	waiter, hasty := h.lock(Request{Wait: time.Hour}), h.lock(Request{Wait: time.Hour, NoWait: true})
	s.answerAll()
	h.expectState(hasty, StateBusy)
	h.advanceUnticked(11 * time.Second)
	h.session = NewSession(session(2), h.opts)
	h.collect(h.core.Rejoin(h.time(), h.session))
	require.EqualValues(t, 2, h.expectState(waiter, StateQueued).Ref)
	h.beat()
	again := h.lock(Request{Ref: 2, Wait: time.Hour})
	for range 10 {
		h.advance(h.opts.Grace / 8)
		s.answerAll()
	}
	g := h.expectState(again, StateHeld)
	require.EqualValues(t, 2, g.Ref, "%+v on %+v", g, *s.row)
	require.True(t, g.OwnerDied, "%+v on %+v", g, *s.row)
	require.Equal(t, session(2), s.row.Owner, "%+v", g)
}

// A Takeover of unknown outcome makes one term, however often it is sent.
func TestTakeoverIsOneTermEvenWhenItsOutcomeIsUnknown(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)] = EndedBeat
	op := h.lock(Request{Ref: 1})
	for len(h.open) > 0 {
		c := h.open[0]
		if a, ok := c.Action.(Apply); ok {
			h.open = h.open[1:]
			s.apply(a.Swap)
			h.reply(c.ID, unknown)
			break
		}
		id, what := c.ID, c.Action
		h.open = h.open[1:]
		h.reply(id, s.do(what))
		h.advance(20 * time.Millisecond)
	}
	h.expectWaiting(op)
	base := s.row.Epoch
	h.advance(time.Second)
	s.answerAll()
	h.advance(time.Second)
	s.answerAll()
	op = h.lock(Request{Ref: 1})
	g := h.expectState(op, StateHeld)
	require.EqualValues(t, 1, g.Ref, "%+v on %+v", g, *s.row)
	require.Equal(t, base, s.row.Epoch, "%+v", g)
	h.expectState(h.unlock(1), StateReleased)
	s.answerAll()
	_, late := h.begin(1, Put)
	s.answerAll()
	h.expectError(late, ErrLost)
}

// Of two proxies that take one reference over, the later one sends its client to the other.
func TestTakeoverLostToAnotherProxy(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)], s.beat[session(7)] = EndedBeat, 3
	_, op := h.begin(1, Put)
	for len(s.swapsSeen()) == 0 {
		if a, ok := h.open[0].Action.(Apply); ok {
			row, _ := Takeover(*s.row, session(7), h.opts.Window, 0).Apply(s.row)
			s.row = &row
			_ = a
		}
		c := h.open[0]
		h.open = h.open[1:]
		s.actions = append(s.actions, c.Action)
		h.reply(c.ID, s.do(c.Action))
		h.advance(20 * time.Millisecond)
	}
	s.answerAll()
	h.advance(100 * time.Millisecond)
	s.answerAll()
	h.expectElsewhere(op, 7)
	require.Equal(t, session(7), s.row.Owner, "%+v, keys %d", *s.row, len(h.core.keys))
	require.Empty(t, h.core.keys, "%+v", *s.row)
}

// A waiting reference of a dead session can be adopted, too: it is taken over when it is the head.
func TestAWaitingReferenceOfADeadSessionGoesOnHere(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = EndedBeat, EndedBeat
	op := h.lock(Request{Ref: 2, Wait: time.Minute})
	_, early := h.begin(2, Put)
	h.runFor(s, time.Second)
	h.expectError(early, ErrNotHeld)
	h.expectWaiting(op)
	require.EqualValues(t, 1000, s.row.Epoch, "the grace is for the head's client")
	h.runFor(s, 2*time.Second)
	require.EqualValues(t, 2, h.expectState(op, StateHeld).Ref)
	require.EqualValues(t, 2, s.row.Head, "the preemption did not pass over the guest")
	require.Equal(t, session(1), s.row.Owner, "the preemption did not pass over the guest")
}

// UNLOCK gives back a reference of a dead session, whether it holds or waits.
func TestUnlockOfADeadSessionsReference(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = EndedBeat, 4
	behind, head := h.unlock(3), h.unlock(1)
	h.runFor(s, 100*time.Millisecond)
	g := h.expectState(head, StateReleased)
	require.True(t, g.Applied, "%+v", g)
	h.expectState(behind, StateReleased)
	require.EqualValues(t, 2, s.row.Head, "nobody knows what was sent under it")
	require.True(t, s.row.Dirty, "nobody knows what was sent under it: %+v", *s.row)
	require.GreaterOrEqual(t, s.row.Epoch, 1000+h.opts.Window, "nobody knows what was sent under it")
	require.Len(t, h.hints, 1)
	require.Equal(t, Hint{Key: h.key(), To: session(8), Kind: HintYourTurn}, h.hints[0], "hints %+v", h.hints)
	next := Release(*s.row, 2, false, 0)
	row, _ := next.Apply(s.row)
	s.row = &row
	h.runFor(s, 2*time.Second)
	require.EqualValues(t, 4, s.row.Head, "the abandoned one is released when it is the head")
}

// A reference of a dead session's retained block is not taken over (C18), unless it was made plain.
func TestNoTakeoverInsideARetainedBlock(t *testing.T) {
	r := Row{Guard: 4, Head: 1, Epoch: 1000, Queue: []Block{{First: 1, N: 4, Session: session(9), Req: 1, Retained: true}}}
	h, s := heldByOther(t, r)
	s.beat[session(9)] = EndedBeat
	_, begin := h.begin(1, Put)
	lock := h.lock(Request{Ref: 2})
	h.runFor(s, 100*time.Millisecond)
	h.expectError(begin, ErrLost)
	h.expectState(lock, StateLost)
	require.EqualValues(t, 5, s.row.Head, "told to be lost, and not passed over")

	r.Owner = session(9)
	h, s = heldByOther(t, r)
	s.beat[session(9)] = EndedBeat
	_, begin = h.begin(1, Put)
	h.runFor(s, 100*time.Millisecond)
	require.True(t, h.answerOf(begin).Ticket.OK(), "T.owner set is plain")
}

// A row that names this session grants nothing that memory does not know.
func TestAnOwnReferenceOfAnEarlierLifeIsNeverGranted(t *testing.T) {
	r := Row{Guard: 2, Head: 1, Epoch: 1000, Queue: []Block{block(1, 2, 1, 1)}}
	for _, owner := range []SessionID{{}, session(1)} {
		r.Owner = owner
		h, s := heldByOther(t, r)
		_, begin := h.begin(1, Put)
		lock, waiting := h.lock(Request{Ref: 1}), h.lock(Request{Ref: 2})
		h.runFor(s, time.Second)
		h.expectError(begin, ErrNotHeld)
		h.expectState(lock, StateLost) // by then it is released
		h.expectError(waiting, ErrNotHeld)
	}
}

// A Begin may be the first that this proxy hears of a key: its Synch must still be fenced above
// closed (C17).
func TestATakeoverKnowsWhenTheTableWasClosed(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)] = EndedBeat
	closed := t0 * 2
	h.collect(h.core.Closed(h.time(), h.table, closed))
	_, op := h.begin(1, Put)
	s.answerAll()
	tk := h.answerOf(op).Ticket
	require.Greater(t, tk.Stamp, closed, "stamp %d below closed", tk.Stamp)
}

// A proxy that is drained takes nothing over.
func TestDrainingTakesNothingOver(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)] = EndedBeat
	h.collect(h.core.Drain(h.time()))
	op := h.lock(Request{Ref: 1})
	h.runFor(s, 100*time.Millisecond)
	h.expectError(op, ErrDraining)
	require.EqualValues(t, 1000, s.row.Epoch)
	require.True(t, h.core.Quiet(), "%+v", *s.row)
}

// An adopted reference that its client abandons is released when it is the head.
func TestAnAdoptedReferenceWhoseClientGoesAwayIsReleased(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)], s.beat[session(8)] = EndedBeat, 1
	h.clkOff = true
	op := h.lock(Request{Ref: 1})
	h.runFor(s, 100*time.Millisecond)
	h.expectWaiting(op)
	h.collect(h.core.ClientGone(h.time(), op))
	h.clkOff = false
	h.runFor(s, 100*time.Millisecond)
	require.EqualValues(t, 2, s.row.Head)
	require.Len(t, s.swapsSeen(), 1, "%+v", *s.row)
}

// A hint has the row read at one replica and then at QUORUM, and grants nothing. A hint for another
// session or key does nothing.
func TestHintLooksAndNeverGrants(t *testing.T) {
	r := theirs()
	r.Queue[1].Session, r.Queue[1].Req = session(1), 77 // an earlier life of the key: 2 is nobody's
	h, s := heldByOther(t, r)
	s.beat[session(9)] = 1
	op := h.lock(Request{Wait: time.Minute, Token: [16]byte{1}})
	h.runFor(s, 900*time.Millisecond)
	seen := len(s.actions)
	h.collect(h.core.Hear(h.time(), Hint{Key: h.key(), To: session(5), Kind: HintYourTurn}))
	h.expectNoCommand()
	h.collect(h.core.Hear(h.time(), Hint{Key: Key{PK: "other"}, To: session(1), Kind: HintYourTurn}))
	h.expectNoCommand()
	h.collect(h.core.Hear(h.time(), Hint{Key: h.key(), To: session(1), Kind: HintYourTurn}))
	s.answerAll()
	got := s.actions[seen:]
	require.Len(t, got, 2, "LOCAL_ONE, and QUORUM as that says otherwise")
	require.Equal(t, ReadRow{}, got[0], "LOCAL_ONE, and QUORUM as that says otherwise")
	require.Equal(t, ReadRow{Quorum: true}, got[1], "LOCAL_ONE, and QUORUM as that says otherwise")
	h.expectWaiting(op)
	row := *s.row
	row.Head, row.Epoch = 4, 2000
	s.row, seen = &row, len(s.actions)
	h.collect(h.core.Hear(h.time(), Hint{Key: h.key(), To: session(1), Kind: HintYourTurn}))
	s.answerAll()
	require.Len(t, s.actions[seen:], 1, "one read is enough")
	h.expectState(op, StateHeld)
}

// An operation that waits too long for a Takeover is told to try again; the Takeover goes on.
func TestAnOperationWaitsForATakeoverInItsTime(t *testing.T) {
	h, s := heldByOther(t, theirs())
	s.beat[session(9)] = EndedBeat
	h.clkOff = true
	_, first := h.begin(1, Put)
	h.runFor(s, time.Second)
	_, gone := h.begin(1, Get)
	h.collect(h.core.ClientGone(h.time(), gone))
	h.runFor(s, h.opts.OpTimeout)
	h.expectError(first, ErrSynchronising)
	h.expectWaiting(gone)
	h.clkOff = false
	_, again := h.begin(1, Put)
	h.runFor(s, time.Second)
	require.True(t, h.answerOf(again).Ticket.OK(), "no ticket")
}
