package musiccore

import "time"

// atRest reports whether nothing is under way and nothing is left over (I11, E8): no operation
// without an answer, no key that a core still needs, no reference of a living session in a queue.
func (s *sim) atRest() bool {
	if s.tally.faults[tableLost] > 0 && s.now < s.closedAt+visits {
		return false // forgotten references are found by a visit
	}
	for _, p := range s.proxies {
		if !p.quit && (s.now < p.paused || len(p.waits)+len(p.core.ops)+len(p.core.keys)+len(p.core.lending.loans) > 0) {
			return false
		}
	}
	return true
}

// orphans checks I11 at rest: the queues have references of dead sessions only.
func (s *sim) orphans() {
	for _, k := range s.allKeys() {
		row := s.store.row(k).latest()
		if row == nil {
			continue
		}
		for r := row.Head; r <= row.Guard; r++ {
			id, ok := row.ownerOf(r)
			if !ok {
				s.fail("I11: reference %d is in no block: %s", r, brief(row))
				return
			}
			if p := s.bySession[id]; p.session.id == id && !p.quit && p.valid() {
				s.fail("I11/H3: reference %d of the living session %x is nobody's", r, id[:2])
			}
		}
	}
}

// lastLocks has one client lock, write, read and unlock every key. The function that it returns
// reports whether all keys are done and everything is at rest again.
func (s *sim) lastLocks() func() bool {
	s.orphans()
	left := len(s.keys)
	for _, k := range s.keys {
		c := &client{n: len(s.clients) + 1, chance: s.newChance()}
		c.p = s.proxies[0]
		for c.p.quit {
			c.move()
		}
		s.lastLock(c, k, func() { left-- })
	}
	return func() bool { return left == 0 && s.atRest() }
}

// lastLock does one section, and repeats it if its process restarts meanwhile.
func (s *sim) lastLock(c *client, k Key, done func()) {
	c.key, c.life, c.loop = k, c.p.life, 1
	held := false
	s.tokens++
	c.token = [16]byte{byte(s.tokens), byte(s.tokens >> 8), 2}
	var lock func()
	lock = func() {
		loop, x := c.loop, c.fork()
		c.p.place(&x, k, Request{Token: c.token, Closed: s.closed}, func(at SessionID, a Answer) {
			if c.loop != loop {
				return
			}
			if a.Err != nil || a.Grant.State != StateHeld {
				c.p.after(c.short(), lock)
				return
			}
			c.ref, c.at, c.left, held = a.Grant.Ref, at, 4, true
			done()
			c.work()
		})
	}
	var insist func()
	insist = func() {
		if !held && c.life != c.p.life {
			c.life = c.p.life
			c.loop++
			lock()
		}
		s.after(500*time.Millisecond, insist)
	}
	lock()
	insist()
}

// audit checks E7: at rest no queue has a reference of a living session, and nothing that may still
// arrive changes a value.
func (c *checker) audit() {
	c.s.orphans()
	for _, k := range c.s.allKeys() {
		row, d := c.s.store.row(k).latest(), c.s.store.data(k)
		if row == nil || !row.Empty() || row.DirtySince(c.s.closed) {
			continue // the last holder's session has died since, or nothing was written
		}
		c.settled(k, "E7: at rest and clean")
		c.equal(k, d)
	}
}

// equal checks that the value stays the same when all pending mutations have arrived everywhere.
func (c *checker) equal(k Key, d *keyData) {
	before := d.sees(c.s.store.quorums[0]).visible()
	all := d.sees(1<<len(d.cells) - 1)
	for _, m := range d.pending {
		if m.left > 0 {
			all.take(m)
		}
	}
	if v := all.visible(); v != before {
		c.s.fail("E7: at rest %s shows %v, and when all has arrived %v", k.PK, c.named(before), c.named(v))
	}
}
