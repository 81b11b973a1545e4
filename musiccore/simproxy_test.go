package musiccore

import "time"

// proxy is a simulated process. It may pause, and crash and restart with another session.
type proxy struct {
	chance
	n       int
	opts    Options
	core    *Core
	session *Session
	life    int           // counts restarts: events of an earlier life are dropped
	paused  time.Duration // until then it does nothing
	cut     time.Duration // until then it cannot reach the lock store
	quit    bool          // it has ended and does not restart
	tick    time.Duration // when the next Tick is due; 0: none
	waits   map[OpID]pendingAnswer
	lastOp  OpID
	clocks  clocks
	frozen  time.Duration // its clocks stood still until then, and it has not read the store's clock since; 0: neither
	lwts    map[Key]*sent
	lentAt  moment // of the lender's verdict that is being handed to the core
	fallen  int    // how many of the core's dead sessions the checker has seen
}

// pendingAnswer is an operation of a client that the core has not answered.
type pendingAnswer struct {
	key    Key
	ref    LockRef // the operation's reference; 0: none
	since  time.Duration
	answer func(Answer)
	far    bool // it is another proxy that tells the client
}

// How far clk() may be behind and ahead of the cluster's clock (docs/protocol.md 2.4, clk).
const (
	clkBehind = Stamp(ClockGap / time.Microsecond)
	clkAhead  = Stamp(time.Second / time.Microsecond)
)

func (p *proxy) boot() {
	p.life++
	p.waits, p.tick, p.fallen, p.cut, p.frozen = map[OpID]pendingAnswer{}, 0, 0, 0, 0
	p.lwts = map[Key]*sent{}
	p.setClocks()
	p.setOptions()
	p.newSession()
	p.core = New(p.session, p.opts)
	if (p.n+p.life)%2 == 0 { // as if the keys before had been new
		p.core.tables[[16]byte{}] = tableFacts{newKeys: newKeysInRow}
	}
	p.take(p.core.Closed(p.time(), [16]byte{}, p.s.closed))
	p.take(p.core.Strict(p.time(), [16]byte{}, p.s.strict, p.session.ID()))
	p.beat()
}

// setOptions draws the options of a process, since the protocol must not depend on all proxies
// having the same.
func (p *proxy) setOptions() {
	p.opts = p.s.opts
	switch p.chance.n(4) {
	case 0:
		p.opts.SessionLease *= 2
	case 1:
		p.opts.SessionLease += p.opts.SessionLease / 4
	}
	if p.chance.n(4) == 0 {
		p.opts.Retain, p.opts.ClientLease = 50*time.Millisecond, time.Second
	}
	if p.opts.SessionLease != p.s.opts.SessionLease {
		p.s.met(otherLease)
	}
}

// after runs do later, unless the process has restarted by then.
func (p *proxy) after(d time.Duration, do func()) {
	p.s.queue.push(p.s.now+d, event{p, p.life, do})
}

// over reports whether a life of the process has ended. One that is gone for ever hears nothing.
func (p *proxy) over(life int) bool { return p.quit || p.life != life }

// hears delivers a message to a life of the process: at the end of a pause, and not at all after a
// restart.
func (p *proxy) hears(life int, do func()) {
	switch {
	case p.over(life):
	case p.s.now < p.paused:
		p.s.queue.push(p.paused, event{p, life, do})
	default:
		do()
	}
}

// mischief does one random fault to the process, and repeats until the faults end.
func (p *proxy) mischief() {
	s := p.s
	if !s.faults {
		return
	}
	switch p.chance.n(8) {
	case 0, 1:
		p.halts()
	case 2:
		if p.strikes(crash, 2) {
			p.crash()
		}
	case 3:
		if p.strikes(shutdown, 2) {
			p.take(p.core.Drain(p.time()))
			p.shutDown(s.now + p.slow())
		}
	case 4:
		p.jump()
	case 5:
		if p.strikes(clkGone, 2) {
			p.clocks.gone = s.now + p.slow()
		}
	case 6:
		p.schema()
	case 7:
		if i := p.chance.n(s.store.replicas); p.strikes(dataDown, 2) {
			s.store.down |= 1 << i
			s.after(p.late(), func() { s.store.down &^= 1 << i })
		}
	}
	s.after(p.late()+p.late()/2, p.mischief)
}

