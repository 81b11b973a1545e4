package relay

import (
	"fmt"
	"net"

	"music/frontend/wire"
)

// takeSegment is takeEnvelope for the segments of v5. It waits for the whole segment, since its
// checksum comes last.
func (d *Direction) takeSegment() (size, want int, err error) {
	codec := d.framing.codec()
	window := d.In.Window()
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
		scratch = d.In.buffers.borrow(largeSize)
		defer d.In.buffers.giveBack(scratch)
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

// takeWhole consumes a self-contained segment. The segment is forwarded as it is unless one of its
// envelopes is held back; then the others are put into new segments.
func (d *Direction) takeWhole(payload []byte, size int) error {
	if d.left > 0 || d.gather != nil {
		return fmt.Errorf("self-contained segment inside an envelope: %w", ErrMalformed)
	}
	w := whole{Direction: d, payload: payload}
	for w.at < len(payload) {
		if err := w.next(); err != nil {
			return err
		}
	}
	d.ended++
	if !w.split {
		d.In.r += size
		return nil
	}
	w.cut()
	d.drop(size)
	return nil
}

// whole is a self-contained segment that a direction is processing.
type whole struct {
	*Direction
	payload  []byte
	done, at int  // payload[done:at] is to be forwarded, and at is where the next envelope begins
	split    bool // it cannot be forwarded as it was received
}

// next processes the next envelope.
func (w *whole) next() error {
	e, err := w.envelopeAt(w.payload[w.at:])
	if err != nil {
		return err
	}
	if !e.Whole() {
		return fmt.Errorf("envelope longer than its segment: %w", ErrMalformed)
	}
	v, err := w.handler.Decide(e)
	if v == Defer && err == nil {
		w.cut()
		v, err = w.decideDeferred(e)
	}
	if v == Intercept && err == nil {
		w.cut()
		w.done += len(e.Raw)
		err = w.handler.Perform(*e)
	}
	w.at += len(e.Raw)
	return err
}

// cut emits the envelopes before the present one in a segment of their own.
func (w *whole) cut() {
	if !w.split {
		w.setRunAside()
		w.split = true
	}
	w.Emit(w.payload[w.done:w.at])
	w.done = w.at
}

// takePart consumes a segment that carries a part of one large envelope. If the first part is
// enough to decide to forward it, all its segments are forwarded as they are.
func (d *Direction) takePart(payload []byte, size int) error {
	if d.left > 0 {
		if len(payload) > d.left {
			return errOverlong
		}
		d.left -= len(payload)
		d.In.r += size
		if d.left == 0 {
			d.ended++
		}
		return nil
	}
	if d.gather == nil && len(payload) >= wire.HeaderSize {
		v, err := d.decidePart(payload)
		if err != nil {
			return err
		}
		if v == Forward {
			d.In.r += size
			return nil
		}
	}
	d.setRunAside()
	d.drop(size)
	if err := d.collect(payload); err != nil {
		return err
	}
	return d.takeGathered()
}

// collect adds a part to gather. It blocks until the budget has room for it.
func (d *Direction) collect(part []byte) error {
	const slack = 2 // append may allocate up to twice what is needed
	d.beginWait()
	ok := d.gathered.grow(slack * (len(d.gather) + len(part)))
	d.endWait()
	if !ok {
		return net.ErrClosed
	}
	d.gather = append(d.gather, part...)
	return nil
}

// decidePart decides about an envelope by its first part. If it is to be forwarded, left is set to
// the size of the rest.
func (d *Direction) decidePart(part []byte) (Decision, error) {
	e, err := d.envelopeAt(part)
	if err != nil {
		return Intercept, err
	}
	if len(e.Raw) < len(part) {
		return Intercept, errOverlong
	}
	v, err := d.decide(e)
	if v == Forward && err == nil {
		d.left = e.Size() - len(e.Raw)
	}
	d.decided = v != Forward
	return v, err
}

// takeGathered decides about the gathered envelope: when its header has arrived, and again when it
// is whole.
func (d *Direction) takeGathered() error {
	if len(d.gather) < wire.HeaderSize {
		return nil
	}
	e, err := d.envelopeAt(d.gather)
	if err != nil {
		return err
	}
	if d.decided && !e.Whole() {
		return nil
	}
	v, err := d.decidePart(d.gather)
	switch {
	case err != nil:
		return err
	case v == Forward:
		d.pending = d.framing.codec().AppendTo(d.pending, e.Raw, d.left > 0)
	case !e.Whole():
		return nil
	default:
		err = d.handler.Perform(*e)
	}
	d.gather, d.decided = nil, false
	d.gathered.clear()
	if d.left == 0 {
		d.ended++
	}
	return err
}

// envelopeAt reads the envelope at the start of a payload, with as much of its body as b has.
func (d *Direction) envelopeAt(b []byte) (*wire.Envelope, error) {
	if len(b) < wire.HeaderSize {
		return nil, fmt.Errorf("segment ends inside a header: %w", ErrMalformed)
	}
	e := d.envelope(b)
	e.InSegment = true
	return e, nil
}
