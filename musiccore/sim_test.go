package musiccore

import (
	"fmt"
	"slices"
	"time"
)

// sim is one run of the protocol on virtual time: proxies with clients over one store, with faults
// drawn from one seed. Equal seeds give equal runs.
type sim struct {
	seed      int
	now       time.Duration
	queue     events
	world     chance
	actors    uint8
	mix       [faults]uint8
	faults    bool
	closing   bool // clients begin no more sections
	closedAt  time.Duration
	healed    time.Duration // when the faults ended
	strict    bool          // the table is
	lends     bool          // much is lent
	wild      bool          // clock rates differ by more than eps: see checker
	store     *simStore
	check     *checker
	proxies   []*proxy
	clients   []*client
	keys      []Key
	fresh     []Key // that are made during the run, for locks of one statement
	opts      Options
	values    int
	tokens    int
	lives     uint16
	closed    Stamp
	plain     Stamp // above every plain write
	lapse     Stamp // how far clk() is ahead of the run's time
	bySession map[SessionID]*proxy
	unheard   map[held]bool // references of which a lender may not know how an operation ended
	hash      uint64
	failed    error
	tally     tally

	cuts      map[cut]bool // events that this run leaves out
	recording bool
	struck    []cut
	story     *[]string
	trap      landmark // not 0: the run fails at landmark trap-1
}

// event is something that happens at a process, or outside of all. It is dropped if the process has
// restarted, and waits while it is paused.
type event struct {
	proxy *proxy
	life  int
	do    func()
}

// queuedEvent is an event's place in time. It has no pointer, so that sorting costs the garbage
// collector nothing.
type queuedEvent struct {
	at    time.Duration
	order uint64
	slot  int32
}

func (e queuedEvent) before(o queuedEvent) bool {
	return e.at < o.at || (e.at == o.at && e.order < o.order)
}

// events is a heap by time and order.
type events struct {
	heap  []queuedEvent
	slots []event
	free  []int32
	order uint64
}

func (q *events) push(at time.Duration, e event) {
	q.order++
	slot := int32(len(q.slots))
	if n := len(q.free); n > 0 {
		slot = q.free[n-1]
		q.free = q.free[:n-1]
		q.slots[slot] = e
	} else {
		q.slots = append(q.slots, e)
	}
	q.rise(queuedEvent{at, q.order, slot})
}

func (q *events) rise(e queuedEvent) {
	q.heap = append(q.heap, e)
	h := q.heap
	i := len(h) - 1
	for i > 0 && e.before(h[(i-1)/4]) {
		h[i] = h[(i-1)/4]
		i = (i - 1) / 4
	}
	h[i] = e
}

func (q *events) pop() (time.Duration, event) {
	h := q.heap
	first, last := h[0], h[len(h)-1]
	q.heap = h[:len(h)-1]
	if len(q.heap) > 0 {
		q.sink(last)
	}
	e := q.slots[first.slot]
	q.slots[first.slot] = event{}
	q.free = append(q.free, first.slot)
	return first.at, e
}

