package relay

import (
	"sync"
	"sync/atomic"
)

// Budget bounds the memory, in bytes, that messages of all connections take while the proxy holds
// them: being gathered, waiting, or still to be written. Bytes that only pass through a read buffer
// are not counted. While the budget is used up, connections that need more stop reading.
type Budget struct {
	limit func() int // the present limit in bytes
	used  atomic.Int64

	mu      sync.Mutex
	waiting atomic.Bool   // a goroutine waits on freed
	freed   chan struct{} // closed when something is given back
}

// NewBudget returns an unused budget. limit returns its present limit in bytes, which may change;
// when it rises, waiting goroutines notice only when something is given back.
func NewBudget(limit func() int) *Budget { return &Budget{limit: limit, freed: make(chan struct{})} }

// InUse returns how many bytes are taken.
func (b *Budget) InUse() int64 { return b.used.Load() }

// WaitedFor reports whether a goroutine waits in Acquire.
func (b *Budget) WaitedFor() bool { return b.waiting.Load() }

// Take takes n bytes without waiting, even beyond the limit: for memory that is allocated already.
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

// Acquire takes n bytes. It blocks until there is room for them or done is closed, and reports
// whether it has taken them. While nothing else is taken even more than the limit can be taken, for
// no later Give would make room.
func (b *Budget) Acquire(n int, done <-chan struct{}) bool {
	for !b.try(int64(n)) {
		b.mu.Lock()
		b.waiting.Store(true)
		freed := b.freed
		b.mu.Unlock()
		if b.try(int64(n)) { // a Give before waiting was set did not close freed
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

// try takes n bytes if there is room for them, and reports whether it has. If not it takes nothing
// meanwhile either, so that no other attempt fails because of this one.
func (b *Budget) try(n int64) bool {
	for {
		used := b.used.Load()
		if used != 0 && used+n > int64(b.limit()) {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Account returns an empty account of the budget. Its waits end when done is closed.
func (b *Budget) Account(done <-chan struct{}) Account { return Account{budget: b, done: done} }

// Account counts what one user has taken from a budget. It is not safe for concurrent use. The zero
// value counts nothing and never waits.
type Account struct {
	budget *Budget
	done   <-chan struct{} // ends all waits
	held   int
}

// grow raises the account to n bytes in all. It blocks until there is room, and returns false if
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

// note is grow that never waits, for memory that is allocated already.
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
