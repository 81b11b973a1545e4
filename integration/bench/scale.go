package main

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"music/musiccore"
)

// scale measures what locks take in memory and time, from few to many: the curves must not bend up.
func (s settings) scale(r *report, _ *child) error {
	for _, n := range upTo(s.keys) {
		m, err := newShelf().hold(n)
		if err != nil {
			return err
		}
		r.Facts = append(
			r.Facts,
			fact{fmt.Sprintf("memory of a held lock, of %d", n), samples{m.bytes}, "bytes"},
			fact{fmt.Sprintf("pieces of memory of a held lock, of %d", n), samples{m.objects}, ""},
			fact{fmt.Sprintf("LOCK, get, get, of %d held locks, without Cassandra: processor", n), m.lock, "µs"},
			fact{fmt.Sprintf("a get under each of %d held locks: processor", n), m.get, "µs"},
			fact{fmt.Sprintf("a full collection, with %d held locks: processor", n), m.collection, "ms"},
		)
	}
	for _, n := range upTo(s.waiters) {
		waiting, hand, err := newShelf().crowd(n)
		if err != nil {
			return err
		}
		r.Facts = append(
			r.Facts,
			fact{fmt.Sprintf("memory of a waiter, of %d on one key", n), samples{waiting}, "bytes"},
			fact{fmt.Sprintf("hand-over to the next of %d waiters, without Cassandra", n), hand, "µs"},
		)
	}
	return nil
}

// upTo returns 1, 100, 10,000 and so on, and last at the end.
func upTo(last int) (all []int) {
	for n := 1; n < last; n *= 100 {
		all = append(all, n)
	}
	return append(all, last)
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

// holding is what so many held locks take.
type holding struct {
	bytes      float64 // each
	objects    float64 // each: what a collection has to look at
	lock       samples // of processor time to LOCK and read twice, µs, in ten parts of the way
	get        samples // … to read again
	collection samples // … of full collections, ms
}

// hold has so many keys held, each read twice, and returns what that takes.
func (s *shelf) hold(keys int) (m holding, err error) {
	refs := make([]musiccore.LockRef, keys)
	before, pieces := heap(), heapObjects()
	m.lock = inParts(keys, func(i int) {
		k := keyNumber(i)
		s.granted = 0
		if s.carryOut(s.lock(k)); s.granted == 0 {
			err = fmt.Errorf("key %d is not granted: %w", i, s.refused)
			return
		}
		s.read(k)
		s.read(k)
		refs[i] = s.granted
		delete(s.rows, k) // the store's, not the proxy's
	})
	m.bytes = (heap() - before) / float64(keys)
	m.objects = (heapObjects() - pieces) / float64(keys)
	m.get = inParts(keys, func(i int) {
		s.granted = refs[i]
		s.read(keyNumber(i))
	})
	for range 3 {
		m.collection = append(m.collection, milliseconds(runtime.GC))
	}
	runtime.KeepAlive(s)
	return m, errors.Join(err, s.refused)
}

// keyNumber returns a key.
func keyNumber(i int) musiccore.Key {
	return musiccore.Key{Table: [16]byte{1}, PK: fmt.Sprintf("key %07d", i)}
}

// inParts does something n times, in up to ten parts, and returns what processor time it takes in
// each, in microseconds.
func inParts(n int, do func(i int)) (each samples) {
	size := (n + 9) / 10
	for from := 0; from < n; from += size {
		to := min(n, from+size)
		took := milliseconds(func() {
			for i := from; i < to; i++ {
				do(i)
			}
		})
		each = append(each, took*1000/float64(to-from))
	}
	return each
}

// milliseconds returns the processor time that something takes, of all threads of this process:
// other than a clock it does not say what else the machine has to do.
func milliseconds(do func()) float64 {
	before := processorTime()
	do()
	return float64((processorTime() - before).Nanoseconds()) / 1e6
}

// processorTime returns how long this process has computed.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // never: the arguments are constant
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
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

// heapObjects is how many pieces of memory there are.
func heapObjects() float64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapObjects)
}

// heap is the memory in use, after what nobody needs has been given back.
func heap() float64 {
	runtime.GC()
	runtime.GC() // what the first has only found to be free
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
