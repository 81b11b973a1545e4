// Package relay carries the envelopes of one connection in one direction, from a socket to the
// other. What is forwarded is forwarded as the bytes received: without a copy, without new memory,
// without a lock that another connection takes. A Handler says which envelopes are.
package relay

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"music/frontend/wire"
)

// ErrMalformed means that bytes do not keep to the protocol's framing: the connection cannot go on.
var ErrMalformed = errors.New("malformed frame")

// errOverlong is the malformed end of an envelope in several segments.
var errOverlong = fmt.Errorf("segment longer than its envelope: %w", ErrMalformed)

// Handler decides about the envelopes of a direction. Its methods are called by the goroutine of
// Run; an error ends Run.
type Handler interface {
	// Decide decides about an envelope. It is called with the part that has arrived and, after
	// NeedWhole or a Hold of a part, again with the whole. It must keep neither e nor e.Raw, and
	// not change them. A pointer, since copies of what has just been read byte by byte are slow.
	Decide(e *wire.Envelope) (Decision, error)
	// Perform deals with an envelope that Decide held back, whole. It may Emit other bytes in its
	// place, and must not keep e.Raw.
	Perform(e wire.Envelope) error
	// Flushed is called when everything decided so far has been written.
	Flushed()
	// Await blocks until an envelope of which Decide said Alone can be decided about.
	Await() error
}

// Decision is what becomes of an envelope.
type Decision uint8

const (
	// Forward sends the envelope on as the bytes received.
	Forward Decision = iota
	// NeedWhole asks for the whole envelope: the part that has arrived does not suffice.
	NeedWhole
	// Hold keeps the envelope back: Perform deals with it.
	Hold
	// Alone has everything before the envelope written, and asks again after Await.
	Alone
)

// Direction carries envelopes from one socket to the other. What is forwarded stays where it was
// read: a run of bytes of the read buffer that is written at once when the reader runs dry. Only
// what is held back or edited breaks a run. It belongs to one goroutine, but for Post, Arrivals and
// Late.
type Direction struct {
	In  *Inbound  // to be set before Run
	Out *Outbound // likewise, and before Post
	replies

	handler Handler
	framing *Framing

	start int    // the run not yet written is In.buf[start:In.r]
	put   []byte // what goes out before the run, in a buffer of the pool; nil: nothing
	left  int    // bytes of an envelope under way that are still to come and to be forwarded

	at wire.Envelope // that is decided about; empty between two turns of Run

	gather   []byte // v5: the envelope under way that is collected because it has to be looked at whole
	gathered Account
	decided  bool // v5: … and its first part did not decide

	ended  uint64 // envelopes that have been dealt with
	waited int64  // ns, for the rest of the envelope that came after them

	reads atomic.Uint64 // how often something has arrived; for other goroutines to see
	since atomic.Int64  // wall clock in ns, less waited: the rest of an envelope is waited for; 0: of none; likewise
}

// replies is what goes back to where a direction reads from.
type replies struct {
	Back *Outbound // for Reply; to be set before Run
	told []byte    // what goes back with the run, in a buffer of the pool; nil: nothing
}

// NewDirection returns a direction of a connection, without its sockets. What it gathers is taken
// of the account.
func NewDirection(h Handler, f *Framing, gathered Account) *Direction {
	return &Direction{handler: h, framing: f, gathered: gathered}
}

