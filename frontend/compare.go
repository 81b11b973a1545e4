package frontend

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/big"
)

// comparison orders two values of a type in wire form; neither is null.
type comparison func(a, b []byte) int

// comparisonOf is how Cassandra compares the values of a CQL type, or nil for a type that the proxy does not compare. An empty value of a
// number, which Cassandra allows, comes before every other.
func comparisonOf(cqlType string) comparison {
	switch cqlType {
	case "text", "varchar", "ascii", "blob", "boolean", "date", "inet", "uuid", "timeuuid":
		return bytes.Compare
	case "bigint", "int", "smallint", "tinyint", "timestamp", "time":
		return compareFilled(func(a, b []byte) int { return cmp.Compare(signed(a), signed(b)) })
	case "varint":
		return compareFilled(func(a, b []byte) int { return varint(a).Cmp(varint(b)) })
	case "decimal":
		return compareFilled(compareDecimals)
	case "float":
		return compareFilled(func(a, b []byte) int {
			return compareFloats(float64(math.Float32frombits(binary.BigEndian.Uint32(a))), float64(math.Float32frombits(binary.BigEndian.Uint32(b))))
		})
	case "double":
		return compareFilled(func(a, b []byte) int {
			return compareFloats(math.Float64frombits(binary.BigEndian.Uint64(a)), math.Float64frombits(binary.BigEndian.Uint64(b)))
		})
	}
	return nil
}

// comparedBy tells whether the proxy compares values of a type by a sign: of a uuid, only whether it is the same.
func comparedBy(cqlType, sign string) bool {
	if cqlType == "uuid" || cqlType == "timeuuid" {
		return sign == "" || sign == "!="
	}
	return comparisonOf(cqlType) != nil
}

// compareFilled puts empty values before others.
func compareFilled(filled comparison) comparison {
	return func(a, b []byte) int {
		if len(a) == 0 || len(b) == 0 {
			return cmp.Compare(len(a), len(b))
		}
		return filled(a, b)
	}
}

// fits tells whether a value may be one of a type by its length alone; null fits every type.
func fits(cqlType string, value []byte) bool {
	n := len(value)
	if n == 0 {
		return true
	}
	switch cqlType {
	case "bigint", "timestamp", "time", "double":
		return n == 8
	case "int", "float", "date":
		return n == 4
	case "smallint":
		return n == 2
	case "tinyint", "boolean":
		return n == 1
	case "inet":
		return n == 4 || n == 16
	case "decimal":
		return n >= 4
	}
	return true
}

// signed is a big-endian number of up to eight bytes.
func signed(b []byte) int64 {
	n := int64(int8(b[0]))
	for _, c := range b[1:] {
		n = n<<8 | int64(c)
	}
	return n
}

// varint is a big-endian two's complement number of any length.
func varint(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}

// compareDecimals compares by value: 1.0 is 1.00.
func compareDecimals(a, b []byte) int {
	scaleA, scaleB := signed(a[:4]), signed(b[:4])
	x, y := varint(a[4:]), varint(b[4:])
	if x.Sign() != y.Sign() || x.Sign() == 0 {
		return cmp.Compare(x.Sign(), y.Sign())
	}
	// The number of decimal digits before the point tells most of it, however far the scales are apart.
	digitsA, digitsB := int64(len(new(big.Int).Abs(x).String()))-scaleA, int64(len(new(big.Int).Abs(y).String()))-scaleB
	if digitsA != digitsB {
		return x.Sign() * cmp.Compare(digitsA, digitsB)
	}
	if scaleA < scaleB {
		x.Mul(x, powerOfTen(scaleB-scaleA))
	} else {
		y.Mul(y, powerOfTen(scaleA-scaleB))
	}
	return x.Cmp(y)
}

// powerOfTen is 10^n. Both numbers have as many digits before the point, so n is no more than the digits that one of them has.
func powerOfTen(n int64) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil) }

// compareFloats is Java's Float.compare and Double.compare: -0.0 comes before 0.0, and NaN is the same as itself and comes last.
func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b:
		return cmp.Compare(signOf(a), signOf(b))
	}
	return cmp.Compare(nan(a), nan(b))
}

// signOf tells the zeros apart.
func signOf(f float64) int {
	if math.Signbit(f) {
		return -1
	}
	return 1
}

// nan is 1 for what is no number.
func nan(f float64) int {
	if math.IsNaN(f) {
		return 1
	}
	return 0
}
