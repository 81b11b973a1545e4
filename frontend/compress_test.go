package frontend

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/golang/snappy"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"music/frontend/wire"
)

// bodyOf draws a body that compresses well, badly or not at all.
func bodyOf(t *rapid.T) []byte {
	var body []byte
	for range rapid.IntRange(0, 4).Draw(t, "parts") {
		part := rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "part")
		body = append(body, bytes.Repeat(part, rapid.IntRange(1, 5).Draw(t, "times"))...)
	}
	return body
}

// lz4Body compresses as a client does.
func lz4Body(t require.TestingT, body []byte) []byte {
	out := make([]byte, 4+lz4.CompressBlockBound(len(body)))
	binary.BigEndian.PutUint32(out, uint32(len(body)))
	n, err := lz4.CompressBlock(body, out[4:], nil)
	require.NoError(t, err)
	return out[:4+n]
}

// What stands uncompressed at the beginning of a compressed body is how the body begins.
func TestLeadingIsHowTheBodyBegins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := bodyOf(t)
		for algorithm, compressed := range map[primitive.Compression][]byte{
			primitive.CompressionLz4:    lz4Body(t, body),
			primitive.CompressionSnappy: snappy.Encode(nil, body),
		} {
			start := wire.UncompressedPrefix(algorithm, compressed)
			require.True(t, bytes.HasPrefix(body, start), "%s: %x of %x", algorithm, start, body)
			if plain, err := wire.Decompress(algorithm, compressed, nil, 1<<20); len(body) > 0 {
				require.NoError(t, err)
				require.Equal(t, body, plain)
			}
		}
	})
}

// Most EXECUTEs are decided without decompressing them: the id is there to be read.
func TestLeadingHoldsThePreparedID(t *testing.T) {
	body := append([]byte{0, 16}, append(noise(16), bytes.Repeat([]byte("zurich"), 100)...)...)
	for algorithm, compressed := range map[primitive.Compression][]byte{
		primitive.CompressionLz4:    lz4Body(t, body),
		primitive.CompressionSnappy: snappy.Encode(nil, body),
	} {
		id, ok := shortBytes(wire.UncompressedPrefix(algorithm, compressed))
		require.True(t, ok, algorithm)
		require.Equal(t, body[2:18], id, algorithm)
	}
}

func TestLeadingOfNonsense(t *testing.T) {
	for _, algorithm := range []primitive.Compression{primitive.CompressionLz4, primitive.CompressionSnappy, ""} {
		rapid.Check(t, func(t *rapid.T) {
			body := rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "body")
			require.LessOrEqual(t, len(wire.UncompressedPrefix(algorithm, body)), len(body))
		})
	}
}
