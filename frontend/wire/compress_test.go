package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/compression/lz4"
	"github.com/datastax/go-cassandra-native-protocol/compression/snappy"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// noise returns n bytes that do not compress, always the same.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// compressed returns a body as a client compresses it.
func compressed(t require.TestingT, c interface {
	CompressWithLength(source io.Reader, dest io.Writer) error
}, body []byte,
) []byte {
	var b bytes.Buffer
	require.NoError(t, c.CompressWithLength(bytes.NewReader(body), &b))
	return b.Bytes()
}

// allocated returns how many bytes the process has allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// bodyOf draws a body that compresses well, badly or not at all.
func bodyOf(t *rapid.T) []byte {
	var body []byte
	for range rapid.IntRange(0, 4).Draw(t, "parts") {
		part := rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "part")
		body = append(body, bytes.Repeat(part, rapid.IntRange(1, 5).Draw(t, "times"))...)
	}
	return body
}

// The prefix that is read without decompressing is how the body begins.
func TestUncompressedPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := bodyOf(t)
		for algorithm, packed := range map[primitive.Compression][]byte{
			primitive.CompressionLz4:    compressed(t, lz4.Compressor{}, body),
			primitive.CompressionSnappy: compressed(t, snappy.Compressor{}, body),
		} {
			start := UncompressedPrefix(algorithm, packed)
			require.True(t, bytes.HasPrefix(body, start), "%s: %x of %x", algorithm, start, body)
			if plain, err := Decompress(algorithm, packed, nil, 1<<20); len(body) > 0 {
				require.NoError(t, err)
				require.Equal(t, body, plain)
			}
		}
	})
}

// Most EXECUTEs are decided without decompressing them: the id is there to be read.
func TestUncompressedPrefixHoldsThePreparedID(t *testing.T) {
	body := append([]byte{0, 16}, append(noise(16), bytes.Repeat([]byte("zurich"), 100)...)...)
	for algorithm, packed := range map[primitive.Compression][]byte{
		primitive.CompressionLz4:    compressed(t, lz4.Compressor{}, body),
		primitive.CompressionSnappy: compressed(t, snappy.Compressor{}, body),
	} {
		cur := Cursor{Body: UncompressedPrefix(algorithm, packed)}
		require.Equal(t, body[2:18], cur.ShortBytes(), algorithm)
		require.False(t, cur.Bad, algorithm)
	}
}

// Whatever a body claims, its prefix lies within it.
func TestUncompressedPrefixOfGarbage(t *testing.T) {
	for _, algorithm := range []primitive.Compression{primitive.CompressionLz4, primitive.CompressionSnappy, ""} {
		rapid.Check(t, func(t *rapid.T) {
			body := rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "body")
			require.LessOrEqual(t, len(UncompressedPrefix(algorithm, body)), len(body))
		})
	}
}

// A body is not believed how large it becomes: nothing is allocated for a claim beyond the limit or
// the ratio of its algorithm.
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
		_, err := Decompress(tc.algorithm, tc.body, nil, 16<<20)
		assert.Less(t, allocated()-before, uint64(64<<10), "%v %x", tc.algorithm, tc.body)
		assert.Error(t, err, "%v %x", tc.algorithm, tc.body)
	}
}

// Nobody gets more room for a body than an envelope may have, however well it compresses.
func TestDecompressHasALimit(t *testing.T) {
	body := bytes.Repeat([]byte("a"), 1000)
	for algorithm, packed := range map[primitive.Compression][]byte{
		primitive.CompressionLz4: compressed(t, lz4.Compressor{}, body), primitive.CompressionSnappy: compressed(t, snappy.Compressor{}, body),
	} {
		plain, err := Decompress(algorithm, packed, nil, len(body))
		require.NoError(t, err, algorithm)
		assert.Equal(t, body, plain)
		_, err = Decompress(algorithm, packed, nil, len(body)-1)
		assert.ErrorIs(t, err, errTooLarge, algorithm)
	}
}
