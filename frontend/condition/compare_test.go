package condition

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/rewrite"
)

// number returns an int in wire form.
func number(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// number64 returns a bigint in wire form.
func number64(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// Values are compared by what they mean, as Cassandra does.
func TestComparisons(t *testing.T) {
	float := func(f float64) []byte { return binary.BigEndian.AppendUint64(nil, math.Float64bits(f)) }
	decimal := func(scale int32, unscaled ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(scale)), unscaled...)
	}
	const timeUUID, other = "\x01\x02\x03\x04\x05\x06\x11\x08", "\x01\x02\x03\x04\x05\x06\x41\x08"
	list := func(elements ...string) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(len(elements)))
		for _, e := range elements {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(e))), e...)
		}
		return b
	}
	for kind, ordered := range map[datatype.DataType][][]byte{
		datatype.Uuid: {
			{},
			[]byte(timeUUID + "\x80234567\x01"), []byte(timeUUID + "\x90234567\x01"), []byte("\x00\x02\x03\x04\x05\x06\x11\x09\x801234567"[:16]),
			[]byte(other + "\x01234567\x01"), []byte(other + "\xff234567\x01"),
		},
		datatype.Timeuuid:              {{}, []byte(timeUUID + "\xff234567\x01"), []byte(timeUUID + "\x01234567\x01"), []byte("\x00\x02\x03\x04\x05\x06\x11\x091234567\x01")},
		datatype.Boolean:               {{}, {0}, {2}},
		datatype.NewList(datatype.Int): {{}, list(), list("\xff\xff\xff\xff"), list("\x00\x00\x00\x01"), list("\x00\x00\x00\x01", "\x00\x00\x00\x00"), list("\x00\x00\x00\x02")},
		datatype.NewMap(datatype.Varchar, datatype.Tinyint): {
			binary.BigEndian.AppendUint32(nil, 0), append(binary.BigEndian.AppendUint32(nil, 1), list("a", "\xff")[4:]...),
			append(binary.BigEndian.AppendUint32(nil, 1), list("a", "\x01")[4:]...), append(binary.BigEndian.AppendUint32(nil, 1), list("b", "\x00")[4:]...),
		},
		datatype.NewTuple(datatype.Int, datatype.Varchar): {
			{}, append([]byte{0xff, 0xff, 0xff, 0xff}, list("x")[4:]...), list("\x00\x00\x00\x01")[4:], list("\x00\x00\x00\x01", "")[4:], list("\x00\x00\x00\x01", "a")[4:],
		},
		datatype.Bigint:  {{}, number64(math.MinInt64), number64(-1), number64(0), number64(math.MaxInt64)},
		datatype.Tinyint: {{}, {0x80}, {0xff}, {0}, {0x7f}},
		datatype.Varchar: {{}, []byte("A"), []byte("a"), []byte("aa"), {0xff}},
		datatype.Varint:  {{0xff, 0x00}, {0xff}, {0}, {0x7f}, {0x00, 0x80}, {0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		datatype.Double:  {float(math.Inf(-1)), float(-1), float(math.Copysign(0, -1)), float(0), float(1), float(math.Inf(1)), float(math.NaN())},
		datatype.Decimal: {
			decimal(-1_000_000_000, 0xff), decimal(0, 0xfe), decimal(1, 0xfb), decimal(0, 0), decimal(1_000_000_000, 1), decimal(2, 99), decimal(0, 1), decimal(1, 11),
			decimal(math.MinInt32, 1),
		},
	} {
		for i, a := range ordered {
			for j, b := range ordered {
				got := comparisonOf(kind)(a, b)
				assert.Equal(t, i < j, got < 0, "%s %x %x", kind, a, b)
				assert.Equal(t, i == j, got == 0, "%s %x %x", kind, a, b)
			}
		}
	}
	same := comparisonOf(datatype.Decimal)
	assert.Zero(t, same(decimal(1, 10), decimal(0, 1)), "1.0 is 1")
	assert.Zero(t, same(decimal(5, 0), decimal(0, 0)))
	for n := range 2000 { // around each power of ten
		at := powerOfTen(int64(n%40 + 1))
		for _, more := range []int64{-1, 0, 1} {
			b := append(number(int32(n%40+1+n/40-25)), rewrite.IntegerBytes(new(big.Int).Add(at, big.NewInt(more)))...) // 10^(25-n/40), and a bit more or less
			assert.Equal(t, int(more), same(b, append(number(int32(n/40-25)), 1)), "%x", b)
		}
	}
	assert.Zero(t, same(decimal(7), decimal(0, 0)), "no digits at all")
	assert.Zero(t, comparisonOf(datatype.Varint)([]byte{0, 0, 1}, []byte{1}))
	assert.Zero(t, comparisonOf(datatype.NewTuple(datatype.Int, datatype.Int))(list("\x00\x00\x00\x01")[4:], append(list("\x00\x00\x00\x01")[4:], 0xff, 0xff, 0xff, 0xff)), "a field that is missing is null")
	for kind, value := range map[datatype.DataType][]byte{
		datatype.Int: {1}, datatype.Bigint: {0, 0, 0, 1}, datatype.Decimal: {1, 2, 3}, datatype.Inet: {1, 2}, datatype.Boolean: {1, 1}, datatype.Uuid: {1},
		datatype.NewList(datatype.Int): list("x"), datatype.NewSet(datatype.Int): {0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}, datatype.NewMap(datatype.Int, datatype.Int): list("1234"),
		datatype.NewTuple(datatype.Int): {0, 0, 0, 1, 5}, datatype.NewCustom("vector"): {}, datatype.NewList(datatype.Varchar): append(list("x"), 0),
	} {
		assert.False(t, fits(kind, value), kind)
	}
}

// A number is not written out to be compared, added to, or found a row by: of one as long as a message may be that takes a minute.
func TestLongDecimals(t *testing.T) {
	long := func(scale int32, last byte) []byte {
		return append(append(number(scale), bytes.Repeat([]byte{0x7b}, 6<<20)...), last)
	}
	began := time.Now()
	compare := comparisonOf(datatype.Decimal)
	assert.Negative(t, compare(long(5, 1), long(5, 2)))
	assert.Positive(t, compare(long(5, 1), long(1_000_000_000, 1)))
	assert.Negative(t, compare(long(5, 1), long(-1_000_000_000, 1)))
	assert.Zero(t, compare(long(5, 1), long(5, 1)))
	_, ok := add(primitive.DataTypeCodeDecimal, long(5, 1), long(6, 1))
	assert.False(t, ok)
	_, ok = rewrite.Canonical("decimal", long(5, 1))
	assert.True(t, ok)
	assert.Less(t, time.Since(began), 5*time.Second)
}

// A bound set is compared in its order, and a bound map in that of its keys, however the driver
// sends them.
func TestBoundCollectionsAreNormalised(t *testing.T) {
	list := func(elements ...[]byte) []byte {
		b := number(int32(len(elements)))
		for _, e := range elements {
			b = append(append(b, number(int32(len(e)))...), e...)
		}
		return b
	}
	got, f := normalise(datatype.NewSet(datatype.Int), list(number(2), number(-1), number(2)))
	assert.Nil(t, f)
	assert.Equal(t, list(number(-1), number(2)), got)
	pairs := list(number(2), []byte("b"), number(1), []byte("a"), number(2), []byte("c"))
	copy(pairs, number(3))
	got, f = normalise(datatype.NewMap(datatype.Int, datatype.Varchar), pairs)
	assert.Nil(t, f)
	want := list(number(1), []byte("a"), number(2), []byte("c"))
	copy(want, number(2))
	assert.Equal(t, want, got)
	_, f = normalise(datatype.NewSet(datatype.Int), []byte{0, 0, 0, 9})
	assert.Contains(t, f.Text, "MUSIC_SYNTAX")
}
