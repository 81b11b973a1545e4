package musiccore

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestWhateverHappens plays any calls with any replies, true or not: the core
// answers every operation at most once, tells nobody of a success after the
// session died, asks for no two LWTs of a key at a time, and keeps no
// operation waiting for ever.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newDesk(t)
		a := &anything{rt: rt, d: d, s: newStore(d), lives: 1}
		for range rapid.IntRange(20, 120).Draw(rt, "events") {
			a.event()
			a.oneLWT()
		}
		a.finish()
	})
}

type anything struct {
	rt        *rapid.T
	d         *desk
	s         *store
	ops       []OpID
	tickets   []Ticket
	lives     byte
	strangers int64
}

func (a *anything) draw(n int, what string) int { return rapid.IntRange(0, n-1).Draw(a.rt, what) }

func (a *anything) ref() LockRef { return LockRef(a.draw(6, "ref") - 1) }

func (a *anything) event() {
	d := a.d
	switch a.draw(12, "event") {
	case 0, 1:
		a.ops = append(a.ops, d.lock(Request{
			Ref: max(a.ref()-2, 0), NoWait: a.draw(4, "nowait") == 0, AtOnce: a.draw(4, "at once") == 0,
			Token: [16]byte{byte(a.draw(3, "token"))}, Closed: Stamp(a.draw(2, "closed")) * t0 * 2,
		}))
	case 2:
		a.ops = append(a.ops, d.unlock(a.ref()))
	case 3, 4:
		tk, op := d.begin(a.ref(), Kind(1+a.draw(2, "kind")))
		if tk.OK() {
			a.tickets = append(a.tickets, tk)
			return
		}
		a.ops = append(a.ops, op)
	case 5:
		if len(a.tickets) > 0 {
			d.end(a.tickets[0], Outcome(a.draw(3, "outcome")))
			a.tickets = a.tickets[1:]
		}
	case 6, 7, 8, 9:
		a.reply()
	case 10:
		d.pass(time.Duration(a.draw(3000, "ms")) * time.Millisecond)
	case 11:
		a.rare()
	}
}

func (a *anything) rare() {
	d := a.d
	switch a.draw(9, "rare") {
	case 0:
		d.jump(11 * time.Second)
		a.lives++
		d.session = NewSession(session(a.lives), d.opts)
		d.take(d.core.Rejoin(d.time(), d.session))
		d.beat()
	case 1:
		d.take(d.core.Altered(d.time(), d.table))
	case 2:
		d.take(d.core.Closed(d.time(), d.table, Stamp(a.draw(5, "closed"))*t0))
	case 3:
		d.take(d.core.Dropped(d.time(), d.table))
	case 4:
		d.clkOff = !d.clkOff
	case 6:
		a.ops = append(a.ops, d.force())
	case 7:
		d.take(d.core.Hear(d.time(), Hint{Key: d.key(), To: session(a.lives), Kind: HintKind(a.draw(3, "hint"))}))
	case 8:
		a.strange()
	case 5:
		if len(a.ops) > 0 {
			d.take(d.core.Gone(d.time(), a.ops[0]))
			if _, answered := d.answers[a.ops[0]]; !answered {
				d.answers[a.ops[0]] = Answer{} // an answer from now on is one too many
			}
		}
	}
}

// strange lets another session do what it may: enqueue, and end its life.
func (a *anything) strange() {
	x := session(200 + byte(a.draw(2, "stranger")))
	if a.draw(2, "ends") == 0 {
		a.s.beat[x] = EndedBeat
		return
	}
	a.strangers++
	a.s.apply(Enqueue(a.s.row, Block{N: 1, Session: x, Req: a.strangers}, 0, t0))
}

// reply answers a command: by the honest store, or with anything.
func (a *anything) reply() {
	d := a.d
	if len(d.open) == 0 {
		return
	}
	i := a.draw(len(d.open), "which")
	c := d.open[i]
	d.open = append(d.open[:i:i], d.open[i+1:]...)
	switch a.draw(5, "how") {
	case 0:
		d.reply(c.ID, unknown)
	case 1:
		a.s.do(c.Action)
		d.reply(c.ID, unknown)
	case 2:
		d.reply(c.ID, Result{Status: Status(a.draw(5, "fate")), Stamp: Stamp(a.draw(3, "stamp")) << 61, Beat: int64(a.draw(3, "beat"))})
	default:
		d.reply(c.ID, a.s.do(c.Action))
	}
}

func (a *anything) oneLWT() {
	n := 0
	for id, who := range a.d.core.commands {
		if k, ok := who.(*key); ok && k.lwt != nil && k.lwt.cmd == id {
			n++
		}
	}
	if n > 1 {
		a.rt.Fatalf("%d LWTs of one key", n)
	}
}

// finish lets the honest store answer everything: every operation must have
// its answer in the end.
func (a *anything) finish() {
	a.d.clkOff = false
	for range 100 {
		a.s.run()
		a.d.pass(100 * time.Millisecond)
	}
	for _, op := range a.ops {
		if _, ok := a.d.answers[op]; !ok {
			a.rt.Fatalf("operation %d waits for ever", op)
		}
	}
	if len(a.d.core.ops) > 0 {
		a.rt.Fatalf("%d operations are still known", len(a.d.core.ops))
	}
}
