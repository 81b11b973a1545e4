package musiccore

import (
	"errors"
	"math/bits"
	"time"
)

// The simulated store: lock rows (simrow_test.go), sessions' beats, and data cells on three or five
// replicas, each of which gets a write at a time of its own, or never. In every other run there is
// no read repair: what the protocol does not write again may stay on one replica for good.

// cell is the state of a key at one replica: a value and a tombstone.
type cell struct {
	stamp, dead Stamp
	value       int
}

// mutation is a write of one key: optionally a DELETE at dead, optionally a
// value at stamp; a replica takes all of it at once.
type mutation struct {
	stamp, dead Stamp
	value       int
	root        Stamp // the first epoch of the term that sends it; 0: a plain write
	left        int   // how many replicas it can still reach
}

func (c *cell) take(m *mutation) {
	c.dead = max(c.dead, m.dead)
	if m.stamp > c.stamp || (m.stamp == c.stamp && m.value > c.value) {
		c.stamp, c.value = m.stamp, m.value
	}
}

func (c *cell) join(o cell) {
	c.take(&mutation{stamp: o.stamp, dead: o.dead, value: o.value})
}

// visible returns the value that a read shows; 0: no value.
func (c cell) visible() int {
	if c.stamp <= c.dead {
		return 0
	}
	return c.value
}

// keyData is the data of one key.
type keyData struct {
	cells   []cell
	pending []*mutation // mutations that may still reach a replica
}

// sees returns what a read of the replicas in mask returns.
func (d *keyData) sees(mask uint8) cell {
	var seen cell
	for i := range d.cells {
		if mask&(1<<i) != 0 {
			seen.join(d.cells[i])
		}
	}
	return seen
}

// absorbed returns how many replicas would show the same value after a mutation.
func (d *keyData) absorbed(m *mutation) int {
	n := 0
	for _, c := range d.cells {
		after := c
		after.take(m)
		if after.visible() == c.visible() {
			n++
		}
	}
	return n
}

type simStore struct {
	s        *sim
	replicas int
	quorum   int
	quorums  []uint8
	repair   bool // read_repair = BLOCKING on the data; without it clients do not pipeline
	home     bool // LOCAL_ONE always asks the same replica
	centres  bool // the replicas are in data centres of their own, and LWTs may be committed in one of them
	down     uint8
	rows     map[Key]*lockRow
	datas    map[Key]*keyData
	beats    map[SessionID]int64
	leases   map[SessionID]time.Duration // the session lease that is stored with each beat
}

var errSim = errors.New("the simulated store does not answer")

func newSimStore(s *sim) *simStore {
	st := &simStore{
		s: s, replicas: 3, repair: s.world.n(2) == 0, home: s.world.n(2) == 0,
		centres: s.seed%8 == 0 || s.seed%8 == 6,
		rows:    map[Key]*lockRow{}, datas: map[Key]*keyData{}, beats: map[SessionID]int64{}, leases: map[SessionID]time.Duration{},
	}
	if s.world.n(4) == 0 {
		st.replicas = 5
	}
	st.quorum = st.replicas/2 + 1
	for m := range uint8(1) << st.replicas {
		if bits.OnesCount8(m) == st.quorum {
			st.quorums = append(st.quorums, m)
		}
	}
	return st
}

func (st *simStore) add(k Key) {
	st.rows[k] = &lockRow{have: make([]version, st.replicas)}
	st.datas[k] = &keyData{cells: make([]cell, st.replicas)}
}

func (st *simStore) row(k Key) *lockRow  { return st.rows[k] }
func (st *simStore) data(k Key) *keyData { return st.datas[k] }

// expect registers a mutation that is going to be sent.
func (st *simStore) expect(k Key, m *mutation) {
	d := st.data(k)
	m.left++
	kept := d.pending[:0]
	for _, old := range d.pending {
		if old.left > 0 {
			kept = append(kept, old)
		}
	}
	kept = append(kept, m)
	d.pending = kept
}

// write sends an expected mutation to every replica, and answers when a quorum has it.
func (st *simStore) write(x *chance, k Key, m *mutation, back func(acked bool)) {
	s := st.s
	acks, told := 0, false
	tell := func(ok bool) {
		if !told {
			told = true
			back(ok)
		}
	}
	deaf, answer, patience := x.strikes(dataDeaf, 20), x.short(), x.timeout()
	if x.strikes(ackLate, 30) {
		answer = x.late()
		patience += answer
	}
	s.after(patience, func() { tell(false) })
	m.left--
	for i := range st.replicas {
		delay := x.short()
		switch {
		case x.strikes(dataLate, 12):
			delay = x.late()
		case x.strikes(dataHinted, 25):
			delay = x.hinted()
		case x.strikes(dataMissed, 20):
			continue
		}
		st.send1(k, m, i, delay, func() {
			if acks++; acks == st.quorum && !deaf {
				s.after(answer, func() { tell(true) })
			}
		}, x)
	}
}

// send1 sends a mutation to one replica. A replica that is down when it arrives misses it.
func (st *simStore) send1(k Key, m *mutation, i int, delay time.Duration, acked func(), x *chance) {
	m.left++
	if x.strikes(dataDoubled, 40) {
		m.left++
		st.s.after(delay+x.hinted(), func() { st.land(k, m, i) })
	}
	st.s.after(delay, func() {
		if st.land(k, m, i) {
			acked()
		}
	})
}

