package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// enqueuesRefused returns a harness that wants a key which session 9 holds, with 8 behind it, and
// whose Enqueues are refused each time.
func enqueuesRefused(t *testing.T) (h *harness, s *fakeStore, op OpID) {
	t.Helper()
	h, s = behindOthers(t)
	op = h.lock(Request{Wait: time.Minute})
	s.refuseAll()
	return h, s, op
}

// behindOthers returns a harness that reserves blocks, and knows a key that session 9 holds, with
// 8 behind it.
func behindOthers(t *testing.T) (*harness, *fakeStore) {
	t.Helper()
	h, s := heldByOther(t, theirs())
	h.opts.Retain = 200 * time.Millisecond
	h.core.opts.Retain = h.opts.Retain
	s.beat[session(9)], s.beat[session(8)] = 1, 1
	return h, s
}

// refuseAll refuses Enqueues, since another has come first each time, until others are asked; what is said then is all that is kept.
func (s *fakeStore) refuseAll() {
	s.h.t.Helper()
	for range delegateAfter {
		id, _ := untilApply(s.h, s)
		s.enqueueOther(8)
		s.h.reply(id, Result{Status: StatusRefused})
	}
	s.h.hints = nil
	s.answerAll()
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

// piggybackHint returns the hint that asks other sessions to enqueue a block.
func (h *harness) piggybackHint() Hint {
	h.t.Helper()
	require.NotEmpty(h.t, h.hints)
	require.Equal(h.t, HintPiggyback, h.hints[0].Kind, "hints %+v", h.hints)
	return h.hints[0]
}

// enqueueFor has the head's session take a block along with its Release.
func (s *fakeStore) enqueueFor(b Block) {
	s.h.t.Helper()
	r := *s.row
	require.Equal(s.h.t, StatusDone, s.apply(combine(Enqueue(&r, b, 0, t0), Release(r, 2, false, 0))).Status)
}

// After repeated refusals of its Enqueue, a proxy asks every session in the queue to enqueue its
// block, and sends no LWT meanwhile.
func TestEnqueuesThatAreRefusedAreDelegated(t *testing.T) {
	h, s, op := enqueuesRefused(t)
	hint := h.piggybackHint()
	h.expectHints(
		Hint{To: session(9), Kind: HintPiggyback, Block: hint.Block, Last: s.row.Guard},
		Hint{To: session(8), Kind: HintPiggyback, Block: hint.Block, Last: s.row.Guard},
	)
	require.Equal(t, h.session.ID(), hint.Block.Session)
	require.EqualValues(t, 1, hint.Block.N)
	require.Zero(t, hint.Block.First)
	s.actions = nil
	h.runFor(s, 100*time.Millisecond)
	s.enqueueFor(hint.Block)
	h.runFor(s, 40*time.Millisecond)
	require.Zero(t, s.lwts(), "LWTs")
	for range 4 {
		s.apply(Release(*s.row, 2, false, 0))
	}
	h.runFor(s, time.Second)
	g := h.expectState(op, StateHeld)
	require.EqualValues(t, 6, g.Ref, "grant %+v of %+v", g, s.row)
}

// Sessions that join the queue later are asked as well.
func TestSessionsThatJoinTheQueueAreAskedToo(t *testing.T) {
	h, s, _ := enqueuesRefused(t)
	hint := h.piggybackHint()
	h.hints = nil
	s.enqueueOther(7)
	h.runFor(s, 40*time.Millisecond)
	h.expectHints(Hint{To: session(7), Kind: HintPiggyback, Block: hint.Block, Last: s.row.Guard})
}

// If no session carries the block in time, the proxy enqueues by itself again. A delegated block
// that arrives after that is released in its turn.
func TestADelegatedBlockThatComesLateIsReleased(t *testing.T) {
	h, s, op := enqueuesRefused(t)
	hint := h.piggybackHint()
	s.actions = nil
	h.runFor(s, time.Second)
	require.Equal(t, 1, s.lwts(), "LWTs")
	s.enqueueFor(hint.Block)
	for range 4 {
		s.apply(Release(*s.row, 2, false, 0))
	}
	h.runFor(s, time.Second)
	h.unlock(h.expectState(op, StateHeld).Ref)
	h.runFor(s, time.Second)
	require.EqualValues(t, 8, s.row.Head)
	require.EqualValues(t, 7, s.row.Guard)
}

// A delegated enqueue is remembered until a QUORUM read shows that the terms are over whose
// Releases could have carried it (H3): a single replica may have missed that Release.
func TestADelegatedEnqueueIsOverWhenAQuorumSaysSo(t *testing.T) {
	h, s, op := enqueuesRefused(t)
	hint := h.piggybackHint()
	h.collect(h.core.Gone(h.time(), op))
	for quorum := false; !quorum; h.advance(10 * time.Millisecond) {
		s.answerAll()
		quorum = h.now > time.Hour+time.Second && len(s.actions) > 0 && s.actions[len(s.actions)-1] == Action(ReadRow{Quorum: true})
	}
	s.answerAll()
	before := *s.row
	s.enqueueFor(hint.Block)
	for range 4 {
		s.apply(Release(*s.row, 2, false, 0))
	}
	partial := *s.row
	partial.Guard, partial.Queue = before.Guard, before.Queue
	h.receive(HintReleasing)
	id, near := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone, Row: &partial})
	id, firm := commandOf[ReadRow](h)
	require.False(t, near.Quorum, "%+v, then %+v", near, firm)
	require.True(t, firm.Quorum, "%+v, then %+v", near, firm)
	h.reply(id, s.read())
	h.runFor(s, time.Second)
	require.EqualValues(t, 7, s.row.Head, "what came is not given back")
}

