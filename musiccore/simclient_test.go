package musiccore

import (
	"errors"
	"time"
)

// client is an application: it locks a key, does some puts and gets, unlocks, and begins again.
type client struct {
	chance
	n     int
	p     *proxy
	key   Key
	ref   LockRef
	at    SessionID // which has the reference; zero: it is not known
	tries int       // to reach it
	left  int
	life  int
	loop  int // counts restarts: answers to an earlier loop are dropped
	token [16]byte
	once  Kind // not 0: the lock is for one statement of this kind
	empty bool // its key was empty
}

// watch restarts the client when its proxy has restarted.
func (c *client) watch() {
	if c.p.quit {
		c.move()
	}
	if c.life != c.p.life {
		c.life = c.p.life
		c.loop++
		c.again()
	}
	c.s.after(500*time.Millisecond, c.watch)
}

// move changes to another proxy. Answers of the one before are dropped.
func (c *client) move() {
	to := c.s.proxies[c.chance.n(len(c.s.proxies))]
	if !to.quit {
		c.p, c.life = to, to.life-1
		c.loop++
	}
}

// again begins another section after a while.
func (c *client) again() {
	if c.s.closing {
		return
	}
	if c.s.lends {
		c.after(c.short(), c.next)
		return
	}
	c.after(c.slow(), c.next)
}

// after runs do later, unless the client or its proxy has restarted by then.
func (c *client) after(d time.Duration, do func()) {
	loop := c.loop
	c.p.after(d, func() {
		if c.loop == loop {
			do()
		}
	})
}

func (c *client) next() {
	s := c.s
	x := c.fork()
	c.key, c.ref, c.at, c.tries = s.keys[x.n(len(s.keys))], 0, SessionID{}, 0
	c.left = x.n(12)
	if x.strikes(clientMany, 8) {
		c.left = 60
	}
	if s.lends && x.n(4) != 0 {
		c.left = x.n(4) // short sections, for which blocks are
	}
	c.token = [16]byte{}
	if x.n(2) == 0 {
		s.tokens++
		c.token = [16]byte{byte(s.tokens), byte(s.tokens >> 8), 1}
	}
	c.once, c.empty = 0, false
	if x.n(4) == 0 {
		c.key, c.left = s.freshKey(&x), min(c.left, 1+x.n(3))
		c.once = [...]Kind{0, BlindPut, BlindPut, Get, Get}[x.n(5)]
	}
	if s.closing || !x.happens(aSection) {
		c.again()
		return
	}
	c.lock()
}

func (c *client) lock() {
	x := c.fork()
	q := Request{
		Ref: c.ref, Token: c.token, NoWait: c.ref == 0 && x.n(10) == 0, AtOnce: x.n(10) == 0 && !c.s.lends,
		Closed: c.s.closed,
	}
	if c.ref == 0 {
		q.Once, q.Behind = c.once, c.once != 0 && x.n(3) == 0
	}
	c.s.tell("client %d LOCK %s %d at proxy %d", c.n, c.key.PK, c.ref, c.p.n)
	if c.ref != 0 && c.isFar() {
		c.lockFar(&x, q)
		return
	}
	loop := c.loop
	op := c.p.place(&x, c.key, q, func(at SessionID, a Answer) {
		if c.loop == loop && !c.sentOn(a.Err, c.lock) {
			c.at = at
			c.locked(a)
		}
	})
	if !x.strikes(clientGone, 15) {
		return
	}
	p := c.p
	c.after(x.slow(), func() {
		if _, waits := p.waits[op]; waits {
			delete(p.waits, op)
			p.take(p.core.ClientGone(p.time(), op))
			c.again()
		}
	})
}

// op registers an operation at the client's proxy.
func (c *client) op(r LockRef, answer func(Answer)) OpID {
	loop := c.loop
	return c.p.op(c.key, r, func(a Answer) {
		if c.loop == loop {
			answer(a)
		}
	})
}

