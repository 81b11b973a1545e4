package musiccore

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Tests that a known-bad variant asked for: the simulation meets what they
// play too seldom.

// A replica that missed the INSERT of a lock row and got a later commit shows half a row for good.
// A proxy that reads this replica must still be able to lock.
func TestHalfARowIsReadAtQuorum(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{})
	id, read := commandOf[ReadRow](h)
	require.False(t, read.Quorum, "the first look is local")
	h.reply(id, Result{Cause: errors.New("half a row")})
	h.advance(50 * time.Millisecond)
	id, read = commandOf[ReadRow](h)
	require.True(t, read.Quorum, "the same replica is asked again")
	h.reply(id, Result{Status: StatusDone})
	id, _ = commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	h.expectState(op, StateHeld)
}

// An INSERT that reached one replica only is not a row yet: a quorum that does not show it does not
// mean that a row was lost (docs/protocol.md 7.1).
func TestAnInsertOnOneReplica(t *testing.T) {
	h := newHarness(t)
	h.lock(Request{NoWait: true})
	id, _ := commandOf[ReadRow](h)
	half := Row{Guard: 1, Head: 1, Queue: []Block{{First: 1, N: 1, Session: session(2), Req: 1}}, Epoch: t0, Dirty: true}
	h.reply(id, Result{Status: StatusDone, Row: &half})
	for quorum := false; !quorum; {
		h.advance(100 * time.Millisecond)
		for len(h.open) > 0 {
			c := h.open[0]
			h.open = h.open[1:]
			if read, ok := c.Action.(ReadRow); ok && read.Quorum {
				quorum = true
				h.reply(c.ID, Result{Status: StatusDone})
				continue
			}
			h.reply(c.ID, Result{Status: StatusDone, Row: &half})
		}
	}
	require.Empty(t, h.alarms)
	h.open = nil
	h.lock(Request{})
	_, w := commandOf[Apply](h)
	require.Equal(t, IfAbsent, w.Swap.If.What)
}

// A Lock or Begin that carries a later closed marks an open term of the key as not synchronised.
func TestALockTellsOfALaterClosed(t *testing.T) {
	h, _ := newHolder(t)
	h.lock(Request{NoWait: true, Closed: 2 * t0})
	tk, _ := h.begin(1, Get)
	require.False(t, tk.OK(), "the table was closed since, and the term goes on as synchronised")
}

// A reference that was abandoned before its turn is released only when it is the head, also one
// that memory does not know (C8).
func TestC8AnAbandonedReferenceWaitsForItsTurn(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{Wait: time.Hour})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, sees(Row{Guard: 4, Head: 4, Queue: []Block{block(4, 1, 1, 77)}, Epoch: 50}))
	id, _ = commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	h.collect(h.core.ClientGone(h.time(), op))
	_, read := commandOf[ReadRow](h)
	require.True(t, read.Quorum, "the head must be certain")
	h.expectNoCommand()
}

// A check whose read began before an own Renew shows the epoch from before the Renew: the term is
// still the operation's own.
func TestStrictKnowsTheEpochThatItLeft(t *testing.T) {
	h, s := heldStrict(t)
	put := h.pendingOp(Put)
	id, _ := commandOf[ReadRow](h)
	before := s.read()
	h.collect(h.core.Altered(h.time(), h.table, 0))
	s.answerAll()
	h.reply(id, before)
	h.expectVerdict(put, VerdictTell)
}

// A read that began before the own INSERT and returns late shows no row: that does not mean that
// the row has vanished.
func TestALateReadOfBeforeTheInsert(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	theirs := Row{Guard: 1, Head: 1, Queue: []Block{block(1, 1, 2, 1)}, Epoch: 50, Dirty: true}
	h.lock(Request{NoWait: true})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, sees(theirs)) // one replica has their INSERT
	var late CommandID
	for late == 0 {
		h.advance(100 * time.Millisecond)
		for len(h.open) > 0 {
			c := h.open[0]
			h.open = h.open[1:]
			if read, ok := c.Action.(ReadRow); ok && read.Quorum {
				late = c.ID
				continue
			}
			h.reply(c.ID, sees(theirs))
		}
	}
	s.row = &theirs
	h.lock(Request{})
	s.answerAll() // the own Enqueue is applied to it
	h.reply(late, Result{Status: StatusDone})
	require.Empty(t, h.alarms)
}

// If two registers have different ages, the queue's may be the older one: such a row does not count
// as empty, and no Enqueue on it takes the lock.
func TestARowOfTwoAgesIsNotEmpty(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{})
	id, _ := commandOf[ReadRow](h)
	row := Row{Guard: 11, Head: 12, Queue: []Block{block(11, 1, 1, 77)}, Epoch: 50}
	torn := row
	torn.Guard, torn.Queue = 10, []Block{block(10, 1, 1, 76)}
	h.reply(id, sees(torn))
	id, a := commandOf[Apply](h)
	require.Equal(t, IfGuard, a.Swap.If.What)
	h.reply(id, Result{Status: StatusRefused})
	id, _ = commandOf[ReadRow](h)
	h.reply(id, sees(row))
	id, _ = commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	require.EqualValues(t, 12, h.expectState(op, StateHeld).Ref)
}

// The number of a beat, which is its write timestamp, rises even if the wall clock steps back (C5).
func TestC5BeatsCountUpWhateverTheClockShows(t *testing.T) {
	s := NewSession(session(1), Defaults())
	one, _ := s.Beat(at(time.Second))
	back := at(2 * time.Second)
	back.Wall -= 10_000_000
	two, _ := s.Beat(back)
	require.Greater(t, two, one, "beat %d after beat", two)
}

// A replica may show a head for good that its queue no longer has. A proxy that reads this replica must
// still find out that the head is an orphan, also if its clients only use NOWAIT.
func TestNoWaitWhereOneReplicaDoesNotShowTheHolder(t *testing.T) {
	h := newHarness(t)
	whole := Row{Guard: 5, Head: 4, Queue: []Block{block(4, 1, 1, 77), block(5, 1, 2, 1)}, Epoch: 50}
	torn := whole
	torn.Head, torn.Epoch = 2, 40
	h.lock(Request{NoWait: true})
	for range 100 {
		for len(h.open) > 0 {
			c := h.open[0]
			h.open = h.open[1:]
			switch a := c.Action.(type) {
			case ReadRow:
				row := torn
				if a.Quorum {
					row = whole
				}
				h.reply(c.ID, sees(row))
			case Apply:
				require.EqualValues(t, 5, a.Swap.Set.Row.Head, "the orphan is passed over")
				return
			}
		}
		h.advance(50 * time.Millisecond)
	}
	require.Fail(t, "nobody found out")
}
