package frontend

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"music/frontend/wire"
)

// errMalformed ends a connection whose peer does not keep to the protocol's framing.
var errMalformed = errors.New("malformed frame")

// errOverlong is the malformed end of an envelope in several segments.
var errOverlong = fmt.Errorf("segment longer than its envelope: %w", errMalformed)

// role is what differs between the two directions of a connection: who looks at the envelopes.
type role interface {
	// judge decides about an envelope. It is called with the part that has arrived and, after more or a hold of a part, again
	// with the whole. It must not keep e.raw.
	judge(e wire.Envelope) (verdict, error)
	// perform deals with an envelope that judge held back, whole. It may emit other bytes in its place.
	perform(e wire.Envelope) error
	// flushed is told that everything judged so far has been written.
	flushed()
	// await blocks until an envelope that judge wants to go alone may go. It fails where the connection ends meanwhile.
	await() error
}

// verdict is what becomes of an envelope.
type verdict uint8

const (
	// forward hands the envelope on as the bytes received.
	forward verdict = iota
	// more means that the part seen does not decide: ask again with the whole envelope.
	more
	// hold keeps the envelope back: the direction's perform deals with it.
	hold
	// alone means that nothing may be on its way meanwhile: ask again when the role's await has returned.
	alone
)

// direction carries envelopes from one socket to the other. What is forwarded stays where it was read: a run of bytes of the
// read buffer that is written at once when the reader runs dry. Only what is held back or edited breaks a run.
// It belongs to one goroutine.
type direction struct {
	conn *conn
	role role
	in   *inbound
	out  *outbound

	start int    // the run not yet written is in.buf[start:in.r]
	put   []byte // what goes out before the run
	left  int    // bytes of an envelope under way that are still to come and to be forwarded

	gather   []byte // v5: the envelope under way that is collected because it has to be looked at whole
	gathered account
	judged   bool // v5: … and that has been judged by its first part

	ended  uint64 // envelopes that have been dealt with
	waited int64  // ns, for the rest of the envelope that came after them

	reads atomic.Uint64 // how often something has arrived; for other goroutines to see
	since atomic.Int64  // wall clock in ns, less waited: the rest of an envelope is waited for; 0: of none; likewise
}

// run carries until either socket fails; it returns why, io.EOF when the peer of in has closed. After a deadline it can be
// called again.
func (d *direction) run() error {
	for {
		d.start = d.in.r
		before := d.ended
		want, err := d.take()
		if d.ended != before {
			d.waited = 0
		}
		if flushErr := d.flush(); err == nil {
			err = flushErr
		}
		if err != nil {
			return err
		}
		d.role.flushed()
		if err := d.arrive(want); err != nil {
			return err
		}
	}
}

// arrive waits until so many bytes are there. How long the rest of an envelope is waited for others can see.
func (d *direction) arrive(want int) (err error) {
	waiting := false
	for err == nil && len(d.in.window()) < want {
		if !waiting && d.inside() {
			waiting = true
			d.beginWait()
		}
		if err = d.in.fill(want); err == nil {
			d.reads.Add(1)
		}
	}
	if waiting {
		d.endWait()
	}
	return err
}

// beginWait notes that the rest of an envelope, or room for it, is waited for from now on.
func (d *direction) beginWait() { d.since.Store(time.Now().UnixNano() - d.waited) }

// endWait notes that it is there. The time counts until the envelope has ended.
func (d *direction) endWait() { d.waited = time.Now().UnixNano() - d.since.Swap(0) }

// inside tells whether an envelope has been begun and not ended.
func (d *direction) inside() bool { return d.left > 0 || d.gather != nil || d.in.r < d.in.w }

// take judges all that is in the window and returns how many bytes it wants to see there to go on.
func (d *direction) take() (want int, err error) {
	for {
		var size int
		if d.conn.segmented.Load() {
			size, want, err = d.takeSegment()
		} else {
			size, want, err = d.takeEnvelope()
		}
		if size == 0 || err != nil {
			return want, err
		}
	}
}

