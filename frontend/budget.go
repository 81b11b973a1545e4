package frontend

import (
	"sync"
	"sync/atomic"
)

// budget is what all messages of all connections may take of memory while they are held: gathered, waiting, or still to be written. What
// passes through a read buffer is not counted. Whoever wants more than there is waits, and with it the reading of its connection.
type budget struct {
	limit int64
	used  atomic.Int64

	mu      sync.Mutex
	waiting atomic.Bool   // somebody waits on freed
	freed   chan struct{} // closed when something is given back
}

// newBudget has given nothing yet.
func newBudget(limit int) *budget { return &budget{limit: int64(limit), freed: make(chan struct{})} }

// take takes without waiting, from who has it already: what is counted is there in any case.
func (b *budget) take(n int) { b.used.Add(int64(n)) }

// give gives back.
func (b *budget) give(n int) {
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

// acquire takes n where there is room for it, and waits for room until done; it reports whether it has taken them. Who is alone gets more
// than there is: else it would wait for itself.
func (b *budget) acquire(n int, done <-chan struct{}) bool {
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

func (b *budget) try(n int64) bool {
	if used := b.used.Add(n); used <= b.limit || used == n {
		return true
	}
	b.used.Add(-n)
	return false
}

// account is what one holder has taken of a budget. It belongs to one goroutine. Its zero value counts nothing.
type account struct {
	budget *budget
	done   <-chan struct{} // nobody waits any more
	held   int
}

// grow makes it n in all, and waits for that where it is more than before. It is false where done came first.
func (a *account) grow(n int) bool {
	if a.budget == nil || n <= a.held {
		return true
	}
	if !a.budget.acquire(n-a.held, a.done) {
		return false
	}
	a.held = n
	return true
}

// note makes it n in all without waiting.
func (a *account) note(n int) {
	if a.budget == nil || n <= a.held {
		return
	}
	a.budget.take(n - a.held)
	a.held = n
}

// clear gives all back.
func (a *account) clear() {
	if a.held > 0 {
		a.budget.give(a.held)
		a.held = 0
	}
}
