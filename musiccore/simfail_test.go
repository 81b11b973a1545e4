package musiccore

import (
	"errors"
	"time"
)

// Clients that go on through other proxies with their reference, proxies that
// talk to each other, and people who force locks.

// roamer is a client that changes its proxy whenever it likes, or must.
type roamer struct {
	chance
	n     int
	p     *proxy
	owner *proxy // who lent the last ticket
	key   Key
	ref   LockRef
	left  int
	tries int
	turn  int // the request under way; whatever belongs to another is too late
}

// roam adds to a run what concerns several proxies.
func (s *sim) roam() {
	for range s.world.n(4) {
		c := &roamer{n: s.actorNumber(), chance: s.newChance()}
		c.move()
		if c.happens(aClient) {
			c.start()
		}
	}
	o := s.newChance()
	s.after(o.late(), func() { s.operator(&o) })
}

func (s *sim) actorNumber() int { return int(s.actors) + 101 }

// proxyOf is what membership tells: who has a session now.
func (s *sim) proxyOf(x SessionID) *proxy {
	if p := s.born[x]; p != nil && p.session.id == x && !p.quit {
		return p
	}
	return nil
}

// message carries something to a process: late, twice or never.
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

// carry takes hints to their sessions.
func (s *sim) carry(from *proxy, hints []Hint) {
	for _, h := range hints {
		to := s.proxyOf(h.To)
		if to == nil {
			continue
		}
		x := from.fork()
		s.message(&x, to, func() {
			s.met(hintHeard)
			k := to.core.keys[h.Key]
			s.metIf(h.Kind == HintWaiting && k != nil && k.term != nil, wantedHeard)
			s.metIf(h.Kind == HintReleasing && k != nil && k.term == nil, yieldingHeard)
			to.take(to.core.Hear(to.time(), h))
		})
	}
}

// operator forces a lock now and then.
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

// call does something at a proxy, and where that one says that the reference
// is elsewhere, there. then may happen more than once, or never.
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

// ask is a call of the client: answered once, or given up after a while.
func (c *roamer) ask(do func(p *proxy, wait func(Answer)), then func(y *proxy, a Answer)) {
	c.turn++
	turn := c.turn
	x := c.fork()
	c.s.call(&x, c.p, do, func(y *proxy, a Answer) {
		if c.turn == turn {
			c.turn++
			then(y, a)
		}
	})
	c.s.after(time.Second, func() {
		if c.turn == turn {
			c.turn++
			c.move()
			then(nil, Answer{Err: ErrUnavailable})
		}
	})
}

func (c *roamer) move() {
	if to := c.s.proxies[c.chance.n(len(c.s.proxies))]; !to.quit || c.p == nil {
		c.p = to
	}
}

func (c *roamer) after(d time.Duration, do func()) { c.s.after(d, do) }

func (c *roamer) start() {
	if c.s.closing {
		return
	}
	s := c.s
	c.key, c.ref, c.tries = s.keys[c.chance.n(len(s.keys))], 0, 0
	c.left = c.chance.n(12)
	if opened := s.check.key(c.key).opened; opened > 0 && s.store.repair && c.strikes(refForged, 4) {
		c.ref, c.left = max(1, opened-LockRef(c.chance.n(2))), 20 // one that another client has, or had
		c.after(c.short(), c.work)
		return
	}
	if c.happens(aSection) {
		c.after(c.slow(), c.lock)
		return
	}
	c.after(c.slow(), c.start)
}

func (c *roamer) lock() {
	c.s.tell("roamer %d LOCK %s %d at proxy %d", c.n, c.key.PK, c.ref, c.p.n)
	c.ask(func(p *proxy, wait func(Answer)) {
		q := Request{Ref: c.ref, Closed: c.s.closed}
		p.take(p.core.Lock(p.time(), p.op(c.key, c.ref, wait), c.key, q))
	}, c.locked)
}

func (c *roamer) locked(y *proxy, a Answer) {
	c.s.tell("roamer %d hears %v %d %v", c.n, a.Grant.State, a.Grant.Ref, errText(a.Err))
	switch {
	case a.Err != nil:
		c.retry(a.Err, c.lock)
	case a.Grant.State == StateHeld:
		c.s.metIf(y != c.p, heldElsewhere)
		c.ref = a.Grant.Ref
		c.work()
	case a.Grant.State == StateQueued && a.Grant.Ref != 0:
		c.ref = a.Grant.Ref
		if c.chance.n(4) == 0 {
			c.move()
		}
		c.after(c.short(), c.lock)
	default:
		c.start()
	}
}

// retry goes on, perhaps through another proxy, while there is hope.
func (c *roamer) retry(err error, again func()) {
	c.tries++
	if errors.Is(err, ErrLost) && c.tries < 60 && c.strikes(refForged, 3) {
		c.move() // it does not believe it
		c.after(2*c.short(), again)
		return
	}
	if errors.Is(err, ErrLost) || errors.Is(err, ErrNotHeld) || c.ref == 0 || c.tries > 60 {
		c.start()
		return
	}
	if c.chance.n(3) == 0 || c.p.quit {
		c.move()
	}
	c.after(2*c.short(), again)
}

