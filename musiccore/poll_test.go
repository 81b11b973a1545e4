package musiccore

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// headOfSession9 returns a row whose head is of session 9.
func headOfSession9() Row {
	return Row{Guard: 1, Head: 1, Queue: []Block{block(1, 1, 9, 1)}, Epoch: 500}
}

// The next waiter of this proxy is granted when the Release is applied, without a read where the
// row is clean.
func TestHandOverBetweenLocalWaiters(t *testing.T) {
	h, s := newHolder(t)
	a, b := h.lock(Request{Owner: "a"}), h.lock(Request{Owner: "b"})
	s.answerAll()
	h.expectWaiting(a)
	h.unlock(1)
	id, _ := commandOf[Apply](h)
	h.expectWaiting(a)
	h.reply(id, Result{Status: StatusDone})
	g := h.expectState(a, StateHeld)
	require.EqualValues(t, 2, g.Ref)
	require.False(t, g.OwnerDied, "%+v", g)
	require.Equal(t, "a", g.Holder)
	h.expectNoCommand() // clean: T is known from the own literals
	tk, _ := h.begin(2, Get)
	require.True(t, tk.OK(), "a clean term needs no synchronise")
	h.advance(1500 * time.Millisecond)
	g = h.expectState(b, StateQueued)
	require.Equal(t, "a", g.Holder)
	require.Equal(t, 1, g.Position)
}

// M6: a dirty head is granted only on a row that was read at QUORUM.
func TestM6DirtyHandOverReadsAtQuorumFirst(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	h.lock(Request{})
	s.answerAll()
	next := h.lock(Request{})
	s.answerAll()
	h.unlock(1) // never synchronised: dirty
	id, a := commandOf[Apply](h)
	before := *s.row
	s.do(a)
	h.reply(id, Result{Status: StatusDone})
	h.expectWaiting(next)
	id, read := commandOf[ReadRow](h)
	require.True(t, read.Quorum, "dirty: QUORUM")
	h.reply(id, sees(before)) // another epoch
	h.expectWaiting(next)
	h.advance(time.Second)
	s.answerAll()
	h.expectState(next, StateHeld)
}

// E8: a commit that no quorum shows, since those who had it are gone for good, is completed by a read at
// SERIAL.
func TestACommitThatNoQuorumShows(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	h.lock(Request{})
	s.answerAll()
	next := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	h.unlock(1) // never synchronised: dirty
	id, a := commandOf[Apply](h)
	before := *s.row
	s.do(a)
	h.reply(id, Result{Status: StatusDone})
	for range 2 {
		id, read := commandOf[ReadRow](h)
		require.True(t, read.Quorum)
		require.False(t, read.Serial, "it costs as much as an LWT, and the commit may be on its way")
		h.reply(id, sees(before))
		h.advance(time.Second)
	}
	id, read := commandOf[ReadRow](h)
	require.True(t, read.Serial)
	h.reply(id, sees(*s.row))
	h.expectState(next, StateHeld)
}

// A reference whose term another session has taken over is not granted here.
func TestPollRefusesATermThatWasTakenOver(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{Wait: time.Minute})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, sees(headOfSession9()))
	id, a := commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	row := headOfSession9()
	row, _ = a.Swap.Apply(&row)
	row.Head, row.Epoch, row.Owner = 2, 900, session(8)
	for len(h.answers) == 0 {
		h.advance(100 * time.Millisecond)
		open := h.open
		h.open = nil
		for _, c := range open {
			if _, ok := c.Action.(ReadRow); ok {
				h.reply(c.ID, sees(row))
			}
		}
	}
	h.expectError(op, ErrElsewhere)
}

// C15: an old row does not grant a reference that has had its term.
func TestC15AStaleRowOpensNothingAgain(t *testing.T) {
	h, s := newHolder(t)
	before := *s.row
	tk, _ := h.begin(1, Put)
	h.end(tk, OutcomeAcked)
	next := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	h.unlock(1)
	id, _ := commandOf[Apply](h)
	h.lock(Request{Ref: 77})
	read, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone})
	h.expectState(next, StateHeld)
	h.reply(read, sees(before))
	k := h.core.keys[h.key()]
	require.NotNil(t, k.term, "a stale row after the own Release")
	require.EqualValues(t, 2, k.term.holder.ref, "a stale row after the own Release")
	require.EqualValues(t, 2, k.view.row.Head, "a stale row after the own Release")
	if got, op := h.begin(1, Put); got.OK() {
		require.Fail(t, "granted twice")
	} else {
		h.expectError(op, ErrLost)
	}
}

