package frontend

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/datastax/go-cassandra-native-protocol/segment"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"music/frontend/wire"
)

// segmented are the dialects that cut their bytes into segments.
func segmented(t *testing.T, test func(t *testing.T, d dialect)) {
	t.Helper()
	t.Run("v5", func(t *testing.T) { test(t, dialect{v5, ""}) })
	t.Run("v5 lz4", func(t *testing.T) { test(t, dialect{v5, primitive.CompressionLz4}) })
}

// An envelope that is held back in the middle of a segment is answered, and those around it go on in order.
func TestSegmentIsCutAnew(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		id := r.prepare(client, backend, "SELECT * FROM bank.accounts WHERE id = ?")
		unknown := []byte("unknown to proxy")
		var envelopes [][]byte
		for stream := range int16(9) {
			known := id
			if stream == 0 || stream == 4 || stream == 5 || stream == 8 {
				known = unknown
			}
			envelopes = append(envelopes, client.envelope(t, stream, execute(known, noise(100))))
		}
		client.write(client.framed(envelopes...))
		for _, stream := range []int16{1, 2, 3, 6, 7} {
			assert.Equal(t, id, backend.answer(stream).(*message.Execute).QueryId)
		}
		for _, stream := range []int16{0, 4, 5, 8} {
			assert.Equal(t, unknown, client.failure(stream).(*message.Unprepared).Id)
		}
		backend.silent()
	})
}

// The same towards the client: an answer that is translated leaves the others of its segment as they are.
func TestSegmentOfAnswersIsCutAnew(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		client.send(1, query("SELECT a FROM b.c"))
		client.send(2, query("SELECT rpc_address FROM system.local"))
		client.send(3, query("SELECT a FROM b.c"))
		for stream := range int16(3) {
			backend.answer(stream + 1)
		}
		backend.write(backend.framed(
			backend.envelope(t, 1, rows(noise(10))), backend.envelope(t, 2, systemLocal("rpc_address")), backend.envelope(t, 3, rows(noise(10))),
		))
		for stream := range int16(3) {
			m := client.answer(stream + 1).(*message.RowsResult)
			if stream == 1 {
				assert.Equal(t, []byte{192, 0, 2, 7}, m.Data[0][0])
				continue
			}
			assert.Equal(t, noise(10), m.Data[0][0])
		}
	})
}

// A large request comes in parts. Wherever they are cut, also inside the header, it arrives; where its first part decides, as the
// bytes received.
func TestSegmentsOfOneEnvelope(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		id := r.prepare(client, backend, "INSERT INTO bank.accounts (id) VALUES (?)")
		value := noise(3000)
		envelope := client.envelope(t, 5, execute(id, value))
		answer := backend.envelope(t, 5, rows(value))
		for _, size := range []int{1, 2, 8, 9, 10, 27, 28, 100, 1500, len(envelope) - 1, len(envelope)} {
			parts := client.parts(t, envelope, size)
			if size >= wire.HeaderSize+2+len(id) {
				pipe(client, backend, parts, atOnce)
			} else {
				client.write(parts)
				require.Equal(t, value, backend.answer(5).(*message.Execute).Options.PositionalValues[0].Contents)
			}
			pipe(backend, client, backend.parts(t, answer, max(size, wire.HeaderSize)), atOnce)
		}
	})
}

// A large request that is held back is answered, and what follows is not disturbed.
func TestSegmentsOfOneEnvelopeHeldBack(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		for _, size := range []int{1, 8, 9, 1000} {
			client.write(client.parts(t, client.envelope(t, 5, execute([]byte("unknown to proxy"), noise(3000))), size))
			client.failure(5)
			assert.IsType(t, &message.VoidResult{}, relayed(client, backend, 6, query("SELECT a FROM b.c"), &message.VoidResult{}))
		}
	})
}

// A PREPARE is looked at whole, and one larger than a segment arrives whole; so does its answer.
func TestSegmentsOfPrepare(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		text := "SELECT " + strings.Repeat("quite_a_long_name_"+string(noise(1)[0]%26+'a')+", ", 10000) + "z FROM b.c"
		prepared := preparedAs(idOf("x"))
		for range 3000 {
			prepared.ResultMetadata.Columns = append(prepared.ResultMetadata.Columns, &message.ColumnMetadata{
				Keyspace: "b", Table: "c", Name: string(noise(60)), Type: inet,
			})
		}
		prepared.ResultMetadata.ColumnCount = 3000
		raw := dialect{version: v5}
		client.write(raw.segmentsOf(client, client.envelope(t, 1, &message.Prepare{Query: text})))
		assert.Equal(t, text, rawNext(backend).(*message.Prepare).Query)
		backend.write(raw.segmentsOf(backend, backend.envelope(t, 1, prepared)))
		assert.Len(t, rawNext(client).(*message.PreparedResult).ResultMetadata.Columns, 3000)
		// It is known now.
		client.send(2, execute(idOf("x"), nil))
		backend.answer(2)
	})
}

// segmentsOf cuts an envelope into segments that are not compressed, which the dialect of the peer allows.
func (dialect) segmentsOf(p *peer, envelope []byte) []byte {
	return wire.SegmentCodec{Compression: p.compression}.AppendTo(nil, envelope, false)
}

