package frontend

import (
	"sync"

	"music/musiccore"
)

// turns carries out the conditional writes of a key one at a time: else two of one holder could
// both read before either writes. It is safe for concurrent use.
type turns struct {
	mu      sync.Mutex
	waiting map[musiccore.Key][]func()
	running sync.WaitGroup // of goroutines that have a turn
}

// take calls f when it is its turn: at once, or when the turn before ends, in a goroutine of its own,
// since f may answer a client that does not read, and end its turn at once, as many behind it may. f
// must have next called when the turn is over. Server.Serve waits for these goroutines.
func (t *turns) take(k musiccore.Key, f func(next func())) {
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
	run := queue[0]
	queue[0] = nil // it has a whole write, and the queue may not end for long
	t.waiting[k] = queue[1:]
	t.mu.Unlock()
	t.running.Go(run)
}
