package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A term that has ended only in memory may go on elsewhere if the session dies, so LOST is told
// only after its Release.
func TestLostIsToldOnceTheRowSaysSo(t *testing.T) {
	for name, end := range map[string]func(h *harness){
		"expired":    func(h *harness) { h.advanceWithBeats(31 * time.Second) },
		"forced":     func(h *harness) { h.force() },
		"given back": func(h *harness) { h.unlock(1) },
	} {
		t.Run(name, func(t *testing.T) {
			h, s := newHolder(t)
			end(h)
			_, put := h.begin(1, Put)
			h.expectWaiting(put)
			s.answerAll()
			h.expectError(put, ErrLost)
			require.EqualValues(t, 2, s.row.Head, "lost, and still the head")
		})
	}
}

// While the store cannot be reached, it is unknown whether the lock is lost, and the client is told
// that.
func TestNobodyIsToldLostWhileTheReleaseIsUnknown(t *testing.T) {
	h, s := newHolder(t)
	h.advanceWithBeats(31 * time.Second)
	_, put := h.begin(1, Put)
	lock, un := h.lock(Request{Ref: 1}), h.unlock(1)
	id, _ := commandOf[Apply](h)
	h.reply(id, Result{Status: StatusUnknown})
	h.advance(h.opts.OpTimeout)
	h.expectError(put, ErrUnavailable)
	h.expectError(lock, ErrUnavailable)
	h.expectError(un, ErrUnavailable)

	_, last := h.begin(1, Put)
	h.advanceUnticked(h.opts.SessionLease)
	h.collect(h.core.Tick(h.time()))
	h.expectError(last, ErrNoSession)
	h.open = nil
	h.session = NewSession(session(2), h.opts)
	h.collect(h.core.Rejoin(h.time(), h.session))
	h.beat()
	_, again := h.begin(1, Put)
	s.answerAll()
	require.True(t, h.answerOf(again).Ticket.OK(), "the reference goes on: %+v", *s.row)
	require.Equal(t, session(2), s.row.Owner, "the reference")
}

// A process stands still for too long: its put in flight is unknown, the audit says that the
// reference was left behind, and a reference that can be taken over was never told to be lost.
func TestAnOperationInFlightWhenItsSessionDiesIsUnknown(t *testing.T) {
	h, _ := newHolder(t)
	put, _ := h.begin(1, Put)
	get, _ := h.begin(1, Get)
	h.advanceUnticked(h.opts.SessionLease)
	for _, tk := range []Ticket{put, get} {
		require.Equal(t, VerdictUncertain, h.end(tk, OutcomeAcked))
	}
	n := h.notes[len(h.notes)-1]
	require.Equal(t, NoteOrphaned, n.Kind, "audit %+v", h.notes)
	require.EqualValues(t, 1, n.Ref, "audit %+v", h.notes)
}

// A verdict that comes after the row has passed the reference says LOST.
func TestALateVerdictOfAPassedReferenceIsLost(t *testing.T) {
	h, s := newHolder(t)
	put, _ := h.begin(1, Put)
	h.unlock(1)
	h.advance(h.opts.OpTimeout)
	s.answerAll()
	v := h.end(put, OutcomeAcked)
	require.Equal(t, VerdictLost, v, "verdict %v, %+v", v, *s.row)
	require.EqualValues(t, 2, s.row.Head, "verdict %v", v)
}

// In a strict table another proxy may take over a term and its reference: the reference is not
// lost.
func TestATermThatWasTakenOverIsNotLost(t *testing.T) {
	h, s := heldStrict(t)
	put := h.pendingOp(Put)
	row, _ := Takeover(*s.row, session(9), h.opts.Window, 0).Apply(s.row)
	s.row = &row
	s.answerAll()
	h.expectVerdict(put, VerdictUncertain)
	_, begin := h.begin(1, Put)
	s.answerAll()
	h.expectElsewhere(begin, 9)
}