// halts pauses the process, perhaps together with clocks of its machine. It does nothing during a
// pause, since stopping a clock twice would set it back.
func (p *proxy) halts() {
	s := p.s
	if s.now < p.paused {
		return
	}
	by := p.late()
	if p.strikes(cutOff, 2) {
		p.cut = s.now + p.late()/2
		return
	}
	switch {
	case !s.blind() && p.strikes(freeze, 2):
		p.clocks.stop(by)
		p.clocks.wall -= Stamp(time.Duration(float64(by) * p.clocks.rate * p.clocks.slew).Microseconds())
		p.frozen = s.now + by
	case p.clocks.mayStop && p.strikes(suspend, 4):
		p.suspends(by)
	case s.wild && p.happens(pause):
	case !p.strikes(pause, 2):
		return
	}
	p.paused = max(p.paused, s.now+by)
}

// suspends stops BOOTTIME and the raw clock. The proxy can tell by its wall clock, unless that is
// slewed to be slow; then only by the store's clock. If that cannot be read either, this is a pause
// without stopped clocks.
func (p *proxy) suspends(by time.Duration) {
	switch slow := p.clocks.slew < 1; {
	case !slow:
		p.clocks.stop(by)
	case !p.s.blind():
		p.clocks.stop(by)
		p.frozen = p.s.now + by
	}
}

// schema has the process receive a schema event of the table, perhaps a wrong one.
func (p *proxy) schema() {
	if p.strikes(schemaEvent, 2) {
		p.hears(p.life, func() { p.take(p.core.Altered(p.time(), [16]byte{}, 0)) })
	}
	if p.strikes(tableLost, 4) {
		p.hears(p.life, func() {
			p.lwts = map[Key]*sent{}
			p.take(p.core.Dropped(p.time(), [16]byte{}))
			p.visit()
		})
	}
}

// visits is for how long after the last section visit goes on.
const visits = 10 * time.Second

// visit locks every key now and then. Only so does a process find references that it has forgotten.
func (p *proxy) visit() {
	if p.s.closing && p.s.now > p.s.closedAt+visits {
		return
	}
	for _, k := range p.s.allKeys() {
		op := p.op(k, 0, func(a Answer) {
			if a.Err == nil && a.Grant.State == StateHeld {
				p.take(p.core.Unlock(p.time(), p.op(k, a.Grant.Ref, func(Answer) {}), k, a.Grant.Ref))
			}
		})
		p.take(p.core.Lock(p.time(), op, k, Request{NoWait: true, Closed: p.s.closed}))
	}
	p.after(2*time.Second, p.visit)
}

func (p *proxy) crash() {
	for _, k := range p.core.sorted() {
		if k.term != nil && k.term.synch.cmd != 0 {
			p.s.met(crashedInSynch)
		}
		if k.lwt != nil && k.lwt.cmd != 0 {
			p.s.met(crashedInLWT)
		}
	}
	p.boot()
	if p.chance.n(2) == 0 {
		p.paused = p.s.now + p.late()
	}
}

// shutDown ends the session as soon as nothing is under way, and no later than latest
// (docs/protocol.md 3.19, Shutdown).
func (p *proxy) shutDown(latest time.Duration) {
	p.after(20*time.Millisecond, func() {
		lent := p.core.HasLoansOut(p.time())
		p.s.metIf(lent && p.s.now >= latest, drainedLent)
		if lent || (!p.core.Quiet() && p.s.now < latest) {
			p.shutDown(latest)
			return
		}
		for _, k := range p.core.sorted() {
			if k.term != nil && k.term.open {
				p.s.met(endedHolding)
			}
		}
		p.session.End()
		x := p.fork()
		p.s.store.writeBeat(&x, p.session.id, EndedBeat, func() {})
		p.boot()
	})
}

