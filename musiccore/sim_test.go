package musiccore

import (
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	simSeeds = flag.Int("sim.seeds", 2000, "how many seeds the simulation runs")
	trace    = flag.Bool("sim.trace", false, "print what the cores want")
	simFirst = flag.Int("sim.first", 1, "the first seed")
)

// sim is one run of the protocol on virtual time: proxies with clients over
// one store, every fault drawn from one seed.
type sim struct {
	rnd     *rand.Rand
	now     time.Duration
	events  events
	seq     int
	faults  bool
	repair  bool // read_repair = BLOCKING; without it clients do not pipeline
	store   *simStore
	check   *checker
	proxies []*proxy
	failed  error
	values  int
	tokens  int
	session byte
	served  int
	keys    []Key
	opts    Options
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []event

func (h events) Len() int { return len(h) }
func (h events) Less(i, j int) bool {
	return h[i].at < h[j].at || (h[i].at == h[j].at && h[i].seq < h[j].seq)
}
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *events) Push(x any)   { *h = append(*h, x.(event)) }
func (h *events) Pop() any {
	e := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return e
}

func (s *sim) after(d time.Duration, do func()) {
	s.seq++
	heap.Push(&s.events, event{s.now + d, s.seq, do})
}

func (s *sim) fail(format string, args ...any) {
	if s.failed == nil {
		s.failed = fmt.Errorf("at %v: "+format, append([]any{s.now}, args...)...)
	}
}

