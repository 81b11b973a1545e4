package musiccore

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// lockRow is a lock row as Cassandra keeps it: the line of commits that Paxos
// makes of it, of which each replica has some. A replica that missed a commit
// may have the next: it shows any two registers that ever were.
type lockRow struct {
	commits []commit
	have    []version // of each replica
}

// commit is what an LWT made of the row, and the registers that it wrote.
type commit struct {
	row   Row
	wrote version
}

// version is what a replica has: the commits that wrote its registers last,
// counted from 1; 0 is nothing.
type version struct{ q, t int }

func (v *version) take(o version) { v.q, v.t = max(v.q, o.q), max(v.t, o.t) }

// latest is the row that the next LWT meets.
func (r *lockRow) latest() *Row {
	if len(r.commits) == 0 {
		return nil
	}
	return &r.commits[len(r.commits)-1].row
}

// shows is the row of a version: nil for none, and false for one of which a
// register has no value, which nobody can use.
func (r *lockRow) shows(v version) (*Row, bool) {
	switch {
	case v.q == 0 && v.t == 0:
		return nil, true
	case v.q == 0 || v.t == 0:
		return nil, false
	}
	row, q := r.commits[v.t-1].row, r.commits[v.q-1].row
	row.Guard, row.Queue = q.Guard, q.Queue
	return &row, true
}

// sent is an LWT on its way, seen from outside: I10.
type sent struct {
	swap    Swap
	why     purpose
	session *Session
	near    bool // may be committed in one data centre
	applied int
	fate    Status
}

// same reports that two LWTs have the same literals.
func (w Swap) same(o Swap) bool {
	a, b := w.Set.Row, o.Set.Row
	return w.If == o.If && w.Set.Q == o.Set.Q && w.Set.T == o.Set.T && a.sameTerm(b) && a.Guard == b.Guard && slices.Equal(a.Queue, b.Queue)
}

// past reports that the queue which an Enqueue behind others needs is no more: it
// has been applied, or never will be.
func (s *sim) past(k Key, w Swap) bool {
	row := s.store.row(k).latest()
	return w.If.What == IfGuard && row != nil && row.Guard > w.If.Guard
}

// apply sends an LWT, and holds the core to I10: what is of unknown outcome is
// sent again until that is known, and nothing else is sent meanwhile.
func (p *proxy) apply(x *chance, k Key, a Apply, back func(Result)) {
	s, l, w := p.s, p.lwts[k], a.Swap
	if l == nil || !l.swap.same(w) {
		if l != nil && l.fate == StatusUnknown && l.session == p.session && !s.past(k, l.swap) {
			s.fail("I10/H3: an LWT of unknown fate is forgotten: %+v", l.swap)
		}
		l = &sent{swap: w, session: p.session, why: p.core.keys[k].lwt.purpose}
		p.lwts[k] = l
		s.check.sending(p, k, w)
	}
	l.fate, l.near = StatusUnknown, a.Near && s.store.centres
	s.say(func() string { return fmt.Sprintf("proxy %d sends %v of %s %s", p.n, l.why, k.PK, w.brief()) })
	s.store.swap(x, p, k, l, func(r Result) {
		l.fate = r.Status
		s.tally.lwt(l.why, r.Status, l.applied > 0)
		s.tell("proxy %d hears that its %v of %s is %v", p.n, l.why, k.PK, r.Status)
		back(r)
	})
}

// swap is an LWT: decided at one moment, answered at another, in any order,
// or either never.
func (st *simStore) swap(x *chance, p *proxy, k Key, l *sent, back func(Result)) {
	s := st.s
	switch {
	case x.strikes(lwtLost, 15):
	case x.strikes(lwtLate, 15):
		s.after(x.late(), func() { st.decide(x, p, k, l, func() {}) })
	default:
		p.after(x.short(), func() { st.send(x, p, k, l, back) })
		return
	}
	s.after(x.timeout(), func() { back(Result{}) })
}

// send is an LWT that has left its process: its answer may still be lost.
func (st *simStore) send(x *chance, p *proxy, k Key, l *sent, back func(Result)) {
	s := st.s
	told := false
	tell := func(r Result) {
		if !told {
			told = true
			back(r)
		}
	}
	deaf := x.strikes(lwtDeaf, 15)
	s.after(x.short(), func() {
		ok := st.decide(x, p, k, l, func() {
			if !deaf {
				s.after(x.short(), func() { tell(Result{Status: StatusDone, Near: l.near}) })
			}
		})
		if !ok && !deaf {
			s.after(x.short(), func() { tell(Result{Status: StatusRefused}) })
		}
	})
	s.after(x.timeout(), func() { tell(Result{}) })
}

