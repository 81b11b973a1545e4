// Package wire is the native protocol as bytes: envelopes and the segments that protocol 5 puts
// them into, compression, the primitive types, query parameters, and the responses that the proxy
// makes itself. It keeps no state and knows nothing of connections or locks.
package wire

import (
	"encoding/binary"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// HeaderSize is the length of an envelope's header in protocol 3, 4 and 5 (v4 spec section 2).
const HeaderSize = 9

// ResponseBit marks an envelope as a response in the first byte of its header (v4 spec section
// 2.1).
const ResponseBit = 0x80

// Header is the fixed part of an envelope (v4 spec section 2: version, flags, stream, opcode,
// length).
type Header struct {
	Version byte // with ResponseBit, as on the wire
	Flags   primitive.HeaderFlag
	Stream  int16
	OpCode  primitive.OpCode
	Length  uint32 // of the body, as declared: nobody has checked it yet

	// Payload is a copy of a request's custom payload, as on the wire, if the request is to be sent
	// in another form; else nil.
	Payload []byte
}

// Rewritten returns the header for the same request with a new body, which is uncompressed and
// follows the request's custom payload. Length is still that of the old body.
func (h Header) Rewritten() Header {
	h.Flags &^= primitive.HeaderFlagCompressed | primitive.HeaderFlagCustomPayload
	if len(h.Payload) > 0 {
		h.Flags |= primitive.HeaderFlagCustomPayload
	}
	return h
}

// ReadHeader reads the header at the start of b, which must hold HeaderSize bytes.
func ReadHeader(b []byte) (h Header) {
	h.read(b)
	return h
}

// read sets h to the header at the start of b.
func (h *Header) read(b []byte) {
	_ = b[HeaderSize-1]
	h.Version = b[0]
	h.Flags = primitive.HeaderFlag(b[1])
	h.Stream = int16(binary.BigEndian.Uint16(b[2:]))
	h.OpCode = primitive.OpCode(b[4])
	h.Length = binary.BigEndian.Uint32(b[5:])
}

// AppendTo appends the header's wire form to dst.
func (h Header) AppendTo(dst []byte) []byte {
	dst = append(dst, h.Version, byte(h.Flags))
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Stream))
	dst = append(dst, byte(h.OpCode))
	return binary.BigEndian.AppendUint32(dst, h.Length)
}

// Protocol returns the protocol version without the direction.
func (h Header) Protocol() primitive.ProtocolVersion {
	return primitive.ProtocolVersion(h.Version &^ ResponseBit)
}

// Size returns the length of header and body on the wire.
func (h *Header) Size() int { return HeaderSize + int(h.Length) }

// Envelope is one message of the protocol, or the part of it that has arrived. Raw usually lies in
// a read buffer, so a function that is given an envelope must not keep Raw after it returns.
type Envelope struct {
	Header
	Raw       []byte // header and as much of the body as has arrived
	InSegment bool   // it came in a segment of v5
}

// EnvelopeOf returns the envelope whose bytes are raw, which must hold HeaderSize bytes. It does
// not copy.
func EnvelopeOf(raw []byte) Envelope { return Envelope{Header: ReadHeader(raw), Raw: raw} }

// Read sets e to the envelope at the start of b, which must hold HeaderSize bytes, with as much of
// its body as b has. It does not copy b. It is a method on a pointer because returning the Envelope
// would copy it.
func (e *Envelope) Read(b []byte) {
	e.read(b)
	e.Payload = nil
	e.Raw = b[:min(e.Size(), len(b))]
}

// Whole reports whether all of the body has arrived.
func (e *Envelope) Whole() bool { return len(e.Raw) == e.Size() }

// Body returns the part of the body that has arrived.
func (e *Envelope) Body() []byte { return e.Raw[HeaderSize:] }

// Supported reports whether the proxy speaks a protocol version.
func Supported(v primitive.ProtocolVersion) bool {
	return v >= primitive.ProtocolVersion3 && v <= primitive.ProtocolVersion5
}
