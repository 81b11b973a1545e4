package wire

import (
	"bytes"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/compression/lz4"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/datastax/go-cassandra-native-protocol/segment"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// compressions returns those that protocol 5 has.
func compressions() []primitive.Compression {
	return []primitive.Compression{"", primitive.CompressionLz4}
}

// library returns the library's codec, which the proxy does not use.
func library(compression primitive.Compression) segment.Codec {
	if compression == primitive.CompressionLz4 {
		return segment.NewCodecWithCompression(lz4.Compressor{})
	}
	return segment.NewCodec()
}

// librarySegment returns a self-contained segment as the library writes it.
func librarySegment(t require.TestingT, compression primitive.Compression, payload []byte) []byte {
	var b bytes.Buffer
	require.NoError(t, library(compression).EncodeSegment(&segment.Segment{
		Header: &segment.Header{IsSelfContained: true}, Payload: &segment.Payload{UncompressedData: payload},
	}, &b))
	return b.Bytes()
}

// What one of the two writes, the other reads.
func TestSegmentCodecAgreesWithTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		compression := rapid.SampledFrom(compressions()).Draw(t, "compression")
		payload := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "payload")
		selfContained := rapid.Bool().Draw(t, "self-contained")
		codec := SegmentCodec{Compression: compression}

		ours := codec.AppendTo(nil, payload, !selfContained)
		s, err := library(compression).DecodeSegment(bytes.NewReader(ours))
		require.NoError(t, err)
		require.Equal(t, selfContained, s.Header.IsSelfContained)
		require.True(t, bytes.Equal(payload, s.Payload.UncompressedData))

		var theirs bytes.Buffer
		s.Header.IsSelfContained = selfContained
		require.NoError(t, library(compression).EncodeSegment(s, &theirs))
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
	for _, compression := range compressions() {
		codec := SegmentCodec{Compression: compression}
		good := librarySegment(t, compression, noise(50))
		for bit := range len(good) * 8 {
			b := bytes.Clone(good)
			b[bit/8] ^= 1 << (bit % 8)
			h, err := codec.ReadHeader(b)
			if bit/8 < codec.HeaderSize() {
				require.ErrorIs(t, err, ErrCorrupt, bit)
				continue
			}
			require.NoError(t, err)
			_, err = codec.Payload(h, b, make([]byte, segment.MaxPayloadLength))
			require.ErrorIs(t, err, ErrCorrupt, bit)
		}
	}
}

// What is larger than a segment is cut into as few as hold it, none of which is self-contained.
func TestSegmentCodecCutsWhatDoesNotFit(t *testing.T) {
	codec := SegmentCodec{}
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

// An envelope that is made in its segment goes out as one that was there before.
func TestSegmentCodecAppendsWhatIsMade(t *testing.T) {
	for _, codec := range []SegmentCodec{{}, {Compression: primitive.CompressionLz4}} {
		for _, size := range []int{1, 200, segment.MaxPayloadLength, segment.MaxPayloadLength + 1, 3 * segment.MaxPayloadLength} {
			before := []byte("before")
			want := codec.AppendTo(bytes.Clone(before), noise(size), false)
			got := codec.AppendMade(before, func(dst []byte) []byte { return append(dst, noise(size)...) })
			require.Equal(t, want, got, size)
		}
	}
}

// A segment of lz4 whose declared length is not that of its content is refused.
func TestSegmentCodecChecksTheDeclaredLength(t *testing.T) {
	const compression = primitive.CompressionLz4
	good := librarySegment(t, compression, bytes.Repeat([]byte("a"), 500))
	codec := SegmentCodec{Compression: compression}
	h, err := codec.ReadHeader(good)
	require.NoError(t, err)
	require.Equal(t, 500, h.Plain)
	for _, plain := range []int{1, 499, 501, segment.MaxPayloadLength} {
		h.Plain = plain
		_, err := codec.Payload(h, good, make([]byte, segment.MaxPayloadLength))
		assert.Error(t, err, plain)
	}
}
