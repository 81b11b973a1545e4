// Package relay carries the envelopes of a connection in one direction, from one socket to the
// other. A Handler decides which envelopes are forwarded. Those are sent as the bytes received:
// without a copy, an allocation, or a lock that another connection takes.
package relay

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"music/frontend/wire"
)

// ErrMalformed means that bytes do not follow the protocol's framing. The connection cannot go on.
var ErrMalformed = errors.New("malformed frame")

// errOverlong means that the last segment of an envelope is longer than the rest of the envelope.
var errOverlong = fmt.Errorf("segment longer than its envelope: %w", ErrMalformed)

// Handler decides about the envelopes of a direction. Its methods are called by the goroutine of
// Run; an error of theirs ends Run.
type Handler interface {
	// Decide decides what becomes of an envelope. It is called with the part that has arrived and,
	// after NeedWhole or an Intercept of a part, again with the whole. It must neither change nor keep e
	// and e.Raw. It takes a pointer because copying an Envelope is slow.
	Decide(e *wire.Envelope) (Decision, error)
	// Perform processes a whole envelope for which Decide returned Intercept. It may Emit others in its
	// place, and must not keep e.Raw.
	Perform(e wire.Envelope) error
	// Flushed is called when everything decided so far has been written.
	Flushed()
	// Await blocks until an envelope for which Decide returned Defer can be decided about.
	Await() error
}

// Decision is what becomes of an envelope.
type Decision uint8

const (
	// Forward sends the envelope on as the bytes received.
	Forward Decision = iota
	// NeedWhole has Decide called again with the whole envelope: the part that has arrived is not
	// enough to decide.
	NeedWhole
	// Intercept keeps the envelope back and has it passed to Perform.
	Intercept
	// Defer has everything before the envelope written and, after Await, Decide called again.
	Defer
)

// Direction carries envelopes from one socket to the other. Forwarded envelopes stay in the read
// buffer as a run: bytes that are written with one call when nothing more can be read. Only an
// envelope that is held back or edited ends a run. All methods but Post, Arrivals and Late must be
// called by the goroutine of Run.
type Direction struct {
	In  *Inbound  // must be set before Run
	Out *Outbound // must be set before Run and Post
	replies

	handler Handler
	framing *Framing

	start   int    // the run that is not yet written is In.buf[start:In.r]
	pending []byte // bytes to write before the run, in a buffer of the pool; nil if there are none
	left    int    // how many bytes of the envelope being forwarded are still to arrive

	at wire.Envelope // the envelope being decided about; empty between two rounds of Run

	gathering

	ended uint64 // how many envelopes have been processed
	arrivals
}

// arrivals tracks what arrives at a direction. Any goroutine may read reads and since.
type arrivals struct {
	waited int64         // for how long the rest of the present envelope has been waited for, in ns
	reads  atomic.Uint64 // how often bytes have arrived
	since  atomic.Int64  // wall clock in ns since when the rest of an envelope is waited for, less waited; 0 = no wait
}

// replies are the answers that a direction sends back to the peer that it reads from.
type replies struct {
	Back   *Outbound // where Reply writes; must be set before Run
	unsent []byte    // replies not yet written, in a buffer of the pool; nil if there are none
}

// gathering is an envelope of v5 that must be decided about as a whole.
type gathering struct {
	gather   []byte // the parts so far
	gathered Account
	decided  bool // Decide has seen the first part, and needs the whole
}

// NewDirection returns a direction of a connection; In and Out are still to be set. Gathered
// envelopes are counted in the account.
func NewDirection(h Handler, f *Framing, gathered Account) *Direction {
	return &Direction{handler: h, framing: f, gathering: gathering{gathered: gathered}}
}

