package frontend

import (
	"sync"

	"music/musiccore"
)

// operation is a request or other work of a connection that ends later: it waits for the core or
// for its turn, or it blocks. A draining connection waits for its operations. Each operation must
// be finished, or ended, exactly once.
type operation struct {
	conn *conn
	id   uint64
}

// noStream is the stream of an operation that owes the client no answer.
const noStream = -1

// begin begins an operation that owes the client an answer on a stream or, with noStream, no
// answer.
func (c *conn) begin(stream int16) operation {
	return operation{c, c.operations.add(stream)}
}

// goOn is begin for a request on whose stream Cassandra has answered the proxy, which goes on with it.
// At every moment the request is an open stream, an operation or both: a USE that waits for all
// requests before it cannot overtake it, and change the keyspace of what is still to be sent.
func (c *conn) goOn(answered, owed int16) operation {
	o := c.begin(owed)
	c.streams.End(answered)
	return o
}

// onCancel has cancel called if the connection ends before the operation does; at once if it has
// already ended.
func (o operation) onCancel(cancel func()) { o.conn.operations.setCancel(o.id, cancel) }

// keeps counts n more bytes as kept by the operation, until it ends (see conn.countKept).
func (o operation) keeps(n int) {
	if o.conn.operations.keeps(o.id, n) {
		o.conn.countKept(n)
	}
}

// owed reports whether the client is still to be answered. It is not once giveUp has answered it.
func (o operation) owed() bool { return o.conn.operations.owes(o.id) }

// cancelled reports whether the client no longer waits for the operation, so that a lock taken for
// it must be released.
func (o operation) cancelled() bool { return !o.owed() || o.conn.over() }

// answer sends an envelope to the client if the answer is still owed.
func (o operation) answer(envelope []byte) {
	if o.owed() {
		o.conn.post(envelope)
	}
}

// finish calls last and ends the operation. Any goroutine may call it. If last panics the
// connection ends, which answers the client.
func (o operation) finish(last func()) {
	o.conn.guard(func() {
		last()
		o.end()
		o.conn.endIfDrained()
	})
}

// finishLater is finish in a goroutine of its own, so last may block. conn.serve waits for it.
func (o operation) finishLater(last func()) {
	o.conn.children.Go(func() { o.finish(last) })
}

// end ends the operation without an answer.
func (o operation) end() {
	if n := o.conn.operations.remove(o.id); n != 0 {
		o.conn.countKept(-n)
	}
}

// answered finishes an operation with the core's answer. atOnce means that it is called by the
// goroutine that asked, before operation.lock or unlock returns; else it may block.
type answered func(a musiccore.Answer, atOnce bool)

// lock asks the core for a lock (see Locker.Lock) and finishes the operation with the answer. If
// the connection ends before, the core's wait is cancelled.
func (o operation) lock(k musiccore.Key, q musiccore.Request, finish answered) {
	a, cancel := o.conn.server.Locks.Lock(k, q, o.finishWith(finish))
	if cancel == nil {
		o.finish(func() { finish(a, true) })
		return
	}
	o.keeps(len(k.PK))
	o.onCancel(cancel)
}

// unlock releases a reference and finishes the operation with the answer.
func (o operation) unlock(k musiccore.Key, ref musiccore.LockRef, finish answered) {
	a, ok := o.conn.server.Locks.Unlock(k, ref, o.conn.auditClient(), o.finishWith(finish))
	if ok {
		o.finish(func() { finish(a, true) })
	}
}

// finishWith returns the function that the core calls with an answer that comes later.
func (o operation) finishWith(finish answered) func(musiccore.Answer) {
	return func(a musiccore.Answer) {
		o.finish(func() { finish(a, false) })
	}
}

// later calls f in a goroutine of its own. f may block; a draining connection waits for it.
func (c *conn) later(f func()) { c.begin(noStream).finishLater(f) }

// answerLater answers a request with the envelope that f returns, in a goroutine of its own. f may
// block; it returns nil if it has answered the client itself.
func (c *conn) answerLater(stream int16, f func() []byte) {
	c.begin(stream).answerLater(f)
}

// answerLater is conn.answerLater for an operation that has begun.
func (o operation) answerLater(f func() []byte) {
	o.finishLater(func() {
		if envelope := f(); envelope != nil {
			o.answer(envelope)
		}
	})
}

// guard calls f for the connection in another goroutine than its own two. A panic of f ends only
// this connection.
func (c *conn) guard(f func()) {
	if err := caught(func() error { f(); return nil }); err != nil {
		c.end(err)
	}
}

// operations is the set of a connection's operations that have not ended. It is safe for concurrent
// use.
type operations struct {
	mu      sync.Mutex
	last    uint64
	pending map[uint64]pendingOperation
	over    bool // the connection has ended
}

// pendingOperation is an operation that has not ended.
type pendingOperation struct {
	stream int16  // on which an answer is owed, or noStream
	cancel func() // called when the connection ends
	kept   int    // see operation.keeps
}

// add adds an operation and returns its id.
func (o *operations) add(stream int16) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pending == nil {
		o.pending = map[uint64]pendingOperation{}
	}
	o.last++
	o.pending[o.last] = pendingOperation{stream: stream, cancel: func() {}}
	return o.last
}

// setCancel sets the function to call when the connection ends, unless the operation has ended. It
// calls it at once if the connection has ended.
func (o *operations) setCancel(id uint64, cancel func()) {
	o.mu.Lock()
	p, ok := o.pending[id]
	if ok {
		p.cancel = cancel
		o.pending[id] = p
	}
	over := o.over
	o.mu.Unlock()
	if over && ok {
		cancel()
	}
}

// keeps notes that an operation keeps n more bytes. It returns false if the operation has ended.
func (o *operations) keeps(id uint64, n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, ok := o.pending[id]
	if ok {
		p.kept += n
		o.pending[id] = p
	}
	return ok
}

// remove ends an operation, and returns how many bytes it has kept.
func (o *operations) remove(id uint64) (kept int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept = o.pending[id].kept
	delete(o.pending, id)
	return kept
}

// owes reports whether an operation still owes the client an answer.
func (o *operations) owes(id uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pending[id].stream != noStream
}

// disown returns the streams on which answers are owed. The caller must answer them: the operations
// owe none from then on.
func (o *operations) disown() []int16 {
	o.mu.Lock()
	defer o.mu.Unlock()
	var streams []int16
	for id, p := range o.pending {
		if p.stream != noStream {
			streams = append(streams, p.stream)
			p.stream = noStream
			o.pending[id] = p
		}
	}
	return streams
}

// count returns the number of operations.
func (o *operations) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending)
}

// cancel cancels all operations, because the connection has ended.
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
