package relay

import (
	"net"
	"sync"
	"sync/atomic"
)

// maxPosted is how many posted bytes may wait for a peer that does not read before Room blocks.
const maxPosted = 256 << 10

// Outbound writes one socket. The socket's direction writes runs of bytes; any goroutine may post
// whole envelopes, which are written between two envelopes of the direction, never inside one.
type Outbound struct {
	conn net.Conn

	mu     sync.Mutex // held while bytes are written
	inside bool       // the direction has written a part of an envelope, and the rest is to come

	err    atomic.Pointer[error] // the first error: nothing is written after it
	writes atomic.Uint64         // odd while bytes are written

	postMu  sync.Mutex
	posted  []byte
	pending atomic.Int64  // len(posted)
	emptied chan struct{} // receives when posted has been emptied
}

// NewOutbound returns the writer of a socket.
func NewOutbound(conn net.Conn) *Outbound {
	return &Outbound{conn: conn, emptied: make(chan struct{}, 1)}
}

// forward writes a run; inside means that its last envelope goes on in the next run. It blocks while
// the peer does not read, so its direction reads no more either.
func (o *Outbound) forward(run []byte, inside bool) error {
	o.mu.Lock()
	if !o.inside {
		o.writePosted()
	}
	o.write(run)
	o.inside = inside
	o.mu.Unlock()
	o.flushPosted()
	return o.Err()
}

// Post queues whole envelopes, already in the socket's framing, and writes them; if another goroutine
// is writing, that one writes them. It copies b. It blocks only while its own write does.
func (o *Outbound) Post(b []byte) {
	o.queue(b)
	o.flushPosted()
}

// queue adds whole envelopes to those that have been posted.
func (o *Outbound) queue(b []byte) {
	o.postMu.Lock()
	defer o.postMu.Unlock()
	o.posted = append(o.posted, b...)
	o.pending.Store(int64(len(o.posted)))
}

// postNow is Post that writes b without a copy, unless another goroutine is writing or the direction
// is inside an envelope.
func (o *Outbound) postNow(b []byte) {
	if !o.mu.TryLock() {
		o.Post(b)
		return
	}
	inside := o.inside
	if !inside {
		o.writePosted()
		o.write(b)
	}
	o.mu.Unlock()
	if inside {
		o.Post(b)
	} else {
		o.flushPosted()
	}
}

// Finish blocks until everything that has been posted is written, also by the goroutine that is writing now, or the
// socket has failed. It must be called before the socket is closed: Post leaves its bytes to who is writing.
func (o *Outbound) Finish() {
	o.mu.Lock()
	if !o.inside {
		o.writePosted()
	}
	o.mu.Unlock()
}

// Full reports whether so many posted bytes wait to be written that Room would block.
func (o *Outbound) Full() bool { return o.Backlog() > maxPosted }

// Backlog returns how many posted bytes wait to be written.
func (o *Outbound) Backlog() int64 { return o.pending.Load() }

// Room blocks while Full returns true, but no longer than until done is closed.
func (o *Outbound) Room(done <-chan struct{}) {
	waited := false
	for o.Full() {
		select {
		case <-o.emptied:
			waited = true
		case <-done:
			return
		}
	}
	if waited {
		o.tellEmptied() // passes the signal on: others may wait, too
	}
}

// Progress returns a number that is odd while bytes go out, and changes with every write.
func (o *Outbound) Progress() uint64 { return o.writes.Load() }

// flushPosted writes the posted bytes. A goroutine that does not get the mutex may return: the one that
// has it calls flushPosted after unlocking.
func (o *Outbound) flushPosted() {
	for o.pending.Load() > 0 && o.mu.TryLock() {
		stuck := o.inside && o.Err() == nil
		if !stuck {
			o.writePosted()
		}
		o.mu.Unlock()
		if stuck {
			return
		}
	}
}

// writePosted writes the posted bytes. It is called with mu held, between two envelopes of the
// direction.
func (o *Outbound) writePosted() {
	if o.pending.Load() == 0 {
		return
	}
	o.postMu.Lock()
	b := o.posted
	o.posted = nil
	o.pending.Store(0)
	o.postMu.Unlock()
	o.tellEmptied()
	o.write(b)
}

// tellEmptied wakes one goroutine in Room.
func (o *Outbound) tellEmptied() {
	select {
	case o.emptied <- struct{}{}:
	default:
	}
}

// write writes b unless the socket has failed. It is called with mu held.
func (o *Outbound) write(b []byte) {
	if len(b) == 0 || o.Err() != nil {
		return
	}
	o.writes.Add(1)
	_, err := o.conn.Write(b)
	o.writes.Add(1)
	if err != nil {
		o.fail(err)
	}
}

// fail stores the error. It is a function of its own so that only a failure allocates.
func (o *Outbound) fail(err error) { o.err.Store(&err) }

// Err returns the first error of a write, or nil. It does not block.
func (o *Outbound) Err() error {
	if err := o.err.Load(); err != nil {
		return *err
	}
	return nil
}
