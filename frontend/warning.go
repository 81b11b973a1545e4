package frontend

import (
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
)

// warn adds warnings to an answer, behind those that it has; the rest of it stays as it was received. Protocol 3 has no room for them:
// there, and where the answer cannot be read, e comes back as it is.
func (c *conn) warn(e wire.Envelope, warnings []string) wire.Envelope {
	if len(warnings) == 0 || c.version < byte(primitive.ProtocolVersion4) {
		return e
	}
	body, flags, err := c.plainAnswer(e)
	if err != nil {
		return e
	}
	warned, ok := wire.AppendWarnings(body, flags, warnings)
	if !ok {
		return e
	}
	raw := wire.ResponseEnvelope(c.version, e.Stream, e.OpCode, warned)
	raw[1] = byte(flags | primitive.HeaderFlagWarning)
	return wire.EnvelopeOf(raw)
}

// warned is warn of an answer of the proxy's own making.
func (c *conn) warned(raw []byte, warnings []string) []byte {
	return c.warn(wire.EnvelopeOf(raw), warnings).Raw
}
