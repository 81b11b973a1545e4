package frontend

import (
	"sync"

	"music/musiccore"
)

// turns lets one conditional write of a key go at a time: two of one holder would otherwise both read before either writes.
type turns struct {
	mu      sync.Mutex
	waiting map[musiccore.Key][]func()
}

// take calls f when it is its turn: at once, or by whoever had the turn before. f must not block, and must see to it that leave is called
// in the end.
func (t *turns) take(k musiccore.Key, f func(leave func())) {
	run := func() { f(sync.OnceFunc(func() { t.next(k) })) }
	t.mu.Lock()
	if t.waiting == nil {
		t.waiting = map[musiccore.Key][]func(){}
	}
	queue, busy := t.waiting[k]
	if busy {
		t.waiting[k] = append(queue, run)
	} else {
		t.waiting[k] = nil
	}
	t.mu.Unlock()
	if !busy {
		run()
	}
}

// next passes the turn on.
func (t *turns) next(k musiccore.Key) {
	t.mu.Lock()
	queue := t.waiting[k]
	if len(queue) == 0 {
		delete(t.waiting, k)
		t.mu.Unlock()
		return
	}
	t.waiting[k] = queue[1:]
	t.mu.Unlock()
	queue[0]()
}
