package frontend

import (
	"net"
	"sync"
	"sync/atomic"
)

// maxPosted is how many posted bytes may wait for a peer that does not read before whoever causes them is held up.
const maxPosted = 256 << 10

// outbound writes one socket. The direction that forwards into it writes runs of bytes; everybody else posts whole
// envelopes, which go out between two envelopes of the direction, never inside one.
type outbound struct {
	conn net.Conn

	mu     sync.Mutex // held while bytes go out
	inside bool       // the direction has begun an envelope and not ended it

	err    atomic.Pointer[error] // the first error: nothing goes out after it
	writes atomic.Uint64         // odd while bytes go out

	postMu  sync.Mutex
	posted  []byte
	backlog atomic.Int64  // len(posted)
	emptied chan struct{} // posted has been taken
}

// newOutbound makes the writer of a socket.
func newOutbound(conn net.Conn) *outbound {
	return &outbound{conn: conn, emptied: make(chan struct{}, 1)}
}

// forward writes a run; inside tells that the last envelope of it goes on in the next run. It blocks while the peer does
// not read, which is the back-pressure of its direction.
func (o *outbound) forward(run []byte, inside bool) error {
	o.mu.Lock()
	if !o.inside {
		o.writePosted()
	}
	o.write(run)
	o.inside = inside
	o.mu.Unlock()
	o.settle()
	return o.failed()
}

// post queues whole envelopes (already in the socket's framing) and writes them unless somebody else is writing, who then
// does it. It copies b.
func (o *outbound) post(b []byte) {
	o.postMu.Lock()
	o.posted = append(o.posted, b...)
	o.backlog.Store(int64(len(o.posted)))
	o.postMu.Unlock()
	o.settle()
}

// room blocks until the peer has taken what is posted, where that is much, or until done.
func (o *outbound) room(done <-chan struct{}) {
	waited := false
	for o.backlog.Load() > maxPosted {
		select {
		case <-o.emptied:
			waited = true
		case <-done:
			return
		}
	}
	if waited {
		o.tellEmptied() // others may wait, too
	}
}

// settle writes what is posted. Whoever fails to get the mutex may leave: its holder settles after unlocking.
func (o *outbound) settle() {
	for o.backlog.Load() > 0 && o.mu.TryLock() {
		stuck := o.inside && o.failed() == nil
		if !stuck {
			o.writePosted()
		}
		o.mu.Unlock()
		if stuck {
			return
		}
	}
}

func (o *outbound) writePosted() {
	if o.backlog.Load() == 0 {
		return
	}
	o.postMu.Lock()
	b := o.posted
	o.posted = nil
	o.backlog.Store(0)
	o.postMu.Unlock()
	o.tellEmptied()
	o.write(b)
}

func (o *outbound) tellEmptied() {
	select {
	case o.emptied <- struct{}{}:
	default:
	}
}

func (o *outbound) write(b []byte) {
	if len(b) == 0 || o.failed() != nil {
		return
	}
	o.writes.Add(1)
	_, err := o.conn.Write(b)
	o.writes.Add(1)
	if err != nil {
		o.fail(err)
	}
}

// fail is apart from write so that only a failure costs memory.
func (o *outbound) fail(err error) { o.err.Store(&err) }

// failed is the error that ended the socket, or nil. It does not wait for a write that is stuck.
func (o *outbound) failed() error {
	if err := o.err.Load(); err != nil {
		return *err
	}
	return nil
}
