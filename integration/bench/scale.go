package main

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"music/musiccore"
)

// scale measures the memory and time that locks take, from few to many: the curves must not bend
// upwards.
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

// upTo returns 1, 100, 10,000 and so on, and finally last.
func upTo(last int) (all []int) {
	for n := 1; n < last; n *= 100 {
		all = append(all, n)
	}
	return append(all, last)
}

// shelf is a core whose store answers at once.
type shelf struct {
	core    *musiccore.Core
	rows    map[musiccore.Key]musiccore.Row
	now     musiccore.Now
	granted musiccore.LockRef // last
	ticket  musiccore.Ticket  // last
	refused error
	op      musiccore.OpID
}

// newShelf returns a shelf with a valid session.
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

// carryOut carries out the core's commands until there are none.
func (s *shelf) carryOut(todo []musiccore.Command) {
	for len(todo) > 0 {
		c := todo[len(todo)-1]
		more := s.note(s.core.Reply(s.now, c.ID, s.result(c)))
		todo = append(todo[:len(todo)-1], more...)
	}
}

// note records the answers among the effects, and returns the commands.
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

// result returns the store's result of a command.
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

// lock requests the lock of a key, and returns the commands for it.
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

// holding is the memory and time of a number of held locks.
type holding struct {
	bytes      float64 // each
	objects    float64 // each: what a collection has to scan
	lock       samples // processor time to LOCK and read twice, µs, in ten parts of the run
	get        samples // processor time to read again, µs
	collection samples // processor time of full collections, ms
}

// hold locks keys, reads each twice, and returns what that takes.
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

// inParts runs do n times, in up to ten parts, and returns the processor time of each part, in
// microseconds.
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

// milliseconds returns the processor time of do, over all threads of this process. Unlike wall
// time, it does not depend on what else the machine does.
func milliseconds(do func()) float64 {
	before := processorTime()
	do()
	return float64((processorTime() - before).Nanoseconds()) / 1e6
}

// processorTime returns the processor time of this process so far.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // never: the arguments are constant
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// crowd has clients wait for one key, who come while the store is busy with the first, and returns
// the bytes for each and the duration of hand-overs in microseconds.
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

// heapObjects returns the number of allocated objects.
func heapObjects() float64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapObjects)
}

// heap returns the memory in use after a collection.
func heap() float64 {
	runtime.GC()
	runtime.GC() // what the first has only found to be free
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
