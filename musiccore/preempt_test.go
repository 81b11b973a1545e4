package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// preempted runs a LOCK behind a remote session for a while and reports whether that was
// preempted.
func preempted(t *testing.T, h *harness, s *fakeStore, beat func(time.Duration) int64, gap time.Duration) bool {
	t.Helper()
	row := headOfSession9()
	s.row = &row
	op := h.lock(Request{Wait: time.Hour})
	for end := h.now + gap; h.now < end; {
		s.beat[session(9)] = beat(h.now)
		s.answerAll()
		h.advance(50 * time.Millisecond)
	}
	_, held := h.answers[op]
	return held
}

// A dead session is passed over once the grace is over, and one that beats is not.
func TestPreemptTheDead(t *testing.T) {
	wait := Defaults().DeadAfter(0) + Defaults().Grace
	stands := func(time.Duration) int64 { return 5 }
	for name, c := range map[string]struct {
		beat func(time.Duration) int64
		wait time.Duration
		want bool
	}{
		"too early":          {stands, wait - time.Second, false},
		"a beat stands":      {stands, wait + 1500*time.Millisecond, true},
		"absence stands":     {func(time.Duration) int64 { return 0 }, wait + 1500*time.Millisecond, true},
		"a beat goes on":     {func(at time.Duration) int64 { return int64(at / (9 * time.Second)) }, time.Minute, false},
		"ended, in grace":    {func(time.Duration) int64 { return EndedBeat }, Defaults().Grace - 100*time.Millisecond, false},
		"ended, after grace": {func(time.Duration) int64 { return EndedBeat }, Defaults().Grace + 1500*time.Millisecond, true},
	} {
		h := newHarness(t)
		s := newFakeStore(h)
		assert.Equal(t, c.want, preempted(t, h, s, c.beat, c.wait), name)
		if c.want {
			assert.EqualValues(t, 2, s.row.Head, name)
			assert.GreaterOrEqual(t, s.row.Epoch, 500+h.opts.Window, name)
			assert.True(t, s.row.Dirty, "%s: %+v", name, s.row)
		}
	}
}

// C5: a beat must stand still from the end of the first read to the start of the last.
func TestC5DeadCountsFromTheEndOfTheFirstReadToTheStartOfTheLast(t *testing.T) {
	h := newHarness(t)
	row := headOfSession9()
	h.lock(Request{Wait: time.Hour})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, sees(row))
	id, a := commandOf[Apply](h)
	row, _ = a.Swap.Apply(&row)
	h.reply(id, Result{Status: StatusDone})
	beat := func(h *harness) CommandID {
		for {
			for i, c := range h.open {
				if _, ok := c.Action.(ReadBeat); ok {
					h.open = append(h.open[:i:i], h.open[i+1:]...)
					return c.ID
				}
				if _, ok := c.Action.(ReadRow); ok {
					h.open = append(h.open[:i:i], h.open[i+1:]...)
					h.reply(c.ID, sees(row))
					break
				}
			}
			h.advance(time.Millisecond)
		}
	}
	first := beat(h)
	h.advance(8 * time.Second) // the first read is slow: its value may be that old
	h.reply(first, Result{Status: StatusDone, Beat: 5})
	since := h.now
	for !h.core.dead(session(9)) {
		h.reply(beat(h), Result{Status: StatusDone, Beat: 5})
	}
	took := h.now - since
	require.GreaterOrEqual(t, took, h.opts.DeadAfter(0))
	require.LessOrEqual(t, took, h.opts.DeadAfter(0)+time.Second)
}

// The time that the last read takes does not count.
func TestASlowLastReadProvesNothing(t *testing.T) {
	h := newHarness(t)
	w := h.core.watch(h.time(), session(9))
	h.reply(w.cmd, Result{Status: StatusDone, Beat: 5})
	h.advance(w.timer.at - h.now)
	h.advanceUnticked(time.Minute) // the read was sent before, its answer is old
	h.reply(w.cmd, Result{Status: StatusDone, Beat: 5})
	require.False(t, w.dead, "the START of the last read counts")
}

