package rewrite

import (
	"bytes"
	"math"
	"math/big"
	"strings"
)

// Canonical returns the same bytes for all values, in wire form, that Cassandra's comparator of the
// type treats as equal: as a clustering column, 1.0 and 1.00 are one decimal, and every NaN is one
// double. ok is false for types whose comparison this package does not know: tuples, collections,
// user-defined and custom types.
func Canonical(typ string, value []byte) (canonical []byte, ok bool) {
	switch typ {
	case "ascii", "text", "varchar", "blob", "inet", "uuid", "timeuuid", "tinyint", "smallint", "int", "bigint", "date", "time", "timestamp":
		return value, true
	case "boolean":
		return canonicalBoolean(value), true
	case "float":
		return canonicalFloat(value, []byte{0x7f, 0x80, 0, 0}), true
	case "double":
		return canonicalFloat(value, []byte{0x7f, 0xf0, 0, 0, 0, 0, 0, 0}), true
	case "varint":
		return canonicalInteger(value), true
	case "decimal":
		return canonicalDecimal(value), true
	}
	return nil, false
}

// canonicalBoolean returns one form for every true value.
func canonicalBoolean(value []byte) []byte {
	if len(value) == 1 && value[0] != 0 {
		return []byte{1}
	}
	return value
}

// canonicalFloat returns one form for every NaN: a value above infinity, without its sign. It keeps
// -0 and 0 apart, as Cassandra does.
func canonicalFloat(value, infinity []byte) []byte {
	if len(value) != len(infinity) {
		return value
	}
	magnitude := bytes.Clone(value)
	magnitude[0] &^= 0x80
	if bytes.Compare(magnitude, infinity) <= 0 {
		return value
	}
	nan := bytes.Clone(infinity)
	nan[len(nan)-1] = 1
	return nan
}

// canonicalInteger removes leading bytes that only repeat the sign.
func canonicalInteger(value []byte) []byte {
	for len(value) > 1 && (value[0] == 0 && value[1] < 0x80 || value[0] == 0xff && value[1] >= 0x80) {
		value = value[1:]
	}
	return value
}

// canonicalDecimal returns scale and digits without trailing zeros, in a form that only serves for
// comparison. A value that is too long for any key it returns as it is: to write it out would take
// up to minutes.
func canonicalDecimal(value []byte) []byte {
	if len(value) < 5 || len(value) > math.MaxUint16 {
		return value
	}
	unscaled := new(big.Int).SetBytes(value[4:])
	if value[4] >= 0x80 {
		unscaled.Sub(unscaled, new(big.Int).Lsh(big.NewInt(1), uint(8*len(value[4:]))))
	}
	if unscaled.Sign() == 0 {
		return []byte("0")
	}
	digits := unscaled.String()
	short := strings.TrimRight(digits, "0")
	scale := int64(int32(uint32(value[0])<<24 | uint32(value[1])<<16 | uint32(value[2])<<8 | uint32(value[3])))
	return []byte(short + "e" + big.NewInt(int64(len(digits)-len(short))-scale).String())
}
