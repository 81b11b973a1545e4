package frontend

import (
	"errors"
	"sync"

	"music/musiccore"
)

// Locks is the protocol as clients' connections use it. Every done is called exactly once, by a goroutine that may block.
type Locks interface {
	// Lock asks for a reference, or after one. gone says that the client does not wait any more; done is called all the same.
	Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (gone func())
	// Unlock gives a reference back.
	Unlock(k musiccore.Key, r musiccore.LockRef, done func(musiccore.Answer))
	// Begin asks to do one operation under a lock. Where ok is true the answer is there at once and done is not called.
	Begin(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, done func(musiccore.Answer)) (a musiccore.Answer, ok bool)
	// List tells who holds and who waits at this proxy.
	List() []musiccore.Listing
	// End reports what became of the operation and says what the client may be told. It does not block.
	End(t musiccore.Ticket, o musiccore.Outcome) musiccore.Verdict
}

// ops are the operations of a connection that wait for the core, each with the way to give it up.
type ops struct {
	mu   sync.Mutex
	last uint64
	gone map[uint64]func()
	over bool
}

// add enters an operation; its gone may be set later by set.
func (o *ops) add() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone == nil {
		o.gone = map[uint64]func(){}
	}
	o.last++
	o.gone[o.last] = func() {}
	return o.last
}

// set tells how to give up an operation, unless it has its answer. Where the connection has ended meanwhile, that is done at once.
func (o *ops) set(id uint64, gone func()) {
	o.mu.Lock()
	_, waiting := o.gone[id]
	if waiting {
		o.gone[id] = gone
	}
	over := o.over
	o.mu.Unlock()
	if over && waiting {
		gone()
	}
}

// remove ends an operation.
func (o *ops) remove(id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.gone, id)
}

// none tells whether no operation waits.
func (o *ops) none() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.gone) == 0
}

// abandon gives up every operation that waits.
func (o *ops) abandon() {
	o.mu.Lock()
	o.over = true
	all := make([]func(), 0, len(o.gone))
	for _, gone := range o.gone {
		all = append(all, gone)
	}
	o.mu.Unlock()
	for _, gone := range all {
		gone()
	}
}

// later does something that blocks, which a draining connection waits for.
func (c *conn) later(f func()) {
	id := c.ops.add()
	c.children.Go(func() {
		f()
		c.ops.remove(id)
		c.endIfDrained()
	})
}

// abandon tells the core what a client that has gone leaves behind: its places in queues are given up, and of the operations
// whose answer will not come any more nobody knows the outcome.
func (c *conn) abandon() {
	c.ops.abandon()
	for _, w := range c.watches.removeAll() {
		if w.fenced != nil {
			c.server.Locks.End(w.fenced.ticket, musiccore.OutcomeUnknown)
		}
	}
}

// lockFailure is how a client is told that an operation under a lock was not done.
func lockFailure(err error, t *Table, ref musiccore.LockRef) *Failure {
	switch {
	case errors.Is(err, musiccore.ErrNotHeld):
		return invalid("MUSIC_NOT_HELD: lock_ref %d is not the holder of this key of %s: it waits, or was never given for this key", ref, t)
	case errors.Is(err, musiccore.ErrLost):
		return invalid("MUSIC_LOST: lock_ref %d on %s has expired or was preempted; nothing was written, and nothing more will succeed under it: LOCK again", ref, t)
	case errors.Is(err, musiccore.ErrTooLarge), errors.Is(err, musiccore.ErrPoisoned):
		return invalid("MUSIC_REFUSED: this key of %s cannot be locked: %v", t, err)
	}
	return invalid("MUSIC_UNAVAILABLE: nothing was written to %s; try again under the same lock_ref: %v", t, err)
}
