package frontend

import (
	"errors"
	"sync"

	"music/frontend/catalog"
	"music/frontend/wire"
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
	// End reports what became of the operation and says what the client may be told. It does not block. Where wait is not nil the
	// verdict is still to come: wait blocks until it is there, and need not be called.
	End(t musiccore.Ticket, o musiccore.Outcome) (v musiccore.Verdict, wait func() musiccore.Verdict)
	// Force takes the lock of a key from whoever holds it.
	Force(k musiccore.Key, f Force, done func(musiccore.Answer))
	// List tells who holds and who waits at all living proxies, of one table or key where only names one. It blocks for a second at
	// most. missing says in words whose locks are not among them.
	List(only musiccore.Key) (all []musiccore.Listing, missing []string)
}

// Force is who takes a lock from its holder, and why: both are for the audit.
type Force struct{ Who, Reason string }

// ErrAway tells that another proxy has the reference and cannot be asked. Nothing was done, or it may be asked for again. The text of
// what wraps it is for clients: it names no address.
var ErrAway = errors.New("the proxy that has this lock_ref does not answer: try again under it; the lock goes on here when that proxy's session has ended")

// operations are those of a connection whose answer is pending.
type operations struct {
	mu   sync.Mutex
	last uint64
	by   map[uint64]operationEntry
	over bool
}

// operationEntry is one of them: the stream that is owed an answer, or none, and the way to give it up.
type operationEntry struct {
	stream int16
	gone   func()
}

// add enters an operation; how to give it up may be told later, by set.
func (o *operations) add(stream int16) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil {
		o.by = map[uint64]operationEntry{}
	}
	o.last++
	o.by[o.last] = operationEntry{stream, func() {}}
	return o.last
}

// set tells how to give up an operation, unless it has its answer. Where the connection has ended meanwhile, that is done at once.
func (o *operations) set(id uint64, gone func()) {
	o.mu.Lock()
	waiting, ok := o.by[id]
	if ok {
		o.by[id] = operationEntry{waiting.stream, gone}
	}
	over := o.over
	o.mu.Unlock()
	if over && ok {
		gone()
	}
}

// remove ends an operation.
func (o *operations) remove(id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.by, id)
}

// owes tells whether the client is still owed the answer of an operation: it is not when it has been told that the connection ends.
func (o *operations) owes(id uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.by[id].stream != none
}

// disown returns the streams that are owed an answer, for somebody who answers them all now.
func (o *operations) disown() []int16 {
	o.mu.Lock()
	defer o.mu.Unlock()
	var streams []int16
	for id, waiting := range o.by {
		if waiting.stream != none {
			streams = append(streams, waiting.stream)
			o.by[id] = operationEntry{none, waiting.gone}
		}
	}
	return streams
}

// waiting is how many operations wait.
func (o *operations) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.by)
}

// none tells whether no operation waits.
func (o *operations) none() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.by) == 0
}

// abandon gives up every operation that waits.
func (o *operations) abandon() {
	o.mu.Lock()
	o.over = true
	all := make([]func(), 0, len(o.by))
	for _, waiting := range o.by {
		all = append(all, waiting.gone)
	}
	o.mu.Unlock()
	for _, gone := range all {
		gone()
	}
}

// later does something that blocks, which a draining connection waits for.
func (c *conn) later(f func()) {
	id := c.operations.add(none)
	c.children.Go(func() {
		c.guard(f)
		c.operations.remove(id)
		c.endIfDrained()
	})
}

// answerLater answers a request with an envelope that f makes, which may block; nil where it has answered otherwise. A draining
// connection waits for it; one that is lost answers in its place.
func (c *conn) answerLater(stream int16, f func() []byte) {
	id := c.operations.add(stream)
	c.children.Go(func() {
		c.guard(func() {
			if envelope := f(); envelope != nil && c.operations.owes(id) {
				c.post(envelope)
			}
		})
		c.operations.remove(id)
		c.endIfDrained()
	})
}

// guard runs what a goroutine that is not the connection's own does for it: a panic of it ends the connection, and nobody else's.
func (c *conn) guard(f func()) {
	if err := caught(func() error { f(); return nil }); err != nil {
		c.end(err)
	}
}

// abandon tells the core what a client that has gone leaves behind: its places in queues are given up, and so are locks
// that it was never told of; of the operations whose answer will not come any more nobody knows the outcome.
func (c *conn) abandon() {
	c.operations.abandon()
	for _, w := range c.watches.removeAll() {
		if w.sent == nil {
			continue
		}
		c.server.Locks.End(w.sent.ticket, musiccore.OutcomeUnknown)
		w.sent.leave()
		if w.sent.update != nil && w.sent.update.fresh {
			c.server.Locks.Unlock(w.sent.key, w.sent.ticket.Ref, func(musiccore.Answer) {})
		}
	}
}

// lockFailure is how a client is told that an operation under a lock was not done; ref is the reference as it sees it.
func lockFailure(err error, t *catalog.Table, ref int64) *wire.Failure {
	var short *ShortError
	switch {
	case errors.Is(err, musiccore.ErrSynchronising) && errors.As(err, &short):
		return short.failure()
	case errors.Is(err, musiccore.ErrNotHeld):
		return wire.Invalid("MUSIC_NOT_HELD: lock_ref %d is not the holder of this key of %s: it waits, or was never given for this key", ref, t)
	case errors.Is(err, musiccore.ErrReleased):
		return wire.Invalid("MUSIC_LOST: lock_ref %d on %s was given back by UNLOCK; nothing was written, and nothing more will succeed under it: LOCK again", ref, t)
	case errors.Is(err, musiccore.ErrLost):
		return wire.Invalid("MUSIC_LOST: lock_ref %d on %s has expired, was preempted or was given back; nothing was written, and nothing more will succeed under it: LOCK again", ref, t)
	case errors.Is(err, musiccore.ErrTooLarge):
		return wire.Invalid("MUSIC_REFUSED: this key of %s cannot be locked: its partition is too large to be synchronised", t)
	case errors.Is(err, musiccore.ErrPoisoned):
		return wire.Invalid("MUSIC_REFUSED: this key of %s cannot be locked: a value of it has a write timestamp in the far future, which nothing can overwrite", t)
	}
	return wire.Invalid("MUSIC_UNAVAILABLE: %s: %s", t, unavailable(err))
}

// unavailable says in words for whoever wrote the application why an operation could not be done now, and what to do. Nothing was sent
// to Cassandra for it. What went wrong in detail names addresses that clients do not know; it is in the log.
func unavailable(err error) string {
	switch {
	case errors.Is(err, ErrAway):
		return err.Error()
	case errors.Is(err, musiccore.ErrSynchronising):
		return "what the last holder left behind could not be settled in time: try again under the same lock_ref; nothing was done"
	case errors.Is(err, musiccore.ErrNoSession):
		return "this proxy has lost touch with the cluster and may neither give nor serve locks: try again, or at another proxy; nothing was done"
	case errors.Is(err, musiccore.ErrClock):
		return "the clocks of this proxy and of Cassandra differ by more than 10 s: no new lock is given until they agree; nothing was done"
	case errors.Is(err, musiccore.ErrDraining):
		return "this proxy is shutting down and gives no new lock: LOCK at another one; nothing was done"
	case errors.Is(err, musiccore.ErrTooManyWaiters):
		return "too many wait for this key already: try again later; nothing was done"
	}
	return "the lock of this key cannot be read or written at QUORUM now: try again; nothing was done"
}