// run lets everything happen up to a moment.
func (s *sim) run(until time.Duration) {
	for s.failed == nil && len(s.events) > 0 && s.events[0].at <= until {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	s.now = until
}

// options are the numbers of a run: small, and not the same in all.
func (s *sim) options() Options {
	o := Defaults()
	o.SessionLease, o.Margin, o.Grace = time.Second, 50*time.Millisecond, 200*time.Millisecond
	o.ClientLease, o.Untold, o.Wait = 2*time.Second, 600*time.Millisecond, 300*time.Millisecond
	o.OpTimeout, o.Window, o.Idle = 400*time.Millisecond, 48, 4
	o.SettleTries = s.rnd.IntN(3)
	if s.rnd.IntN(2) == 0 {
		o.Grace, o.OpTimeout = 10*time.Millisecond, 3*time.Second
	}
	return o
}

// proxy is a process: it may pause, crash and come back as another.
type proxy struct {
	s       *sim
	core    *Core
	session *Session
	life    int
	paused  time.Duration
	skew    Stamp
	tick    time.Duration
	waits   map[OpID]func(Answer)
	lastOp  OpID
}

func newSim(seed int) *sim {
	s := &sim{rnd: rand.New(rand.NewPCG(uint64(seed), 7)), faults: true, repair: seed%2 == 0, now: time.Minute}
	s.store, s.check, s.opts = newSimStore(s), newChecker(s), s.options()
	for i := range 1 + s.rnd.IntN(2) {
		s.keys = append(s.keys, Key{PK: string(rune('a' + i))})
	}
	s.plainData()
	for range 1 + s.rnd.IntN(2) {
		p := &proxy{s: s}
		s.proxies = append(s.proxies, p)
		p.boot()
		for range 1 + s.rnd.IntN(3) {
			(&client{p: p}).watch()
		}
		s.after(s.late(), p.mischief)
	}
	return s
}

// plainData is what was written before the table was critical: on any number
// of replicas. What is stamped ahead of the clock is on all of them (H5): on
// one alone no QUORUM read need see it, and the protocol promises nothing.
func (s *sim) plainData() {
	for _, k := range s.keys {
		for range s.rnd.IntN(3) {
			s.values++
			m := mutation{stamp: t0/2 + Stamp(s.rnd.IntN(1<<40)), value: s.values}
			ahead := s.rnd.IntN(2) == 0
			if ahead {
				m.stamp = t0 + Stamp(s.rnd.IntN(20_000))
			}
			s.check.key(k).stampOf[m.value] = m.stamp / 2 // older than every put under a lock
			for i := range replicas {
				if ahead || s.rnd.IntN(2) == 0 {
					s.store.data(k)[i].take(m)
				}
			}
		}
	}
}

func (p *proxy) boot() {
	s := p.s
	p.life++
	p.waits, p.tick = map[OpID]func(Answer){}, 0
	p.skew = Stamp(s.rnd.IntN(2000) - 1000)
	p.newSession()
	p.core = New(p.session, p.s.opts)
	p.beat()
}

func (p *proxy) newSession() {
	p.s.session++
	p.session = NewSession(SessionID{p.s.session}, p.s.opts)
}

// time has a clk() that hardly moves, so that windows meet by arithmetic and
// not by the clock's grace.
func (p *proxy) time() Now {
	ms := Stamp(p.s.now / time.Millisecond)
	return Now{Boot: p.s.now, Wall: t0 + Stamp(p.s.now.Microseconds()), Clk: t0 + ms/16 + p.skew}
}

// alive wraps an event of this life of the process: after a crash it is
// nobody's, during a pause it waits.
func (p *proxy) alive(do func()) func() {
	life := p.life
	var run func()
	run = func() {
		switch {
		case p.life != life:
		case p.s.now < p.paused:
			p.s.after(p.paused-p.s.now, run)
		default:
			do()
		}
	}
	return run
}

func (p *proxy) after(d time.Duration, do func()) { p.s.after(d, p.alive(do)) }

func (p *proxy) beat() {
	start := p.time()
	n, ok := p.session.Beat(start)
	if !ok {
		p.newSession()
		p.take(p.core.Rejoin(p.time(), p.session))
		n, _ = p.session.Beat(start)
	}
	mine := p.session
	life := p.life
	p.s.store.writeBeat(mine.id, n, func() {
		p.aliveIn(life, func() { mine.Acked(p.time(), start, n) })()
	})
	p.after(p.s.opts.SessionLease/3, p.beat)
}

func (p *proxy) aliveIn(life int, do func()) func() {
	if p.life != life {
		return func() {}
	}
	return p.alive(do)
}

// mischief pauses or kills the process now and then.
func (p *proxy) mischief() {
	s := p.s
	if !s.faults {
		return
	}
	switch s.rnd.IntN(4) {
	case 0:
		p.paused = s.now + s.late()
	case 1:
		p.boot()
	case 2:
		p.take(p.core.Altered(p.time(), [16]byte{}))
	case 3:
		p.take(p.core.Closed(p.time(), [16]byte{}, p.time().Clk))
	}
	s.after(s.late()+s.late(), p.mischief)
}

// take carries out what the core wants.
func (p *proxy) take(fx Effects) {
	if *trace && (len(fx.Do) > 0 || len(fx.Answers) > 0) {
		fmt.Printf("%v %x do %+v answers %+v\n", p.s.now, p.session.id[:1], fx.Do, fx.Answers)
	}
	for _, a := range fx.Alarms {
		p.s.fail("alarm %+v", a)
	}
	for _, c := range fx.Do {
		p.do(c)
	}
	for _, a := range fx.Answers {
		p.answer(a)
	}
	if fx.Wake != 0 && (p.tick <= p.s.now || fx.Wake < p.tick) {
		p.tick = fx.Wake
		p.after(max(fx.Wake-p.s.now, time.Millisecond), func() { p.take(p.core.Tick(p.time())) })
	}
}

func (p *proxy) answer(a Answer) {
	wait := p.waits[a.Op]
	if wait == nil {
		p.s.fail("an answer for operation %d, which does not wait: %+v", a.Op, a)
		return
	}
	delete(p.waits, a.Op)
	p.s.after(0, p.alive(func() { wait(a) }))
}

func (p *proxy) do(c Command) {
	st, life := p.s.store, p.life
	back := func(r Result) {
		p.aliveIn(life, func() { p.take(p.core.Reply(p.time(), c.ID, r)) })()
	}
	switch a := c.Do.(type) {
	case ReadRow:
		st.read(c.Key, a.Quorum, back)
	case Apply:
		st.swap(c.Key, a.Swap, back)
	case Copy:
		p.s.check.synching(p, c.Key, a)
		st.copy(c.Key, a, back)
	case ReadBeat:
		st.readBeat(a.Session, back)
	}
}

func (p *proxy) op(wait func(Answer)) OpID {
	p.lastOp++
	p.waits[p.lastOp] = wait
	return p.lastOp
}

// client is an application: lock, some puts and gets, unlock, again.
type client struct {
	p     *proxy
	key   Key
	ref   LockRef
	left  int
	life  int
	token [16]byte
}

func (c *client) next() {
	s := c.p.s
	c.key, c.ref = s.keys[s.rnd.IntN(len(s.keys))], 0
	c.left = s.rnd.IntN(12)
	if s.fault(8) {
		c.left = 60 // more than a window
	}
	c.token = [16]byte{}
	if s.rnd.IntN(2) == 0 {
		s.tokens++
		c.token = [16]byte{byte(s.tokens), byte(s.tokens >> 8), 1}
	}
	c.lock()
}

// watch starts the client over when its proxy has come back as another.
func (c *client) watch() {
	if c.life != c.p.life {
		c.life = c.p.life
		c.again()
	}
	c.p.s.after(500*time.Millisecond, c.watch)
}

func (c *client) again() { c.p.after(c.p.s.slow(), c.next) }

func (c *client) lock() {
	s := c.p.s
	q := Request{Ref: c.ref, Token: c.token, NoWait: c.ref == 0 && s.rnd.IntN(10) == 0}
	op := c.p.op(c.locked)
	c.p.take(c.p.core.Lock(c.p.time(), op, c.key, q))
	if s.fault(15) {
		gone := func() {
			if c.p.waits[op] != nil {
				delete(c.p.waits, op)
				c.p.take(c.p.core.Gone(c.p.time(), op))
				c.again()
			}
		}
		c.p.after(s.slow(), gone)
	}
}

func (c *client) locked(a Answer) {
	s := c.p.s
	switch {
	case a.Err != nil:
		c.again()
	case a.Grant.State == Held:
		c.ref = a.Grant.Ref
		s.served++
		s.check.granted(c.key, c.ref, s.now)
		c.work()
	case a.Grant.State == Queued && !s.fault(8):
		c.ref = a.Grant.Ref
		if c.ref == 0 && c.token == ([16]byte{}) {
			c.again()
			return
		}
		c.p.after(s.short(), c.lock)
	default:
		c.again()
	}
}

func (c *client) work() {
	s := c.p.s
	if c.left == 0 || s.fault(40) {
		if s.fault(6) { // forgets to unlock
			c.again()
			return
		}
		op := c.p.op(func(Answer) { c.again() })
		c.p.take(c.p.core.Unlock(c.p.time(), op, c.key, c.ref))
		return
	}
	c.left--
	kind := Kind(1 + s.rnd.IntN(2))
	op := c.p.op(func(a Answer) {
		if a.Err != nil {
			c.again()
			return
		}
		c.use(a.Ticket)
	})
	tk, fx := c.p.core.Begin(c.p.time(), op, c.key, c.ref, kind)
	if tk.OK() {
		delete(c.p.waits, op)
	}
	c.p.take(fx)
	if tk.OK() {
		c.use(tk)
	}
}

// use sends the operation on the client's own connection. One that pipelines
// goes on without waiting for the answer.
func (c *client) use(tk Ticket) {
	s := c.p.s
	if tk.Kind == Get {
		c.get(tk)
		return
	}
	s.values++
	v := s.values
	s.check.ticketed(c.p, tk, v)
	pipelined := s.repair && s.rnd.IntN(4) == 0
	life := c.p.life
	send := func() {
		s.store.write(tk.Key, mutation{stamp: tk.Stamp, value: v}, func(acked bool) {
			c.p.aliveIn(life, func() { c.put(tk, v, acked, !pipelined) })()
		})
	}
	if s.fault(15) {
		s.after(s.late(), send)
	} else {
		send()
	}
	if pipelined {
		c.work()
	}
}

func (c *client) put(tk Ticket, v int, acked, goOn bool) {
	s := c.p.s
	o := OutcomeUnknown
	if acked {
		o = OutcomeAcked
	}
	verdict, fx := c.p.core.End(c.p.time(), tk, o)
	if acked && verdict == Tell {
		s.check.told(tk, v)
	}
	s.check.key(tk.Key).ended[v] = true
	c.p.take(fx)
	if goOn {
		c.p.after(s.think(), c.work)
	}
}

func (c *client) get(tk Ticket) {
	s := c.p.s
	s.check.ticketed(c.p, tk, 0)
	floor, over := s.check.floor(tk.Key)
	life := c.p.life
	s.store.get(tk.Key, func(seen cell, ok bool) {
		c.p.aliveIn(life, func() {
			o := OutcomeUnknown
			if ok {
				o = OutcomeAcked
			}
			verdict, fx := c.p.core.End(c.p.time(), tk, o)
			if v, _ := seen.visible(); ok && verdict == Tell {
				s.check.answered(tk, v, floor, over)
			}
			c.p.take(fx)
			c.p.after(s.think(), c.work)
		})()
	})
}

func (s *sim) think() time.Duration {
	if s.fault(40) {
		return s.late()
	}
	return s.short()
}

// calm ends the faults and demands that every key still serves.
func (s *sim) calm() {
	s.run(s.now + 20*time.Second)
	s.faults = false
	s.run(s.now + 8*time.Second)
	before := s.served
	s.run(s.now + 2*time.Second)
	if s.failed == nil && s.served == before {
		s.fail("nobody is served any more")
	}
}

func TestSimulation(t *testing.T) {
	seeds := *simSeeds
	if testing.Short() {
		seeds /= 10
	}
	var acks, gets, entries, served int
	for seed := *simFirst; seed < *simFirst+seeds; seed++ {
		s := newSim(seed)
		s.calm()
		if s.failed != nil {
			t.Fatalf("seed %d: %v", seed, s.failed)
		}
		acks += s.check.acks
		gets += s.check.gets
		entries += s.check.entries
		served += s.served
	}
	t.Logf("%d seeds: %d grants, %d acknowledged puts, %d answered gets, %d entries", seeds, served, acks, gets, entries)
}
