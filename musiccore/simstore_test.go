package musiccore

import "time"

// The simulated store: lock rows with linearizable LWTs whose replies may be
// lost and which may be applied late; data cells on three replicas, each
// reached at its own time or never; beats. In every other run nothing repairs:
// what the protocol does not write again may stay on one replica for good.

const replicas = 3

// cell is what one replica knows of a key: a value, and a tombstone.
type cell struct {
	stamp, dead Stamp
	value       int
}

// mutation is a write of one key: optionally a DELETE at dead, optionally a
// value at stamp; a replica takes all of it at once.
type mutation struct {
	stamp, dead Stamp
	value       int
}

func (c *cell) take(m mutation) {
	c.dead = max(c.dead, m.dead)
	if m.stamp > c.stamp || (m.stamp == c.stamp && m.value > c.value) {
		c.stamp, c.value = m.stamp, m.value
	}
}

// seen is the newest of several replicas' views; value 0 is "no value".
func (c cell) join(o cell) cell {
	c.take(mutation(o))
	return c
}

func (c cell) visible() (int, Stamp) {
	if c.stamp <= c.dead {
		return 0, 0
	}
	return c.value, c.stamp
}

type lockRow struct {
	now  *Row
	past []*Row // every state it ever had
}

type simStore struct {
	s     *sim
	rows  map[Key]*lockRow
	cells map[Key]*[replicas]cell
	beats map[SessionID]int64
}

func newSimStore(s *sim) *simStore {
	return &simStore{s: s, rows: map[Key]*lockRow{}, cells: map[Key]*[replicas]cell{}, beats: map[SessionID]int64{}}
}

func (st *simStore) row(k Key) *lockRow {
	if st.rows[k] == nil {
		st.rows[k] = &lockRow{past: []*Row{nil}}
	}
	return st.rows[k]
}

func (st *simStore) data(k Key) *[replicas]cell {
	if st.cells[k] == nil {
		st.cells[k] = &[replicas]cell{}
	}
	return st.cells[k]
}

// swap is an LWT: decided at one moment, answered at another, in any order,
// or either never.
func (st *simStore) swap(k Key, w Swap, back func(Result)) {
	s := st.s
	decide := func() Result {
		r := st.row(k)
		row, ok := w.Apply(r.now)
		if !ok {
			return Result{Fate: Refused}
		}
		s.check.row(k, r.now, &row)
		r.now = &row
		r.past = append(r.past, &row)
		return Result{Fate: Done}
	}
	switch {
	case s.fault(12): // never happens
	case s.fault(12): // happens, nobody hears
		s.after(s.slow(), func() { decide() })
	case s.fault(12): // happens after the issuer was told "unknown"
		s.after(s.late(), func() { decide() })
	default:
		s.after(s.short(), func() {
			r := decide()
			s.after(s.short(), func() { back(r) })
		})
		return
	}
	s.after(s.timeout(), func() { back(Result{}) })
}

func (st *simStore) read(k Key, quorum bool, back func(Result)) {
	s := st.s
	if s.fault(20) {
		s.after(s.timeout(), func() { back(Result{}) })
		return
	}
	s.after(s.short(), func() {
		r := st.row(k)
		row := r.now
		if !quorum {
			row = r.past[max(0, len(r.past)-1-s.rnd.IntN(4))]
		}
		s.after(s.short(), func() { back(Result{Fate: Done, Row: row}) })
	})
}

// write sends a mutation to every replica and answers when two have it.
func (st *simStore) write(k Key, m mutation, back func(acked bool)) {
	s := st.s
	acks, told := 0, false
	tell := func(ok bool) {
		if !told {
			told = true
			back(ok)
		}
	}
	deaf := s.fault(25) // the acknowledgement is lost
	for i := range replicas {
		delay := s.short()
		switch {
		case s.fault(10):
			delay = s.late()
		case s.fault(20):
			continue
		}
		s.after(delay, func() {
			st.data(k)[i].take(m)
			if acks++; acks == 2 && !deaf {
				s.after(s.short(), func() { tell(true) })
			}
		})
	}
	s.after(s.timeout(), func() { tell(false) })
}

// get reads two replicas, each at its own moment. With read_repair BLOCKING
// both have what it answers before it answers.
func (st *simStore) get(k Key, back func(c cell, ok bool)) {
	s := st.s
	if s.fault(25) {
		s.after(s.timeout(), func() { back(cell{}, false) })
		return
	}
	skip := s.rnd.IntN(replicas)
	var seen cell
	read := func(i int) { seen = seen.join(st.data(k)[i]) }
	repair := func(i int) { st.data(k)[i].take(mutation(seen)) }
	st.both(skip, read, func() {
		if s.repair {
			st.both(skip, repair, func() { back(seen, true) })
			return
		}
		s.after(s.short(), func() { back(seen, true) })
	})
}

// both does something at two of the replicas, and then something else.
func (st *simStore) both(skip int, do func(i int), then func()) {
	left := replicas - 1
	for i := range replicas {
		if i == skip {
			continue
		}
		st.s.after(st.s.short(), func() {
			do(i)
			if left--; left == 0 {
				then()
			}
		})
	}
}

// copy is the one-page synchronise.
func (st *simStore) copy(k Key, a Copy, back func(Result)) {
	st.get(k, func(c cell, ok bool) {
		if !ok {
			back(Result{})
			return
		}
		if c.stamp >= a.Fence {
			back(Result{Fate: Above, Stamp: c.stamp})
			return
		}
		m := mutation{dead: a.Fence}
		if v, _ := c.visible(); v != 0 {
			m.stamp, m.value = a.Fence+1, v
		}
		st.s.check.copied(m)
		st.write(k, m, func(acked bool) {
			if acked {
				back(Result{Fate: Done})
				return
			}
			back(Result{})
		})
	})
}

func (st *simStore) readBeat(x SessionID, back func(Result)) {
	s := st.s
	s.after(s.short(), func() {
		n := st.beats[x]
		s.after(s.short(), func() { back(Result{Fate: Done, Beat: n}) })
	})
}

func (st *simStore) writeBeat(x SessionID, n int64, back func()) {
	s := st.s
	if s.fault(10) {
		s.after(s.late(), func() { st.beats[x] = max(st.beats[x], n) })
		return
	}
	delay := s.short()
	if s.fault(20) {
		delay = s.late()
	}
	s.after(delay, func() {
		st.beats[x] = max(st.beats[x], n)
		s.after(s.short(), back)
	})
}

func (s *sim) short() time.Duration {
	return time.Duration(1+s.rnd.IntN(20)) * time.Millisecond
}

func (s *sim) slow() time.Duration {
	return time.Duration(1+s.rnd.IntN(300)) * time.Millisecond
}

func (s *sim) late() time.Duration {
	return time.Duration(1+s.rnd.IntN(4000)) * time.Millisecond
}

func (s *sim) timeout() time.Duration {
	return time.Duration(100+s.rnd.IntN(150)) * time.Millisecond
}

// fault strikes once in n times while faults are on.
func (s *sim) fault(n int) bool { return s.faults && s.rnd.IntN(n) == 0 }