// A client that was silent for too long keeps its place if its turn has not come yet.
func TestAWaiterThatComesBackLate(t *testing.T) {
	h, s := newHolder(t)
	h.lock(Request{AtOnce: true})
	s.answerAll()
	h.advanceWorking(1, 2*h.opts.QueuedLease)
	_, put := h.begin(2, Put)
	h.expectError(put, ErrNotHeld)
	op := h.lock(Request{Ref: 2, Wait: time.Minute})
	h.expectWaiting(op)
	h.unlock(1)
	s.answerAll()
	h.expectState(op, StateHeld)
}

// advanceWorking lets time go by for a holder that goes on working.
func (h *harness) advanceWorking(r LockRef, by time.Duration) {
	for end := h.now + by; h.now < end; {
		h.advance(time.Second)
		tk, _ := h.begin(r, Get)
		h.end(tk, OutcomeAcked)
	}
}

// A reference that was given back in the queue is not given again.
func TestAReferenceThatWasGivenBackIsGone(t *testing.T) {
	h, s := newHolder(t)
	h.lock(Request{AtOnce: true})
	s.answerAll()
	h.unlock(2)
	h.expectState(h.lock(Request{Ref: 2}), StateReleased)
	_, put := h.begin(2, Put)
	h.expectError(put, ErrNotHeld)
	h.unlock(1)
	s.answerAll()
	require.EqualValues(t, 3, s.row.Head)
	_, put = h.begin(2, Put)
	s.answerAll()
	h.expectError(put, ErrReleased)
}

// Endings of consecutive references are stored as one range, so sections of one key cost no memory
// each.
func TestEndingsOfFollowingReferencesAreOne(t *testing.T) {
	k := &key{}
	for r := LockRef(1); r <= 100; r++ {
		k.endings.record(r, StateReleased)
	}
	k.endings.record(101, StateLost)
	k.endings.record(0, StateLost)
	k.endings.record(102, 0)
	require.Len(t, k.endings, 2)
	require.Equal(t, StateReleased, k.endings.of(57), "%+v", k.endings)
	require.Equal(t, StateLost, k.endings.of(101), "%+v", k.endings)
	require.Zero(t, k.endings.of(102), "%+v", k.endings)
	for r := LockRef(200); r < 400; r += 2 {
		k.endings.record(r, StateLost)
	}
	require.Len(t, k.endings, maxEndings)
	require.Zero(t, k.endings.of(57), "%+v", k.endings)
	require.Equal(t, StateLost, k.endings.of(398), "%+v", k.endings)
}

// A reference of a block has ended for good once none of its operations is in flight: it cannot be
// taken over, so no LWT is needed.
func TestAReferenceOfABlockIsLostWithItsLastOperation(t *testing.T) {
	h, _ := blockHeld(t)
	get, _ := h.begin(2, Get)
	h.unlock(2)
	_, put := h.begin(2, Put)
	h.expectWaiting(put)
	h.end(get, OutcomeAcked)
	h.expectError(put, ErrReleased)
	h.expectNoCommand()
}

// A plain holder of a block can be taken over, so its end is told like that of any other holder.
func TestTheLastReferenceOfABlockIsLostWithItsRelease(t *testing.T) {
	h, s := blockHeld(t)
	h.advance(h.opts.Retain)
	renew, _ := commandOf[Apply](h)
	h.reply(renew, Result{Status: StatusUnknown})
	h.advance(20 * time.Millisecond)
	h.unlock(2)
	_, put := h.begin(2, Put)
	h.expectWaiting(put)
	h.runFor(s, time.Second)
	h.expectError(put, ErrReleased)
	require.EqualValues(t, 10, s.row.Head, "given back, and not passed")
}

// A reference in a dead session's block is told as lost only after the block was passed over.
func TestAReferenceOfADeadBlockIsLostWithThePreempt(t *testing.T) {
	r := Row{Guard: 4, Head: 1, Epoch: 1000, Queue: []Block{{First: 1, N: 4, Session: session(9), Req: 1, Retained: true}}}
	h, s := heldByOther(t, r)
	s.beat[session(9)] = EndedBeat
	_, put := h.begin(1, Put)
	for len(h.open) > 0 {
		c := h.open[0]
		if _, preempts := c.Action.(Apply); preempts {
			break
		}
		h.open = h.open[1:]
		h.reply(c.ID, s.do(c.Action))
	}
	h.expectWaiting(put)
	s.answerAll()
	h.expectError(put, ErrLost)
}