// An Enqueue that takes longer than sections do is also delegated; the first of the two that is
// applied makes the block.
func TestASlowEnqueueIsAskedForAsWell(t *testing.T) {
	h, s := behindOthers(t)
	op := h.lock(Request{Wait: time.Minute})
	id, a := untilApply(h, s)
	h.hints = nil
	h.advance(200 * time.Millisecond)
	hint := h.piggybackHint()
	require.Equal(t, a.Swap.Set.Row.newestBlock().Req, hint.Block.Req, "%+v instead of %+v", hint.Block, a.Swap)
	s.enqueueOther(7)
	s.enqueueFor(hint.Block) // 5
	for range 3 {
		s.apply(Release(*s.row, 2, false, 0))
	}
	h.runFor(s, time.Second)
	g := h.expectState(op, StateHeld)
	require.EqualValues(t, 5, g.Ref, "grant %+v of %+v", g, s.row)
	h.reply(id, s.do(a)) // refused, and nobody minds
	h.runFor(s, time.Second)
	require.EqualValues(t, 5, s.row.Guard)
	require.NotNil(t, h.term(), "row %+v", s.row)
}

// A Release enqueues blocks of other sessions before its own, each once, and only blocks that it
// was asked for.
func TestAReleaseEnqueuesBlocksOfOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Hint)
		later  time.Duration
		taken  bool
	}{
		"as asked":                   {taken: true},
		"of an earlier tenure":       {change: func(h *Hint) { h.Last = 3 }},
		"of nobody":                  {change: func(h *Hint) { h.Block.N = 0 }},
		"of too many":                {change: func(h *Hint) { h.Block.N = maxBlock + 1 }},
		"of this session":            {change: func(h *Hint) { h.Block.Session = session(1) }},
		"that is in the queue":       {change: func(h *Hint) { h.Block.Session, h.Block.Req = session(9), 1 }},
		"whose session asks no more": {later: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			h, s, _, _ := shortSections(t)
			hint := Hint{Key: h.key(), To: h.session.ID(), Kind: HintPiggyback, Block: Block{N: 2, Session: session(8), Req: 5}, Last: 5}
			if tc.change != nil {
				tc.change(&hint)
			}
			h.collect(h.core.Hear(h.time(), hint))
			h.collect(h.core.Hear(h.time(), hint))
			h.runFor(s, tc.later)
			h.unlock(4)
			s.answerAll()
			b, ok := s.row.Find(session(8), 5)
			require.Equal(t, tc.taken, ok, "row %+v", s.row)
			if tc.taken {
				require.EqualValues(t, 6, b.First)
				require.EqualValues(t, 9, s.row.Guard)
				require.Equal(t, h.session.ID(), s.row.newestBlock().Session, "row %+v", s.row)
			}
		})
	}
}