func (c *client) locked(a Answer) {
	c.s.tell("client %d hears %v %d %v", c.n, a.Grant.State, a.Grant.Ref, errText(a.Err))
	switch {
	case a.Err != nil:
		c.again()
	case a.Grant.State == StateHeld:
		c.ref, c.empty = a.Grant.Ref, a.Grant.Empty
		c.work()
	case a.Grant.State == StateQueued && !c.strikes(clientGone, 8):
		c.ref = a.Grant.Ref
		if c.ref == 0 && c.token == ([16]byte{}) {
			c.again()
			return
		}
		c.after(c.short(), c.lock)
	default:
		c.again()
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// work does the next operation of the section.
func (c *client) work() {
	x := c.fork()
	if !c.s.store.repair && c.s.unheard[held{c.key, c.ref}] {
		c.again()
		return
	}
	switch {
	case c.left == 0 || x.n(40) == 0:
		c.end(&x)
		return
	case x.strikes(clientMoves, 60):
		c.move()
		c.s.tell("client %d goes on at proxy %d", c.n, c.p.n)
		c.life = c.p.life
	}
	c.left--
	if !x.happens(anOperation) {
		c.after(x.short(), c.work)
		return
	}
	c.begin(&x, c.kindOf(&x))
}

// kindOf draws what the next operation is: the first one of a lock for one statement is that.
func (c *client) kindOf(x *chance) Kind {
	first := c.once
	c.once = 0
	switch {
	case c.empty && x.n(4) != 0:
		c.empty = false
		return FencedPut
	case first == BlindPut:
		return BlindPut
	}
	c.empty = false
	return x.kind()
}

// kind draws what an operation is.
func (x *chance) kind() Kind { return [...]Kind{Put, BlindPut, Get, Get}[x.n(4)] }

func (c *client) end(x *chance) {
	if x.strikes(clientForgets, 6) {
		c.again()
		return
	}
	c.s.tell("client %d UNLOCK %s %d", c.n, c.key.PK, c.ref)
	if c.isFar() {
		c.unlockFar(x)
		return
	}
	op := c.op(c.ref, func(Answer) { c.again() })
	c.p.take(c.p.core.Unlock(c.p.time(), op, c.key, c.ref))
}

func (c *client) begin(x *chance, kind Kind) {
	p, r := c.p, c.ref
	if x.strikes(refForged, 40) && c.s.store.repair { // two clients of one reference pipeline
		r = max(1, r+LockRef(x.n(5)-2))
	}
	if c.isFar() {
		c.beginFar(x, r, kind)
		return
	}
	op := c.op(r, func(a Answer) {
		switch {
		case a.Err == nil:
			c.use(x, r, a.Ticket)
		case r != c.ref:
			c.after(x.short(), c.work)
		case c.sentOn(a.Err, c.work):
		default:
			c.refused(a.Err)
		}
	})
	tk, fx := p.core.Begin(p.time(), op, c.key, r, kind)
	if tk.OK() {
		delete(p.waits, op)
		c.s.check.ticketed(p, tk)
	}
	p.take(fx)
	if tk.OK() {
		c.use(x, r, tk)
	}
}

func (c *client) refused(err error) {
	c.s.tell("client %d is refused: %v", c.n, err)
	c.s.metIf(errors.Is(err, ErrElsewhere), toldElsewhere)
	c.s.metIf(errors.Is(err, ErrLost), toldLost)
	c.s.metIf(errors.Is(err, ErrSynchronising), toldSynchronising)
	if errors.Is(err, ErrLost) && c.strikes(refForged, 3) {
		c.after(c.short(), c.lock) // asks for its state
		return
	}
	c.again()
}

// use sends the operation on the client's own connection.
func (c *client) use(x *chance, asked LockRef, tk Ticket) {
	if tk.Ref != asked {
		c.s.fail("E2: a ticket of reference %d for reference %d", tk.Ref, asked)
	}
	if tk.Kind == Get {
		c.get(x, tk)
		return
	}
	if x.n(3) == 0 && tk.Fence == 0 {
		c.putBeside(x, tk)
		return
	}
	c.put(x, tk)
}

// putBeside puts a value into another column, which no get of the simulation reads. Such a put
// settles nothing in the column that is read.
func (c *client) putBeside(x *chance, tk Ticket) {
	p, life, loop := c.p, c.p.life, c.loop
	c.s.tell("client %d PUT %s beside, stamp %d", c.n, tk.Key.PK, tk.Stamp-t0)
	c.s.after(x.short(), func() {
		p.hears(life, func() {
			p.ends(tk, OutcomeAcked, func(verdict Verdict, at moment) {
				if verdict == VerdictTell {
					c.s.check.told(p, tk, at)
				}
			}, func() {
				if c.loop == loop {
					c.after(c.think(x), c.work)
				}
			})
		})
	})
}

// putting is a put under way.
type putting struct {
	c     *client
	x     *chance
	p     *proxy
	life  int
	loop  int // of the client that waits for the answer; 0: none, the put is pipelined
	tk    Ticket
	value int
	m     *mutation
	empty getting // of a FencedPut, which tells its client that the key was empty
}

// put sends a put. A client that pipelines continues without its answer.
func (c *client) put(x *chance, tk Ticket) {
	s := c.s
	v := s.newValue(tk.Key)
	s.check.values[v].stamp = tk.Stamp
	tk.Known = v
	w := &putting{c: c, x: x, p: c.p, life: c.p.life, tk: tk, value: v}
	w.m = &mutation{stamp: tk.Stamp, value: v, dead: tk.Fence, root: s.check.window(tk.Key, tk.Epoch).root}
	w.empty = s.check.getsAllowed(tk, false)
	s.store.expect(tk.Key, w.m)
	s.tell("client %d PUT %s %d, stamp %d", c.n, tk.Key.PK, v, tk.Stamp-t0)
	pipelined := s.store.repair && x.n(4) == 0
	if !pipelined {
		w.loop = c.loop
	}
	if x.strikes(putLate, 15) {
		s.after(x.late(), w.send)
	} else {
		w.send()
	}
	if pipelined {
		c.work()
	}
}

func (w *putting) send() {
	if w.x.strikes(putRefused, 30) {
		w.m.left--
		w.answered(OutcomeRefused)
		return
	}
	w.c.s.store.write(w.x, w.tk.Key, w.m, func(acked bool) {
		o := OutcomeUnknown
		if acked {
			o = OutcomeAcked
		}
		w.answered(o)
	})
}

// answered delivers the store's answer to the process, if that has not restarted.
func (w *putting) answered(o Outcome) {
	if w.p.life != w.life {
		w.c.s.check.over(w.tk.Key, w.value)
		return
	}
	w.p.hears(w.life, func() { w.ends(o) })
}

func (w *putting) ends(o Outcome) {
	s, p := w.c.s, w.p
	if o == OutcomeAcked && w.tk.Fence != 0 {
		s.check.fenced(w.tk)
	}
	p.ends(w.tk, o, func(verdict Verdict, at moment) {
		s.tell("client %d PUT %d ends: %v, told %v", w.c.n, w.value, o, verdict)
		if verdict == VerdictTell && o == OutcomeAcked && w.tk.Fence != 0 {
			s.met(onceFenced)
			s.metIf(!s.check.window(w.tk.Key, w.tk.Epoch).once, fencedBehind)
			s.check.answeredGet(p, w.tk, 0, w.empty, at)
		}
		s.metIf(verdict == VerdictLost && s.check.window(w.tk.Key, w.tk.Epoch).once, onceSuperseded)
		if verdict == VerdictTell && o == OutcomeAcked {
			s.check.ackedPut(p, w.tk, w.value, at)
		}
		s.metIf(verdict == VerdictUncertain && o == OutcomeUnknown, toldUnknown)
		s.metIf(verdict == VerdictUncertain && o == OutcomeAcked, ackedTooLateForPut)
		s.metIf(verdict == VerdictLost, putLost)
		s.mixIn(uint64(verdict))
		s.check.over(w.tk.Key, w.value)
	}, func() { w.told(o) })
}

// told continues when the client has its answer.
func (w *putting) told(o Outcome) {
	w.twice(o)
	if w.loop != 0 && w.c.loop == w.loop {
		w.c.after(w.c.think(w.x), w.c.work)
	}
}

// twice sometimes ends the ticket a second time, which must have no effect.
func (w *putting) twice(o Outcome) {
	if !w.x.strikes(endTwice, 20) {
		return
	}
	verdict, fx := w.p.core.End(w.p.time(), w.tk, o)
	if verdict == VerdictTell || verdict == VerdictPending {
		w.c.s.fail("E6: an operation ends twice")
	}
	w.p.take(fx)
}

func (c *client) get(x *chance, tk Ticket) {
	s, p, life, loop := c.s, c.p, c.p.life, c.loop
	g := s.check.getsAllowed(tk, p.still(tk))
	s.read(x, tk, func(seen cell, ok bool) {
		p.hears(life, func() {
			o := OutcomeUnknown
			if ok {
				o = OutcomeAcked
			}
			p.ends(tk, o, func(verdict Verdict, at moment) {
				s.tell("client %d GET %s: %d, told %v", c.n, tk.Key.PK, seen.visible(), verdict)
				if ok && verdict == VerdictTell {
					s.check.answeredGet(p, tk, seen.visible(), g, at)
				}
				s.mixIn(uint64(seen.visible())<<2 | uint64(verdict))
			}, func() {
				if c.loop == loop {
					c.after(c.think(x), c.work)
				}
			})
		})
	})
}

// read reads for a get: from the store, or what the ticket knows.
func (s *sim) read(x *chance, tk Ticket, back func(seen cell, ok bool)) {
	if v, ok := tk.Known.(int); ok && x.n(4) != 0 {
		s.met(knownRead)
		back(cell{stamp: 1, value: v}, true)
		return
	}
	s.store.get(x, tk.Key, back)
}

// still reports whether no put of a ticket's term is in flight, nor was left so.
func (p *proxy) still(tk Ticket) bool {
	y, loans := p, 0
	if tk.Lender != (SessionID{}) {
		y = p.s.proxyOf(tk.Lender)
	}
	if tk.Loan != 0 {
		l := p.core.lending.loans[tk.Loan]
		if l == nil || len(l.flight) != 1 {
			return false
		}
		loans = 1
	}
	if y == nil || y.core.keys[tk.Key] == nil || y.core.keys[tk.Key].term == nil {
		return false
	}
	f := &y.core.keys[tk.Key].term.ops.flight
	return f.loans == loans && f.puts == loans
}

func (c *client) think(x *chance) time.Duration {
	if x.strikes(clientSlow, 40) {
		return x.late()
	}
	return x.short()
}