// C15: the same after the key was dropped from memory.
func TestC15AfterMemoryWasFreed(t *testing.T) {
	h, s := newHolder(t)
	before := *s.row
	h.unlock(1)
	s.answerAll()
	h.core.idle = newIdle(4)
	op := h.lock(Request{})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, sees(before)) // head 1, our session: released long ago
	id, a := commandOf[Apply](h)
	require.Equal(t, IfGuard, a.Swap.If.What)
	h.reply(id, Result{Status: StatusRefused})
	h.expectWaiting(op)
	require.Nil(t, h.core.keys[h.key()].term, "opened on a stale row")
}

// Without clk(), or without a valid session, no term begins.
func TestNoTermWithoutClockOrSession(t *testing.T) {
	h := newHarness(t)
	h.clkOff = true
	h.expectError(h.lock(Request{}), ErrClock)
	h.clkOff = false
	op := h.lock(Request{Wait: time.Minute})
	id, _ := commandOf[ReadRow](h)
	h.clkOff = true
	h.reply(id, Result{Status: StatusDone})
	h.expectNoCommand()
	h.expectWaiting(op)

	cold := &harness{t: t, opts: Defaults(), answers: map[OpID]Answer{}}
	cold.session = NewSession(session(1), cold.opts)
	cold.core = New(cold.session, cold.opts)
	cold.expectError(cold.lock(Request{}), ErrNoSession)
	cold.expectError(cold.unlock(1), ErrNoSession)
	_, at := cold.begin(1, Put)
	cold.expectError(at, ErrNoSession)
}

// A grant that waits because clocks differ comes when they agree, without another event.
func TestGrantHeldBackUntilTheClocksAgree(t *testing.T) {
	h, s := newHolder(t)
	next := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	h.clkOff = true
	h.unlock(1)
	s.answerAll()
	h.expectWaiting(next)
	h.clkOff = false
	h.advance(time.Second)
	h.expectState(next, StateHeld)
}

// A waiting key is read at one replica again and again, and once a second at QUORUM.
func TestPollsReadAtQuorumEverySecond(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	preempted(t, h, s, func(at time.Duration) int64 { return int64(at) }, 10*time.Second)
	local, quorum := 0, 0
	for _, a := range s.actions {
		if r, ok := a.(ReadRow); ok && r.Quorum {
			quorum++
		} else if ok {
			local++
		}
	}
	require.GreaterOrEqual(t, quorum, 5, "%d local and %d quorum reads in 10 s", local, quorum)
	require.LessOrEqual(t, local+quorum, 40, "%d local and %d quorum reads in 10 s", local, quorum)
}

// If the lock row cannot be read, LOCK is answered with that error and leaves nothing behind.
func TestUnreadableRow(t *testing.T) {
	h := newHarness(t)
	cause := errors.New("no replica")
	op := h.lock(Request{})
	ask := h.unlock(3)
	for h.now < time.Hour+1500*time.Millisecond {
		for _, c := range h.open {
			h.open = h.open[1:]
			h.reply(c.ID, Result{Status: StatusUnknown, Cause: cause})
		}
		h.advance(10 * time.Millisecond)
	}
	h.expectError(op, ErrUnavailable)
	h.expectError(op, cause)
	h.expectError(ask, ErrUnavailable)
	require.Empty(t, h.core.keys, "something is left")
}

// C5: after the session has died, nothing is told or begun under it.
func TestSessionDeathEndsEverything(t *testing.T) {
	h, s := newHolder(t)
	tk, _ := h.begin(1, Put)
	waiter := h.lock(Request{Wait: time.Hour})
	s.answerAll()
	h.advanceUnticked(11 * time.Second)
	require.Equal(t, VerdictUncertain, h.end(tk, OutcomeAcked), "C12: verdict after the lease")
	h.expectState(waiter, StateQueued)
	_, op := h.begin(1, Put)
	h.expectError(op, ErrNoSession)
	require.Zero(t, len(h.core.keys)+len(h.core.ops)+len(h.core.timers), "something is left")
	h.session = NewSession(session(2), h.opts)
	h.collect(h.core.Rejoin(h.time(), h.session))
	h.beat()
	op = h.lock(Request{Wait: time.Minute})
	s.answerAll()
	h.expectWaiting(op)
	for range 10 { // the old session is known to be dead: only the grace, for both of its references
		h.advance(h.opts.Grace / 8)
		s.answerAll()
	}
	g := h.expectState(op, StateHeld)
	require.EqualValues(t, 3, g.Ref)
	require.True(t, g.OwnerDied, "%+v", g)
}
