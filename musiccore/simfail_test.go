package musiccore

import (
	"errors"
	"time"
)

// Clients that continue at other proxies with their reference, messages between proxies, and
// operators who end locks by force.

// addMovingClients adds clients that change their proxy, and an operator.
func (s *sim) addMovingClients() {
	for range s.world.n(4) {
		c := &movingClient{n: s.actorNumber(), chance: s.newChance()}
		c.move()
		if c.happens(aClient) {
			c.start()
		}
	}
	o := s.newChance()
	s.after(o.late(), func() { s.operator(&o) })
}

func (s *sim) actorNumber() int { return int(s.actors) + 101 }

// proxyOf returns the process that has a session now, or nil.
func (s *sim) proxyOf(x SessionID) *proxy {
	if p := s.bySession[x]; p != nil && p.session.id == x && !p.quit {
		return p
	}
	return nil
}

// message delivers a message to a process: late, twice or never.
func (s *sim) message(x *chance, to *proxy, do func()) {
	life := to.life
	deliver := func() { to.hears(life, do) }
	if x.strikes(peerLost, 15) {
		return
	}
	delay := x.short()
	if x.strikes(peerLate, 15) {
		delay = x.late()
	}
	s.after(delay, deliver)
	if x.strikes(peerTwice, 15) {
		s.after(delay+x.slow(), deliver)
	}
}

// carry delivers hints to their sessions.
func (s *sim) carry(from *proxy, hints []Hint) {
	for _, hint := range hints {
		to := s.proxyOf(hint.To)
		if to == nil {
			continue
		}
		x := from.fork()
		s.message(&x, to, func() {
			s.met(hintHeard)
			k := to.core.keys[hint.Key]
			s.metIf(hint.Kind == HintWaiting && k != nil && k.term != nil, wantedHeard)
			s.metIf(hint.Kind == HintReleasing && k != nil && k.term == nil, yieldingHeard)
			to.take(to.core.Hear(to.time(), hint))
		})
	}
}

// operator ends a lock by force now and then.
func (s *sim) operator(x *chance) {
	if !s.faults {
		return
	}
	k, p := s.keys[x.n(len(s.keys))], s.proxies[x.n(len(s.proxies))]
	if x.strikes(forces, 3) {
		force := func(p *proxy, wait func(Answer)) {
			p.take(p.core.Force(p.time(), p.op(k, 0, wait), k, 0, "test"))
		}
		s.call(x, p, force, func(_ *proxy, a Answer) {
			s.metIf(a.Err == nil && a.Grant.Applied, forcedHead)
		})
	}
	every := x.late()
	if s.strict {
		every = 2 * x.slow() // what strict is for
	}
	s.after(every, func() { s.operator(x) })
}

// call runs do at a proxy and, if that proxy answers that the reference is elsewhere, at that other
// proxy. then may be called more than once, or never.
func (s *sim) call(x *chance, p *proxy, do func(p *proxy, wait func(Answer)), then func(y *proxy, a Answer)) {
	life := p.life
	p.hears(life, func() {
		do(p, func(a Answer) {
			var e *ElsewhereError
			var y *proxy
			if errors.As(a.Err, &e) {
				y = s.proxyOf(e.Session)
			}
			if y == nil || y == p {
				then(p, a)
				return
			}
			s.message(x, y, func() {
				do(y, func(a Answer) {
					if p.life == life {
						s.message(x, p, func() { then(y, a) })
					}
				})
			})
		})
	})
}

// clientEnding is an operation of a moving client whose ticket goes back to the proxy that gave it.
type clientEnding struct {
	c     *movingClient
	x     *chance
	y     *proxy
	life  int
	tk    Ticket
	value int
	tell  func(at moment)
}

// send ends the ticket: at the client's own proxy, or by a message to the owner and its answer.
// Without that answer the outcome is unknown; without read repair, the client must not continue
// before the operation has ended at the owner.
func (e *clientEnding) send(ok bool) {
	c, s := e.c, e.c.s
	c.turn++
	turn := c.turn
	goOn := func() {
		if c.turn == turn {
			c.turn++
			c.after(e.x.short(), c.work)
		}
	}
	switch {
	case e.y.life != e.life:
		s.check.over(e.tk.Key, e.value)
	case e.y == c.p:
		e.y.hears(e.life, func() { e.end(ok, goOn) })
	default:
		s.message(e.x, e.y, func() {
			e.end(ok, func() { s.message(e.x, c.p, goOn) })
		})
	}
	c.after(time.Second, func() {
		if c.turn != turn {
			return
		}
		c.turn++
		if !s.store.repair {
			c.start()
			return
		}
		c.move()
		c.work()
	})
}

// end ends the ticket at the owner. A verdict counts from the moment when it is made.
func (e *clientEnding) end(ok bool, then func()) {
	s, y := e.c.s, e.y
	o := OutcomeUnknown
	if ok {
		o = OutcomeAcked
	}
	y.ends(e.tk, o, func(verdict Verdict, at moment) {
		s.tell("roamer %d value %d ends at proxy %d: %v, told %v", e.c.n, e.value, y.n, o, verdict)
		if ok && verdict == VerdictTell {
			e.tell(at)
		}
		if e.value != 0 {
			s.check.over(e.tk.Key, e.value)
		}
	}, then)
}

// ends ends a ticket. The verdict is returned now or, in a strict table, later.
func (p *proxy) ends(tk Ticket, o Outcome, tell func(v Verdict, at moment), then func()) {
	s := p.s
	if tk.Loan == 0 && tk.Lender != (SessionID{}) {
		p.endsThere(tk, o, tell, then)
		return
	}
	at := s.check.moment(tk.Key)
	s.metIf(tk.Loan != 0 && tk.Kind == Put && o == OutcomeUnknown, loanUnknown)
	v, fx := p.core.End(p.time(), tk, o)
	if v != VerdictPending {
		if v == VerdictLost {
			s.check.lost(tk.Key, tk.Ref)
		}
		tell(v, at)
		p.take(fx)
		then()
		return
	}
	s.metIf(tk.Loan == 0, checkedLater)
	p.waits[tk.Op] = pendingAnswer{key: tk.Key, ref: tk.Ref, since: s.now, answer: func(a Answer) {
		if tk.Loan != 0 {
			at = p.lentAt
		}
		s.metIf(a.Verdict == VerdictLost, checkedLost)
		s.metIf(a.Verdict == VerdictUncertain && tk.Loan == 0, checkedTooLate)
		tell(a.Verdict, at)
		then()
	}}
	p.take(fx)
}
