package musiccore

import (
	"errors"
	"time"
)

// Requests of a proxy to another one, whose session has a reference of one of its clients, and
// loans (docs/protocol.md 3.15, Remote, and 3.21, Loans).

// Errors of a request to another proxy.
var (
	errNotThere = errors.New("another session answers, or none")
	errNoAnswer = errors.New("no answer")
)

// far asks the proxy of another session. then gets the answer, once: without one in time
// errNoAnswer, and whatever comes later is dropped.
func (p *proxy) far(x *chance, to SessionID, do func(y *proxy, answer func(Answer)), then func(Answer)) {
	s, life, done := p.s, p.life, false
	once := func(a Answer) {
		if !done && p.life == life {
			done = true
			then(a)
		}
	}
	y := s.proxyOf(to)
	if y == nil {
		p.after(x.short(), func() { once(Answer{Err: errNotThere}) })
		return
	}
	back := func(a Answer) {
		a.Ticket.Known = nil // it does not travel
		if p.life == life {
			s.message(x, p, func() { once(a) })
		}
	}
	s.message(x, y, func() {
		if y.session.id != to {
			back(Answer{Err: errNotThere})
			return
		}
		do(y, back)
	})
	p.after(p.opts.Wait+400*time.Millisecond, func() { once(Answer{Err: errNoAnswer}) })
}

// asks has a core do something that gives a ticket, and hands its answer on.
func (p *proxy) asks(k Key, r LockRef, do func(op OpID) (Ticket, Effects), answer func(Answer)) {
	op := p.op(k, r, answer)
	tk, fx := do(op)
	if tk.OK() {
		delete(p.waits, op)
		p.s.check.ticketed(p, tk)
	}
	p.take(fx)
	if tk.OK() {
		answer(Answer{Op: op, Ticket: tk})
	}
}

// lends asks a core for a ticket for another proxy.
func (p *proxy) lends(to SessionID, k Key, r LockRef, kind Kind, answer func(Answer)) {
	id := p.session.id
	p.asks(k, r, func(op OpID) (Ticket, Effects) {
		return p.core.Lend(p.time(), op, LoanRequest{Key: k, Ref: r, Kind: kind, To: to})
	}, func(a Answer) {
		if a.Ticket.OK() {
			a.Ticket.Lender = id
			p.s.metIf(a.Ticket.Lent == nil, loanAlone)
		}
		answer(a)
	})
}

// borrow hands a loan to the own core. sent is from before the request that got it.
func (p *proxy) borrow(sent Now, tk Ticket) { p.take(p.core.Borrow(p.time(), sent, tk)) }

// borrowed returns a ticket of a loan, if there is one.
func (p *proxy) borrowed(k Key, r LockRef, kind Kind) (Ticket, bool) {
	p.lastOp++
	tk, fx := p.core.BorrowedTicket(p.time(), p.lastOp, k, r, kind)
	if tk.OK() {
		p.s.check.loanUsed(p, tk)
	}
	p.take(fx)
	return tk, tk.OK()
}

// returns gives a loan back: the lender's verdict, or VerdictUncertain without an answer.
func (p *proxy) returns(r Return) {
	x, t := p.fork(), r.Ticket
	t.Lender = SessionID{}
	made := []moment{{}}
	p.far(&x, r.Ticket.Lender, func(y *proxy, answer func(Answer)) {
		y.endsFor(t, r.Outcome, func(v Verdict, then moment) {
			made = append(made, then) // a message may come twice
			p.s.metIf(v == VerdictUncertain && r.Outcome == OutcomeAcked, loanExpired)
			p.s.metIf(v == VerdictUncertain && t.Lent.Passed != 0, runLost)
			answer(Answer{Verdict: v, Op: OpID(len(made) - 1)})
		})
	}, func(a Answer) {
		if a.Err != nil {
			p.unheard(r.Ticket)
		}
		p.lentAt = made[a.Op]
		p.take(p.core.Returned(p.time(), r.Loan, a.Verdict))
	})
}

