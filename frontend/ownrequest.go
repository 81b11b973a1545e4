package frontend

import (
	"encoding/binary"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
)

// longString returns a text as the protocol's [long string]: what the body of a QUERY or PREPARE begins with.
func longString[T string | []byte](text T) []byte {
	b := make([]byte, 0, 4+len(text))
	return append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
}

// ownRequest returns a request of the proxy on the stream of a client's request, whose header is h.
func ownRequest(h wire.Header, opcode primitive.OpCode, body []byte) []byte {
	h = wire.Header{Version: h.Version, Stream: h.Stream, OpCode: opcode, Length: uint32(len(body))}
	return append(h.AppendTo(make([]byte, 0, wire.HeaderSize+len(body))), body...)
}

// prepareRequest returns a PREPARE of text on the stream of a client's request.
func (c *conn) prepareRequest(h wire.Header, text []byte) []byte {
	body := longString(text)
	if c.version >= byte(primitive.ProtocolVersion5) {
		body = binary.BigEndian.AppendUint32(body, 0) // no flags
	}
	return ownRequest(h, primitive.OpCodePrepare, body)
}
