package musiccore

import (
	"fmt"
	"strings"
)

// stageClient is an application: it knows its proxy, its key and its reference.
type stageClient struct {
	s    *stage
	name string
	at   *stageProxy
	key  Key
	ref  LockRef
	op   OpID // the statement that waits
}

// asks sends a statement; its answer, or the ticket that came at once, is told.
func (c *stageClient) asks(send func(Now, OpID) (Ticket, Effects), told func(Answer)) {
	p := c.at
	if p.down {
		c.tell("no connection", nil)
		return
	}
	p.when(func() {
		c.op = p.op()
		p.waits[c.op] = func(a Answer) {
			c.op = 0
			told(a)
		}
		tk, fx := send(p.time(), c.op)
		if tk.OK() {
			fx.Answers = append(fx.Answers, Answer{Op: c.op, Ticket: tk})
		}
		p.take(fx)
	})
}

// locks is LOCK, or UNLOCK without a request.
func (c *stageClient) locks(q *Request) {
	core := c.at.core
	c.asks(func(n Now, op OpID) (Ticket, Effects) {
		if q == nil {
			return Ticket{}, core.Unlock(n, op, c.key, c.ref)
		}
		return Ticket{}, core.Lock(n, op, c.key, *q)
	}, c.granted)
}

// forces is UNLOCK … FORCE.
func (c *stageClient) forces() {
	core, own := c.at.core, c.ref
	c.asks(func(n Now, op OpID) (Ticket, Effects) { return Ticket{}, core.Force(n, op, c.key, 0, "it hangs") }, func(a Answer) {
		c.granted(a)
		c.ref = own
	})
}

// granted returns what LOCK or UNLOCK answered.
func (c *stageClient) granted(a Answer) {
	g := a.Grant
	if g.Ref != 0 {
		c.ref = g.Ref
	}
	words := []string{g.State.String()}
	if g.Ref != 0 {
		words = append(words, fmt.Sprint(g.Ref))
	}
	if g.State == StateQueued && g.Ref != 0 {
		words = append(words, fmt.Sprintf("behind %d", g.Position))
	}
	if g.Holder != "" && g.State != StateHeld {
		words = append(words, "while "+g.Holder+" holds")
	}
	if g.OwnerDied {
		words = append(words, "after one who did not give it back")
	}
	if g.State == StateReleased && !g.Applied {
		words = append(words, "before, and not by this")
	}
	c.tell(strings.Join(words, " "), a.Err)
}

// tell records what the client hears.
func (c *stageClient) tell(text string, err error) {
	if err != nil {
		text = strings.ReplaceAll(err.Error(), "musiccore: ", "")
	}
	c.s.tell("%s: %s", c.name, text)
}

// begins asks for a ticket and uses it.
func (c *stageClient) begins(what string, kind Kind, use func(Ticket)) {
	core := c.at.core
	c.asks(func(n Now, op OpID) (Ticket, Effects) { return core.Begin(n, op, c.key, c.ref, kind) }, func(a Answer) {
		if a.Err != nil {
			c.tell("", fmt.Errorf("%s: %w", what, a.Err))
			return
		}
		use(a.Ticket)
	})
}

// ends gives the ticket back and tells what the client may hear.
func (c *stageClient) ends(p *stageProxy, what string, tk Ticket, o Outcome, text string) {
	p.when(func() {
		v, fx := p.core.End(p.time(), tk, o)
		switch {
		case v == VerdictLost:
			text = "lock is lost"
		case v == VerdictUncertain:
			text = "outcome unknown"
		case o == OutcomeRefused:
			text = "refused, not enough replicas"
		case o == OutcomeUnknown:
			text = "no answer"
		}
		c.tell(what+": "+text, nil)
		p.take(fx)
	})
}

// put writes a value: to all replicas that are up; or, unacked, to some, with no answer; or it hangs on its way.
func (c *stageClient) put(value int, how string, on []int) {
	what, p, st := fmt.Sprintf("put %d", value), c.at, &c.s.store
	c.begins(what, Put, func(tk Ticket) {
		k, m := st.key(tk.Key.PK), mutation{stamp: tk.Stamp, value: value}
		arrives := func() {
			st.write(k, m, st.alive())
			c.ends(p, what, tk, OutcomeAcked, "ok, stamped "+c.s.stamp(tk.Stamp))
		}
		switch {
		case how == "hanging":
			st.hanging[fmt.Sprint(value)] = arrives
			c.tell(what+": on its way, stamped "+c.s.stamp(tk.Stamp), nil)
		case how == "unacked" || p.cut:
			st.write(k, m, on)
			c.ends(p, what, tk, OutcomeUnknown, "")
		case !st.reachable():
			c.ends(p, what, tk, OutcomeRefused, "")
		default:
			arrives()
		}
	})
}

// get reads the value at QUORUM.
func (c *stageClient) get() {
	p, st := c.at, &c.s.store
	c.begins("get", Get, func(tk Ticket) {
		if p.cut || !st.reachable() {
			c.ends(p, "get", tk, OutcomeUnknown, "")
			return
		}
		seen := st.read(st.key(tk.Key.PK))
		c.ends(p, "get", tk, OutcomeAcked, valueText(seen.visible()))
	})
}