// decide is the moment of an LWT. Paxos first puts the last commit on a
// quorum; acked is called when this one is on one.
func (st *simStore) decide(x *chance, p *proxy, k Key, l *sent, acked func()) bool {
	s, r := st.s, st.row(k)
	if !st.promote(x, r) {
		return true // nobody will ever hear of it
	}
	from := r.latest()
	to, ok := l.swap.Apply(from)
	if !ok {
		return false
	}
	if l.applied++; l.applied > 1 {
		s.fail("I10: an LWT was applied twice: %+v", l.swap)
	}
	if p.session != l.session {
		s.met(lwtAfterDeath)
	}
	s.say(func() string {
		return fmt.Sprintf("        %v of %s by proxy %d is applied: %s", l.why, k.PK, p.n, brief(&to))
	})
	s.check.row(k, from, &to, l)
	v, n := version{}, len(r.commits)+1
	if l.swap.Set.Q {
		v.q = n
	}
	if l.swap.Set.T {
		v.t = n
	}
	r.commits = append(r.commits, commit{to, v})
	if l.near {
		st.commitNear(x, p, r, v, acked)
	} else {
		st.commit(x, r, v, acked)
	}
	return true
}

// commitNear sends what was decided to every replica, and is done when that of the own data centre
// has it: the others may never.
func (st *simStore) commitNear(x *chance, p *proxy, r *lockRow, v version, acked func()) {
	own := p.n % st.replicas
	for i := range r.have {
		delay := x.short()
		switch {
		case i != own && x.strikes(commitMissed, 2), st.down&(1<<i) != 0:
			continue
		case x.strikes(commitLate, 5):
			delay = x.late()
		}
		st.s.after(delay, func() {
			r.have[i].take(v)
			if i == own {
				acked()
			}
		})
	}
}

// commit sends what was decided to every replica.
func (st *simStore) commit(x *chance, r *lockRow, v version, acked func()) {
	acks, missed := 0, 8
	if len(r.commits) == 1 || (st.s.strict && x.n(4) == 0) {
		missed = 2 // half rows come of it, and rows that no quorum shows
	}
	for i := range r.have {
		delay := x.short()
		switch {
		case x.strikes(commitMissed, missed), st.down&(1<<i) != 0:
			continue
		case x.strikes(commitLate, 10):
			delay = x.late()
		}
		st.s.after(delay, func() {
			r.have[i].take(v)
			if acks++; acks == st.quorum {
				acked()
			}
		})
	}
}

// promote puts the last commit on a quorum, as each Paxos round does first.
func (st *simStore) promote(x *chance, r *lockRow) bool {
	mask, ok := st.pick(x)
	if !ok || len(r.commits) == 0 {
		return ok
	}
	on := 0
	for _, v := range r.have {
		if max(v.q, v.t) == len(r.commits) {
			on++
		}
	}
	if on <= 1 {
		st.s.met(commitOnOne)
	}
	for i := range r.have {
		if mask&(1<<i) != 0 {
			r.have[i].take(r.commits[len(r.commits)-1].wrote)
		}
	}
	return true
}

// read reads the lock row: at any one replica, or at a quorum, each at its own
// moment, and with BLOCKING repair. SERIAL is such a read behind what a round of Paxos does first.
func (st *simStore) read(x *chance, p *proxy, k Key, a ReadRow, back func(Result)) {
	if a.Serial && st.centres {
		st.s.after(x.short(), func() {
			if !st.promote(x, st.row(k)) {
				st.s.after(x.timeout(), func() { back(Result{Cause: errSim}) })
				return
			}
			st.readRow(x, p, k, true, back)
		})
		return
	}
	st.readRow(x, p, k, a.Quorum, back)
}

