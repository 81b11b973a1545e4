package frontend

import (
	"sync"

	"music/musiccore"
)

// turns carries out the conditional writes of a holder one at a time: else two of them could both read before
// either writes. What one that has lost the lock still waits for, such as a client that does not read, keeps
// nobody who holds it next. It is safe for concurrent use.
type turns struct {
	mu      sync.Mutex
	waiting map[holder][]func()
	running sync.WaitGroup // of goroutines that have a turn
}

// holder is who has, or had, the lock of a key.
type holder struct {
	key musiccore.Key
	ref musiccore.LockRef
}

// take calls f when it is its turn: at once, or when the turn before ends, in a goroutine of its own,
// since f may answer a client that does not read, and end its turn at once, as many behind it may. f
// must have next called when the turn is over. Server.Serve waits for these goroutines.
func (t *turns) take(h holder, f func(next func())) {
	run := func() { f(sync.OnceFunc(func() { t.next(h) })) }
	t.mu.Lock()
	if t.waiting == nil {
		t.waiting = map[holder][]func(){}
	}
	queue, busy := t.waiting[h]
	if busy {
		t.waiting[h] = append(queue, run)
	} else {
		t.waiting[h] = nil
	}
	t.mu.Unlock()
	if !busy {
		run()
	}
}

// next passes the turn on.
func (t *turns) next(h holder) {
	t.mu.Lock()
	queue := t.waiting[h]
	if len(queue) == 0 {
		delete(t.waiting, h)
		t.mu.Unlock()
		return
	}
	run := queue[0]
	queue[0] = nil // it has a whole write, and the queue may not end for long
	t.waiting[h] = queue[1:]
	t.mu.Unlock()
	t.running.Go(run)
}