// Run blocks until a socket fails or the handler returns an error. It returns io.EOF when the peer
// of In has closed its side. After an error of a read deadline it can be called again.
func (d *Direction) Run() error {
	for {
		d.start = d.In.r
		before := d.ended
		want, err := d.take()
		d.at.Raw = nil // the buffer may be given back
		if d.ended != before {
			d.waited = 0
		}
		if flushErr := d.Flush(); err == nil {
			err = flushErr
		}
		if err != nil {
			return err
		}
		d.handler.Flushed()
		if err := d.arrive(want); err != nil {
			return err
		}
	}
}

// arrive blocks until want bytes are in the window. Late sees how long it waits for the rest of an
// envelope.
func (d *Direction) arrive(want int) (err error) {
	waiting := false
	for err == nil && len(d.In.Window()) < want {
		if !waiting && d.Inside() {
			waiting = true
			d.beginWait()
		}
		if err = d.In.Fill(want); err == nil {
			d.reads.Add(1)
		}
	}
	if waiting {
		d.endWait()
	}
	return err
}

// beginWait notes that the wait for the rest of an envelope, or for memory for it, begins.
func (d *Direction) beginWait() { d.since.Store(time.Now().UnixNano() - d.waited) }

// endWait notes that this wait is over. The waits of one envelope are added up.
func (d *Direction) endWait() { d.waited = time.Now().UnixNano() - d.since.Swap(0) }

// Inside reports whether a part of an envelope has arrived and the rest has not.
func (d *Direction) Inside() bool { return d.left > 0 || d.gather != nil || d.In.r < d.In.w }

// HalfForwarded reports whether a part of an envelope has been forwarded and the rest has not
// arrived.
func (d *Direction) HalfForwarded() bool { return d.left > 0 }

// Arrivals returns how often bytes have arrived. Any goroutine may call it.
func (d *Direction) Arrivals() uint64 { return d.reads.Load() }

// Late reports whether the rest of an envelope has been waited for longer than limit. Any goroutine
// may call it.
func (d *Direction) Late(limit time.Duration) bool {
	since := d.since.Load()
	return since != 0 && time.Since(time.Unix(0, since)) > limit
}

// Close gives the direction's buffers back. It must be called after Run has returned. It does not
// close the sockets.
func (d *Direction) Close() {
	if d.In != nil {
		d.clearPending()
		d.clearUnsent()
		d.In.close()
	}
	d.gathered.clear()
}

// take processes all envelopes in the window and returns how many bytes it needs there to go on.
func (d *Direction) take() (want int, err error) {
	for {
		var size int
		if d.framing.Segmented() {
			size, want, err = d.takeSegment()
		} else {
			size, want, err = d.takeEnvelope()
		}
		if size == 0 || err != nil {
			return want, err
		}
	}
}

// takeEnvelope consumes one envelope, or the part of it that has arrived, and returns how many
// bytes it consumed. Size 0 means that it needs want bytes in the window first.
func (d *Direction) takeEnvelope() (size, want int, err error) {
	window := d.In.Window()
	if d.left > 0 {
		return d.pass(window), 1, nil
	}
	if len(window) < wire.HeaderSize {
		return 0, wire.HeaderSize, nil
	}
	e := d.envelope(window)
	e.InSegment = false
	v, err := d.decide(e)
	switch {
	case err != nil:
		return 0, 0, err
	case v == Forward:
		d.left = e.Size()
		return d.pass(e.Raw), 1, nil
	case !e.Whole():
		return 0, e.Size(), nil
	}
	d.setRunAside()
	err = d.handler.Perform(*e)
	d.ended++
	d.drop(len(e.Raw))
	return len(e.Raw), 1, err
}

// envelope returns the envelope at the start of b, which must hold HeaderSize bytes, with as much
// of its body as is there. It is valid until the next call.
func (d *Direction) envelope(b []byte) *wire.Envelope {
	d.at.Read(b)
	return &d.at
}

// decide returns the handler's decision about an envelope. It blocks while that is Defer.
func (d *Direction) decide(e *wire.Envelope) (Decision, error) {
	v, err := d.handler.Decide(e)
	if v == Defer && err == nil {
		return d.decideDeferred(e)
	}
	return v, err
}

