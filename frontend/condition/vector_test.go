package condition

import (
	"bytes"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/rewrite"
)

// vectorType returns the type of a vector of n elements of a class.
func vectorType(class, n string) datatype.DataType {
	return currentType(datatype.NewCustom(marshal + "VectorType(" + marshal + class + ", " + n + ")"))
}

// Vectors are read by the classes that the protocol gives; what the proxy does not compare stays a class.
func TestVectors(t *testing.T) {
	floats, texts := vectorType("FloatType", "2"), vectorType("UTF8Type", "2")
	assert.Equal(t, "vector<float, 2>", floats.AsCql())
	for _, unknown := range []datatype.DataType{vectorType("ListType("+marshal+"Int32Type)", "2"), vectorType("FloatType", "x"), currentType(datatype.NewCustom(marshal + "PointType"))} {
		assert.Nil(t, comparisonOf(unknown))
	}
	one, minus := []byte{0x3f, 0x80, 0, 0}, []byte{0xbf, 0x80, 0, 0}
	assert.Equal(t, -1, comparisonOf(floats)(append(bytes.Clone(one), minus...), append(bytes.Clone(one), one...)))
	assert.Zero(t, comparisonOf(floats)(append(bytes.Clone(one), minus...), append(bytes.Clone(one), minus...)))
	assert.Positive(t, comparisonOf(texts)([]byte("\x01b\x00"), []byte("\x02ab\x01z")), "not by the bytes before the texts")
	for value, ok := range map[string]bool{"\x01b\x00": true, "\x01b": false, "\x01b\x00\x00": false, "\x05b\x00": false, "\x01\xff\x00": false, "": false} {
		assert.Equal(t, ok, fits(texts, []byte(value)), "%q", value)
	}
}

// The lengths within vectors are written and read alike.
func TestLengthsInVectors(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 300, 16383, 16384, 2097151, 2097152, 16 << 20} {
		b := rewrite.AppendVint([]byte{}, uint64(n))
		got, rest, ok := vint(append(bytes.Clone(b), 'x'))
		require.True(t, ok, n)
		assert.Equal(t, n, got)
		assert.Equal(t, "x", string(rest))
		_, _, ok = vint(b[:len(b)-1])
		assert.False(t, ok, n)
	}
	assert.Equal(t, []byte{0x81, 0x2c}, rewrite.AppendVint(nil, 300))
}
