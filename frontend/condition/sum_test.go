package condition

import (
	"encoding/binary"
	"math"
	"math/big"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/rewrite"
)

// What is added is added as Cassandra does: integers wrap around, texts grow at their end, a decimal keeps the longer scale.
func TestAdd(t *testing.T) {
	float := func(f float32) []byte { return binary.BigEndian.AppendUint32(nil, math.Float32bits(f)) }
	double := func(f float64) []byte { return binary.BigEndian.AppendUint64(nil, math.Float64bits(f)) }
	decimal := func(scale int32, unscaled ...byte) []byte { return append(number(scale), unscaled...) }
	long := append(number(0), []byte("\x7f123456789012345678")...)
	for _, c := range []struct {
		kind       datatype.DataType
		a, b, want []byte
	}{
		{datatype.Int, number(math.MaxInt32), number(1), number(math.MinInt32)},
		{datatype.Int, number(5), number(-7), number(-2)},
		{datatype.Tinyint, []byte{127}, []byte{1}, []byte{0x80}},
		{datatype.Smallint, []byte{0xff, 0xff}, []byte{0, 1}, []byte{0, 0}},
		{datatype.Bigint, number64(math.MaxInt64), number64(1), number64(math.MinInt64)},
		{datatype.Float, float(1.5), float(0.1), float(1.6)},
		{datatype.Double, double(0.1), double(0.2), double(0.30000000000000004)},
		{datatype.Varchar, []byte("ab"), []byte("é"), []byte("abé")},
		{datatype.Ascii, []byte{}, []byte("x"), []byte("x")},
		{datatype.Varint, []byte{0x7f}, []byte{1}, []byte{0, 0x80}},
		{datatype.Varint, []byte{0xff}, []byte{1}, []byte{0}},
		{datatype.Varint, []byte{0x80}, []byte{0xff}, []byte{0xff, 0x7f}},
		{datatype.Decimal, decimal(1, 15), decimal(2, 7), append(number(2), 0, 157)},
		{datatype.Decimal, decimal(0, 1), decimal(0, 0xff), decimal(0, 0)},
		{datatype.Decimal, decimal(40, 1), decimal(0, 1), nil},
		{datatype.Decimal, long, long, nil},
		{datatype.Int, nil, number(1), nil},
		{datatype.Int, []byte{}, number(1), nil},
	} {
		got, ok := add(c.kind.Code(), c.a, c.b)
		assert.Equal(t, c.want != nil, ok, "%s %x %x", c.kind, c.a, c.b)
		if ok {
			assert.Equal(t, c.want, got, "%s %x %x", c.kind, c.a, c.b)
		}
	}
	for _, n := range []int64{0, 1, 127, 128, 255, 256, 32767, 32768, -1, -128, -129, -32768, -32769, math.MaxInt64, math.MinInt64} {
		b := rewrite.IntegerBytes(big.NewInt(n))
		assert.Zero(t, varint(b).Cmp(big.NewInt(n)), "%d is %x", n, b)
		assert.True(t, len(b) == 1 || b[0] != 0 && b[0] != 0xff || b[0]&0x80 != b[1]&0x80, "%d is %x, which is longer than it need be", n, b)
	}
}

// Of what is null the sum is null, null is not added, and a static column is that of whatever row was read.
func TestSummed(t *testing.T) {
	columns := []*message.ColumnMetadata{{Name: "v", Type: datatype.Int}, {Name: "st", Type: datatype.Int}}
	source := &Source{Text: []byte("5 null ?"), Values: [][]byte{append(number(4), number(9)...)}}
	five, null := rewrite.Term{Kind: rewrite.TermInteger, Span: rewrite.Span{Start: 0, End: 1}}, rewrite.Term{Kind: rewrite.TermNull}
	marker := rewrite.Term{Kind: rewrite.TermMarker}
	c := &Conditions{}
	row, _ := c.Row("")
	for _, x := range []struct {
		rows message.RowSet
		sum  Sum
		want []byte
		bad  bool
	}{
		{message.RowSet{{number(1), number(2)}}, Sum{source, row, "v", five}, number(6), false},
		{message.RowSet{{number(1), number(2)}}, Sum{source, row, "v", marker}, number(10), false},
		{message.RowSet{{number(1), number(2)}}, Sum{source, nil, "st", five}, number(7), false},
		{message.RowSet{{nil, number(2)}}, Sum{source, row, "v", five}, nil, false},
		{nil, Sum{source, row, "v", five}, nil, false},
		{nil, Sum{source, nil, "st", five}, nil, false},
		{nil, Sum{source, row, "v", null}, nil, true},
	} {
		got, f := c.Evaluate(columns, x.rows).Summed(&x.sum)
		require.Equal(t, x.bad, f != nil, "%v", x)
		assert.Equal(t, x.want, got, "%v", x)
	}
}
