package frontend

import (
	"bytes"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/relay"
	"music/frontend/traffic"
	"music/frontend/wire"
)

// codec reads and makes the envelopes of one connection, in its protocol version and compression. Any
// goroutine may call its methods, but only the direction up those for requests, which share memory.
type codec struct {
	version byte // the protocol version of all envelopes; set before the two goroutines start
	framing relay.Framing
	scratch []byte // memory for decompressed requests; nil until first used
	limits  func() *Limits
	stats   *traffic.Stats // counts the errors that are made
}

// scratchSize is the size of the memory that a connection keeps to decompress requests; larger
// requests are decompressed into new memory.
const scratchSize = 4 << 10

// requestBody returns a request's body decompressed and without its custom payload (v4 spec section
// 2.2), as far as it has arrived. A compressed body must be whole, else the error is wire.ErrShort.
// The result is valid until the next call.
func (c *codec) requestBody(e *wire.Envelope) ([]byte, error) {
	if e.Flags&(primitive.HeaderFlagCompressed|primitive.HeaderFlagCustomPayload) == 0 {
		return e.Body(), nil
	}
	body, err := c.uncompressed(*e)
	if err != nil {
		return nil, err
	}
	if e.Flags.Contains(primitive.HeaderFlagCustomPayload) {
		cur := wire.Cursor{Body: body}
		if cur.BytesMap(); cur.Bad {
			return nil, wire.ErrShort
		}
		body = body[cur.At:]
	}
	return body, nil
}

// uncompressed is requestBody with the custom payload.
func (c *codec) uncompressed(e wire.Envelope) ([]byte, error) {
	if !c.framing.Compressed(&e.Header) {
		return e.Body(), nil
	}
	if !e.Whole() {
		return nil, wire.ErrShort
	}
	if c.scratch == nil {
		c.scratch = make([]byte, scratchSize)
	}
	return wire.Decompress(c.framing.Compression, e.Body(), c.scratch, c.limits().Frame)
}

// payload returns a copy of the custom payload of a whole request, as on the wire; nil if it is
// malformed.
func (c *codec) payload(e wire.Envelope) []byte {
	body, err := c.uncompressed(e)
	if err != nil {
		return nil
	}
	cur := wire.Cursor{Body: body}
	if cur.BytesMap(); cur.Bad {
		return nil
	}
	return bytes.Clone(body[:cur.At])
}

// maxDecoded bounds the size of a decoded answer, in bytes: rows of system tables and prepared
// metadata are small.
const maxDecoded = 64 << 20

// responseBody returns the decompressed body of a response, and the flags that apply to it.
func (c *codec) responseBody(e wire.Envelope) ([]byte, primitive.HeaderFlag, error) {
	if !c.framing.Compressed(&e.Header) {
		return e.Body(), e.Flags, nil
	}
	body, err := wire.Decompress(c.framing.Compression, e.Body(), nil, maxDecoded)
	return body, e.Flags &^ primitive.HeaderFlagCompressed, err
}

// decode decodes a response of Cassandra.
func (c *codec) decode(e wire.Envelope) (*frame.Frame, error) {
	body, flags, err := c.responseBody(e)
	if err != nil {
		return nil, err
	}
	return wire.Decode(e.Header, flags, body)
}

// errorOf returns the code of an ERROR and, of UNPREPARED, the id in it, in memory of its own. It decodes no more of
// it: Cassandra has errors, and reasons of failures, that the library does not know.
func (c *codec) errorOf(e wire.Envelope) (code primitive.ErrorCode, id []byte, err error) {
	body, flags, err := c.responseBody(e)
	if err != nil {
		return 0, nil, err
	}
	cur := wire.Cursor{Body: body}
	wire.ReadPreamble(&cur, flags)
	code = primitive.ErrorCode(cur.Int())
	if code == primitive.ErrorCodeUnprepared {
		cur.ShortBytes() // the text
		id = bytes.Clone(cur.ShortBytes())
	}
	if cur.Bad {
		return 0, nil, wire.ErrShort
	}
	return code, id, nil
}

// decodePrepared decodes a RESULT of kind Prepared; it returns nil for any other answer.
func (c *codec) decodePrepared(e wire.Envelope) (*message.PreparedResult, *frame.Frame, error) {
	if e.OpCode != primitive.OpCodeResult {
		return nil, nil, nil
	}
	f, err := c.decode(e)
	if err != nil {
		return nil, nil, err
	}
	result, _ := f.Body.Message.(*message.PreparedResult)
	return result, f, nil
}

// warn returns an answer with warnings added. It returns e itself in protocol 3, which has no
// warnings, and if the answer is malformed.
func (c *codec) warn(e wire.Envelope, warnings []string) wire.Envelope {
	if len(warnings) == 0 || c.version < byte(primitive.ProtocolVersion4) {
		return e
	}
	body, flags, err := c.responseBody(e)
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

// warned is warn for an answer that the proxy has made itself.
func (c *codec) warned(raw []byte, warnings []string) []byte {
	return c.warn(wire.EnvelopeOf(raw), warnings).Raw
}

// message returns the envelope of a response that the proxy makes.
func (c *codec) message(stream int16, m message.Message) []byte {
	var b bytes.Buffer
	f := frame.NewFrame(primitive.ProtocolVersion(c.version), stream, m)
	if err := frame.NewCodec().EncodeFrame(f, &b); err != nil {
		return c.failureEnvelope(stream, &wire.Failure{Code: primitive.ErrorCodeServerError, Text: "MUSIC_INTERNAL: " + err.Error() + ": this is a bug of the proxy: report it"})
	}
	return b.Bytes()
}

// rows returns the envelope of a response with rows.
func (c *codec) rows(stream int16, columns []*message.ColumnMetadata, rows ...message.Row) []byte {
	return c.message(stream, &message.RowsResult{
		Metadata: &message.RowsMetadata{ColumnCount: int32(len(columns)), Columns: columns}, Data: append(message.RowSet{}, rows...),
	})
}

// failureEnvelope returns an error as an envelope for the client, and counts it.
func (c *codec) failureEnvelope(stream int16, f *wire.Failure) []byte {
	c.stats.CountFailure(f)
	return wire.ErrorEnvelope(c.version, stream, f)
}

// errorInstead returns an error to send in the place of answer e, with e's preamble.
func (c *codec) errorInstead(e wire.Envelope, f *wire.Failure) wire.Envelope {
	b := c.failureEnvelope(e.Stream, f)
	if body, flags, err := c.responseBody(e); err == nil {
		cur := wire.Cursor{Body: body}
		if preamble := wire.ReadPreamble(&cur, flags); !cur.Bad {
			b = preamble.PutBefore(b)
		}
	}
	return wire.EnvelopeOf(b)
}
