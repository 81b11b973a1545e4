package frontend

import (
	"errors"
	"fmt"
)

// errMalformed ends a connection whose peer does not keep to the protocol's framing.
var errMalformed = errors.New("malformed frame")

// role is what differs between the two directions of a connection: who looks at the envelopes.
type role interface {
	// judge decides about an envelope. It is called once with the part that has arrived and, after more, again with the
	// whole. It must not keep e.raw.
	judge(e envelope) (verdict, error)
	// perform deals with an envelope that judge held back, whole. It may emit other bytes in its place.
	perform(e envelope) error
	// flushed is told that everything judged so far has been written.
	flushed()
}

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

	gather  []byte // v5: the envelope under way that is collected because it has to be looked at whole
	scratch []byte // v5: the last decompressed payload
}

// run carries until either socket fails; it returns why, io.EOF when the peer of in has closed.
func (d *direction) run() error {
	for {
		want, err := d.take()
		if flushErr := d.flush(); err == nil {
			err = flushErr
		}
		if err != nil {
			return err
		}
		d.role.flushed()
		if err := d.in.fill(want); err != nil {
			return err
		}
		d.start = d.in.r
	}
}

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
	if len(window) < headerSize {
		return 0, headerSize, nil
	}
	e := envelope{header: readHeader(window)}
	e.raw = window[:min(e.size(), len(window))]
	v, err := d.role.judge(e)
	switch {
	case err != nil:
		return 0, 0, err
	case v == more:
		return 0, e.size(), nil
	case v == forward:
		d.left = e.size()
		return d.pass(e.raw), 1, nil
	case !e.whole():
		return 0, e.size(), nil
	}
	d.keep()
	err = d.role.perform(e)
	d.drop(len(e.raw))
	return len(e.raw), 1, err
}

// pass lets bytes of the envelope under way join the run.
func (d *direction) pass(b []byte) int {
	n := min(d.left, len(b))
	d.left -= n
	d.in.r += n
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
	if cap(d.put) > blockSize {
		d.put = nil
	}
	return err
}

// takeSegment does for v5 what takeEnvelope does for the older framing. A segment is looked at whole: its checksum comes last.
func (d *direction) takeSegment() (size, want int, err error) {
	codec := d.conn.codec()
	window := d.in.window()
	if len(window) < codec.headerSize() {
		return 0, codec.headerSize(), nil
	}
	h, err := codec.readHeader(window)
	if err != nil {
		return 0, 0, err
	}
	if len(window) < h.size {
		return 0, h.size, nil
	}
	var payload []byte
	if payload, d.scratch, err = codec.payload(h, window, d.scratch); err != nil {
		return 0, 0, err
	}
	if h.selfContained {
		err = d.takeWhole(payload, h.size)
	} else {
		err = d.takePart(payload, h.size)
	}
	return h.size, 1, err
}

// takeWhole consumes a self-contained segment. It joins the run as it is unless one of its envelopes is held back: then the
// others are put into segments of their own.
func (d *direction) takeWhole(payload []byte, size int) error {
	if d.left > 0 || d.gather != nil {
		return fmt.Errorf("self-contained segment inside an envelope: %w", errMalformed)
	}
	done, cut := 0, false
	for at := 0; at < len(payload); {
		e, err := d.envelopeAt(payload[at:])
		if err != nil {
			return err
		}
		if !e.whole() {
			return fmt.Errorf("envelope longer than its segment: %w", errMalformed)
		}
		v, err := d.role.judge(e)
		if err != nil {
			return err
		}
		if v == hold {
			if !cut {
				d.keep()
				cut = true
			}
			if err := d.replace(payload[done:at], e); err != nil {
				return err
			}
			done = at + len(e.raw)
		}
		at += len(e.raw)
	}
	if !cut {
		d.in.r += size
		return nil
	}
	d.emit(payload[done:])
	d.drop(size)
	return nil
}

// replace sends the envelopes before e, then performs e.
func (d *direction) replace(before []byte, e envelope) error {
	d.emit(before)
	return d.role.perform(e)
}

// takePart consumes a segment that carries a part of one large envelope.
func (d *direction) takePart(payload []byte, size int) error {
	if d.left > 0 {
		if len(payload) > d.left {
			return fmt.Errorf("segment longer than its envelope: %w", errMalformed)
		}
		d.left -= len(payload)
		d.in.r += size
		return nil
	}
	d.keep()
	d.drop(size)
	first := d.gather == nil
	d.gather = append(d.gather, payload...)
	if len(d.gather) < headerSize {
		return nil
	}
	e, err := d.envelopeAt(d.gather)
	if err != nil {
		return err
	}
	if len(e.raw) < len(d.gather) {
		return fmt.Errorf("segment longer than its envelope: %w", errMalformed)
	}
	if !first && !e.whole() {
		return nil
	}
	return d.takeGathered(e)
}

// takeGathered judges a large envelope by its first segment, and again when it is whole.
func (d *direction) takeGathered(e envelope) error {
	v, err := d.role.judge(e)
	if err != nil {
		return err
	}
	switch {
	case v == forward:
		d.left = e.size() - len(e.raw)
		d.put = d.conn.codec().appendTo(d.put, e.raw, d.left > 0)
	case !e.whole():
		return nil
	default:
		err = d.role.perform(e)
	}
	d.gather = nil
	return err
}

// envelopeAt reads the envelope at the start of a payload, with as much of its body as is there.
func (d *direction) envelopeAt(b []byte) (envelope, error) {
	if len(b) < headerSize {
		return envelope{}, fmt.Errorf("segment ends inside a header: %w", errMalformed)
	}
	e := envelope{header: readHeader(b)}
	e.raw = b[:min(e.size(), len(b))]
	return e, nil
}
