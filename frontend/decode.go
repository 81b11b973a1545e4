package frontend

import (
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// decode decodes a response of the backend whole.
func (c *conn) decode(e envelope) (*frame.Frame, error) {
	body := e.body()
	if e.flags.Contains(primitive.HeaderFlagCompressed) && !c.segmented.Load() {
		var err error
		if body, err = decompressBody(c.compression, body, nil, maxDecoded); err != nil {
			return nil, err
		}
		e.flags &^= primitive.HeaderFlagCompressed
	}
	return frame.NewRawCodec().ConvertFromRawFrame(&frame.RawFrame{
		Header: &frame.Header{
			IsResponse: true, Version: e.protocol(), Flags: e.flags, StreamId: e.stream, OpCode: e.opcode, BodyLength: int32(len(body)),
		},
		Body: body,
	})
}

// maxDecoded bounds an answer that is decoded: rows of system tables and prepared metadata are small.
const maxDecoded = 64 << 20

// encode makes an envelope of a decoded response, uncompressed.
func (c *conn) encode(f *frame.Frame) (envelope, error) {
	raw, err := frame.NewRawCodec().ConvertToRawFrame(f)
	if err != nil {
		return envelope{}, err
	}
	b := responseEnvelope(c.version, f.Header.StreamId, f.Header.OpCode, raw.Body)
	b[1] = byte(f.Header.Flags)
	return envelope{header: readHeader(b), raw: b}, nil
}
