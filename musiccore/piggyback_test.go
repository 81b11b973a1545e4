package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shortSections returns a harness whose key has short sections: reference 2 holds, another session
// waits behind it, and two clients here wait; nothing has been sent for them.
func shortSections(t *testing.T) (h *harness, s *fakeStore, first, second OpID) {
	t.Helper()
	h, s = newHolder(t, func(o *Options) { o.Retain = 200 * time.Millisecond })
	s.beat[session(9)] = 1
	h.unlock(1)
	s.answerAll()
	s.enqueueOther(9)
	s.apply(Release(*s.row, 2, false, 0))
	s.enqueueOther(9)
	op := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	s.releaseHead()
	g := h.expectState(op, StateHeld)
	require.EqualValues(t, 4, g.Ref, "grant %+v of %+v", g, s.row)
	s.enqueueOther(9)
	h.receive(HintWaiting)
	s.answerAll()
	s.actions, h.hints = nil, nil
	first, second = h.lock(Request{Wait: time.Minute}), h.lock(Request{Wait: time.Minute})
	s.answerAll()
	require.Zero(t, s.lwts(), "LWTs for who can wait for the Release")
	return h, s, first, second
}

// Where sections are short, LOCKs that arrive while this proxy has the lock wait for its Release,
// which enqueues them as one block in the same LWT.
func TestAReleaseEnqueuesWaitingClients(t *testing.T) {
	h, s, first, second := shortSections(t)
	h.unlock(4)
	s.answerAll()
	require.EqualValues(t, 5, s.row.Head)
	require.EqualValues(t, 7, s.row.Guard)
	require.Equal(t, 1, s.lwts(), "row %+v", s.row)
	b := s.row.newestBlock()
	require.Equal(t, h.session.ID(), b.Session, "queue %+v", s.row.Queue)
	require.EqualValues(t, 2, b.N, "queue %+v", s.row.Queue)
	require.True(t, b.Retained, "queue %+v", s.row.Queue)
	h.expectHints(Hint{To: session(9), Kind: HintReleasing}, Hint{To: session(9), Kind: HintYourTurn}, Hint{To: session(9), Kind: HintWaiting})
	s.releaseHead()
	h.expectState(first, StateHeld)
	h.unlock(6)
	s.answerAll()
	require.EqualValues(t, 7, h.expectState(second, StateHeld).Ref)
}

// blockWaiting returns shortSections, later: a block of two references waits behind another
// session, and one client waits in it.
func blockWaiting(t *testing.T) (h *harness, s *fakeStore, third OpID) {
	t.Helper()
	h, s, _, _ = shortSections(t)
	h.unlock(4)
	s.answerAll()
	s.releaseHead()
	third = h.lock(Request{Wait: time.Minute})
	s.enqueueOther(9)
	h.receive(HintWaiting)
	s.answerAll()
	h.unlock(6)
	s.answerAll()
	h.unlock(7)
	s.answerAll()
	b := s.row.newestBlock()
	require.EqualValues(t, 9, b.First, "queue %+v", s.row.Queue)
	require.EqualValues(t, 2, b.N, "queue %+v", s.row.Queue)
	require.Equal(t, h.session.ID(), b.Session, "queue %+v", s.row.Queue)
	return h, s, third
}

// A client that comes back soon gets a reference of the block that waits.
func TestAClientThatComesBackJoinsTheWaitingBlock(t *testing.T) {
	h, s, third := blockWaiting(t)
	s.actions = nil
	fourth := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	require.Zero(t, s.lwts(), "LWTs")
	s.enqueueOther(9)
	s.releaseHead()
	h.unlock(h.expectState(third, StateHeld).Ref)
	s.answerAll()
	require.EqualValues(t, 10, h.expectState(fourth, StateHeld).Ref)
}

// A client that comes back gets no reference of the waiting block if another session is known to
// wait behind that block.
func TestAClientThatComesBackStaysBehindWaiters(t *testing.T) {
	h, s, _ := blockWaiting(t)
	s.enqueueOther(9) // 11
	h.runFor(s, time.Second)
	h.lock(Request{Wait: time.Minute})
	s.answerAll()
	b := s.row.newestBlock()
	require.EqualValues(t, 12, b.First, "queue %+v", s.row.Queue)
	require.Equal(t, h.session.ID(), b.Session, "queue %+v", s.row.Queue)
}

