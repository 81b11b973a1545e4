package musiccore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (h *harness) term() *term { return h.core.keys[h.key()].term }

// Stamps of puts rise by one, inside the window, and the next epoch lies above them.
func TestStampsCountUpInTheWindow(t *testing.T) {
	h, _ := newHolder(t)
	one, _ := h.begin(1, Put)
	get, _ := h.begin(1, Get)
	two, _ := h.begin(1, Put)
	require.Equal(t, one.Stamp+1, two.Stamp, "%+v %+v", one, get)
	require.Zero(t, get.Stamp, "%+v %+v %+v", one, get, two)
	require.Equal(t, two.Epoch, one.Epoch, "%+v %+v", one, get)
	require.Greater(t, one.Stamp, one.Epoch, "%+v %+v %+v", one, get, two)
	for _, tk := range []Ticket{two, get, one} {
		require.Equal(t, VerdictTell, h.end(tk, OutcomeAcked))
	}
	require.Equal(t, VerdictUncertain, h.end(one, OutcomeAcked), "a ticket ends once")
	r := h.release()
	require.Greater(t, r.Epoch, two.Stamp, "I12: epoch %d after stamp", r.Epoch)
}

// A put that Cassandra refused leaves the term settled.
func TestRefusedPutIsClean(t *testing.T) {
	h, _ := newHolder(t)
	tk, _ := h.begin(1, Put)
	require.Equal(t, VerdictTell, h.end(tk, OutcomeRefused))
	require.False(t, h.release().Dirty, "nothing was written")
}

// C16: an operation without an End in time is unknown, whatever arrives later.
func TestC16OverIsOver(t *testing.T) {
	h, _ := newHolder(t)
	tk, _ := h.begin(1, Put)
	h.advanceUnticked(h.opts.OpTimeout)
	get, op := h.begin(1, Get)
	require.False(t, get.OK(), "the put is over and unsettled, though nobody ticked")
	id, c := commandOf[Synch](h)
	require.Less(t, tk.Stamp, c.Fence, "fenced below")
	require.Equal(t, VerdictUncertain, h.end(tk, OutcomeAcked), "an acknowledgement that comes after the put was fenced away is told")
	h.reply(id, Result{Status: StatusDone})
	require.True(t, h.answerOf(op).Ticket.OK(), "no ticket")
}

// A get without an End in time leaves nothing unsettled.
func TestEndOfALateGet(t *testing.T) {
	h, _ := newHolder(t)
	tk, _ := h.begin(1, Get)
	h.advanceUnticked(h.opts.OpTimeout)
	require.Equal(t, VerdictUncertain, h.end(tk, OutcomeAcked))
	require.False(t, h.release().Dirty, "a get leaves nothing")
}

// An operation waits for a Synch at most Options.OpTimeout.
func TestBeginWaitsAtMostItsTime(t *testing.T) {
	h, _, op := newFirstPut(t)
	id, _ := commandOf[Synch](h)
	h.advance(h.opts.OpTimeout)
	h.expectError(op, ErrSynchronising)

	// The synchronise goes on, however long it takes, and is not begun anew for those who come meanwhile.
	for range 5 {
		_, op = h.begin(1, Put)
		h.advance(h.opts.OpTimeout)
		h.expectError(op, ErrSynchronising)
	}
	_, op = h.begin(1, Put)
	h.expectNoCommand()
	h.reply(id, Result{Status: StatusDone})
	require.True(t, h.answerOf(op).Ticket.OK(), "no ticket")
}

// A waiting operation whose client has gone gets no ticket.
func TestBeginWhoseClientIsGone(t *testing.T) {
	h, s, op := newFirstPut(t)
	h.collect(h.core.ClientGone(h.time(), op))
	s.answerAll()
	h.expectWaiting(op)
	require.Empty(t, h.term().ops.waiting, "a ticket for nobody")
	require.LessOrEqual(t, h.term().ops.flight.ops, 0, "a ticket for nobody")
}

// An operation on a reference that waits, has ended or was never given is told which of them it is.
func TestBeginWithoutATerm(t *testing.T) {
	h, s := newHolder(t)
	h.lock(Request{})
	s.answerAll()
	_, queued := h.begin(2, Put)
	h.expectError(queued, ErrNotHeld)
	h.unlock(1)
	for name, c := range map[string]struct {
		ref  LockRef
		want error
	}{
		"negative": {-1, ErrNotHeld}, "none": {0, ErrNotHeld},
		"given back": {1, ErrReleased}, "never given": {7, ErrNotHeld},
	} {
		tk, op := h.begin(c.ref, Put)
		s.answerAll()
		assert.False(t, tk.OK(), "%s: a ticket", name)
		h.expectError(op, c.want)
	}
}

// BenchmarkPutOnACleanTerm measures Begin and End of a put in an open, synchronised term.
func BenchmarkPutOnACleanTerm(b *testing.B) {
	t := &testing.T{}
	h, _ := newHolder(t)
	now, k := h.time(), h.key()
	h.core.opts.Window = 1 << 40
	for b.Loop() {
		tk, _ := h.core.Begin(now, 99, k, 1, Put)
		if v, _ := h.core.End(now, tk, OutcomeAcked); v != VerdictTell {
			require.Fail(b, "not told", "verdict %v", v)
		}
	}
}

// A put on a clean term allocates nothing.
func TestPutOnACleanTermAllocatesNothing(t *testing.T) {
	h, _ := newHolder(t)
	now, k := h.time(), h.key()
	n := testing.AllocsPerRun(1000, func() {
		tk, _ := h.core.Begin(now, 99, k, 1, Put)
		h.core.End(now, tk, OutcomeAcked)
	})
	require.Zero(t, n, "allocations")
}

// What an acknowledged put wrote is known to the gets that follow, until the term uses another stamp.
func TestKnownPut(t *testing.T) {
	h, _ := newHolder(t)
	put := func(note any, o Outcome) {
		tk, _ := h.begin(1, Put)
		assert.Nil(t, tk.Known, "a put knows nothing")
		tk.Known = note
		h.end(tk, o)
	}
	known := func() any {
		tk, _ := h.begin(1, Get)
		h.end(tk, OutcomeAcked)
		return tk.Known
	}
	assert.Nil(t, known(), "nothing was put")
	put("a", OutcomeAcked)
	assert.Equal(t, "a", known())
	assert.Equal(t, "a", known(), "gets change nothing")
	put(nil, OutcomeAcked)
	assert.Nil(t, known(), "another put, of which nothing is known")
	put("b", OutcomeRefused)
	assert.Nil(t, known(), "a put that was not done")
	put("c", OutcomeAcked)
	inFlight, _ := h.begin(1, Put)
	assert.Nil(t, known(), "a put in flight")
	h.end(inFlight, OutcomeAcked)
	assert.Nil(t, known(), "a later put")

	first, _ := h.begin(1, Put)
	second, _ := h.begin(1, Put)
	first.Known, second.Known = "first", "second"
	h.end(second, OutcomeAcked)
	h.end(first, OutcomeAcked)
	assert.Equal(t, "second", known(), "the order of stamps counts, not that of the answers")
}