// rawNext reads an envelope; the library cannot decompress what compresses well.
func rawNext(p *peer) message.Message {
	p.t.Helper()
	return p.next().Body.Message
}

func TestSegmentCodecAgreesWithTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]dialect{{v5, ""}, {v5, primitive.CompressionLz4}}).Draw(t, "dialect")
		payload := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "payload")
		selfContained := rapid.Bool().Draw(t, "self-contained")
		codec := wire.SegmentCodec{Compression: d.compression}

		ours := codec.AppendTo(nil, payload, !selfContained)
		s, err := d.segments().DecodeSegment(bytes.NewReader(ours))
		require.NoError(t, err)
		require.Equal(t, selfContained, s.Header.IsSelfContained)
		require.True(t, bytes.Equal(payload, s.Payload.UncompressedData))

		var theirs bytes.Buffer
		s.Header.IsSelfContained = selfContained
		require.NoError(t, d.segments().EncodeSegment(s, &theirs))
		h, err := codec.ReadHeader(theirs.Bytes())
		require.NoError(t, err)
		require.Equal(t, theirs.Len(), h.Size)
		require.Equal(t, selfContained, h.SelfContained)
		got, err := codec.Payload(h, theirs.Bytes(), make([]byte, segment.MaxPayloadLength))
		require.NoError(t, err)
		require.True(t, bytes.Equal(payload, got))
	})
}

// One wrong bit anywhere in a segment is found, and no length is believed before that.
func TestSegmentCodecFindsEveryWrongBit(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		codec := wire.SegmentCodec{Compression: d.compression}
		good := d.segment(t, noise(50), true)
		for bit := range len(good) * 8 {
			b := bytes.Clone(good)
			b[bit/8] ^= 1 << (bit % 8)
			h, err := codec.ReadHeader(b)
			if bit/8 < codec.HeaderSize() {
				require.ErrorIs(t, err, wire.ErrCorrupt, bit)
				continue
			}
			require.NoError(t, err)
			_, err = codec.Payload(h, b, make([]byte, segment.MaxPayloadLength))
			require.ErrorIs(t, err, wire.ErrCorrupt, bit)
		}
	})
}

func TestSegmentCodecCutsWhatDoesNotFit(t *testing.T) {
	codec := wire.SegmentCodec{}
	for _, tc := range []struct {
		size  int
		part  bool
		want  int
		whole bool
	}{
		{0, false, 0, false},
		{1, false, 1, true},
		{1, true, 1, false},
		{segment.MaxPayloadLength, false, 1, true},
		{segment.MaxPayloadLength + 1, false, 2, false},
		{3 * segment.MaxPayloadLength, true, 3, false},
	} {
		b := codec.AppendTo(nil, noise(tc.size), tc.part)
		n, total := 0, 0
		for ; len(b) > 0; n++ {
			h, err := codec.ReadHeader(b)
			require.NoError(t, err)
			assert.Equal(t, tc.whole, h.SelfContained)
			total += h.Payload
			b = b[h.Size:]
		}
		assert.Equal(t, tc.want, n)
		assert.Equal(t, tc.size, total)
	}
}

// A segment of lz4 whose declared length is not that of its content is refused.
func TestSegmentCodecChecksTheDeclaredLength(t *testing.T) {
	d := dialect{v5, primitive.CompressionLz4}
	good := d.segment(t, bytes.Repeat([]byte("a"), 500), true)
	codec := wire.SegmentCodec{Compression: d.compression}
	h, err := codec.ReadHeader(good)
	require.NoError(t, err)
	require.Equal(t, 500, h.Plain)
	for _, plain := range []int{1, 499, 501, segment.MaxPayloadLength} {
		h.Plain = plain
		_, err := codec.Payload(h, good, make([]byte, segment.MaxPayloadLength))
		assert.Error(t, err, plain)
	}
}

func TestBodiesThatClaimToBeLarge(t *testing.T) {
	lz4Body := binary.BigEndian.AppendUint32(nil, 1<<31-1)
	snappyBody := binary.AppendUvarint(nil, 1<<32-1)
	for _, tc := range []struct {
		algorithm primitive.Compression
		body      []byte
	}{
		{primitive.CompressionLz4, append(lz4Body, 1, 2, 3)},
		{primitive.CompressionLz4, []byte{0xff, 0xff, 0xff, 0xff, 1}},
		{primitive.CompressionLz4, []byte{0, 0xff, 0xff, 0xff, 1}},
		{primitive.CompressionLz4, []byte{0, 0}},
		{primitive.CompressionSnappy, append(snappyBody, 1, 2, 3)},
		{primitive.CompressionSnappy, []byte{0xff, 0xff, 0xff, 0x07, 1}},
		{primitive.CompressionSnappy, nil},
		{"", []byte{1}},
	} {
		before := allocated()
		_, err := wire.Decompress(tc.algorithm, tc.body, nil, 16<<20)
		assert.Less(t, allocated()-before, uint64(64<<10), "%v %x", tc.algorithm, tc.body)
		assert.Error(t, err, "%v %x", tc.algorithm, tc.body)
	}
}
