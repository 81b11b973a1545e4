package relay

import (
	"sync"
	"sync/atomic"
)

// Budget bounds the memory, in bytes, of all messages of all connections that are held: gathered,
// waiting, or still to be written. What passes through a read buffer is not counted. Where it is
// used up, connections that want more stop reading until some is given back.
type Budget struct {
	limit func() int // as it is now
	used  atomic.Int64

	mu      sync.Mutex
	waiting atomic.Bool   // somebody waits on freed
	freed   chan struct{} // closed when something is given back
}

// NewBudget returns a budget of which nothing is taken. limit returns its bytes, as they are now:
// whoever waits when they become more goes on when anything is given back.
func NewBudget(limit func() int) *Budget { return &Budget{limit: limit, freed: make(chan struct{})} }

// InUse returns how many bytes are taken.
func (b *Budget) InUse() int64 { return b.used.Load() }

// WaitedFor reports whether somebody waits for room.
func (b *Budget) WaitedFor() bool { return b.waiting.Load() }

// Take takes n bytes without waiting, for memory that is there already.
func (b *Budget) Take(n int) { b.used.Add(int64(n)) }

// Give gives n bytes back.
func (b *Budget) Give(n int) {
	b.used.Add(-int64(n))
	if n == 0 || !b.waiting.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting.Store(false)
	close(b.freed)
	b.freed = make(chan struct{})
}

// Acquire takes n bytes, and blocks until there is room for them or done is closed; it reports
// whether it has taken them. Where nothing else is taken it takes even more than the limit: it
// would wait for itself.
func (b *Budget) Acquire(n int, done <-chan struct{}) bool {
	for !b.try(int64(n)) {
		b.mu.Lock()
		b.waiting.Store(true)
		freed := b.freed
		b.mu.Unlock()
		if b.try(int64(n)) { // what was given back before is seen, and what is from now on is told
			return true
		}
		select {
		case <-freed:
		case <-done:
			return false
		}
	}
	return true
}

// try takes n bytes if there is room for them, and reports whether it has.
func (b *Budget) try(n int64) bool {
	if used := b.used.Add(n); used <= int64(b.limit()) || used == n {
		return true
	}
	b.used.Add(-n)
	return false
}

// Account returns an account that holds nothing yet. Its waits end when done is closed.
func (b *Budget) Account(done <-chan struct{}) Account { return Account{budget: b, done: done} }

// Account is what one user has taken of a budget. It belongs to one goroutine. The zero value
// counts nothing and never waits.
type Account struct {
	budget *Budget
	done   <-chan struct{} // ends all waits
	held   int
}

// grow raises the account to n bytes in all, and blocks until there is room; it returns false where
// done was closed first.
func (a *Account) grow(n int) bool {
	if a.budget == nil || n <= a.held {
		return true
	}
	if !a.budget.Acquire(n-a.held, a.done) {
		return false
	}
	a.held = n
	return true
}

// note raises the account to n bytes in all without waiting.
func (a *Account) note(n int) {
	if a.budget == nil || n <= a.held {
		return
	}
	a.budget.Take(n - a.held)
	a.held = n
}

// clear gives everything back.
func (a *Account) clear() {
	if a.held > 0 {
		a.budget.Give(a.held)
		a.held = 0
	}
}
