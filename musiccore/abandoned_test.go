package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// When a client goes away with thousands of references in the queue, one LWT passes each run of
// them, so the key is free soon. References of other clients between them keep their turn.
func TestAbandonedReferencesArePassedTogether(t *testing.T) {
	const waiters = 3000
	for _, stay := range []int{0, 1, 10} { // clients that stay, spread among those that go away
		h := &instantStore{t: t, now: Now{Boot: time.Minute, Wall: 1 << 50, Clk: 1 << 50}}
		h.key.PK = "x"
		o := Defaults()
		s := NewSession(SessionID{1}, o)
		n, _ := s.Beat(h.now)
		s.Acked(h.now, h.now, n)
		h.core = New(s, o)
		h.carryOut(h.core.Lock(h.now, 1, h.key, Request{Wait: time.Hour}))
		var asked Effects
		for i := range OpID(waiters) {
			asked.Commands = append(asked.Commands, h.core.Lock(h.now, 2+i, h.key, Request{Wait: time.Hour}).Commands...)
		}
		h.carryOut(asked)
		for i := range OpID(waiters) {
			if stay == 0 || i%(waiters/OpID(stay)) != 7 {
				h.carryOut(h.core.ClientGone(h.now, 2+i))
			}
		}
		h.lwts = 0
		for i := 0; i < len(h.held); i++ {
			h.carryOut(h.core.Unlock(h.now, waiters+2, h.key, h.held[i]))
		}
		assert.Len(t, h.held, 1+stay, "%d stay: %d were granted the lock, by %d LWTs; row %+v", stay, len(h.held), h.lwts, h.row)
		assert.LessOrEqual(t, h.lwts, 3+3*stay, "%d stay: %d were granted the lock, by %d LWTs; row %+v", stay, len(h.held), h.lwts, h.row)
	}
}

// instantStore is a Core whose store answers at once.
type instantStore struct {
	t    *testing.T
	core *Core
	key  Key
	now  Now
	row  *Row
	lwts int
	held []LockRef // in the order of their grants
}

// carryOut runs the commands of some effects, and those that follow from them.
func (h *instantStore) carryOut(e Effects) {
	h.granted(e)
	for do := e.Commands; len(do) > 0; {
		next := do[0]
		r := Result{Status: StatusDone, Row: h.row}
		if a, ok := next.Action.(Apply); ok {
			after, applied := a.Swap.Apply(h.row)
			h.row, h.lwts = &after, h.lwts+1
			if !applied {
				r.Status = StatusRefused
			}
		}
		more := h.core.Reply(h.now, next.ID, r)
		h.granted(more)
		do = append(do[1:], more.Commands...)
	}
}

func (h *instantStore) granted(e Effects) {
	for _, a := range e.Answers {
		if a.Grant.State == StateHeld {
			h.held = append(h.held, a.Grant.Ref)
		}
	}
	for _, a := range e.Alarms {
		assert.Fail(h.t, "an alarm", "%s: %s", a.Rule, a.Text)
	}
}

// A client comes back after a long silence while an LWT that passes its reference is under way: it
// is told the outcome once that LWT is decided.
func TestAnAbandonedReferenceThatIsBeingPassedIsNotRevived(t *testing.T) {
	h, s := newHolder(t)
	first, second := h.lock(Request{Wait: time.Minute}), h.lock(Request{Wait: time.Minute})
	s.answerAll()
	h.collect(h.core.ClientGone(h.time(), first))
	h.collect(h.core.ClientGone(h.time(), second))
	h.unlock(1)
	id, release := commandOf[Apply](h)
	h.reply(id, s.do(release))
	id, pass := commandOf[Apply](h)
	back := h.lock(Request{Ref: 3, Wait: time.Minute})
	h.expectWaiting(back)
	h.reply(id, s.do(pass))
	s.answerAll()
	g := h.expectState(back, StateLost)
	require.EqualValues(t, 3, g.Ref, "grant %+v of %+v", g, s.row)
	require.EqualValues(t, 4, s.row.Head, "grant %+v", g)
}
