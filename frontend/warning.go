package frontend

import (
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// warn adds warnings to an answer, behind those that it has; the rest of it stays as it was received. Protocol 3 has no room for them:
// there, and where the answer cannot be read, e comes back as it is.
func (c *conn) warn(e envelope, warnings []string) envelope {
	if len(warnings) == 0 || c.version < byte(primitive.ProtocolVersion4) {
		return e
	}
	body, flags, err := c.plainAnswer(e)
	if err != nil {
		return e
	}
	warned, ok := appendWarnings(body, flags, warnings)
	if !ok {
		return e
	}
	raw := responseEnvelope(c.version, e.stream, e.opcode, warned)
	raw[1] = byte(flags | primitive.HeaderFlagWarning)
	return envelope{header: readHeader(raw), raw: raw}
}

// warned is warn of an answer of the proxy's own making.
func (c *conn) warned(raw []byte, warnings []string) []byte {
	return c.warn(envelope{header: readHeader(raw), raw: raw}, warnings).raw
}

// appendWarnings is a response's body with more warnings in it; not ok where the body does not follow the protocol.
func appendWarnings(body []byte, flags primitive.HeaderFlag, warnings []string) (warned []byte, ok bool) {
	cur := cursor{b: body}
	side := readBeside(&cur, flags)
	if cur.bad {
		return nil, false
	}
	side.warn(warnings)
	return append(side.appendTo(make([]byte, 0, len(body))), body[cur.at:]...), true
}