// land has a mutation arrive at a replica.
func (st *simStore) land(k Key, m *mutation, i int) bool {
	m.left--
	if st.down&(1<<i) != 0 {
		return false
	}
	st.s.check.landing(k, m, i)
	return true
}

// get reads a quorum, each replica at its own moment. With read_repair BLOCKING, all replicas of
// the quorum have the result before it is returned.
func (st *simStore) get(x *chance, k Key, back func(c cell, ok bool)) {
	s := st.s
	mask, ok := st.pick(x)
	if !ok || x.strikes(dataUnread, 25) {
		s.after(x.timeout(), func() { back(cell{}, false) })
		return
	}
	var seen cell
	st.both(x, mask, func(i int) { seen.join(st.data(k).cells[i]) }, func() {
		if st.repair {
			st.both(x, mask, func(i int) { st.data(k).cells[i].join(seen) }, func() { back(seen, true) })
			return
		}
		s.after(x.short(), func() { back(seen, true) })
	})
}

// copy is a synchronise of one page: a read, then one mutation. Its process may pause or crash
// between the two.
func (st *simStore) copy(x *chance, p *proxy, k Key, a Synch, back func(Result)) {
	root, done := st.s.check.synching(p, k, a)
	life := p.life
	if x.strikes(dataTooLarge, 300) {
		st.s.after(x.short(), func() { back(Result{Status: StatusTooLarge}) })
		return
	}
	st.get(x, k, func(c cell, ok bool) {
		switch {
		case !ok && x.n(2) == 0:
			back(Result{Status: StatusUnavailable, Cause: errSim})
		case !ok:
			back(Result{})
		case c.stamp >= a.Fence:
			back(Result{Status: StatusAbove, Stamp: c.stamp})
		default:
			p.hears(life, func() {
				st.writeBack(x, k, a, c, root, func(r Result) {
					if r.Status == StatusDone {
						done()
					}
					back(r)
				})
			})
		}
	})
}

// readStamps reads the highest stamp of a key at a quorum.
func (st *simStore) readStamps(x *chance, k Key, back func(Result)) {
	st.get(x, k, func(c cell, ok bool) {
		if !ok {
			back(Result{})
			return
		}
		back(Result{Status: StatusDone, Stamp: c.stamp, Empty: c.visible() == 0})
	})
}

func (st *simStore) writeBack(x *chance, k Key, a Synch, c cell, root Stamp, back func(Result)) {
	m := &mutation{dead: a.Fence, root: root}
	if v := c.visible(); v != 0 {
		m.stamp, m.value = a.Fence+1, v
	}
	st.expect(k, m)
	st.write(x, k, m, func(acked bool) {
		if !acked {
			back(Result{})
			return
		}
		back(Result{Status: StatusDone})
	})
}

// raiseClosed has the table accept plain writes for a while and then raises closed; some of the
// writes arrive late. As the barrier does (docs/design.md 4), it waits until no process is paused.
// One process, whose clock may be the slowest, chooses closed; the others learn of it later, and
// until then use what they would have chosen themselves.
func (s *sim) raiseClosed(x *chance) {
	if !s.faults {
		return
	}
	s.after(x.late(), func() { s.raiseClosed(x) })
	for _, p := range s.proxies {
		if s.now < p.paused {
			return
		}
	}
	by := s.proxies[x.n(len(s.proxies))]
	if by.time().Clk == 0 || !x.strikes(closedRaised, 2) {
		return
	}
	y := x.fork()
	s.writePlain(&y)
	s.closed = Closing(by.time(), s.closed)
	for _, p := range s.proxies {
		own := s.closed
		if now := p.time(); now.Clk != 0 {
			own = Closing(now, 0)
		}
		p.take(p.core.Closed(p.time(), [16]byte{}, own))
		p.after(y.late(), func() { p.take(p.core.Closed(p.time(), [16]byte{}, s.closed)) })
	}
}

// writePlain does plain writes, above all stamps so far, and advances clk() so far that it is
// hardly behind the epochs.
func (s *sim) writePlain(x *chance) {
	const behind = 5000
	clk := s.plain
	for _, p := range s.proxies {
		clk = max(clk, p.clk())
	}
	s.plain = clk + 100
	for _, k := range s.allKeys() {
		s.plain = max(s.plain, s.check.key(k).lastBase+2*s.opts.Window+100)
	}
	s.lapse += max(0, s.plain-clk-behind)
	for _, k := range s.allKeys() {
		s.check.reset(k)
		for range x.n(3) {
			m := &mutation{value: s.newValue(k), stamp: s.plain - x.between(1, 100)}
			s.check.values[m.value].stamp = m.stamp
			s.check.over(k, m.value)
			s.store.expect(k, m)
			s.store.write(x, k, m, func(bool) {})
		}
	}
}

// heal ends the faults. In every other run only a quorum of the replicas and one process recover;
// the others stay down for good.
func (s *sim) heal() {
	s.faults, s.store.down, s.healed = false, 0, s.now
	s.tell("the faults end")
	for _, p := range s.proxies {
		p.cut = 0
	}
	if s.world.n(2) == 0 {
		return
	}
	for range s.store.replicas - s.store.quorum {
		s.store.down |= 1 << s.world.n(s.store.replicas)
	}
	s.tell("of the replicas %b are gone for ever", s.store.down)
	left := s.world.n(len(s.proxies))
	for i, p := range s.proxies {
		if i != left {
			p.quit = true
			p.life++
			s.tell("proxy %d is gone for ever", p.n)
		}
	}
}