// unheard records that the lender of a ticket may not know how its operation ended. Without read
// repair no client continues with the reference.
func (p *proxy) unheard(tk Ticket) { p.s.unheard[held{tk.Key, tk.Ref}] = true }

// endsFor ends a ticket for another proxy. The verdict counts from the moment when it is made.
func (p *proxy) endsFor(t Ticket, o Outcome, answer func(v Verdict, at moment)) {
	p.ends(t, o, func(v Verdict, at moment) {
		at.lender, at.suspect = true, p.suspect()
		if v == VerdictTell && o == OutcomeAcked && !p.valid() && !p.s.strict && !p.s.check.window(t.Key, t.Epoch).once {
			p.s.fail("C5/C12: a verdict without a valid session")
		}
		answer(v, at)
	}, func() {})
}

// endsThere ends a ticket that was lent for one operation.
func (p *proxy) endsThere(tk Ticket, o Outcome, tell func(v Verdict, at moment), then func()) {
	x, t := p.fork(), tk
	t.Lender = SessionID{}
	made := []moment{{lender: true}}
	p.far(&x, tk.Lender, func(y *proxy, answer func(Answer)) {
		y.endsFor(t, o, func(v Verdict, then moment) {
			made = append(made, then) // a message may come twice
			answer(Answer{Verdict: v, Op: OpID(len(made) - 1)})
		})
	}, func(a Answer) {
		if a.Err != nil {
			p.unheard(tk)
		}
		tell(a.Verdict, made[a.Op])
		then()
	})
}

// place asks for a reference: at the own core, or where that says that it hands references out.
// then gets the answer, and the session that has the reference. The operation at the own core is
// returned.
func (p *proxy) place(x *chance, k Key, q Request, then func(at SessionID, a Answer)) OpID {
	op := p.op(k, q.Ref, func(a Answer) {
		var e *ElsewhereError
		if q.Ref != 0 || !errors.As(a.Err, &e) {
			then(p.session.id, a)
			return
		}
		if q.Place != PlaceAny {
			p.s.fail("a LOCK that was refused elsewhere is sent there again")
		}
		p.placeThere(x, k, q, e.Session, then)
	})
	p.take(p.core.Lock(p.time(), op, k, q))
	return op
}

// placeThere asks another proxy for a reference, and the own core again if there is none.
func (p *proxy) placeThere(x *chance, k Key, q Request, to SessionID, then func(at SessionID, a Answer)) {
	again, sent, lends := q, p.time(), x.n(4) != 0
	again.Place, q.Place = PlaceHere, PlaceBlock
	if q.Token == ([16]byte{}) {
		p.s.tokens++
		q.Token = [16]byte{byte(p.s.tokens), byte(p.s.tokens >> 8), 1}
	}
	op := p.op(k, 0, func(a Answer) { then(to, a) })
	p.take(p.core.AddRemoteWait(op, k, q.Token))
	p.far(x, to, func(y *proxy, answer func(Answer)) {
		q.Via = p.core.Borrower(p.time())
		op := y.op(k, 0, func(a Answer) {
			if lends && a.Err == nil && a.Grant.State == StateHeld {
				y.lends(p.core.Borrower(p.time()), k, a.Grant.Ref, Put, func(b Answer) {
					a.Ticket = b.Ticket
					answer(a)
				})
				return
			}
			answer(a)
		})
		w := y.waits[op]
		w.far = true
		y.waits[op] = w
		y.take(y.core.Lock(y.time(), op, k, q))
	}, func(a Answer) {
		p.s.metIf(errors.Is(a.Err, ErrNoBlock), notElsewhere)
		p.s.metIf(a.Err == nil && a.Grant.State == StateHeld, waitedElsewhere)
		_, waited := p.waits[op]
		p.core.RemoveRemoteWait(op, k, q.Token)
		if tk := a.Ticket; tk.Lent != nil {
			p.borrow(sent, tk)
		}
		if !waited {
			return // it was told already
		}
		delete(p.waits, op)
		if a.Err != nil {
			p.place(x, k, again, then)
			return
		}
		if a.Grant.State == StateLost {
			p.s.check.lost(k, a.Grant.Ref)
		}
		then(to, a)
	})
}

