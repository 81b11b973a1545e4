package frontend

import (
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// decode decodes a response of the backend whole.
func (c *conn) decode(e envelope) (*frame.Frame, error) {
	body, flags, err := c.plainAnswer(e)
	if err != nil {
		return nil, err
	}
	cur := cursor{b: body}
	side := readBeside(&cur, flags)
	if cur.bad {
		return nil, errShort
	}
	body = body[cur.at:]
	f, err := frame.NewRawCodec().ConvertFromRawFrame(&frame.RawFrame{
		Header: &frame.Header{
			IsResponse: true, Version: e.protocol(), Flags: flags &^ besideFlags, StreamId: e.stream, OpCode: e.opcode, BodyLength: int32(len(body)),
		},
		Body: body,
	})
	if err != nil {
		return nil, err
	}
	return f, side.putInto(f.Body)
}

// plainAnswer is the body of a response without compression, and the flags that are left of it.
func (c *conn) plainAnswer(e envelope) ([]byte, primitive.HeaderFlag, error) {
	if !e.flags.Contains(primitive.HeaderFlagCompressed) || c.segmented.Load() {
		return e.body(), e.flags, nil
	}
	body, err := decompressBody(c.compression, e.body(), nil, maxDecoded)
	return body, e.flags &^ primitive.HeaderFlagCompressed, err
}

// maxDecoded bounds an answer that is decoded: rows of system tables and prepared metadata are small.
const maxDecoded = 64 << 20

// encode makes an envelope of a decoded response, uncompressed.
func (c *conn) encode(f *frame.Frame) (envelope, error) {
	side := besideOf(f.Body)
	f.Header.Flags &^= besideFlags
	raw, err := frame.NewRawCodec().ConvertToRawFrame(f)
	if err != nil {
		return envelope{}, err
	}
	b := responseEnvelope(c.version, f.Header.StreamId, f.Header.OpCode, raw.Body)
	b[1] = byte(f.Header.Flags)
	b = side.before(b)
	return envelope{header: readHeader(b), raw: b}, nil
}
