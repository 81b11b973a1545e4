package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestRandomCallsBreakNothing makes random calls and gives random replies, true or not. The core
// answers every operation at most once, reports no success after the session died, has at most one
// LWT of a key under way, and keeps no operation waiting for ever.
func TestRandomCallsBreakNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHarness(t)
		a := &randomCalls{rt: rt, h: h, s: newFakeStore(h), lives: 1}
		for range rapid.IntRange(20, 120).Draw(rt, "events") {
			a.event()
			a.oneLWT()
		}
		a.finish()
	})
}

type randomCalls struct {
	rt        *rapid.T
	h         *harness
	s         *fakeStore
	ops       []OpID
	tickets   []Ticket
	lives     byte
	strangers int64
}

func (a *randomCalls) draw(n int, what string) int { return rapid.IntRange(0, n-1).Draw(a.rt, what) }

func (a *randomCalls) ref() LockRef { return LockRef(a.draw(6, "ref") - 1) }

func (a *randomCalls) event() {
	h := a.h
	switch a.draw(12, "event") {
	case 0, 1:
		a.ops = append(a.ops, h.lock(Request{
			Ref: max(a.ref()-2, 0), NoWait: a.draw(4, "nowait") == 0, AtOnce: a.draw(4, "at once") == 0,
			Token: [16]byte{byte(a.draw(3, "token"))}, Closed: Stamp(a.draw(2, "closed")) * t0 * 2,
		}))
	case 2:
		a.ops = append(a.ops, h.unlock(a.ref()))
	case 3, 4:
		tk, op := h.begin(a.ref(), Kind(1+a.draw(2, "kind")))
		if tk.OK() {
			a.tickets = append(a.tickets, tk)
			return
		}
		a.ops = append(a.ops, op)
	case 5:
		if len(a.tickets) > 0 {
			h.end(a.tickets[0], Outcome(a.draw(3, "outcome")))
			a.tickets = a.tickets[1:]
		}
	case 6, 7, 8, 9:
		a.reply()
	case 10:
		h.advance(time.Duration(a.draw(3000, "ms")) * time.Millisecond)
	case 11:
		a.rare()
	}
}

func (a *randomCalls) rare() {
	h := a.h
	switch a.draw(9, "rare") {
	case 0:
		h.advanceUnticked(11 * time.Second)
		a.lives++
		h.session = NewSession(session(a.lives), h.opts)
		h.collect(h.core.Rejoin(h.time(), h.session))
		h.beat()
	case 1:
		h.collect(h.core.Altered(h.time(), h.table, 0))
	case 2:
		h.collect(h.core.Closed(h.time(), h.table, Stamp(a.draw(5, "closed"))*t0))
	case 3:
		h.collect(h.core.Dropped(h.time(), h.table))
	case 4:
		h.clkOff = !h.clkOff
	case 6:
		a.ops = append(a.ops, h.force())
	case 7:
		h.collect(h.core.Hear(h.time(), Hint{Key: h.key(), To: session(a.lives), Kind: HintKind(a.draw(3, "hint"))}))
	case 8:
		a.strange()
	case 5:
		if len(a.ops) > 0 {
			h.collect(h.core.ClientGone(h.time(), a.ops[0]))
			if _, answered := h.answers[a.ops[0]]; !answered {
				h.answers[a.ops[0]] = Answer{} // an answer from now on is one too many
			}
		}
	}
}

// strange lets another session do what it may: enqueue, and end its life.
func (a *randomCalls) strange() {
	x := session(200 + byte(a.draw(2, "stranger")))
	if a.draw(2, "ends") == 0 {
		a.s.beat[x] = EndedBeat
		return
	}
	a.strangers++
	a.s.apply(Enqueue(a.s.row, Block{N: 1, Session: x, Req: a.strangers}, 0, t0))
}

// reply answers a command: by the honest store, or with anything.
func (a *randomCalls) reply() {
	h := a.h
	if len(h.open) == 0 {
		return
	}
	i := a.draw(len(h.open), "which")
	c := h.open[i]
	h.open = append(h.open[:i:i], h.open[i+1:]...)
	switch a.draw(5, "how") {
	case 0:
		h.reply(c.ID, unknown)
	case 1:
		a.s.do(c.Action)
		h.reply(c.ID, unknown)
	case 2:
		h.reply(c.ID, Result{Status: Status(a.draw(5, "fate")), Stamp: Stamp(a.draw(3, "stamp")) << 61, Beat: int64(a.draw(3, "beat"))})
	default:
		h.reply(c.ID, a.s.do(c.Action))
	}
}

func (a *randomCalls) oneLWT() {
	n := 0
	for id, who := range a.h.core.commands {
		if k, ok := who.(*key); ok && k.lwt != nil && k.lwt.cmd == id {
			n++
		}
	}
	if n > 1 {
		require.Fail(a.rt, "more than one LWT of one key", "%d", n)
	}
}

// finish lets the honest store answer everything: every operation must have
// its answer in the end.
func (a *randomCalls) finish() {
	a.h.clkOff = false
	for range 100 {
		a.s.answerAll()
		a.h.advance(100 * time.Millisecond)
	}
	for _, op := range a.ops {
		if _, ok := a.h.answers[op]; !ok {
			require.Fail(a.rt, "an operation waits for ever", "%d", op)
		}
	}
	if len(a.h.core.ops) > 0 {
		require.Fail(a.rt, "operations are still known", "%d", len(a.h.core.ops))
	}
}
