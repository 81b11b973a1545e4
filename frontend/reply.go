package frontend

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// Failure is an error that a client is told: an ERROR message of the protocol (v4 spec section 9). Text is written for
// the person who reads it in an application's log.
type Failure struct {
	Code  primitive.ErrorCode
	Text  string
	Extra []byte // what follows the text for this code, in wire form
}

// Error is the text with its code.
func (f *Failure) Error() string { return fmt.Sprintf("%v: %s", f.Code, f.Text) }

// invalid is the code of everything the proxy itself refuses: no driver retries it or holds it against the node.
func invalid(format string, args ...any) *Failure {
	return &Failure{Code: primitive.ErrorCodeInvalid, Text: fmt.Sprintf(format, args...)}
}

// protocolError is told for bytes that do not follow the protocol.
func protocolError(format string, args ...any) *Failure {
	return &Failure{Code: primitive.ErrorCodeProtocolError, Text: fmt.Sprintf(format, args...)}
}

// unprepared asks the client to prepare a statement again (v4 spec section 9, 0x2500). It copies id.
func unprepared(id []byte) *Failure {
	extra := binary.BigEndian.AppendUint16(nil, uint16(len(id)))
	return &Failure{
		Code:  primitive.ErrorCodeUnprepared,
		Text:  fmt.Sprintf("Prepared query with ID %x not found (either the query was not prepared on this host (maybe the host has been restarted?) or you have prepared too many queries and it has been evicted from the internal cache)", id),
		Extra: append(extra, id...),
	}
}

// violation ends a connection whose client broke the protocol, after telling it how.
type violation struct {
	version byte
	stream  int16
	failure *Failure
}

// Error is what the client is told.
func (v *violation) Error() string { return v.failure.Error() }

// maxText bounds the text of an error: with each byte that is no UTF-8 replaced it is still a [string].
const maxText = 16 << 10

// errorEnvelope is the ERROR envelope that tells f on a stream. A [string] is UTF-8, and what is quoted from a client may be anything.
func errorEnvelope(version byte, stream int16, f *Failure) []byte {
	text := strings.ToValidUTF8(f.Text[:min(len(f.Text), maxText)], "\uFFFD")
	body := binary.BigEndian.AppendUint32(nil, uint32(f.Code))
	body = binary.BigEndian.AppendUint16(body, uint16(len(text)))
	body = append(body, text...)
	body = append(body, f.Extra...)
	return responseEnvelope(version, stream, primitive.OpCodeError, body)
}

// responseEnvelope puts a header before a body.
func responseEnvelope(version byte, stream int16, opcode primitive.OpCode, body []byte) []byte {
	h := header{version: version | responseBit, stream: stream, opcode: opcode, length: uint32(len(body))}
	return append(h.appendTo(make([]byte, 0, headerSize+len(body))), body...)
}

// unsupportedVersion is Cassandra's own answer to first bytes whose protocol version the proxy does not speak: in a
// version that the client can read, on stream 0, with the text that drivers look for when they negotiate down.
func unsupportedVersion(first []byte) []byte {
	version := first[0] &^ responseBit
	beta := len(first) > 1 && primitive.HeaderFlag(first[1]).Contains(primitive.HeaderFlagUseBeta)
	f := protocolError("Invalid or unsupported protocol version (%d); supported versions are (3/v3, 4/v4, 5/v5, 6/v6-beta)", version)
	switch {
	case version == 1, version == 2:
		b := errorEnvelope(version, 0, f)
		return append(b[:2:2], b[3:]...) // the stream id was one byte then
	case version == 6 && !beta:
		f.Text = "Beta version of the protocol used (6/v6-beta), but USE_BETA flag is unset"
		b := errorEnvelope(version, 0, f)
		b[1] = byte(primitive.HeaderFlagUseBeta)
		return b
	}
	return errorEnvelope(byte(primitive.ProtocolVersion5), 0, f)
}
