package musiccore

import "time"

// flight is the operations of one term between Begin and End, in the order of their Begins: a ring
// that grows and is reused, so that an operation allocates nothing. It must not be copied.
type flight struct {
	ring  []op   // a power of two
	few   [2]op  // the first ring
	first uint64 // number of the oldest operation kept
	next  uint64 // number of the next operation
	ops   int    // not ended
	puts  int    // not ended, and puts
	loans int    // not ended, and loans
}

// op is one operation in flight.
type op struct {
	at   time.Duration // of its Begin
	put  bool
	loan bool // puts and gets of another proxy
	done bool
	held bool // its End came, and its verdict waits
}

// slot returns where operation n is kept.
func (f *flight) slot(n uint64) *op { return &f.ring[n&uint64(len(f.ring)-1)] }

// add adds an operation in flight and returns its number.
func (f *flight) add(at time.Duration, put bool) uint64 {
	if f.next-f.first == uint64(len(f.ring)) {
		f.grow()
	}
	n := f.next
	f.next++
	*f.slot(n) = op{at: at, put: put}
	f.count(put, 1)
	return n
}

// grow makes room for more operations.
func (f *flight) grow() {
	if f.ring == nil {
		f.ring = f.few[:]
		return
	}
	old := *f
	f.ring = make([]op, 4*len(old.ring))
	for n := old.first; n < old.next; n++ {
		*f.slot(n) = *old.slot(n)
	}
}

// lend makes the operation that was added last a loan.
func (f *flight) lend() {
	f.slot(f.next - 1).loan = true
	f.loans++
}

// count adds d to the operations of that kind which have not ended.
func (f *flight) count(put bool, d int) {
	f.ops += d
	if put {
		f.puts += d
	}
}

// end ends an operation in flight. It returns false if the operation is over already, or its End
// came before.
func (f *flight) end(n uint64) bool {
	if n >= f.next || f.over(n) || f.slot(n).held {
		return false
	}
	f.finish(n)
	return true
}

// finish records that an operation is no longer in flight.
func (f *flight) finish(n uint64) {
	o := f.slot(n)
	o.done = true
	f.count(o.put, -1)
	if o.loan {
		f.loans--
	}
	f.trim()
}

// trim drops the oldest operations that are no longer in flight.
func (f *flight) trim() {
	for f.first < f.next && f.slot(f.first).done {
		f.first++
	}
}

// hold notes that the End of an operation came while it stays in flight. It returns false for one
// that is over, or held already.
func (f *flight) hold(n uint64) bool {
	if n >= f.next || f.over(n) || f.slot(n).held {
		return false
	}
	f.slot(n).held = true
	return true
}

// over reports whether an operation is no longer in flight.
func (f *flight) over(n uint64) bool { return n < f.first || f.slot(n).done }

// oldest returns when the oldest operation in flight began, and false where there is none.
func (f *flight) oldest() (time.Duration, bool) {
	if f.first == f.next {
		return 0, false
	}
	return f.slot(f.first).at, true
}

// expire ends the operations that began at or before a moment, and reports whether a put was among
// them.
func (f *flight) expire(at time.Duration) (put bool) {
	for f.first < f.next && f.slot(f.first).at <= at {
		o := f.slot(f.first)
		put = put || o.put
		f.finish(f.first)
	}
	return put
}