// untilAnswered lets time go by until an operation is answered, and tells how long that took.
func (h *harness) untilAnswered(s *fakeStore, op OpID) time.Duration {
	h.t.Helper()
	began := h.now
	for h.answers[op].Op == 0 && h.now < began+5*time.Second {
		s.answerAll()
		h.advance(5 * time.Millisecond)
	}
	return h.now - began
}

// When the key becomes free, the proxy enqueues by itself: no session is left that could carry the
// block.
func TestADelegatedEnqueueLeavesNoKeyFree(t *testing.T) {
	h, s, op := enqueuesRefused(t)
	for !s.row.Empty() {
		s.apply(Release(*s.row, 2, false, 0))
	}
	h.receive(HintYourTurn)
	require.LessOrEqual(t, h.untilAnswered(s, op), 100*time.Millisecond)
	h.expectState(op, StateHeld)
}

// A LOCK that must be told a reference soon is not delegated.
func TestAnUrgentLockIsNotDelegated(t *testing.T) {
	for name, q := range map[string]Request{"at once": {AtOnce: true}, "soon": {Wait: 700 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			h, s, _ := enqueuesRefused(t)
			op := h.lock(q)
			assert.LessOrEqual(t, h.untilAnswered(s, op), max(100*time.Millisecond, q.Wait+5*time.Millisecond))
			assert.NotZero(t, h.expectState(op, StateQueued).Ref)
		})
	}
}

// A block that was delegated for other clients does not serve an urgent LOCK.
func TestADelegatedBlockIsNotForUrgentLocks(t *testing.T) {
	h, s := behindOthers(t)
	gone := h.lock(Request{Wait: time.Minute})
	h.lock(Request{Wait: time.Minute})
	h.core.keys[h.key()].blocks.nextSize = 1
	s.refuseAll()
	hint := h.piggybackHint()
	h.collect(h.core.Gone(h.time(), gone))
	op := h.lock(Request{AtOnce: true})
	s.enqueueFor(hint.Block)
	took := h.untilAnswered(s, op)
	require.True(t, hint.Block.Retained, "answered after %v", took)
	require.LessOrEqual(t, took, 100*time.Millisecond)
}

// NOWAIT is answered BUSY where a block of another session is to be enqueued first.
func TestNoWaitBehindAPiggybackedBlockIsBusy(t *testing.T) {
	h, s := newHolder(t, func(o *Options) { o.Retain = 200 * time.Millisecond })
	tk, _ := h.begin(1, Get) // under way when the UNLOCK comes
	h.unlock(1)
	h.collect(h.core.Hear(h.time(), Hint{Key: h.key(), To: h.session.ID(), Kind: HintPiggyback, Block: Block{N: 1, Session: session(8), Req: 5}, Last: 5}))
	op := h.lock(Request{NoWait: true})
	h.end(tk, OutcomeAcked)
	require.LessOrEqual(t, h.untilAnswered(s, op), 100*time.Millisecond)
	s.answerAll()
	h.expectState(op, StateBusy)
	require.EqualValues(t, 2, s.row.Guard)
}

// A block that no entry waits for is not delegated again.
func TestNobodyIsAskedForABlockThatNobodyNeeds(t *testing.T) {
	for name, end := range map[string]func(*harness, OpID) Effects{
		"gone":     func(h *harness, op OpID) Effects { return h.core.Gone(h.time(), op) },
		"draining": func(h *harness, _ OpID) Effects { return h.core.Drain(h.time()) },
	} {
		t.Run(name, func(t *testing.T) {
			h, s, op := enqueuesRefused(t)
			h.collect(end(h, op))
			h.hints = nil
			s.enqueueOther(7)
			h.runFor(s, 60*time.Millisecond)
			h.expectHints()
		})
	}
}

// If the beginning of a delegated block was passed over, the rest of it is released.
func TestTheRestOfADelegatedBlockIsReleased(t *testing.T) {
	h, s, op := enqueuesRefused(t)
	b := h.piggybackHint().Block
	b.N = 2
	h.collect(h.core.Gone(h.time(), op))
	s.enqueueFor(b)
	for s.row.Head < s.row.Guard {
		s.apply(Release(*s.row, 2, false, 0))
	}
	h.runFor(s, 10*time.Second)
	require.True(t, s.row.Empty(), "row %+v", s.row)
}