// takeEnvelope consumes one envelope, or as much as has arrived of it, and returns its size in the window. Size 0 means
// that it wants to see more first.
func (d *direction) takeEnvelope() (size, want int, err error) {
	window := d.in.window()
	if d.left > 0 {
		return d.pass(window), 1, nil
	}
	if len(window) < wire.HeaderSize {
		return 0, wire.HeaderSize, nil
	}
	e := wire.Envelope{Header: wire.ReadHeader(window)}
	e.Raw = window[:min(e.Size(), len(window))]
	v, err := d.judge(e)
	switch {
	case err != nil:
		return 0, 0, err
	case v == forward:
		d.left = e.Size()
		return d.pass(e.Raw), 1, nil
	case !e.Whole():
		return 0, e.Size(), nil
	}
	d.keep()
	err = d.role.perform(e)
	d.ended++
	d.drop(len(e.Raw))
	return len(e.Raw), 1, err
}

// judge asks the role what becomes of an envelope, as soon as that can be said.
func (d *direction) judge(e wire.Envelope) (verdict, error) {
	v, err := d.role.judge(e)
	if v == alone && err == nil {
		return d.judgeAlone(e)
	}
	return v, err
}

// judgeAlone asks again when what went before has been sent and dealt with. The run and what is set aside are before e.
func (d *direction) judgeAlone(e wire.Envelope) (verdict, error) {
	for {
		if err := d.flush(); err != nil {
			return hold, err
		}
		if err := d.role.await(); err != nil {
			return hold, err
		}
		if v, err := d.role.judge(e); v != alone || err != nil {
			return v, err
		}
	}
}

// pass lets bytes of the envelope under way join the run.
func (d *direction) pass(b []byte) int {
	n := min(d.left, len(b))
	d.left -= n
	d.in.r += n
	if d.left == 0 {
		d.ended++
	}
	return n
}

// drop consumes bytes that are not forwarded. The run before them must have been kept.
func (d *direction) drop(n int) {
	d.in.r += n
	d.start = d.in.r
}

// keep sets the run aside, so that other bytes can follow it.
func (d *direction) keep() {
	d.put = append(d.put, d.in.buf[d.start:d.in.r]...)
	d.start = d.in.r
}

// emit sends an envelope in the place of the one being performed. It copies raw.
func (d *direction) emit(raw []byte) { d.put = d.conn.appendFramed(d.put, raw) }

// flush writes what has been set aside and the run.
func (d *direction) flush() error {
	run := d.in.buf[d.start:d.in.r]
	if len(d.put) > 0 {
		run = append(d.put, run...)
		d.put = run[:0]
	}
	if len(run) == 0 {
		return nil
	}
	err := d.out.forward(run, d.left > 0)
	d.start = d.in.r
	if cap(d.put) > keptSize {
		d.put = nil
	}
	return err
}

// keptSize is what a direction may keep for the next envelope that it edits; an idle connection has two directions.
const keptSize = 1 << 10

// takeSegment does for v5 what takeEnvelope does for the older framing. A segment is looked at whole: its checksum comes last.
func (d *direction) takeSegment() (size, want int, err error) {
	codec := d.conn.codec()
	window := d.in.window()
	if len(window) < codec.HeaderSize() {
		return 0, codec.HeaderSize(), nil
	}
	h, err := codec.ReadHeader(window)
	if err != nil {
		return 0, 0, err
	}
	if len(window) < h.Size {
		return 0, h.Size, nil
	}
	var scratch []byte
	if h.Plain > 0 {
		scratch = d.in.blocks.borrow(largeSize)
		defer d.in.blocks.giveBack(scratch)
	}
	payload, err := codec.Payload(h, window, scratch)
	if err != nil {
		return 0, 0, err
	}
	if h.SelfContained {
		err = d.takeWhole(payload, h.Size)
	} else {
		err = d.takePart(payload, h.Size)
	}
	return h.Size, 1, err
}

// takeWhole consumes a self-contained segment. It joins the run as it is unless one of its envelopes is held back: then the
// others are put into segments of their own.
func (d *direction) takeWhole(payload []byte, size int) error {
	if d.left > 0 || d.gather != nil {
		return fmt.Errorf("self-contained segment inside an envelope: %w", errMalformed)
	}
	w := whole{direction: d, payload: payload}
	for w.at < len(payload) {
		if err := w.next(); err != nil {
			return err
		}
	}
	d.ended++
	if !w.split {
		d.in.r += size
		return nil
	}
	w.cut()
	d.drop(size)
	return nil
}

