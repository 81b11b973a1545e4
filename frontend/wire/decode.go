package wire

import (
	"fmt"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// Decode decodes the response with header h. body is its decompressed body, and flags are the flags
// of h that apply to body.
func Decode(h Header, flags primitive.HeaderFlag, body []byte) (f *frame.Frame, err error) {
	defer func() {
		if p := recover(); p != nil { // the library makes slices of any length that it reads
			f, err = nil, fmt.Errorf("the body does not follow the protocol: %v", p)
		}
	}()
	cur := Cursor{Body: body}
	preamble := ReadPreamble(&cur, flags)
	if cur.Bad {
		return nil, ErrShort
	}
	body = body[cur.At:]
	f, err = frame.NewRawCodec().ConvertFromRawFrame(&frame.RawFrame{
		Header: &frame.Header{
			IsResponse: true, Version: h.Protocol(), Flags: flags &^ PreambleFlags, StreamId: h.Stream, OpCode: h.OpCode, BodyLength: int32(len(body)),
		},
		Body: body,
	})
	if err != nil {
		return nil, err
	}
	return f, preamble.putInto(f.Body)
}

// Encode returns the envelope of a decoded response, uncompressed.
func Encode(f *frame.Frame) (Envelope, error) {
	preamble := preambleOf(f.Body)
	f.Header.Flags &^= PreambleFlags
	raw, err := frame.NewRawCodec().ConvertToRawFrame(f)
	if err != nil {
		return Envelope{}, err
	}
	b := ResponseEnvelope(byte(f.Header.Version), f.Header.StreamId, f.Header.OpCode, raw.Body)
	b[1] = byte(f.Header.Flags)
	return EnvelopeOf(preamble.PutBefore(b)), nil
}