// take carries out the effects of an event.
func (p *proxy) take(fx Effects) {
	s := p.s
	p.digest(fx)
	for _, a := range fx.Alarms {
		if (s.wild || p.suspect()) && a.Rule == "I3" {
			s.metIf(s.wild, wildAlarm)
			continue
		}
		s.fail("alarm %s: %s", a.Rule, a.Text)
	}
	for _, n := range fx.Notes {
		s.check.noted(p, n)
	}
	s.carry(p, fx.Hints)
	s.check.verdicts(p)
	for _, c := range fx.Commands {
		p.do(c)
	}
	for _, r := range fx.Returns {
		p.returns(r)
	}
	for _, a := range fx.Answers {
		p.answer(a)
	}
	p.wakeAt(fx.Wake)
}

func (p *proxy) wakeAt(wake time.Duration) {
	if wake == 0 || (p.tick > p.s.now && wake >= p.tick) {
		return
	}
	p.tick = wake
	d := time.Duration(float64(wake-p.time().Boot)/p.clocks.rate/p.clocks.slew) + 1
	p.after(max(d, time.Millisecond), func() {
		p.tick = 0
		p.take(p.core.Tick(p.time()))
	})
}

func (p *proxy) answer(a Answer) {
	w, ok := p.waits[a.Op]
	if !ok {
		p.s.fail("E6: an answer for operation %d, which does not wait: %+v", a.Op, a)
		return
	}
	delete(p.waits, a.Op)
	p.s.check.answer(p, w, a)
	if a.Ticket.OK() {
		w.answer(a)
		return
	}
	at := p.lentAt // another loan may have returned meanwhile
	p.after(0, func() {
		p.lentAt = at
		w.answer(a)
	})
}

// ofData reports whether a command is for the data, not for the lock store.
func ofData(a Action) bool {
	switch a.(type) {
	case Synch, ReadStamps:
		return true
	}
	return false
}

func (p *proxy) do(c Command) {
	st, life, x := p.s.store, p.life, p.fork()
	back := func(r Result) { p.hears(life, func() { p.take(p.core.Reply(p.time(), c.ID, r)) }) }
	if p.s.now < p.cut && !ofData(c.Action) {
		p.s.after(x.timeout(), func() { back(Result{Cause: errSim}) })
		return
	}
	switch a := c.Action.(type) {
	case ReadRow:
		st.read(&x, p, c.Key, a, back)
	case Apply:
		p.apply(&x, c.Key, a, back)
	case Synch:
		st.copy(&x, p, c.Key, a, back)
	case ReadStamps:
		st.readStamps(&x, c.Key, back)
	case ReadBeat:
		st.readBeat(&x, a.Session, back)
	}
}

func (p *proxy) op(k Key, r LockRef, answer func(Answer)) OpID {
	p.lastOp++
	p.waits[p.lastOp] = pendingAnswer{key: k, ref: r, since: p.s.now, answer: answer}
	return p.lastOp
}

// digest adds the effects to the run's hash.
func (p *proxy) digest(fx Effects) {
	s := p.s
	s.mixIn(uint64(s.now)<<4 | uint64(p.n))
	for _, c := range fx.Commands {
		s.mixIn(uint64(c.ID))
		switch a := c.Action.(type) {
		case Apply:
			s.mixIn(uint64(a.Swap.Set.Row.Epoch)<<8 ^ uint64(a.Swap.Set.Row.Head)<<4 ^ uint64(a.Swap.Set.Row.Guard))
		case Synch:
			s.mixIn(uint64(a.Fence))
		}
	}
	for _, a := range fx.Answers {
		s.mixIn(uint64(a.Op)<<16 ^ uint64(a.Grant.Ref)<<8 ^ uint64(a.Grant.State)<<4 ^ uint64(a.Ticket.Stamp))
	}
	s.mixIn(uint64(fx.Wake))
}