// A Release that also enqueues is refused if another session has enqueued meanwhile. The term is
// still its own and is released at once, alone; the waiting clients get an Enqueue of their own.
func TestAReleaseThatIsRefusedGoesAlone(t *testing.T) {
	h, s, first, _ := shortSections(t)
	h.unlock(4)
	id, _ := commandOf[Apply](h)
	s.enqueueOther(8)
	h.reply(id, Result{Status: StatusRefused})
	id, _ = commandOf[ReadRow](h)
	h.reply(id, s.read())
	_, a := commandOf[Apply](h)
	require.Equal(t, IfEpoch, a.Swap.If.What)
	require.EqualValues(t, 5, a.Swap.Set.Row.Head)
	require.False(t, a.Swap.Set.Row.Dirty, "%+v", a.Swap)
	h.reply(h.core.keys[h.key()].lwt.cmd, s.do(a))
	s.answerAll()
	b := s.row.newestBlock()
	require.Equal(t, h.session.ID(), b.Session, "queue %+v", s.row.Queue)
	require.EqualValues(t, 7, b.First, "queue %+v", s.row.Queue)
	require.EqualValues(t, 2, b.N, "queue %+v", s.row.Queue)
	h.expectWaiting(first)
}

// If the row shows that the refused Release was applied by an earlier sending, its clients are
// enqueued (H3).
func TestAReleaseThatWasAppliedHasEnqueued(t *testing.T) {
	h, s, first, _ := shortSections(t)
	h.unlock(4)
	id, a := commandOf[Apply](h)
	s.apply(a.Swap)
	s.enqueueOther(8)
	s.apply(Release(*s.row, 2, false, 0)) // 6 is the head
	h.reply(id, Result{Status: StatusRefused})
	s.answerAll()
	require.EqualValues(t, 6, h.expectState(first, StateHeld).Ref)
	for _, b := range s.row.Queue {
		require.True(t, b.Session != h.session.ID() || b.First <= 6, "enqueued twice: %+v", s.row.Queue)
	}
}

// If another session has ended the term, the clients that the Release was to enqueue get an Enqueue
// of their own.
func TestEntriesOfARefusedReleaseAreEnqueuedAgain(t *testing.T) {
	h, s, first, _ := shortSections(t)
	h.unlock(4)
	s.apply(Preempt(*s.row, 5, h.opts.Window, t0))
	id, _ := commandOf[Apply](h)
	h.reply(id, Result{Status: StatusRefused})
	s.answerAll()
	b := s.row.newestBlock()
	require.Equal(t, h.session.ID(), b.Session, "queue %+v", s.row.Queue)
	require.EqualValues(t, 6, b.First, "queue %+v", s.row.Queue)
	require.EqualValues(t, 2, b.N, "queue %+v", s.row.Queue)
	h.expectWaiting(first)
}

// A LOCK waits at most Options.Retain for the Release of a holder that stays.
func TestALockWaitsForAReleaseNoLongerThanRetain(t *testing.T) {
	h, s, _, _ := shortSections(t)
	h.runFor(s, h.opts.Retain)
	b := s.row.newestBlock()
	require.Equal(t, h.session.ID(), b.Session, "row %+v", s.row)
	require.EqualValues(t, 2, b.N, "row %+v", s.row)
	require.EqualValues(t, 4, s.row.Head)
}

// Where other sessions change the queue, an LWT on it is made from a fresh read of one replica.
func TestAnEnqueueBehindOthersReadsFirst(t *testing.T) {
	h, s, _, _ := shortSections(t)
	h.unlock(4)
	s.answerAll()
	h.advanceUnticked(rowFreshFor)
	s.enqueueOther(8)
	h.lock(Request{Wait: time.Minute})
	id, look := commandOf[ReadRow](h)
	h.expectNoCommand()
	require.False(t, look.Quorum, "one replica is enough")
	h.reply(id, s.read())
	_, a := commandOf[Apply](h)
	r, ok := a.Swap.Apply(s.row)
	require.True(t, ok, "%+v", a.Swap)
	require.EqualValues(t, 9, r.Guard, "%+v", a.Swap)
}

// The read before an LWT asks one replica, however old the last QUORUM read is.
func TestAReadBeforeAnLWTAsksOneReplica(t *testing.T) {
	h, s, _, _ := shortSections(t)
	h.runFor(s, 2*time.Second)
	s.enqueueOther(8)
	h.lock(Request{AtOnce: true})
	_, look := commandOf[ReadRow](h)
	require.False(t, look.Quorum, "one replica is enough")
}

// No read is needed where the other sessions have left the queue.
func TestAnEmptyQueueNeedsNoRead(t *testing.T) {
	h, s := newHolder(t)
	h.unlock(1)
	s.answerAll()
	s.enqueueOther(9)
	op := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	s.releaseHead()
	h.unlock(h.expectState(op, StateHeld).Ref)
	s.answerAll()
	h.advance(time.Second)
	s.actions = nil
	op = h.lock(Request{})
	s.answerAll()
	h.expectState(op, StateHeld)
	for _, a := range s.actions {
		_, read := a.(ReadRow)
		require.False(t, read, "%#v", s.actions)
	}
}

