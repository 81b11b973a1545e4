package wire

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// Failure is an ERROR message of the protocol (v4 spec section 9) that the proxy itself makes. Text
// is written for the person who reads it in an application's log.
type Failure struct {
	Code  primitive.ErrorCode
	Text  string
	Extra []byte // the fields that follow the text for this code, in wire form
}

// Error returns the code and the text.
func (f *Failure) Error() string { return fmt.Sprintf("%v: %s", f.Code, f.Text) }

// Invalid returns an INVALID error, the code for everything that the proxy itself refuses: no
// driver retries it or marks the node as down because of it.
func Invalid(format string, args ...any) *Failure {
	return &Failure{Code: primitive.ErrorCodeInvalid, Text: fmt.Sprintf(format, args...)}
}

// ProtocolError returns a PROTOCOL_ERROR, for bytes that do not follow the protocol.
func ProtocolError(format string, args ...any) *Failure {
	return &Failure{Code: primitive.ErrorCodeProtocolError, Text: fmt.Sprintf(format, args...)}
}

// Unprepared returns an UNPREPARED error, upon which a driver prepares the statement again (v4 spec
// section 9, 0x2500). It copies id.
func Unprepared(id []byte) *Failure {
	extra := binary.BigEndian.AppendUint16(nil, uint16(len(id)))
	return &Failure{
		Code:  primitive.ErrorCodeUnprepared,
		Text:  fmt.Sprintf("Prepared query with ID %x not found (either the query was not prepared on this host (maybe the host has been restarted?) or you have prepared too many queries and it has been evicted from the internal cache)", id),
		Extra: append(extra, id...),
	}
}

// maxText bounds the text of an error, in bytes. Replacing a byte that is not UTF-8 makes three of
// it, and the result still fits into a [string].
const maxText = 16 << 10

// ErrorEnvelope returns f as an ERROR envelope. Bytes of its text that are not UTF-8 are replaced,
// since a [string] is UTF-8 and the text may quote anything that a client has sent.
func ErrorEnvelope(version byte, stream int16, f *Failure) []byte {
	text := strings.ToValidUTF8(f.Text[:min(len(f.Text), maxText)], "\uFFFD")
	body := binary.BigEndian.AppendUint32(nil, uint32(f.Code))
	body = binary.BigEndian.AppendUint16(body, uint16(len(text)))
	body = append(body, text...)
	body = append(body, f.Extra...)
	return ResponseEnvelope(version, stream, primitive.OpCodeError, body)
}

// ResponseEnvelope returns a response with this body and no flags.
func ResponseEnvelope(version byte, stream int16, opcode primitive.OpCode, body []byte) []byte {
	h := Header{Version: version | ResponseBit, Stream: stream, OpCode: opcode, Length: uint32(len(body))}
	return append(h.AppendTo(make([]byte, 0, HeaderSize+len(body))), body...)
}

// AppendRows appends the body of a RESULT with rows of a table up to its columns, of which there are so
// many (v4 spec section 4.2.5.2). AppendColumn for each of them follows, then the number of rows and their
// values.
func AppendRows(dst []byte, keyspace, table string, columns uint32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(primitive.ResultTypeRows))
	dst = binary.BigEndian.AppendUint32(dst, uint32(primitive.RowsFlagGlobalTablesSpec))
	dst = binary.BigEndian.AppendUint32(dst, columns)
	return appendString(appendString(dst, keyspace), table)
}

// AppendColumn appends a column of a type that has no parameters.
func AppendColumn(dst []byte, name string, kind primitive.DataTypeCode) []byte {
	return binary.BigEndian.AppendUint16(appendString(dst, name), uint16(kind))
}

// appendString appends a [string].
func appendString(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(s))), s...)
}

// UnsupportedVersion returns the answer to a client whose protocol version the proxy does not
// speak; first are the first bytes of its request, at least one. It is what Cassandra answers: in a
// version that the client can read, on stream 0, with the text by which drivers negotiate a lower
// version.
func UnsupportedVersion(first []byte) []byte {
	version := first[0] &^ ResponseBit
	beta := len(first) > 1 && primitive.HeaderFlag(first[1]).Contains(primitive.HeaderFlagUseBeta)
	f := ProtocolError("Invalid or unsupported protocol version (%d); supported versions are (3/v3, 4/v4, 5/v5, 6/v6-beta)", version)
	switch {
	case version == 1, version == 2:
		b := ErrorEnvelope(version, 0, f)
		return append(b[:2:2], b[3:]...) // a stream id of version 1 and 2 is one byte
	case version == 6 && !beta:
		f.Text = "Beta version of the protocol used (6/v6-beta), but USE_BETA flag is unset"
		b := ErrorEnvelope(version, 0, f)
		b[1] = byte(primitive.HeaderFlagUseBeta)
		return b
	}
	return ErrorEnvelope(byte(primitive.ProtocolVersion5), 0, f)
}