func (c *roamer) work() {
	x := c.fork()
	if c.s.closing {
		c.left = 0 // who waits behind shall see the end of it
	}
	if c.owner != nil && x.strikes(ownerLeaves, 12) {
		c.leftBy(&x, c.owner)
		c.move()
	}
	if x.n(6) == 0 {
		c.move()
	}
	switch {
	case c.left <= 0 || x.n(40) == 0:
		c.unlock(&x)
		return
	case x.n(12) == 0:
		c.lock() // renews
		return
	}
	c.left--
	if !x.happens(anOperation) {
		c.after(x.short(), c.work)
		return
	}
	c.begin(&x, Kind(1+x.n(2)))
}

// leftBy is the client's owner that stops, ends or dies in the middle.
func (c *roamer) leftBy(x *chance, p *proxy) {
	switch c.owner = nil; x.n(3) {
	case 0:
		p.paused = max(p.paused, c.s.now+x.late())
	case 1:
		p.hears(p.life, func() {
			p.take(p.core.Drain(p.time()))
			p.shutDown(c.s.now + x.slow())
		})
	default:
		p.crash()
	}
}

func (c *roamer) begin(x *chance, kind Kind) {
	c.ask(func(p *proxy, wait func(Answer)) {
		op := p.op(c.key, c.ref, wait)
		tk, fx := p.core.Begin(p.time(), op, c.key, c.ref, kind)
		if tk.OK() {
			delete(p.waits, op)
			c.s.check.ticketed(p, tk)
		}
		p.take(fx)
		if tk.OK() {
			wait(Answer{Ticket: tk})
		}
	}, func(y *proxy, a Answer) {
		if a.Err != nil {
			c.s.tell("roamer %d is refused: %v", c.n, a.Err)
			c.retry(a.Err, c.work)
			return
		}
		c.tries, c.owner = 0, y
		c.s.metIf(y != c.p, borrowed)
		c.use(x, y, a.Ticket)
	})
}

func (c *roamer) unlock(x *chance) {
	if x.strikes(clientForgets, 6) {
		c.start()
		return
	}
	c.s.tell("roamer %d UNLOCK %s %d at proxy %d", c.n, c.key.PK, c.ref, c.p.n)
	c.ask(func(p *proxy, wait func(Answer)) {
		p.take(p.core.Unlock(p.time(), p.op(c.key, c.ref, wait), c.key, c.ref))
	}, func(_ *proxy, a Answer) {
		if a.Err != nil {
			c.retry(a.Err, func() { c.unlock(x) })
			return
		}
		c.start()
	})
}

// use sends an operation on the client's own connection, and its outcome to
// whoever gave the ticket.
func (c *roamer) use(x *chance, y *proxy, tk Ticket) {
	s, e := c.s, &ending1{c: c, x: x, y: y, life: y.life, tk: tk}
	if tk.Kind == Get {
		k := y.core.keys[tk.Key]
		g := s.check.gets(tk, k != nil && k.term != nil && k.term.ops.flight.puts == 0)
		s.store.get(x, tk.Key, func(seen cell, ok bool) {
			e.tell = func(at moment) { s.check.answeredGet(y, tk, seen.visible(), g, at) }
			e.send(ok)
		})
		return
	}
	e.value = s.newValue(tk.Key)
	s.check.values[e.value].stamp = tk.Stamp
	m := &mutation{stamp: tk.Stamp, value: e.value, root: s.check.window(tk.Key, tk.Epoch).root}
	s.store.expect(tk.Key, m)
	s.tell("roamer %d PUT %s %d, stamp %d, ticket of proxy %d", c.n, tk.Key.PK, e.value, tk.Stamp-t0, y.n)
	e.tell = func(at moment) { s.check.ackedPut(y, tk, e.value, at) }
	s.store.write(x, tk.Key, m, e.send)
}

// ending1 is an operation of a roamer on its way back to whoever lent its
// ticket.
type ending1 struct {
	c     *roamer
	x     *chance
	y     *proxy
	life  int
	tk    Ticket
	value int
	tell  func(at moment)
}

// send gives the ticket back: where the client is, or by a message and its
// answer. Without an answer the outcome is unknown, and where nothing repairs
// the client must not go on before the operation is over at the owner.
func (e *ending1) send(ok bool) {
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

// end is the End at the owner. A verdict counts when it is made.
func (e *ending1) end(ok bool, then func()) {
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

// ends gives a ticket back: the verdict comes now, or in a strict table later.
func (p *proxy) ends(tk Ticket, o Outcome, tell func(v Verdict, at moment), then func()) {
	s := p.s
	at := s.check.moment(tk.Key)
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
	s.met(checkedLater)
	p.waits[tk.Op] = pendingAnswer{tk.Key, tk.Ref, s.now, func(a Answer) {
		s.metIf(a.Verdict == VerdictLost, checkedLost)
		s.metIf(a.Verdict == VerdictUncertain, checkedTooLate)
		tell(a.Verdict, at)
		then()
	}}
	p.take(fx)
}
