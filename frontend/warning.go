package frontend

import (
	"encoding/binary"
	"math"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// warn adds warnings to an answer, behind those that it has; the rest of it stays as it was received. Protocol 3 has no room for them:
// there, and where the answer cannot be read, e comes back as it is.
func (c *conn) warn(e envelope, warnings []string) envelope {
	if len(warnings) == 0 || c.version < byte(primitive.ProtocolVersion4) {
		return e
	}
	body, flags := e.body(), e.flags
	if flags.Contains(primitive.HeaderFlagCompressed) && !c.segmented.Load() {
		var err error
		if body, err = decompressBody(c.compression, body, nil, maxDecoded); err != nil {
			return e
		}
		flags &^= primitive.HeaderFlagCompressed
	}
	warned, ok := appendWarnings(body, flags, warnings)
	if !ok {
		return e
	}
	raw := responseEnvelope(c.version, e.stream, e.opcode, warned)
	raw[1] = byte(flags | primitive.HeaderFlagWarning)
	return envelope{header: readHeader(raw), raw: raw}
}

// appendWarnings is a response's body with more warnings in it (v4 spec section 2.2: a tracing id stands before them, a payload behind
// them); not ok where the body does not follow the protocol.
func appendWarnings(body []byte, flags primitive.HeaderFlag, warnings []string) (warned []byte, ok bool) {
	cur := cursor{b: body}
	if flags.Contains(primitive.HeaderFlagTracing) {
		cur.take(16)
	}
	before := cur.at
	count, had := 0, before
	if flags.Contains(primitive.HeaderFlagWarning) {
		count = cur.short()
		had = cur.at
		for range count {
			cur.string()
		}
	}
	warned = append(warned, body[:before]...)
	warned = binary.BigEndian.AppendUint16(warned, uint16(count+len(warnings)))
	warned = append(warned, body[had:cur.at]...)
	for _, w := range warnings {
		w = w[:min(len(w), math.MaxUint16)]
		warned = binary.BigEndian.AppendUint16(warned, uint16(len(w)))
		warned = append(warned, w...)
	}
	return append(warned, body[cur.at:]...), !cur.bad
}