// Run carries until a socket fails or the handler returns an error; it returns io.EOF when the peer
// of In has closed. After a deadline it can be called again.
func (d *Direction) Run() error {
	for {
		d.start = d.In.r
		before := d.ended
		want, err := d.take()
		d.at.Raw = nil // the buffer may go
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

// arrive blocks until want bytes are in the window. How long it waits for the rest of an envelope,
// Late can see.
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

// beginWait notes that the rest of an envelope, or room for it, is waited for from now on.
func (d *Direction) beginWait() { d.since.Store(time.Now().UnixNano() - d.waited) }

// endWait notes that it is there. The time counts until the envelope has ended.
func (d *Direction) endWait() { d.waited = time.Now().UnixNano() - d.since.Swap(0) }

// Inside reports whether an envelope has begun and not ended.
func (d *Direction) Inside() bool { return d.left > 0 || d.gather != nil || d.In.r < d.In.w }

// HalfForwarded reports whether a part of an envelope has been forwarded and the rest is to come.
func (d *Direction) HalfForwarded() bool { return d.left > 0 }

// Arrivals returns how often something has arrived.
func (d *Direction) Arrivals() uint64 { return d.reads.Load() }

// Late reports whether the rest of an envelope has been waited for longer than limit.
func (d *Direction) Late(limit time.Duration) bool {
	since := d.since.Load()
	return since != 0 && time.Since(time.Unix(0, since)) > limit
}

// Close gives back the memory that the direction holds, after Run. It does not close the sockets.
func (d *Direction) Close() {
	if d.In != nil {
		d.clearPut()
		d.clearTold()
		d.In.close()
	}
	d.gathered.clear()
}

// take decides about all that is in the window and returns how many bytes it wants to see there to
// go on.
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

// takeEnvelope consumes one envelope, or as much as has arrived of it, and returns its size in the
// window. Size 0 means that it wants to see more first.
func (d *Direction) takeEnvelope() (size, want int, err error) {
	window := d.In.Window()
	if d.left > 0 {
		return d.pass(window), 1, nil
	}
	if len(window) < wire.HeaderSize {
		return 0, wire.HeaderSize, nil
	}
	e := d.envelope(window)
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
	d.keep()
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

// decide asks the handler what becomes of an envelope, as soon as that can be said.
func (d *Direction) decide(e *wire.Envelope) (Decision, error) {
	v, err := d.handler.Decide(e)
	if v == Alone && err == nil {
		return d.decideAlone(e)
	}
	return v, err
}

// decideAlone asks again when what went before has been sent and dealt with. The run and what is
// set aside are before e.
func (d *Direction) decideAlone(e *wire.Envelope) (Decision, error) {
	for {
		if err := d.Flush(); err != nil {
			return Hold, err
		}
		if err := d.handler.Await(); err != nil {
			return Hold, err
		}
		if v, err := d.handler.Decide(e); v != Alone || err != nil {
			return v, err
		}
	}
}

// pass adds bytes of the envelope under way to the run, and returns how many.
func (d *Direction) pass(b []byte) int {
	n := min(d.left, len(b))
	d.left -= n
	d.In.r += n
	if d.left == 0 {
		d.ended++
	}
	return n
}

// drop consumes bytes that are not forwarded. The run before them must have been kept.
func (d *Direction) drop(n int) {
	d.In.r += n
	d.start = d.In.r
}

// keep sets the run aside, so that other bytes can follow it.
func (d *Direction) keep() {
	if run := d.In.buf[d.start:d.In.r]; len(run) > 0 {
		d.put = append(d.set(), run...)
	}
	d.start = d.In.r
}

// set returns put, to be appended to.
func (d *Direction) set() []byte {
	if d.put == nil {
		d.put = d.In.buffers.borrow(smallSize)[:0]
	}
	return d.put
}

// Emit sends an envelope in the place of the one that is being performed. It copies raw.
func (d *Direction) Emit(raw []byte) { d.put = d.framing.appendTo(d.set(), raw) }

// EmitMade is Emit for the envelope that build appends to its argument, which is the memory that
// goes out.
func (d *Direction) EmitMade(build func(dst []byte) []byte) {
	d.put = d.framing.appendMade(d.set(), build)
}

// Reply answers the envelope that is being performed with the one that build appends to what it is
// given. It goes out with the other answers of this run, and before the run itself: a peer that does
// not read the run delays no answer.
func (d *Direction) Reply(build func(dst []byte) []byte) {
	if d.told == nil {
		d.told = d.In.buffers.borrow(smallSize)[:0]
	}
	d.told = d.framing.appendMade(d.told, build)
}

// Post sends an envelope between two of the direction's own, from any goroutine. It copies raw.
func (d *Direction) Post(raw []byte) { d.Out.Post(d.framing.appendTo(nil, raw)) }

// Flush writes what has been answered, what has been set aside, and the run.
func (d *Direction) Flush() error {
	if d.told != nil {
		d.Back.PostNow(d.told)
		d.clearTold()
	}
	run := d.In.buf[d.start:d.In.r]
	if d.put != nil {
		run = append(d.put, run...)
		d.put = run
	}
	if len(run) == 0 {
		return nil
	}
	err := d.Out.forward(run, d.left > 0)
	d.start = d.In.r
	d.clearPut()
	return err
}

// clearPut gives the memory back of what has gone out.
func (d *Direction) clearPut() {
	if d.put != nil {
		d.In.buffers.giveBack(d.put)
		d.put = nil
	}
}

// clearTold gives the memory back of what has been answered.
func (d *Direction) clearTold() {
	if d.told != nil {
		d.In.buffers.giveBack(d.told)
		d.told = nil
	}
}
