package main

import (
	"fmt"
	"runtime"
	"time"

	"music/musiccore"
)

// scale measures what locks take in memory.
func (s settings) scale(r *report, _ *child) error {
	held, err := newShelf().hold(s.keys)
	if err != nil {
		return err
	}
	waiting, hand, err := newShelf().crowd(s.waiters)
	r.Facts = append(
		r.Facts,
		fact{fmt.Sprintf("memory of a held lock, of %d", s.keys), samples{held}, "bytes"},
		fact{fmt.Sprintf("memory of a waiter, of %d on one key", s.waiters), samples{waiting}, "bytes"},
		fact{fmt.Sprintf("hand-over to the next of %d waiters, without Cassandra", s.waiters), hand, "µs"},
	)
	return err
}

// shelf is the core of a lock service whose store answers at once.
type shelf struct {
	core    *musiccore.Core
	rows    map[musiccore.Key]musiccore.Row
	now     musiccore.Now
	granted musiccore.LockRef // last
	ticket  musiccore.Ticket  // last
	refused error
	op      musiccore.OpID
}

// newShelf has a session that lives.
func newShelf() *shelf {
	o := musiccore.Defaults()
	o.SessionLease = 24 * time.Hour
	session := musiccore.NewSession(musiccore.SessionID{1}, o)
	const wall = 1 << 50
	s := &shelf{
		core: musiccore.New(session, o), rows: map[musiccore.Key]musiccore.Row{},
		now: musiccore.Now{Boot: time.Hour, Raw: time.Hour, Wall: wall, Clk: wall},
	}
	n, _ := session.Beat(s.now)
	session.Acked(s.now, s.now, n)
	return s
}

// carryOut does what the core wants until it wants nothing more.
func (s *shelf) carryOut(todo []musiccore.Command) {
	for len(todo) > 0 {
		c := todo[len(todo)-1]
		more := s.note(s.core.Reply(s.now, c.ID, s.result(c)))
		todo = append(todo[:len(todo)-1], more...)
	}
}

// note takes note of the answers in what the core says, and returns what it wants.
func (s *shelf) note(fx musiccore.Effects) []musiccore.Command {
	for _, a := range fx.Answers {
		if a.Err != nil {
			s.refused = a.Err
		}
		if a.Grant.State == musiccore.StateHeld {
			s.granted = a.Grant.Ref
		}
		if a.Ticket.OK() {
			s.ticket = a.Ticket
		}
	}
	return fx.Commands
}

// result is what the store does.
func (s *shelf) result(c musiccore.Command) musiccore.Result {
	row, found := s.rows[c.Key]
	before := &row
	if !found {
		before = nil
	}
	switch do := c.Action.(type) {
	case musiccore.ReadRow:
		return musiccore.Result{Status: musiccore.StatusDone, Row: before}
	case musiccore.Apply:
		after, applied := do.Swap.Apply(before)
		if !applied {
			return musiccore.Result{Status: musiccore.StatusRefused}
		}
		s.rows[c.Key] = after
	}
	return musiccore.Result{Status: musiccore.StatusDone}
}

// lock asks for the lock of a key, and returns what the core wants for it.
func (s *shelf) lock(k musiccore.Key) []musiccore.Command {
	s.op++
	return s.note(s.core.Lock(s.now, s.op, k, musiccore.Request{Wait: time.Hour}))
}

// read is an operation under the lock that was granted last.
func (s *shelf) read(k musiccore.Key) {
	s.op++
	tk, fx := s.core.Begin(s.now, s.op, k, s.granted, musiccore.Get)
	if s.carryOut(s.note(fx)); !tk.OK() {
		tk = s.ticket
	}
	_, fx = s.core.End(s.now, tk, musiccore.OutcomeAcked)
	s.carryOut(s.note(fx))
}

// hold has so many keys held, each read once, and returns the bytes that each takes.
func (s *shelf) hold(keys int) (float64, error) {
	before := heap()
	for i := range keys {
		k := musiccore.Key{Table: [16]byte{1}, PK: fmt.Sprintf("key %07d", i)}
		s.granted = 0
		if s.carryOut(s.lock(k)); s.granted == 0 {
			return 0, fmt.Errorf("key %d is not granted: %w", i, s.refused)
		}
		s.read(k)
		delete(s.rows, k) // the store's, not the proxy's
	}
	used := heap() - before
	runtime.KeepAlive(s)
	return used / float64(keys), s.refused
}

// crowd has so many waiters on one key, who come while the store is busy with the first, and returns the bytes that each takes and how
// long hand-overs take in microseconds.
func (s *shelf) crowd(waiters int) (bytes float64, handOver samples, err error) {
	k := musiccore.Key{Table: [16]byte{1}, PK: "wanted"}
	s.carryOut(s.lock(k))
	before := heap()
	var todo []musiccore.Command
	for range waiters {
		todo = append(todo, s.lock(k)...)
	}
	s.carryOut(todo)
	used := heap() - before
	for range min(1000, waiters) {
		last, began := s.granted, time.Now()
		s.op++
		s.carryOut(s.note(s.core.Unlock(s.now, s.op, k, last)))
		handOver = append(handOver, float64(time.Since(began).Nanoseconds())/1000)
		if s.granted == last {
			return 0, nil, fmt.Errorf("nobody is granted the lock behind %d: %w", last, s.refused)
		}
	}
	return used / float64(waiters), handOver, s.refused
}

// heap is the memory in use, after what nobody needs has been given back.
func heap() float64 {
	runtime.GC()
	runtime.GC() // what the first has only found to be free
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