// A Preempt rests on a row that was read at QUORUM.
func TestPreemptReadsTheRowAtQuorumFirst(t *testing.T) {
	h, s := newHolder(t)
	h.advanceUnticked(time.Minute)
	h.session = NewSession(session(2), h.opts)
	h.collect(h.core.Rejoin(h.time(), h.session))
	h.advance(h.opts.Grace) // session 1 is known to be dead, and its grace is over
	h.lock(Request{Wait: time.Hour})
	id, read := commandOf[ReadRow](h)
	h.reply(id, sees(*s.row))
	id, a := commandOf[Apply](h)
	h.reply(id, s.do(a))
	require.False(t, read.Quorum, "the first look is local")
	id, read = commandOf[ReadRow](h)
	h.expectNoCommand()
	require.True(t, read.Quorum, "a preemption on what one replica says")
	h.reply(id, s.read())
	_, a = commandOf[Apply](h)
	require.EqualValues(t, 2, a.Swap.Set.Row.Head)
}

// One Preempt passes over all dead sessions that follow one another.
func TestPreemptPassesOverAllThatDiedTogether(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	s.row = &Row{Guard: 4, Head: 1, Epoch: 500, Queue: []Block{block(1, 1, 9, 1), block(2, 2, 8, 1), block(4, 1, 7, 1)}}
	op := h.lock(Request{Wait: time.Hour})
	for end := h.now + h.opts.DeadAfter(0) + h.opts.Grace + 2*time.Second; h.now < end; {
		s.answerAll()
		h.advance(50 * time.Millisecond)
	}
	g := h.expectState(op, StateHeld)
	require.EqualValues(t, 5, g.Ref)
	require.True(t, g.OwnerDied, "%+v", g)
	swaps := 0
	for _, a := range s.actions {
		if _, ok := a.(Apply); ok {
			swaps++
		}
	}
	require.Equal(t, 2, swaps, "LWTs for one Enqueue and one Preempt")
}

// A dead holder is passed over even if all clients use NOWAIT.
func TestNowaitOnlyClientsGetRidOfADeadHolder(t *testing.T) {
	h, s := heldByOther(t, headOfSession9())
	h.lockNoWait(s)
}

// An orphaned head of this session is released even if all clients use NOWAIT.
func TestNoWaitClientsAloneReapAnOrphanedHead(t *testing.T) {
	r := headOfSession9()
	r.Queue = []Block{block(r.Head, 1, 1, 1), block(r.Head+1, 1, 7, 1)}
	r.Guard = r.Head + 1
	h, s := heldByOther(t, r)
	s.beat[session(7)] = EndedBeat
	h.lockNoWait(s)
}

// A session that no key asks about is no longer watched, and the number of dead sessions that are
// remembered is bounded.
func TestWatchesAreForgotten(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	h.core.watch(h.time(), session(9))
	for range 200 {
		s.beat[session(9)]++
		s.answerAll()
		h.advance(50 * time.Millisecond)
	}
	require.Empty(t, h.core.watches, "nobody asked for it any more")
	for n := range 2 * maxDeadSessions {
		w := h.core.watch(h.time(), SessionID{byte(n), byte(n >> 8), 5})
		h.reply(w.cmd, Result{Status: StatusDone, Beat: EndedBeat})
	}
	require.LessOrEqual(t, len(h.core.watches), maxDeadSessions, "verdicts")
}

// lockNoWait asks again and again, and never waits.
func (h *harness) lockNoWait(s *fakeStore) {
	h.t.Helper()
	for range 40 {
		op := h.lock(Request{NoWait: true})
		s.answerAll()
		if h.answerOf(op).Grant.State == StateHeld {
			return
		}
		h.expectState(op, StateBusy)
		for range 10 {
			h.advance(50 * time.Millisecond)
			s.answerAll()
		}
	}
	require.Fail(h.t, "nobody found out")
}
