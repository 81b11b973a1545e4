package musiccore

import "time"

// clocks are the clocks of one process. clk hardly moves except by jumps, so that windows come to
// touch by arithmetic and are not kept apart by the passing of time.
type clocks struct {
	rate    float64       // of the raw clock
	slew    float64       // of BOOTTIME and the wall clock, against the raw one
	since   time.Duration // since when they have these rates
	boot    time.Duration // what BOOTTIME showed then
	stopped time.Duration // for how long BOOTTIME stood still
	halted  time.Duration // for how long the raw clock stood still
	mayStop bool          // BOOTTIME may stand still; otherwise the wall clock may jump back
	wall    Stamp         // how far the wall clock is off
	skew    Stamp         // how far clk() is off
	gone    time.Duration // until then there is no clk()
}

func (p *proxy) time() Now {
	s, c := p.s, &p.clocks
	raw := float64(s.now-c.since) * c.rate
	slewed := time.Duration(raw * c.slew)
	n := Now{Boot: c.boot + slewed - c.stopped, Raw: c.boot/2 + time.Duration(raw) - c.halted, Wall: t0 + Stamp((c.since + slewed).Microseconds()) + c.wall}
	if s.now >= c.gone {
		n.Clk = p.clk()
	}
	return n
}

// clk returns this process's clk() if the nodes' clocks did not differ too much.
func (p *proxy) clk() Stamp {
	return t0 + Stamp(p.s.now/time.Millisecond/16) + p.s.lapse + p.clocks.skew
}

// setClocks draws the clocks of a new process: the rates of any two differ by eps at most, or by
// much more.
func (p *proxy) setClocks() {
	s := p.s
	c := clocks{rate: 1, slew: 1, since: s.now, boot: s.now + time.Duration(p.chance.n(1000))*time.Second, mayStop: p.chance.n(2) == 0}
	c.skew = p.between(-1000, 1000)
	eps := s.opts.Drift * 0.99
	switch {
	case s.wild && p.happens(clockWild):
		c.rate = 0.25 + float64(p.chance.n(16))/8
	case p.strikes(clockRate, 2):
		c.rate = 1 + eps*float64(p.chance.n(5))/4
	}
	if p.strikes(clockSlewed, 2) {
		c.slew = 0.9 + float64(p.chance.n(5))/20
	}
	p.clocks = c
}

func (p *proxy) newSession() {
	s := p.s
	s.lives++
	id := SessionID{byte(s.lives), byte(s.lives >> 8)}
	p.session = NewSession(id, p.opts)
	s.store.leases[id] = p.opts.SessionLease
	s.bySession[id] = p
	s.tell("proxy %d lives as session %x", p.n, id[:2])
}

// valid reports whether the process's session is valid, whether or not it knows.
func (p *proxy) valid() bool {
	d := p.session.deadline.Load()
	return d != nil && !p.session.Dead() && !d.passed(p.time())
}

// beat reads the session's own row and the store's clock, writes a beat, and reads both again.
func (p *proxy) beat() {
	if p.session.Dead() || !p.session.notPassed(p.time()) {
		p.s.met(sessionDied)
		p.s.metIf(p.core.HasLoansOut(p.time()), rejoinedLent)
		p.newSession()
		p.take(p.core.Rejoin(p.time(), p.session))
		p.take(p.core.Strict(p.time(), [16]byte{}, p.s.strict, p.session.ID()))
	}
	mine, x, life := p.session, p.fork(), p.life
	p.look(&x, mine, func(start Now) {
		n, ok := mine.Beat(start)
		if !ok {
			return
		}
		p.s.store.writeBeat(&x, mine.id, n, func() {
			p.hears(life, func() { p.ack(&x, mine, start, n) })
		})
	})
	p.after(p.opts.SessionLease/3, p.beat)
}

// ack reads both again: an acknowledged beat counts by the store's clock, too.
func (p *proxy) ack(x *chance, mine *Session, start Now, n int64) {
	var look Look
	look = p.look(x, mine, func(now Now) {
		p.acked(mine, now, start, n)
		_ = mine.Saw(now, look, n)
	})
}

// look reads the session's own row and the store's clock.
func (p *proxy) look(x *chance, mine *Session, then func(now Now)) Look {
	life, look, begun := p.life, mine.Look(p.time()), p.s.now
	if begun < p.cut {
		return look
	}
	p.s.store.look(x, mine.id, func(beat int64, clock Stamp) {
		p.hears(life, func() {
			now := p.time()
			now.Store = clock
			if err := mine.Saw(now, look, beat); err != nil {
				p.s.fail("C5: %v", err)
			}
			if mine == p.session && begun >= p.frozen {
				p.frozen = 0
			}
			then(now)
		})
	})
	return look
}

// suspect reports whether the clocks stood still and the process cannot know yet. Until its next
// read of the store's clock its answers may be wrong, unless the table is strict
// (docs/guarantees.md, Leases and clocks).
func (p *proxy) suspect() bool { return p.frozen != 0 }

// acked checks I9: a session that others have found dead never becomes valid again.
func (p *proxy) acked(mine *Session, now, start Now, n int64) {
	if mine.Dead() || !mine.notPassed(now) {
		p.s.met(ackedTooLate)
	}
	mine.Acked(now, start, n)
	if p.s.check.dead[mine.id] && p.valid() && mine == p.session && !p.s.wild && !p.suspect() {
		p.s.fail("I9/C5: session %x was found dead and is valid again", mine.id[:2])
	}
}

// notPassed reports whether the deadline is in the future, or there is none yet.
func (s *Session) notPassed(now Now) bool {
	d := s.deadline.Load()
	return d == nil || !d.passed(now)
}

// stop has BOOTTIME and the raw clock stand still for a time.
func (c *clocks) stop(by time.Duration) {
	c.stopped += time.Duration(float64(by) * c.rate * c.slew)
	c.halted += time.Duration(float64(by) * c.rate)
}

func (p *proxy) jump() {
	if p.strikes(clkJump, 2) {
		p.clocks.skew = min(max(p.clocks.skew+p.between(-3000, 3000), -clkBehind), clkAhead)
		if p.chance.n(4) == 0 {
			p.clocks.skew = p.between(-clkBehind, clkAhead)
		}
	}
	if p.strikes(wallJump, 2) {
		p.clocks.wall += p.between(0, 1<<22)
		if !p.clocks.mayStop {
			p.clocks.wall -= 1 << 21
		}
	}
}