// decideDeferred writes everything that comes before e, and repeats Await and Decide until the
// decision is another than Defer.
func (d *Direction) decideDeferred(e *wire.Envelope) (Decision, error) {
	for {
		if err := d.Flush(); err != nil {
			return Intercept, err
		}
		if err := d.handler.Await(); err != nil {
			return Intercept, err
		}
		if v, err := d.handler.Decide(e); v != Defer || err != nil {
			return v, err
		}
	}
}

// pass adds those bytes of b that belong to the envelope being forwarded to the run, and returns
// their number.
func (d *Direction) pass(b []byte) int {
	n := min(d.left, len(b))
	d.left -= n
	d.In.r += n
	if d.left == 0 {
		d.ended++
	}
	return n
}

// drop consumes n bytes that are not forwarded. setRunAside must have been called before.
func (d *Direction) drop(n int) {
	d.In.r += n
	d.start = d.In.r
}

// setRunAside copies the run to pending, so that other bytes than the next in the read buffer can follow it.
func (d *Direction) setRunAside() {
	if run := d.In.buf[d.start:d.In.r]; len(run) > 0 {
		d.pending = append(d.pendingBuffer(), run...)
	}
	d.start = d.In.r
}

// pendingBuffer returns pending to append to, with a buffer if it has none.
func (d *Direction) pendingBuffer() []byte {
	if d.pending == nil {
		d.pending = d.In.buffers.borrow(smallSize)[:0]
	}
	return d.pending
}

// Emit sends an envelope in the place of the one being performed. It copies raw.
func (d *Direction) Emit(raw []byte) { d.pending = d.framing.appendTo(d.pendingBuffer(), raw) }

// EmitMade is Emit for the envelope that build appends to its argument. It saves the copy.
func (d *Direction) EmitMade(build func(dst []byte) []byte) {
	d.pending = d.framing.appendMade(d.pendingBuffer(), build)
}

// Reply answers the envelope being performed with the one that build appends to its argument. The
// answers of a run are written together, before the run: a peer that does not read the run delays
// no answer.
func (d *Direction) Reply(build func(dst []byte) []byte) {
	if d.unsent == nil {
		d.unsent = d.In.buffers.borrow(smallSize)[:0]
	}
	d.unsent = d.framing.appendMade(d.unsent, build)
}

// Post sends an envelope between two of the direction's own. It copies raw. Any goroutine may call
// it.
func (d *Direction) Post(raw []byte) { d.Out.Post(d.framing.appendTo(nil, raw)) }

// PostIn is Post that never blocks, also if the peer of Out does not read: it has a goroutine write, which ends at the
// latest when the socket is closed.
func (d *Direction) PostIn(start func(write func()), raw []byte) {
	d.Out.queue(d.framing.appendTo(nil, raw))
	start(d.Out.flushPosted)
}

// Flush writes the replies, then the pending bytes, then the run. It blocks while the peer of Out
// does not read.
func (d *Direction) Flush() error {
	if d.unsent != nil {
		d.Back.postNow(d.unsent)
		d.clearUnsent()
	}
	run := d.In.buf[d.start:d.In.r]
	if d.pending != nil {
		run = append(d.pending, run...)
		d.pending = run
	}
	if len(run) == 0 {
		return nil
	}
	err := d.Out.forward(run, d.left > 0)
	d.start = d.In.r
	d.clearPending()
	return err
}

// clearPending gives the buffer of pending back.
func (d *Direction) clearPending() {
	if d.pending != nil {
		d.In.buffers.giveBack(d.pending)
		d.pending = nil
	}
}

// clearUnsent gives the buffer of unsent back.
func (d *Direction) clearUnsent() {
	if d.unsent != nil {
		d.In.buffers.giveBack(d.unsent)
		d.unsent = nil
	}
}
