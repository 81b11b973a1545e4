package wire

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// PreambleFlags are the header flags of the parts of a Preamble.
const PreambleFlags = primitive.HeaderFlagTracing | primitive.HeaderFlagWarning | primitive.HeaderFlagCustomPayload

// Preamble holds the optional parts before the message in a response's body, each as on the wire
// and empty if absent. Cassandra and the drivers read the warnings before the payload (v4 spec
// section 2.2 names no order); the protocol library has them the other way round.
type Preamble struct{ Tracing, Warnings, Payload []byte }

// ReadPreamble reads the preamble at the start of a response's body.
func ReadPreamble(cur *Cursor, flags primitive.HeaderFlag) (p Preamble) {
	part := func(flag primitive.HeaderFlag, skip func()) []byte {
		start := cur.At
		if flags.Contains(flag) && !cur.Bad {
			skip()
		}
		return cur.Body[start:cur.At]
	}
	p.Tracing = part(primitive.HeaderFlagTracing, func() { cur.Take(16) })
	p.Warnings = part(primitive.HeaderFlagWarning, func() {
		for n := cur.Short(); n > 0 && !cur.Bad; n-- {
			cur.ShortBytes()
		}
	})
	p.Payload = part(primitive.HeaderFlagCustomPayload, cur.BytesMap)
	return p
}

// AddWarnings appends warnings to the existing ones.
func (p *Preamble) AddWarnings(more []string) {
	count, had := len(more), p.Warnings
	if len(had) > 0 {
		count += int(binary.BigEndian.Uint16(had))
		had = had[2:]
	}
	p.Warnings = append(binary.BigEndian.AppendUint16(nil, uint16(count)), had...)
	for _, w := range more {
		w = w[:min(len(w), math.MaxUint16)]
		p.Warnings = append(binary.BigEndian.AppendUint16(p.Warnings, uint16(len(w))), w...)
	}
}

// putInto copies the parts into a decoded body.
func (p Preamble) putInto(b *frame.Body) (err error) {
	if len(p.Tracing) > 0 {
		id := primitive.UUID(p.Tracing)
		b.TracingId = &id
	}
	if len(p.Warnings) > 0 {
		if b.Warnings, err = primitive.ReadStringList(bytes.NewReader(p.Warnings)); err != nil {
			return err
		}
	}
	if len(p.Payload) > 0 {
		b.CustomPayload, err = primitive.ReadBytesMap(bytes.NewReader(p.Payload))
	}
	return err
}

// preambleOf returns the preamble of a decoded body.
func preambleOf(b *frame.Body) (p Preamble) {
	if b.TracingId != nil {
		p.Tracing = b.TracingId[:]
	}
	if len(b.Warnings) > 0 {
		p.AddWarnings(b.Warnings)
	}
	if len(b.CustomPayload) > 0 {
		var payload bytes.Buffer
		_ = primitive.WriteBytesMap(b.CustomPayload, &payload) // writing to memory cannot fail
		p.Payload = payload.Bytes()
	}
	return p
}

// PutBefore returns the response raw, which must have no preamble, with p as its preamble: a copy, or raw
// itself if p is empty.
func (p Preamble) PutBefore(raw []byte) []byte {
	if len(p.Tracing)+len(p.Warnings)+len(p.Payload) == 0 {
		return raw
	}
	h := ReadHeader(raw)
	for flag, part := range map[primitive.HeaderFlag][]byte{
		primitive.HeaderFlagTracing: p.Tracing, primitive.HeaderFlagWarning: p.Warnings, primitive.HeaderFlagCustomPayload: p.Payload,
	} {
		if len(part) > 0 {
			h.Flags |= flag
			h.Length += uint32(len(part))
		}
	}
	return append(p.AppendTo(h.AppendTo(make([]byte, 0, h.Size()))), raw[HeaderSize:]...)
}

// AppendTo appends the wire form, in Cassandra's order.
func (p Preamble) AppendTo(dst []byte) []byte {
	return append(append(append(dst, p.Tracing...), p.Warnings...), p.Payload...)
}

// AppendWarnings returns a copy of a response's body with warnings added. flags are those of the
// response before. ok is false if the body does not follow the protocol.
func AppendWarnings(body []byte, flags primitive.HeaderFlag, warnings []string) (warned []byte, ok bool) {
	cur := Cursor{Body: body}
	preamble := ReadPreamble(&cur, flags)
	if cur.Bad {
		return nil, false
	}
	preamble.AddWarnings(warnings)
	return append(preamble.AppendTo(make([]byte, 0, len(body))), body[cur.At:]...), true
}
