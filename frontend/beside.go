package frontend

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// besideFlags tell what stands before the message in the body of a response.
const besideFlags = primitive.HeaderFlagTracing | primitive.HeaderFlagWarning | primitive.HeaderFlagCustomPayload

// beside is what stands before the message in the body of a response, each part as on the wire and empty where it is not there. The
// library puts the payload before the warnings; Cassandra and the drivers read the warnings first (v4 spec section 2.2 names no order).
type beside struct{ tracing, warnings, payload []byte }

// readBeside takes the parts from the start of a response's body.
func readBeside(cur *cursor, flags primitive.HeaderFlag) (s beside) {
	part := func(flag primitive.HeaderFlag, skip func()) []byte {
		start := cur.at
		if flags.Contains(flag) && !cur.bad {
			skip()
		}
		return cur.b[start:cur.at]
	}
	s.tracing = part(primitive.HeaderFlagTracing, func() { cur.take(16) })
	s.warnings = part(primitive.HeaderFlagWarning, func() {
		for n := cur.short(); n > 0 && !cur.bad; n-- {
			cur.string()
		}
	})
	s.payload = part(primitive.HeaderFlagCustomPayload, cur.bytesMap)
	return s
}

// warn adds warnings behind those that are there.
func (s *beside) warn(more []string) {
	count, had := len(more), s.warnings
	if len(had) > 0 {
		count += int(binary.BigEndian.Uint16(had))
		had = had[2:]
	}
	s.warnings = append(binary.BigEndian.AppendUint16(nil, uint16(count)), had...)
	for _, w := range more {
		w = w[:min(len(w), math.MaxUint16)]
		s.warnings = append(binary.BigEndian.AppendUint16(s.warnings, uint16(len(w))), w...)
	}
}

// putInto makes the parts those of a decoded body.
func (s beside) putInto(b *frame.Body) (err error) {
	if len(s.tracing) > 0 {
		id := primitive.UUID(s.tracing)
		b.TracingId = &id
	}
	if len(s.warnings) > 0 {
		if b.Warnings, err = primitive.ReadStringList(bytes.NewReader(s.warnings)); err != nil {
			return err
		}
	}
	if len(s.payload) > 0 {
		b.CustomPayload, err = primitive.ReadBytesMap(bytes.NewReader(s.payload))
	}
	return err
}

// besideOf are the parts of a decoded body.
func besideOf(b *frame.Body) (s beside) {
	if b.TracingId != nil {
		s.tracing = b.TracingId[:]
	}
	if len(b.Warnings) > 0 {
		s.warn(b.Warnings)
	}
	if len(b.CustomPayload) > 0 {
		var payload bytes.Buffer
		_ = primitive.WriteBytesMap(b.CustomPayload, &payload) // to memory
		s.payload = payload.Bytes()
	}
	return s
}

// before puts the parts before the message of a response that has none of them.
func (s beside) before(raw []byte) []byte {
	h := readHeader(raw)
	for flag, part := range map[primitive.HeaderFlag][]byte{
		primitive.HeaderFlagTracing: s.tracing, primitive.HeaderFlagWarning: s.warnings, primitive.HeaderFlagCustomPayload: s.payload,
	} {
		if len(part) > 0 {
			h.flags |= flag
			h.length += uint32(len(part))
		}
	}
	return append(s.appendTo(h.appendTo(make([]byte, 0, h.size()))), raw[headerSize:]...)
}

// appendTo appends the parts in Cassandra's order.
func (s beside) appendTo(dst []byte) []byte {
	return append(append(append(dst, s.tracing...), s.warnings...), s.payload...)
}