// readRow reads the lock row at one replica or at a quorum.
func (st *simStore) readRow(x *chance, p *proxy, k Key, quorum bool, back func(Result)) {
	s, r := st.s, st.row(k)
	mask, ok := st.pick(x)
	if !ok || x.strikes(rowLost, 20) {
		s.after(x.timeout(), func() { back(Result{Cause: errSim}) })
		return
	}
	delay := x.short()
	if x.strikes(rowLate, 20) {
		delay = x.late()
	}
	answer := func(v version) {
		row, whole := r.shows(v)
		s.say(func() string {
			return fmt.Sprintf("proxy %d reads %s at QUORUM (%v): %s", p.n, k.PK, quorum, brief(row))
		})
		if !whole {
			s.met(partialRow)
			back(Result{Cause: errSim})
			return
		}
		back(Result{Status: StatusDone, Row: row})
	}
	if !quorum {
		v := r.have[st.near(x, p)]
		s.check.local(r, v)
		s.after(delay, func() { answer(v) })
		return
	}
	var seen version
	st.both(x, mask, func(i int) { seen.take(r.have[i]) }, func() {
		if max(seen.q, seen.t) < len(r.commits) {
			s.met(quorumBehind)
		}
		st.both(x, mask, func(i int) { r.have[i].take(seen) }, func() { s.after(delay, func() { answer(seen) }) })
	})
}

// near is the replica that LOCAL_ONE asks: always the same one, or any.
func (st *simStore) near(x *chance, p *proxy) int {
	i := p.n % st.replicas
	if !st.home {
		i = x.n(st.replicas)
	}
	for st.down&(1<<i) != 0 {
		i = (i + 1) % st.replicas
	}
	return i
}

// pick draws a quorum of the replicas that are there.
func (st *simStore) pick(x *chance) (uint8, bool) {
	mask := (uint8(1)<<st.replicas - 1) &^ st.down
	if bits.OnesCount8(mask) < st.quorum {
		return 0, false
	}
	for bits.OnesCount8(mask) > st.quorum {
		mask &^= 1 << x.n(st.replicas)
	}
	return mask, true
}

// both does something at the replicas of a quorum, each at its own moment,
// and then something else.
func (st *simStore) both(x *chance, mask uint8, do func(i int), then func()) {
	left := st.quorum
	for i := range st.replicas {
		if mask&(1<<i) == 0 {
			continue
		}
		st.s.after(x.short(), func() {
			do(i)
			if left--; left == 0 {
				then()
			}
		})
	}
}

func (st *simStore) readBeat(x *chance, id SessionID, back func(Result)) {
	s := st.s
	if x.strikes(beatUnread, 20) {
		s.after(x.timeout(), func() { back(Result{}) })
		return
	}
	ask, answer := x.short(), x.short()
	if x.strikes(beatOld, 8) {
		ask, answer = x.slow(), x.slow()
	}
	s.after(ask, func() {
		n := st.beats[id]
		s.after(answer, func() { back(Result{Status: StatusDone, Beat: n, Lease: st.leases[id]}) })
	})
}

// look is a session's read of its own row and of the store's clock.
func (st *simStore) look(x *chance, id SessionID, back func(beat int64, clock Stamp)) {
	s := st.s
	if x.strikes(beatUnread, 20) {
		return
	}
	ask, answer := x.ms(5), x.ms(5)
	if x.strikes(beatOld, 8) {
		ask, answer = x.slow(), x.slow()
	}
	s.after(ask, func() {
		n, clock := st.beats[id], t0+Stamp(s.now.Microseconds())+storeAhead
		if s.blind() {
			clock = 0
		}
		s.after(answer, func() { back(n, clock) })
	})
}

// blind: no proxy can read the store's clock in this run, which would catch what its own clocks are to show. They do not stand still then.
func (s *sim) blind() bool { return s.wild || mixed(uint64(s.seed)+1)%3 == 0 }

// storeAhead is how far the store's clock is off: nothing rests on that.
const storeAhead = Stamp(7_000_000)

// writeBeat writes a beat with its number as the write timestamp: an older
// one that comes later is nobody's.
func (st *simStore) writeBeat(x *chance, id SessionID, n int64, back func()) {
	s := st.s
	write, answer := x.short(), x.short()
	if x.strikes(beatLost, 10) {
		s.after(x.late(), func() { st.beats[id] = max(st.beats[id], n) })
		return
	}
	if x.strikes(beatLate, 15) {
		write = x.late()
	}
	if x.strikes(beatDeaf, 15) {
		answer = time.Duration(x.n(int(2 * s.opts.SessionLease)))
	}
	s.after(write, func() {
		st.beats[id] = max(st.beats[id], n)
		s.after(answer, back)
	})
}