// whole is a self-contained segment under way through a direction.
type whole struct {
	*direction
	payload  []byte
	done, at int  // payload[done:at] is to be forwarded
	split    bool // it cannot go as it was received
}

// next deals with the envelope at hand.
func (w *whole) next() error {
	e, err := envelopeAt(w.payload[w.at:])
	if err != nil {
		return err
	}
	if !e.Whole() {
		return fmt.Errorf("envelope longer than its segment: %w", errMalformed)
	}
	v, err := w.role.judge(e)
	if v == alone && err == nil {
		w.cut()
		v, err = w.judgeAlone(e)
	}
	if v == hold && err == nil {
		w.cut()
		w.done += len(e.Raw)
		err = w.role.perform(e)
	}
	w.at += len(e.Raw)
	return err
}

// cut sets the envelopes before the one at hand aside, in a segment of their own.
func (w *whole) cut() {
	if !w.split {
		w.keep()
		w.split = true
	}
	w.emit(w.payload[w.done:w.at])
	w.done = w.at
}

// takePart consumes a segment that carries a part of one large envelope. Where the first one decides, all of them join the run
// as they are.
func (d *direction) takePart(payload []byte, size int) error {
	if d.left > 0 {
		if len(payload) > d.left {
			return errOverlong
		}
		d.left -= len(payload)
		d.in.r += size
		if d.left == 0 {
			d.ended++
		}
		return nil
	}
	if d.gather == nil && len(payload) >= wire.HeaderSize {
		v, err := d.judgePart(payload)
		if err != nil {
			return err
		}
		if v == forward {
			d.in.r += size
			return nil
		}
	}
	d.keep()
	d.drop(size)
	if err := d.collect(payload); err != nil {
		return err
	}
	return d.takeGathered()
}

// collect adds a part to the envelope under way, as soon as the budget has room for it.
func (d *direction) collect(part []byte) error {
	const slack = 2 // append takes more than it needs
	d.beginWait()
	ok := d.gathered.grow(slack * (len(d.gather) + len(part)))
	d.endWait()
	if !ok {
		return net.ErrClosed
	}
	d.gather = append(d.gather, part...)
	return nil
}

// judgePart judges an envelope by its first part. Of one that is forwarded the rest is to come.
func (d *direction) judgePart(part []byte) (verdict, error) {
	e, err := envelopeAt(part)
	if err != nil {
		return hold, err
	}
	if len(e.Raw) < len(part) {
		return hold, errOverlong
	}
	v, err := d.judge(e)
	if v == forward && err == nil {
		d.left = e.Size() - len(e.Raw)
	}
	d.judged = v != forward
	return v, err
}

// takeGathered goes on with what has been collected of an envelope: it is judged by its first part, and again when it is whole.
func (d *direction) takeGathered() error {
	if len(d.gather) < wire.HeaderSize {
		return nil
	}
	e, err := envelopeAt(d.gather)
	switch {
	case err != nil:
		return err
	case len(e.Raw) < len(d.gather):
		return errOverlong
	case d.judged && !e.Whole():
		return nil
	}
	v, err := d.judgePart(d.gather)
	switch {
	case err != nil:
		return err
	case v == forward:
		d.put = d.conn.codec().AppendTo(d.put, e.Raw, d.left > 0)
	case !e.Whole():
		return nil
	default:
		err = d.role.perform(e)
	}
	d.gather, d.judged = nil, false
	d.gathered.clear()
	if d.left == 0 {
		d.ended++
	}
	return err
}

// envelopeAt reads the envelope at the start of a payload, with as much of its body as is there.
func envelopeAt(b []byte) (wire.Envelope, error) {
	if len(b) < wire.HeaderSize {
		return wire.Envelope{}, fmt.Errorf("segment ends inside a header: %w", errMalformed)
	}
	e := wire.Envelope{Header: wire.ReadHeader(b)}
	e.Raw = b[:min(e.Size(), len(b))]
	return e, nil
}
