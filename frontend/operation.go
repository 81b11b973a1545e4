package frontend

import (
	"sync"
	"sync/atomic"

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

// free lets the client use the operation's stream again: its answer is about to be sent, by this
// operation or by what follows it.
func (o operation) free() { o.conn.operations.free(o.id) }

// owed reports whether the client is still to be answered. It is not once giveUp has answered it.
func (o operation) owed() bool { return o.conn.operations.owes(o.id) }

// cancelled reports whether the client no longer waits for the operation, so that a lock taken for
// it must be released.
func (o operation) cancelled() bool { return !o.owed() || o.conn.over() }

// answer sends an envelope to the client if the answer is still owed.
func (o operation) answer(envelope []byte) {
	o.free()
	if o.owed() {
		o.conn.post(envelope)
	}
}

// finish calls last, which does not block and answers the client or has another operation do so,
// and ends the operation. Any goroutine may call it. If last panics the connection ends, which
// answers the client.
func (o operation) finish(last func()) {
	o.free()
	o.run(last)
}

// run is finish for a function that frees the stream itself.
func (o operation) run(last func()) {
	err := caught(func() error {
		last()
		o.end()
		o.conn.endIfDrained()
		return nil
	})
	if err != nil { // the operation stays: the end of the connection answers it
		o.conn.countKept(-o.conn.operations.keepsNothing(o.id))
		o.conn.end(err)
	}
}

// finishLater is finish in a goroutine of its own, so last may block; it must call free before the
// client is answered. conn.serve waits for it.
func (o operation) finishLater(last func()) {
	o.conn.children.Go(func() { o.run(last) })
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
		return
	}
	o.keeps(len(k.PK))
}

// finishWith returns the function that the core calls with an answer that comes later.
func (o operation) finishWith(finish answered) func(musiccore.Answer) {
	return func(a musiccore.Answer) {
		o.finish(func() { finish(a, false) })
	}
}

// answerLater answers a request with the envelope that f returns, in a goroutine of its own. f may
// block; it returns nil if it has answered the client itself, or has another operation do so, and has
// called free before.
func (c *conn) answerLater(stream int16, f func(o operation) []byte) {
	c.begin(stream).answerLater(f)
}

// answerLater is conn.answerLater for an operation that has begun.
func (o operation) answerLater(f func(o operation) []byte) {
	o.finishLater(func() {
		if envelope := f(o); envelope != nil {
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
	streams map[int16]int // how many operations each stream has that are not free
	busy    atomic.Int32  // the number of such operations
	over    bool          // the connection has ended
}

// pendingOperation is an operation that has not ended.
type pendingOperation struct {
	stream int16  // on which an answer is owed, or noStream
	used   int16  // the stream that the client must not use, until freed
	cancel func() // called when the connection ends
	kept   int    // see operation.keeps
	freed  bool   // see operation.free
}

// add adds an operation and returns its id.
func (o *operations) add(stream int16) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pending == nil {
		o.pending, o.streams = map[uint64]pendingOperation{}, map[int16]int{}
	}
	if stream != noStream {
		o.streams[stream]++
		o.busy.Add(1)
	}
	o.last++
	o.pending[o.last] = pendingOperation{stream: stream, used: stream, cancel: func() {}, freed: stream == noStream}
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

// keepsNothing notes that an operation keeps nothing any more, and returns how many bytes it has kept.
func (o *operations) keepsNothing(id uint64) (kept int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p, ok := o.pending[id]; ok {
		kept, p.kept = p.kept, 0
		o.pending[id] = p
	}
	return kept
}

// remove ends an operation, and returns how many bytes it has kept.
func (o *operations) remove(id uint64) (kept int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.release(id)
	kept = o.pending[id].kept
	delete(o.pending, id)
	return kept
}

// free lets the client use the stream of an operation again.
func (o *operations) free(id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.release(id)
}

// release is free with the mutex held.
func (o *operations) release(id uint64) {
	p, ok := o.pending[id]
	if !ok || p.freed {
		return
	}
	if o.streams[p.used]--; o.streams[p.used] == 0 {
		delete(o.streams, p.used)
	}
	o.busy.Add(-1)
	p.freed = true
	o.pending[id] = p
}

// uses reports whether an operation that has not been answered uses a stream. It takes a lock only if
// there is one on any stream of the connection.
func (o *operations) uses(stream int16) bool {
	if o.busy.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.streams[stream] > 0
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
