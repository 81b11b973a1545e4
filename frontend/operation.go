package frontend

import (
	"sync"

	"music/musiccore"
)

// operation is something that a connection has begun and that ends later: a request that waits for
// the core or for its turn, or work that blocks. A connection that drains waits for it. It is begun
// once, and finished, or ended, once.
type operation struct {
	conn *conn
	id   uint64
}

// noStream is the stream of what owes nobody an answer.
const noStream = -1

// begin begins an operation that owes the client an answer on a stream, or, with noStream, no
// answer.
func (c *conn) begin(stream int16) operation {
	return operation{c, c.operations.add(stream)}
}

// onCancel has cancel called where the connection ends before the operation does; at once where it
// has ended already.
func (o operation) onCancel(cancel func()) { o.conn.operations.setCancel(o.id, cancel) }

// owed reports whether the client is still owed the answer: it is not once it has been told that
// the connection ends.
func (o operation) owed() bool { return o.conn.operations.owes(o.id) }

// cancelled reports whether nobody waits for the operation any more: what it has taken is to be
// given back.
func (o operation) cancelled() bool { return !o.owed() || o.conn.over() }

// answer sends the client an envelope, unless it is not owed any more.
func (o operation) answer(envelope []byte) {
	if o.owed() {
		o.conn.post(envelope)
	}
}

// finish does the last part of the operation, from whatever goroutine, and ends it. Where last
// panics, the connection ends, and the client is answered then.
func (o operation) finish(last func()) {
	o.conn.guard(func() {
		last()
		o.end()
		o.conn.endIfDrained()
	})
}

// finishLater does the last part of the operation, which may block, in a goroutine of its own. The
// connection does not end before it.
func (o operation) finishLater(last func()) {
	o.conn.children.Go(func() { o.finish(last) })
}

// end ends the operation without anything else.
func (o operation) end() { o.conn.operations.remove(o.id) }

// answered is what finishes an operation with the core's answer. atOnce says that it is called
// before the question has returned, by the goroutine that has asked; else it may block.
type answered func(a musiccore.Answer, atOnce bool)

// lock asks the core for a lock, or after one, and finishes the operation with the answer. The core
// is told where the connection ends.
func (o operation) lock(k musiccore.Key, q musiccore.Request, finish answered) {
	a, cancel := o.conn.server.Locks.Lock(k, q, o.finishWith(finish))
	if cancel == nil {
		o.finish(func() { finish(a, true) })
		return
	}
	o.onCancel(cancel)
}

// unlock gives a reference back and finishes the operation with the answer.
func (o operation) unlock(k musiccore.Key, ref musiccore.LockRef, finish answered) {
	a, ok := o.conn.server.Locks.Unlock(k, ref, o.conn.auditClient(), o.finishWith(finish))
	if ok {
		o.finish(func() { finish(a, true) })
	}
}

// finishWith returns what the core calls with an answer that comes later.
func (o operation) finishWith(finish answered) func(musiccore.Answer) {
	return func(a musiccore.Answer) {
		o.finish(func() { finish(a, false) })
	}
}

// later does something that blocks, which a connection that drains waits for.
func (c *conn) later(f func()) { c.begin(noStream).finishLater(f) }

// answerLater answers a request with an envelope that f makes, which may block; nil where it has
// answered otherwise.
func (c *conn) answerLater(stream int16, f func() []byte) {
	o := c.begin(stream)
	o.finishLater(func() {
		if envelope := f(); envelope != nil {
			o.answer(envelope)
		}
	})
}

// guard runs what a goroutine that is not the connection's own does for it: a panic of it ends the
// connection, and nobody else's.
func (c *conn) guard(f func()) {
	if err := caught(func() error { f(); return nil }); err != nil {
		c.end(err)
	}
}

// operations are those of a connection that have begun and not ended.
type operations struct {
	mu      sync.Mutex
	last    uint64
	pending map[uint64]pendingOperation
	over    bool // the connection has ended
}

// pendingOperation is one of them: the stream that is owed an answer, or noStream, and what is
// called where the connection ends.
type pendingOperation struct {
	stream int16
	cancel func()
}

// add enters an operation.
func (o *operations) add(stream int16) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pending == nil {
		o.pending = map[uint64]pendingOperation{}
	}
	o.last++
	o.pending[o.last] = pendingOperation{stream, func() {}}
	return o.last
}

// setCancel sets what is called where the connection ends, unless the operation has ended. It calls
// it itself where the connection has.
func (o *operations) setCancel(id uint64, cancel func()) {
	o.mu.Lock()
	p, ok := o.pending[id]
	if ok {
		o.pending[id] = pendingOperation{p.stream, cancel}
	}
	over := o.over
	o.mu.Unlock()
	if over && ok {
		cancel()
	}
}

// remove ends an operation.
func (o *operations) remove(id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pending, id)
}

// owes reports whether the client is still owed the answer of an operation.
func (o *operations) owes(id uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pending[id].stream != noStream
}

// disown returns the streams that are owed an answer, for somebody who answers them all now: the
// operations owe none any more.
func (o *operations) disown() []int16 {
	o.mu.Lock()
	defer o.mu.Unlock()
	var streams []int16
	for id, p := range o.pending {
		if p.stream != noStream {
			streams = append(streams, p.stream)
			o.pending[id] = pendingOperation{noStream, p.cancel}
		}
	}
	return streams
}

// count returns how many operations there are.
func (o *operations) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending)
}

// cancel calls off every operation: the connection has ended.
func (o *operations) cancel() {
	o.mu.Lock()
	o.over = true
	all := make([]func(), 0, len(o.pending))
	for _, p := range o.pending {
		all = append(all, p.cancel)
	}
	o.mu.Unlock()
	for _, cancel := range all {
		cancel()
	}
}
