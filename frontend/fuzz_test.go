package frontend

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/datastax/go-cassandra-native-protocol/segment"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"music/frontend/relay"
	"music/frontend/wire"
)

// trickleSocket is a socket from which b arrives in pieces of at most so many bytes.
type trickleSocket struct {
	fakeSocket
	b    []byte
	most int
}

func (s *trickleSocket) Read(b []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), s.most)], s.b)
	s.b = s.b[n:]
	return n, nil
}

// run has a direction deal with bytes that arrive in pieces, to their end or to an error. What would have to wait for an answer
// ends it.
func (m *memoryConn) run(d *relay.Direction, b []byte, most int) error {
	d.In = relay.NewInbound(&trickleSocket{b: b, most: max(most, 1)}, &m.server.buffers, m.account(m.server.memory))
	m.end(errDrained)
	return d.Run()
}

// envelopesIn tells that b is whole envelopes of one direction, but for the last. It returns them.
func envelopesIn(t require.TestingT, d dialect, b []byte, response byte) [][]byte {
	if d.version == v5 {
		b = unsegmented(t, d, b)
	}
	var envelopes [][]byte
	for len(b) >= wire.HeaderSize {
		h := wire.ReadHeader(b)
		require.Equal(t, byte(d.version)|response, h.Version)
		n := min(h.Size(), len(b))
		envelopes = append(envelopes, b[:n])
		b = b[n:]
	}
	require.Empty(t, b)
	return envelopes
}

// unsegmented takes the payload out of segments.
func unsegmented(t require.TestingT, d dialect, b []byte) []byte {
	var payload []byte
	for r := bytes.NewReader(b); r.Len() > 0; {
		s, err := d.segments().DecodeSegment(r)
		require.NoError(t, err)
		payload = append(payload, s.Payload.UncompressedData...)
	}
	return payload
}

// expected tells that an error is one of those that a client may cause.
func expected(t *testing.T, err error) {
	t.Helper()
	var v *violation
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, relay.ErrMalformed), errors.Is(err, wire.ErrCorrupt), errors.Is(err, errDrained), errors.As(err, &v):
	default:
		assert.ErrorContains(t, err, "decompress")
	}
}

// Whatever a client sends, both sides get whole envelopes in their framing.
func FuzzRequests(f *testing.F) {
	ds := []dialect{{v3, ""}, {v4, ""}, {v4, primitive.CompressionLz4}, {v4, primitive.CompressionSnappy}, {v5, ""}}
	for i, d := range ds {
		p := &peer{dialect: d, t: f}
		var traffic []byte
		for _, e := range someRequests(p, idOf("typical"), 1) {
			f.Add(uint8(i), uint16(7), e)
			traffic = append(traffic, e...)
		}
		for stream, text := range []string{"USE bank", "SELECT * FROM system.local", "BEGIN BATCH DELETE FROM accounts WHERE id = 1; APPLY BATCH", "LOCK music.named WHERE name = 'x'"} {
			traffic = append(traffic, d.envelope(f, int16(300+stream), query(text))...)
			traffic = append(traffic, d.envelope(f, int16(400+stream), &message.Prepare{Query: text})...)
		}
		f.Add(uint8(i), uint16(100), traffic)
	}
	f.Fuzz(func(t *testing.T, which uint8, most uint16, b []byte) {
		d := ds[int(which)%len(ds)]
		m := newMemoryConn(t, d, true)
		typical(t, d, m)
		if d.version == v5 && len(b) <= segment.MaxPayloadLength {
			b = wire.SegmentCodec{}.AppendTo(nil, b, most%2 == 0)
		}
		expected(t, m.run(m.up, b, int(most)))
		for _, e := range envelopesIn(t, d, m.backend.got, 0) {
			require.GreaterOrEqual(t, wire.ReadHeader(e).Stream, int16(0))
		}
		envelopesIn(t, d, m.client.got, wire.ResponseBit)
	})
}

// Whatever lies in segments, with their checksums right, and whatever does not, what goes on is segments again.
func FuzzSegments(f *testing.F) {
	for i, d := range []dialect{{v5, ""}, {v5, primitive.CompressionLz4}} {
		e := d.envelope(f, 1, execute(idOf("typical"), noise(50)))
		f.Add(i == 1, uint8(3), uint16(9), e)
		f.Add(i == 1, uint8(0), uint16(200), append(bytes.Clone(e), d.envelope(f, 2, execute(noise(16), nil))...))
		f.Add(i == 1, uint8(255), uint16(5), d.segment(f, e, true))
	}
	f.Fuzz(func(t *testing.T, lz4 bool, kind uint8, size uint16, b []byte) {
		d := dialect{version: v5}
		if lz4 {
			d.compression = primitive.CompressionLz4
		}
		if kind != 255 {
			b = cutAnyhow(d, b, kind, int(size))
		}
		for _, up := range []bool{true, false} {
			m := newMemoryConn(t, d, true)
			typical(t, d, m)
			direction, out := m.up, m.backend
			if !up {
				direction, out = m.down, m.client
			}
			expected(t, m.run(direction, b, int(size)+1))
			unsegmented(t, d, out.got)
		}
	})
}

// cutAnyhow cuts b into segments with right checksums. The bits of kind say, in turn, which of them are self-contained.
func cutAnyhow(d dialect, b []byte, kind uint8, size int) []byte {
	var out []byte
	for i := 0; len(b) > 0; i++ {
		n := min(max(size, 1), len(b))
		out = wire.SegmentCodec{Compression: d.compression}.AppendTo(out, b[:n], kind>>(i%8)&1 == 0)
		b = b[n:]
	}
	return out
}

// However envelopes are put into segments, and however these arrive, those that are forwarded come out in order, and those that are
// held back are answered.
func TestSegmentsAnyhow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]dialect{{v5, ""}, {v5, primitive.CompressionLz4}}).Draw(t, "dialect")
		m := newMemoryConn(t, d, true)
		known, unknown := idOf("typical"), noise(16)
		m.server.prepared.add(preparedID(known), &preparedStatement{}, nil)
		var in []byte
		var forwarded [][]byte
		held := 0
		for stream := range int16(rapid.IntRange(1, 8).Draw(t, "segments")) {
			var group []byte
			large := rapid.Bool().Draw(t, "large")
			n := rapid.IntRange(1, 4).Draw(t, "envelopes")
			if large {
				n = 1
			}
			for i := range n {
				id := rapid.SampledFrom([][]byte{known, unknown}).Draw(t, "id")
				e := d.envelope(t, stream*10+int16(i), execute(id, noise(rapid.IntRange(0, 200).Draw(t, "size"))))
				group = append(group, e...)
				if bytes.Equal(id, known) {
					forwarded = append(forwarded, e)
				} else {
					held++
				}
			}
			if large {
				in = append(in, cutAnyhow(d, group, 0, rapid.IntRange(1, len(group)).Draw(t, "part"))...)
			} else {
				in = wire.SegmentCodec{Compression: d.compression}.AppendTo(in, group, false)
			}
		}
		require.ErrorIs(t, m.run(m.up, in, rapid.IntRange(1, 300).Draw(t, "chunk")), io.EOF)
		require.Equal(t, forwarded, envelopesIn(t, d, m.backend.got, 0))
		require.Len(t, envelopesIn(t, d, m.client.got, wire.ResponseBit), held)
	})
}
