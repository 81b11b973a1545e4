package proxy

import "sync"

// underWay is a set of commands of the core that are under way. The zero value is empty. It is safe for concurrent use.
type underWay struct {
	mu   sync.Mutex
	last uint64
	all  map[uint64]struct{}
}

// begin adds one. end must be called when it is over.
func (u *underWay) begin() (end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all = map[uint64]struct{}{}
	}
	u.last++
	id := u.last
	u.all[id] = struct{}{}
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.all, id)
	}
}

// mark returns a function that reports whether any of those that are under way now still is.
func (u *underWay) mark() (left func() bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	last := u.last
	return func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		for id := range u.all {
			if id <= last {
				return true
			}
		}
		return false
	}
}
