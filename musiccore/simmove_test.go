package musiccore

import (
	"errors"
	"time"
)

// movingClient is a client that changes its proxy at random, or because it must.
type movingClient struct {
	chance
	n     int
	p     *proxy
	place Place
	owner *proxy // the proxy that gave the last ticket
	key   Key
	ref   LockRef
	left  int
	tries int
	turn  int // numbers the requests: the answer to an earlier one is dropped
}

// ask makes a request of the client: answered once, or given up after a second.
func (c *movingClient) ask(do func(p *proxy, wait func(Answer)), then func(y *proxy, a Answer)) {
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

func (c *movingClient) move() {
	if to := c.s.proxies[c.chance.n(len(c.s.proxies))]; !to.quit || c.p == nil {
		c.p = to
	}
}

func (c *movingClient) after(d time.Duration, do func()) { c.s.after(d, do) }

func (c *movingClient) start() {
	if c.s.closing {
		return
	}
	s := c.s
	c.key, c.ref, c.tries, c.place = s.keys[c.chance.n(len(s.keys))], 0, 0, PlaceAny
	c.left = c.chance.n(12)
	if opened := s.check.key(c.key).opened; opened > 0 && s.store.repair && c.strikes(refForged, 4) {
		c.ref, c.left = max(1, opened-LockRef(c.chance.n(2))), 20 // a reference that another client has, or had
		c.after(c.short(), c.work)
		return
	}
	if c.happens(aSection) {
		c.after(c.slow(), c.lock)
		return
	}
	c.after(c.slow(), c.start)
}

func (c *movingClient) lock() {
	c.s.tell("roamer %d LOCK %s %d at proxy %d", c.n, c.key.PK, c.ref, c.p.n)
	c.ask(func(p *proxy, wait func(Answer)) {
		q := Request{Ref: c.ref, Closed: c.s.closed, Place: c.place}
		if c.ref == 0 && p != c.p {
			q.Place = PlaceBlock
		}
		p.take(p.core.Lock(p.time(), p.op(c.key, c.ref, wait), c.key, q))
	}, c.locked)
}

func (c *movingClient) locked(y *proxy, a Answer) {
	c.s.tell("roamer %d hears %v %d %v", c.n, a.Grant.State, a.Grant.Ref, errText(a.Err))
	switch {
	case errors.Is(a.Err, ErrNoBlock):
		c.place = PlaceHere
		c.lock()
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

// retry tries again, perhaps through another proxy, unless that cannot succeed.
func (c *movingClient) retry(err error, again func()) {
	c.tries++
	if errors.Is(err, ErrLost) && c.tries < 60 && c.strikes(refForged, 3) {
		c.move() // tries again although the lock is lost
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

func (c *movingClient) work() {
	x := c.fork()
	if c.s.closing {
		c.left = 0 // so that the clients behind it get the lock
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
	c.begin(&x, x.kind())
}

// leftBy pauses, shuts down or crashes the owner while its client works.
func (c *movingClient) leftBy(x *chance, p *proxy) {
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

func (c *movingClient) begin(x *chance, kind Kind) {
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
		if y != c.p {
			c.s.met(borrowed)
			a.Ticket.Known = nil // it does not travel
		}
		c.use(x, y, a.Ticket)
	})
}

func (c *movingClient) unlock(x *chance) {
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

// use sends an operation over the client's own connection, and reports its outcome to the proxy
// that gave the ticket.
func (c *movingClient) use(x *chance, y *proxy, tk Ticket) {
	s, e := c.s, &clientEnding{c: c, x: x, y: y, life: y.life, tk: tk}
	if tk.Kind == Get {
		k := y.core.keys[tk.Key]
		g := s.check.getsAllowed(tk, k != nil && k.term != nil && k.term.ops.flight.puts == 0)
		s.read(x, tk, func(seen cell, ok bool) {
			e.tell = func(at moment) { s.check.answeredGet(y, tk, seen.visible(), g, at) }
			e.send(ok)
		})
		return
	}
	e.value = s.newValue(tk.Key)
	e.tk.Known = e.value
	s.check.values[e.value].stamp = tk.Stamp
	m := &mutation{stamp: tk.Stamp, value: e.value, root: s.check.window(tk.Key, tk.Epoch).root}
	s.store.expect(tk.Key, m)
	s.tell("roamer %d PUT %s %d, stamp %d, ticket of proxy %d", c.n, tk.Key.PK, e.value, tk.Stamp-t0, y.n)
	e.tell = func(at moment) { s.check.ackedPut(y, tk, e.value, at) }
	s.store.write(x, tk.Key, m, e.send)
}
