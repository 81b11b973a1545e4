package musiccore

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// lockRow is a lock row as Cassandra stores it: the sequence of commits that Paxos makes, of which
// each replica has some. A replica that missed a commit may have the next one, so it can show any
// combination of earlier states of the two registers.
type lockRow struct {
	commits []commit
	have    []version // of each replica
}

// commit is the row after an LWT, and the registers that the LWT wrote.
type commit struct {
	row   Row
	wrote version
}

// version says which commits, counted from 1, last wrote each register of a replica; 0: none.
type version struct{ q, t int }

func (v *version) take(o version) { v.q, v.t = max(v.q, o.q), max(v.t, o.t) }

// latest returns the row that the next LWT's condition is evaluated on.
func (r *lockRow) latest() *Row {
	if len(r.commits) == 0 {
		return nil
	}
	return &r.commits[len(r.commits)-1].row
}

// shows returns the row of a version, nil if there is none. It returns false if only one of the
// registers has a value, since such a row cannot be used.
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

// sent is an LWT as the store sees it, to check I10.
type sent struct {
	swap    Swap
	why     purpose
	session *Session
	near    bool // may be committed in one data centre
	applied int
	fate    Status
}

// same reports whether two LWTs have the same literals.
func (w Swap) same(o Swap) bool {
	a, b := w.Set.Row, o.Set.Row
	return w.If == o.If && w.Set.Q == o.Set.Q && w.Set.T == o.Set.T && a.sameTerm(b) && a.Guard == b.Guard && slices.Equal(a.Queue, b.Queue)
}

// past reports whether an Enqueue can no longer be applied, because the queue that its condition
// needs has changed.
func (s *sim) past(k Key, w Swap) bool {
	row := s.store.row(k).latest()
	return w.If.What == IfGuard && row != nil && row.Guard > w.If.Guard
}

// apply sends an LWT, and checks I10: one of unknown outcome is sent again until its outcome is
// known, and no other is sent meanwhile.
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

// swap executes an LWT. It is decided at one moment and answered at another, in any order, and
// either may never happen.
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

// send executes an LWT that has left its process; its answer may still be lost.
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

// decide decides an LWT. Paxos first writes the previous commit to a quorum; acked is called when
// this one is on a quorum.
func (st *simStore) decide(x *chance, p *proxy, k Key, l *sent, acked func()) bool {
	s, r := st.s, st.row(k)
	if !st.promote(x, r) {
		return true // it is never decided, and never answered
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

// commitNear sends a commit to every replica, and is done when the replica of the proxy's data
// centre has it; the others may never get it.
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

// commit sends a commit to every replica.
func (st *simStore) commit(x *chance, r *lockRow, v version, acked func()) {
	acks, missed := 0, 8
	if len(r.commits) == 1 || (st.s.strict && x.n(4) == 0) {
		missed = 2 // leaves rows with one register, and rows that no quorum shows
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

// promote writes the previous commit to a quorum, as each Paxos round does first.
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

// read reads the lock row: at any one replica, or at a quorum, each replica at its own moment, with
// BLOCKING read repair. A SERIAL read first does what promote does.
func (st *simStore) read(x *chance, p *proxy, k Key, a ReadRow, back func(Result)) {
	if a.Serial {
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

// near returns the replica that LOCAL_ONE asks: always the same one, or any.
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

// pick draws a quorum of the replicas that are up.
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

// both runs do for each replica of a quorum, at a moment of its own, and then calls then.
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

// look reads a session's own row and the store's clock.
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

// blind reports whether no proxy can read the store's clock in this run. That clock would reveal
// the faults that the proxies' own clocks must reveal here; so those do not stand still in such a
// run.
func (s *sim) blind() bool { return s.wild || mixed(uint64(s.seed)+1)%3 == 0 }

// storeAhead is how far the store's clock is ahead: the protocol must not depend on it.
const storeAhead = Stamp(7_000_000)

// writeBeat writes a beat with its number as the write timestamp, so an older beat that arrives
// later has no effect.
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