func (q *events) sink(e queuedEvent) {
	h, i := q.heap, 0
	for {
		least := 4*i + 1
		if least >= len(h) {
			break
		}
		for c := least + 1; c < min(4*i+5, len(h)); c++ {
			if h[c].before(h[least]) {
				least = c
			}
		}
		if !h[least].before(e) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = e
}

func (s *sim) after(d time.Duration, do func()) { s.queue.push(s.now+d, event{do: do}) }

func (s *sim) fail(format string, args ...any) {
	if s.failed == nil {
		s.failed = fmt.Errorf(format, args...)
		s.tell("FAILED  %v", s.failed)
	}
}

// tell adds a line to the run's story, if one is recorded.
func (s *sim) tell(format string, args ...any) {
	if s.story != nil {
		*s.story = append(*s.story, fmt.Sprintf("%8.3f  "+format, append([]any{(s.now - simStart).Seconds()}, args...)...))
	}
}

// say is tell for a text that is expensive to make.
func (s *sim) say(what func() string) {
	if s.story != nil {
		s.tell("%s", what())
	}
}

// mixIn adds a number to the run's hash.
func (s *sim) mixIn(x uint64) { s.hash = (s.hash^x)*0x100000001b3 ^ s.hash>>29 }

// run processes all events up to a moment.
func (s *sim) run(until time.Duration) {
	for s.failed == nil && len(s.queue.heap) > 0 && s.queue.heap[0].at <= until {
		at, e := s.queue.pop()
		s.now = at
		switch p := e.proxy; {
		case p == nil:
			e.do()
		case p.over(e.life):
		case s.now < p.paused:
			s.queue.push(p.paused, e)
		default:
			e.do()
		}
	}
	s.now = max(s.now, until)
}

// t0 is what the clocks of tests show at the beginning.
const t0 = Stamp(1_700_000_000_000_000)

// simStart is when a run begins; not 0, which means "never" in some places.
const simStart = time.Minute

// options draws the options of a run: short times, and not the same in all runs.
func (s *sim) options() Options {
	w, o := &s.world, Defaults()
	o.SessionLease, o.Margin, o.Grace = time.Second, 50*time.Millisecond, 200*time.Millisecond
	o.ClientLease, o.QueuedLease, o.Wait = 2*time.Second, 600*time.Millisecond, 300*time.Millisecond
	o.OpTimeout, o.Window, o.Idle = 400*time.Millisecond, 48, 4
	o.SettleTries = w.n(3)
	if w.n(2) == 0 {
		o.Grace, o.OpTimeout = 10*time.Millisecond, 3*time.Second
	}
	if w.n(3) == 0 {
		o.Grace = time.Second
	}
	o.Retain = [...]time.Duration{0, 100 * time.Millisecond, time.Second, 3 * time.Second}[mixed(uint64(s.seed))%4]
	if s.lends {
		o.Retain, o.Window, o.Wait = 3*time.Second, 160, 600*time.Millisecond
	}
	if w.n(2) == 0 {
		o.Drift, o.Margin = 0.2, time.Millisecond
	}
	return o
}

func newSim(seed int, setup ...func(*sim)) *sim {
	s := &sim{seed: seed, faults: true, now: simStart, bySession: map[SessionID]*proxy{}, unheard: map[held]bool{}, hash: 14695981039346656037}
	for _, f := range setup {
		if f != nil {
			f(s)
		}
	}
	s.world = s.newChance()
	s.swarm()
	w := &s.world
	s.opts = s.options()
	s.store, s.check = newSimStore(s), newChecker(s)
	for i := range 1 + w.n(2) {
		s.keys = append(s.keys, Key{PK: string(rune('a' + i))})
		s.store.add(s.keys[i])
	}
	for _, k := range s.keys {
		s.plainData(&s.world, k)
	}
	proxies := 1 + w.n(3)
	if s.lends {
		proxies, s.keys = max(proxies, 2), s.keys[:1]
	}
	for range proxies {
		s.addProxy()
	}
	closer := s.newChance()
	s.after(closer.late(), func() { s.raiseClosed(&closer) })
	s.addMovingClients()
	return s
}

func (s *sim) addProxy() {
	p := &proxy{n: len(s.proxies) + 1, chance: s.newChance()}
	s.proxies = append(s.proxies, p)
	p.boot()
	clients := 1 + p.n3()
	if s.lends {
		clients = [...]int{5, 2, 2}[p.n-1] // so that one proxy mostly has a block
	}
	for range clients {
		c := &client{p: p, n: len(s.clients) + 1, chance: s.newChance()}
		if c.happens(aClient) {
			s.clients = append(s.clients, c)
			c.watch()
		}
	}
	s.after(p.late(), p.mischief)
}

func (p *proxy) n3() int { return p.chance.n(3) }

// plainData writes what a key had before its table was critical, to any number of replicas. A write
// with a stamp ahead of the clock goes to all of them (H5): on one alone, no QUORUM read need see
// it, and the protocol promises nothing.
func (s *sim) plainData(w *chance, k Key) {
	for range w.n(3) {
		m := &mutation{value: s.newValue(k), stamp: t0/2 + Stamp(w.n(1<<40))}
		ahead := w.n(2) == 0
		if ahead {
			m.stamp = s.clock() + Stamp(w.n(20_000))
		}
		s.check.values[m.value].stamp = m.stamp / 2 // older than every put under a lock
		for i := range s.store.data(k).cells {
			if ahead || w.n(2) == 0 {
				s.store.data(k).cells[i].take(m)
			}
		}
	}
}

// clock returns the highest clk() of a proxy; t0 if there is none yet.
func (s *sim) clock() Stamp {
	clk := t0
	for _, p := range s.proxies {
		clk = max(clk, p.clk())
	}
	return clk
}

// freshKeys bounds the keys that are made during a run.
const freshKeys = 12

// freshKey returns a key that is new, or was a moment ago. It may have old plain writes, one of
// which is still under way.
func (s *sim) freshKey(x *chance) Key {
	n := len(s.fresh)
	if n == freshKeys || n > 0 && x.n(2) == 0 {
		return s.fresh[max(n-1-x.n(2), 0)]
	}
	k := Key{PK: string(rune('f' + n))}
	s.fresh = append(s.fresh, k)
	s.store.add(k)
	if x.n(2) == 0 {
		s.plainData(x, k)
		s.check.holds(k)
	}
	if x.n(2) == 0 {
		m := &mutation{value: s.newValue(k), stamp: t0/2 + Stamp(x.n(1<<40))}
		s.check.values[m.value].stamp = m.stamp / 2
		s.check.over(k, m.value)
		s.store.expect(k, m)
		y := x.fork()
		s.after(x.late(), func() { s.store.write(&y, k, m, func(bool) {}) })
	}
	return k
}

// allKeys returns every key of the run.
func (s *sim) allKeys() []Key { return slices.Concat(s.keys, s.fresh) }

func (s *sim) newValue(k Key) int {
	s.values++
	s.check.values = append(s.check.values, value{key: k})
	return s.values
}

// play does a whole run: faults first, then a time without, in which every key must serve all
// clients and everything must come to rest (E8, as in VOPR).
func (s *sim) play() {
	s.run(s.now + 3*time.Second + 2*s.world.late())
	s.heal()
	served := s.check.served()
	s.until("E8: not every key is served after the faults have ended", 24*time.Second, func() bool {
		return s.check.allServed(served)
	})
	s.closing, s.closedAt = true, s.now
	s.until("E6/I11: not everything comes to rest", 30*time.Second, s.atRest)
	s.until("E8: the last lock of a key is not served", 16*time.Second, s.lastLocks())
	s.check.audit()
}

// until runs until so returns true, and fails if it does not in time.
func (s *sim) until(what string, within time.Duration, so func() bool) {
	patience := s.opts.OpTimeout + time.Second
	if s.wild {
		within, patience = 4*within, 4*patience // a slow clock's seconds
	}
	for end := s.now + within; s.failed == nil && !so(); {
		if s.now >= end {
			s.fail("%s", what)
			return
		}
		s.run(s.now + 100*time.Millisecond)
		s.check.waited(patience)
	}
}
