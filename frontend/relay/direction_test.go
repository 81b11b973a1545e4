package relay

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/wire"
)

// fakeSocket gives what is in it, at most so many bytes at a time, and keeps what is written to it.
type fakeSocket struct {
	net.Conn
	in   *bytes.Reader
	most int
	out  []byte
}

func (s *fakeSocket) Read(b []byte) (int, error) { return s.in.Read(b[:min(len(b), s.most)]) }

func (s *fakeSocket) Write(b []byte) (int, error) {
	s.out = append(s.out, b...)
	return len(b), nil
}

// byOpcode decides about an envelope by its opcode: EXECUTE is forwarded at once, QUERY when it is
// whole, BATCH is held back and followed by an OPTIONS, and PREPARE has to wait to be forwarded.
type byOpcode struct {
	direction *Direction
	socket    *fakeSocket
	written   []int // bytes that had been written when a PREPARE was waited for
	ready     bool
}

func (h *byOpcode) Decide(e *wire.Envelope) (Decision, error) {
	switch e.OpCode {
	case primitive.OpCodeExecute:
		return Forward, nil
	case primitive.OpCodeQuery:
		if !e.Whole() {
			return NeedWhole, nil
		}
		return Forward, nil
	case primitive.OpCodeBatch:
		return Intercept, nil
	case primitive.OpCodePrepare:
		if h.ready = !h.ready; h.ready {
			return Defer, nil
		}
		return Forward, nil
	}
	return Forward, errors.New("unexpected opcode")
}

func (h *byOpcode) Perform(e wire.Envelope) error {
	h.direction.Emit(envelope(e.Stream, primitive.OpCodeOptions, 0))
	return nil
}

func (h *byOpcode) Flushed() {}

func (h *byOpcode) Await() error {
	h.written = append(h.written, len(h.socket.out))
	return nil
}

// envelope returns a request with a body of so many bytes.
func envelope(stream int16, opcode primitive.OpCode, size int) []byte {
	h := wire.Header{Version: 5, Stream: stream, OpCode: opcode, Length: uint32(size)}
	return append(h.AppendTo(nil), bytes.Repeat([]byte{byte(stream)}, size)...)
}

// run carries b through a direction, in pieces of at most so many bytes, and returns what came out.
func run(t *testing.T, b []byte, most int, segmented bool) (out []byte, h *byOpcode) {
	t.Helper()
	socket := &fakeSocket{in: bytes.NewReader(b), most: most}
	h = &byOpcode{socket: socket}
	f := new(Framing)
	f.SetSegmented(segmented)
	h.direction = NewDirection(h, f, Account{})
	h.direction.In, h.direction.Out = NewInbound(socket, new(Buffers), Account{}), NewOutbound(socket)
	require.ErrorIs(t, h.direction.Run(), io.EOF)
	assert.False(t, h.direction.Inside())
	h.direction.Close()
	return socket.out, h
}

// payloads returns the envelopes in segments.
func payloads(t *testing.T, b []byte) (all []byte) {
	t.Helper()
	var codec wire.SegmentCodec
	for len(b) > 0 {
		h, err := codec.ReadHeader(b)
		require.NoError(t, err)
		payload, err := codec.Payload(h, b, nil)
		require.NoError(t, err)
		all = append(all, payload...)
		b = b[h.Size:]
	}
	return all
}

// However envelopes arrive, in either framing: what is forwarded comes out in order as it was
// received, what is held back is replaced in its place, and before what has to wait everything else
// has been written.
func TestDirection(t *testing.T) {
	kinds := []primitive.OpCode{
		primitive.OpCodeExecute, primitive.OpCodeBatch, primitive.OpCodeQuery, primitive.OpCodeQuery, primitive.OpCodePrepare,
		primitive.OpCodeExecute, primitive.OpCodeBatch, primitive.OpCodeBatch, primitive.OpCodeExecute,
	}
	for _, size := range []int{0, 100, 5000, 300_000} {
		var each [][]byte
		var want []byte
		before := 0
		for i, opcode := range kinds {
			one := envelope(int16(i), opcode, size)
			each = append(each, one)
			switch opcode {
			case primitive.OpCodeBatch:
				one = envelope(int16(i), primitive.OpCodeOptions, 0)
			case primitive.OpCodePrepare:
				before = len(want)
			}
			want = append(want, one...)
		}
		var apart []byte
		for _, one := range each {
			apart = wire.SegmentCodec{}.AppendTo(apart, one, false)
		}
		together := wire.SegmentCodec{}.AppendTo(nil, bytes.Join(each[:4], nil), false)
		together = wire.SegmentCodec{}.AppendTo(together, bytes.Join(each[4:], nil), false)
		for name, in := range map[string][]byte{"bare": bytes.Join(each, nil), "segment each": apart, "segments of several": together} {
			if name == "segments of several" && size > 5000 {
				continue // parts of several envelopes are no segments of the protocol
			}
			for _, most := range []int{7, 4096, 1 << 20} {
				out, h := run(t, in, most, name != "bare")
				require.Len(t, h.written, 1, "one PREPARE")
				if name != "bare" {
					out, h.written[0] = payloads(t, out), len(payloads(t, out[:h.written[0]]))
				}
				assert.True(t, bytes.Equal(want, out), "%d bytes, %s, in pieces of %d", size, name, most)
				assert.Equal(t, before, h.written[0], "%d bytes, %s, in pieces of %d", size, name, most)
			}
		}
	}
}

// Bytes that do not keep to the framing end a direction, and nothing of them is passed on.
func TestDirectionRefusesBadFraming(t *testing.T) {
	half := envelope(1, primitive.OpCodeExecute, 100)[:50]
	codec := wire.SegmentCodec{}
	for name, b := range map[string][]byte{
		"envelope longer than its segment":  codec.AppendTo(nil, half, false),
		"segment that ends inside a header": codec.AppendTo(nil, half[:5], false),
		"segment longer than its envelope":  codec.AppendTo(codec.AppendTo(nil, half, true), bytes.Repeat([]byte{1}, 60), true),
		"whole segment inside an envelope":  codec.AppendTo(codec.AppendTo(nil, half, true), envelope(2, primitive.OpCodeExecute, 1), false),
	} {
		socket := &fakeSocket{in: bytes.NewReader(b), most: 1 << 20}
		f := new(Framing)
		f.SetSegmented(true)
		d := NewDirection(&byOpcode{}, f, Account{})
		d.In, d.Out = NewInbound(socket, new(Buffers), Account{}), NewOutbound(socket)
		assert.ErrorIs(t, d.Run(), ErrMalformed, name)
		assert.Less(t, len(socket.out), len(b), name)
	}
}