// isFar reports whether another session has the client's reference.
func (c *client) isFar() bool { return c.at != (SessionID{}) && c.at != c.p.session.id }

// ifHere drops what comes after a restart of the client.
func (c *client) ifHere(do func(Answer)) func(Answer) {
	loop := c.loop
	return func(a Answer) {
		if c.loop == loop {
			do(a)
		}
	}
}

// lockFar renews the lock, or asks for its state, at the session that has the reference.
func (c *client) lockFar(x *chance, q Request) {
	k := c.key
	c.p.far(x, c.at, func(y *proxy, answer func(Answer)) {
		y.take(y.core.Lock(y.time(), y.op(k, q.Ref, answer), k, q))
	}, c.ifHere(func(a Answer) {
		if !c.sentOn(a.Err, c.lock) {
			c.locked(a)
		}
	}))
}

// sentOn reports whether the client tries again, since the reference may be at another session.
func (c *client) sentOn(err error, again func()) bool {
	var e *ElsewhereError
	switch {
	case c.ref == 0 || c.tries >= 10 || c.s.closing:
		return false
	case errors.As(err, &e):
		c.at = e.Session
	case errors.Is(err, errNotThere), errors.Is(err, errNoAnswer), errors.Is(err, ErrNoSession), errors.Is(err, ErrDraining):
		c.at = SessionID{}
	default:
		return false
	}
	c.tries++
	c.after(2*c.short(), again)
	return true
}

// beginFar begins an operation under a reference of another session: under a loan, or with a ticket
// for this operation alone.
func (c *client) beginFar(x *chance, r LockRef, kind Kind) {
	p, k := c.p, c.key
	if tk, ok := p.borrowed(k, r, kind); ok {
		c.tries = 0
		c.use(x, r, tk)
		return
	}
	c.s.met(loanAsked)
	sent := p.time()
	borrowed := func(a Answer) {
		if a.Ticket.Lent != nil {
			p.borrow(sent, a.Ticket)
		}
	}
	here := c.ifHere(func(a Answer) {
		switch tk := a.Ticket; {
		case tk.Lent != nil:
			c.begunAgain(x, r, kind)
		case tk.OK():
			c.tries = 0
			c.use(x, r, tk)
		case r != c.ref:
			c.after(x.short(), c.work)
		case !c.sentOn(a.Err, c.work):
			c.refused(a.Err)
		}
	})
	p.far(x, c.at, func(y *proxy, answer func(Answer)) { y.lends(p.core.Borrower(p.time()), k, r, kind, answer) }, func(a Answer) {
		borrowed(a)
		here(a)
	})
}

// begunAgain begins the operation after a loan came, which may not be usable.
func (c *client) begunAgain(x *chance, r LockRef, kind Kind) {
	if c.tries++; c.tries > 20 {
		c.again()
		return
	}
	c.beginFar(x, r, kind)
}

// unlockFar unlocks: under a loan by passing the lock on, or by giving the loan back along with the
// UNLOCK.
func (c *client) unlockFar(x *chance) {
	p, k, r := c.p, c.key, c.ref
	back, passed, fx := p.core.GiveBack(p.time(), k, r)
	if passed {
		c.s.check.passedOn(p, k, r, fx.Answers[0].Grant.Ref)
	}
	p.take(fx)
	if passed {
		c.again()
		return
	}
	back.Ticket.Lender = SessionID{}
	p.far(x, c.at, func(y *proxy, answer func(Answer)) {
		if back.Ticket.OK() {
			y.ends(back.Ticket, back.Outcome, func(Verdict, moment) {}, func() {})
		}
		y.take(y.core.Unlock(y.time(), y.op(k, r, answer), k, r))
	}, c.ifHere(func(Answer) { c.again() }))
}