// releaseWaitsForLook returns shortSections, later: a Release that would enqueue others has waited
// for a read of one replica that does not answer.
func releaseWaitsForLook(t *testing.T) (*harness, *fakeStore) {
	t.Helper()
	h, s, _, _ := shortSections(t)
	h.runFor(s, 10*time.Millisecond)
	s.enqueueOther(8)
	h.unlock(4)
	commandOf[ReadRow](h)
	h.expectNoCommand()
	h.advance(localReadTimeout)
	return h, s
}

// The LWT does not wait long for a replica that does not answer.
func TestAReadBeforeAnLWTIsNotWaitedForLong(t *testing.T) {
	h, _ := releaseWaitsForLook(t)
	_, a := commandOf[Apply](h)
	require.EqualValues(t, 5, a.Swap.Set.Row.Head)
}

// A read of one replica that hangs does not delay the QUORUM read that decides a refusal.
func TestAReadThatHangsDoesNotKeepARefusalOpen(t *testing.T) {
	h, s := releaseWaitsForLook(t)
	id, a := commandOf[Apply](h)
	h.reply(id, s.do(a))
	s.answerAll()
	h.advance(localReadTimeout)
	s.answerAll()
	require.EqualValues(t, 5, s.row.Head)
}

// A client that went away while its LWT was under way is not enqueued again when the LWT is
// refused.
func TestAClientThatWentAwayIsNotGrantedTheLock(t *testing.T) {
	h, s := blockHeld(t)
	op := h.lock(Request{AtOnce: true})
	id, _ := commandOf[Apply](h)
	h.collect(h.core.ClientGone(h.time(), op))
	h.unlock(2)
	s.enqueueOther(9)
	h.reply(id, Result{Status: StatusRefused})
	s.answerAll()
	h.runFor(s, time.Second)
	require.EqualValues(t, 10, s.row.Head)
}

// clientReturns returns a harness whose one client has come back at once after its last section
// and holds again; session 9 waits behind it.
func clientReturns(t *testing.T) (h *harness, s *fakeStore) {
	t.Helper()
	h, s = newHolder(t, func(o *Options) { o.Retain = 200 * time.Millisecond })
	s.beat[session(9)] = 1
	s.enqueueOther(9)
	h.receive(HintWaiting)
	s.answerAll()
	s.actions = nil
	h.unlock(1)
	again := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	require.Equal(t, 2, s.lwts(), "LWTs for a client that nobody expected")
	s.enqueueOther(9)
	s.releaseHead()
	h.expectState(again, StateHeld)
	h.receive(HintWaiting)
	s.answerAll()
	s.actions = nil
	return h, s
}

// A Release waits a moment for a client that came back at once the last time, and enqueues it in
// the same LWT.
func TestAReleaseWaitsForAClientThatComesBack(t *testing.T) {
	h, s := clientReturns(t)
	unlocked := h.unlock(3)
	h.expectState(unlocked, StateReleased)
	h.expectNoCommand()
	h.advance(returnWithin / 2)
	h.expectNoCommand()
	h.lock(Request{Wait: time.Minute})
	s.answerAll()
	b := s.row.newestBlock()
	require.Equal(t, 1, s.lwts(), "row %+v", s.row)
	require.EqualValues(t, 4, s.row.Head)
	require.EqualValues(t, 5, b.First, "row %+v", s.row)
	require.Equal(t, h.session.ID(), b.Session, "row %+v", s.row)
}

// If the client does not come back soon, the Release goes without it, and later Releases wait only
// after it has come back again.
func TestAReleaseDoesNotWaitForAClientThatStaysAway(t *testing.T) {
	h, s := clientReturns(t)
	h.unlock(3)
	h.expectNoCommand()
	h.advance(returnWithin)
	s.answerAll()
	require.Equal(t, 1, s.lwts(), "row %+v", s.row)
	require.EqualValues(t, 4, s.row.Head)
	h.advance(2 * returnWithin)
	op := h.lock(Request{Wait: time.Minute})
	s.answerAll()
	s.enqueueOther(9)
	s.releaseHead()
	r := h.expectState(op, StateHeld).Ref
	h.receive(HintWaiting)
	s.answerAll()
	s.actions = nil
	h.unlock(r)
	s.answerAll()
	require.Equal(t, 1, s.lwts(), "row %+v", s.row)
	require.Equal(t, r+1, s.row.Head)
}
