package frontend

import (
	"encoding/binary"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// headerSize is the length of an envelope's header in protocol 3, 4 and 5 (v4 spec section 2).
const headerSize = 9

// responseBit marks an envelope as a response in the first byte of its header (v4 spec section 2.1).
const responseBit = 0x80

// header is the fixed part of an envelope (v4 spec section 2: version, flags, stream, opcode, length).
type header struct {
	version byte // with responseBit, as on the wire
	flags   primitive.HeaderFlag
	stream  int16
	opcode  primitive.OpCode
	length  uint32 // of the body, as declared: nobody has checked it yet

	payload []byte // of a request that goes out in another form: its custom payload as on the wire, in memory of its own; else nil
}

// rewritten is the header of a request that goes out with another body: uncompressed, behind the custom payload that it came with.
func (h header) rewritten() header {
	h.flags &^= primitive.HeaderFlagCompressed | primitive.HeaderFlagCustomPayload
	if len(h.payload) > 0 {
		h.flags |= primitive.HeaderFlagCustomPayload
	}
	return h
}

// readHeader reads the header at the start of b, which must hold headerSize bytes.
func readHeader(b []byte) header {
	return header{
		version: b[0],
		flags:   primitive.HeaderFlag(b[1]),
		stream:  int16(binary.BigEndian.Uint16(b[2:])),
		opcode:  primitive.OpCode(b[4]),
		length:  binary.BigEndian.Uint32(b[5:]),
	}
}

// appendTo appends the header's wire form to dst.
func (h header) appendTo(dst []byte) []byte {
	dst = append(dst, h.version, byte(h.flags))
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.stream))
	dst = append(dst, byte(h.opcode))
	return binary.BigEndian.AppendUint32(dst, h.length)
}

// protocol is the protocol version without the direction.
func (h header) protocol() primitive.ProtocolVersion {
	return primitive.ProtocolVersion(h.version &^ responseBit)
}

// size is the length of header and body on the wire.
func (h header) size() int { return headerSize + int(h.length) }

// envelope is one message of the protocol as it lies in a read buffer: the bytes are valid until the
// function that was given the envelope returns.
type envelope struct {
	header
	raw []byte // header and as much of the body as has arrived
}

// whole tells whether all of the body has arrived.
func (e envelope) whole() bool { return len(e.raw) == e.size() }

// body is what has arrived of the body.
func (e envelope) body() []byte { return e.raw[headerSize:] }

// verdict is what becomes of an envelope.
type verdict uint8

const (
	// forward hands the envelope on as the bytes received.
	forward verdict = iota
	// more means that the part seen does not decide: ask again with the whole envelope.
	more
	// hold keeps the envelope back: the direction's perform deals with it.
	hold
	// alone means that nothing may be on its way meanwhile: ask again when the role's await has returned.
	alone
)

// supported tells whether the proxy speaks a protocol version.
func supported(v primitive.ProtocolVersion) bool {
	return v >= primitive.ProtocolVersion3 && v <= primitive.ProtocolVersion5
}
