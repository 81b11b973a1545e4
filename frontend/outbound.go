package frontend

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// outbound writes one socket. The direction that forwards into it writes runs of bytes; everybody else posts whole
// envelopes, which go out between two envelopes of the direction, never inside one.
type outbound struct {
	conn    net.Conn
	timeout time.Duration // a peer that takes nothing for this long is given up; 0 = never

	mu     sync.Mutex // held while bytes go out
	inside bool       // the direction has begun an envelope and not ended it
	err    error      // the first error: nothing goes out after it

	postMu sync.Mutex
	posted []byte
	some   atomic.Bool // posted is not empty
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
	err := o.err
	o.mu.Unlock()
	o.settle()
	return err
}

// post queues whole envelopes (already in the socket's framing) and writes them unless somebody else is writing, who then
// does it. It copies b.
func (o *outbound) post(b []byte) {
	o.postMu.Lock()
	o.posted = append(o.posted, b...)
	o.some.Store(true)
	o.postMu.Unlock()
	o.settle()
}

// settle writes what is posted. Whoever fails to get the mutex may leave: its holder settles after unlocking.
func (o *outbound) settle() {
	for o.some.Load() && o.mu.TryLock() {
		stuck := o.inside
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
	if !o.some.Load() {
		return
	}
	o.postMu.Lock()
	b := o.posted
	o.posted = nil
	o.some.Store(false)
	o.postMu.Unlock()
	o.write(b)
}

func (o *outbound) write(b []byte) {
	if o.err != nil || len(b) == 0 {
		return
	}
	_, o.err = o.conn.Write(b)
}

// failed is the error that ended the socket, or nil.
func (o *outbound) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
