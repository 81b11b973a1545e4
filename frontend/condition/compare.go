package condition

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/big"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// comparison orders two values of a type in wire form; neither is null.
type comparison func(a, b []byte) int

// scalarComparison returns Cassandra's comparison of a type that is neither a collection nor a
// tuple, or nil if the proxy does not compare it. An empty value, which Cassandra allows for
// numbers, comes before every other.
func scalarComparison(code primitive.DataTypeCode) comparison {
	switch code {
	case primitive.DataTypeCodeVarchar, primitive.DataTypeCodeAscii, primitive.DataTypeCodeBlob, primitive.DataTypeCodeDate,
		primitive.DataTypeCodeInet, primitive.DataTypeCodeDuration:
		return bytes.Compare
	case primitive.DataTypeCodeBoolean:
		return compareFilled(func(a, b []byte) int { return cmp.Compare(min(a[0], 1), min(b[0], 1)) })
	case primitive.DataTypeCodeUuid:
		return compareFilled(compareUUIDs)
	case primitive.DataTypeCodeTimeuuid:
		return compareFilled(compareTimeUUIDs)
	case primitive.DataTypeCodeBigint, primitive.DataTypeCodeInt, primitive.DataTypeCodeSmallint, primitive.DataTypeCodeTinyint,
		primitive.DataTypeCodeTimestamp, primitive.DataTypeCodeTime:
		return compareFilled(func(a, b []byte) int { return cmp.Compare(signed(a), signed(b)) })
	case primitive.DataTypeCodeVarint:
		return compareFilled(func(a, b []byte) int { return varint(a).Cmp(varint(b)) })
	case primitive.DataTypeCodeDecimal:
		return compareFilled(compareDecimals)
	case primitive.DataTypeCodeFloat:
		return compareFilled(func(a, b []byte) int {
			return compareFloats(float64(math.Float32frombits(binary.BigEndian.Uint32(a))), float64(math.Float32frombits(binary.BigEndian.Uint32(b))))
		})
	case primitive.DataTypeCodeDouble:
		return compareFilled(func(a, b []byte) int {
			return compareFloats(math.Float64frombits(binary.BigEndian.Uint64(a)), math.Float64frombits(binary.BigEndian.Uint64(b)))
		})
	}
	return nil
}

// compareFilled returns a comparison that puts empty values before others.
func compareFilled(filled comparison) comparison {
	return func(a, b []byte) int {
		if len(a) == 0 || len(b) == 0 {
			return cmp.Compare(len(a), len(b))
		}
		return filled(a, b)
	}
}

// fitsScalar reports whether a value of n bytes can be of a type. Values of types of fixed length
// may be empty.
func fitsScalar(code primitive.DataTypeCode, n int) bool {
	if n == 0 {
		return true
	}
	switch code {
	case primitive.DataTypeCodeBigint, primitive.DataTypeCodeTimestamp, primitive.DataTypeCodeTime, primitive.DataTypeCodeDouble:
		return n == 8
	case primitive.DataTypeCodeInt, primitive.DataTypeCodeFloat, primitive.DataTypeCodeDate:
		return n == 4
	case primitive.DataTypeCodeSmallint:
		return n == 2
	case primitive.DataTypeCodeTinyint, primitive.DataTypeCodeBoolean:
		return n == 1
	case primitive.DataTypeCodeInet:
		return n == 4 || n == 16
	case primitive.DataTypeCodeUuid, primitive.DataTypeCodeTimeuuid:
		return n == 16
	case primitive.DataTypeCodeDecimal:
		return n >= 4
	}
	return true
}

// signed returns a big-endian number of up to eight bytes.
func signed(b []byte) int64 {
	n := int64(int8(b[0]))
	for _, c := range b[1:] {
		n = n<<8 | int64(c)
	}
	return n
}

// varint returns a big-endian two's complement number of any length.
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
	// Comparing the number of digits before the point first avoids huge numbers where the scales
	// are far apart.
	leastA, mostA := digits(x)
	leastB, mostB := digits(y)
	switch {
	case leastA-scaleA > mostB-scaleB:
		return x.Sign()
	case mostA-scaleA < leastB-scaleB:
		return -x.Sign()
	}
	if scaleA < scaleB {
		x.Mul(x, powerOfTen(scaleB-scaleA))
	} else {
		y.Mul(y, powerOfTen(scaleA-scaleB))
	}
	return x.Cmp(y)
}

// digits returns bounds of the number of decimal digits of a number other than 0. To count them takes
// seconds for a number of a megabyte.
func digits(n *big.Int) (least, most int64) {
	bits := int64(n.BitLen())
	return (bits-1)*30102/100000 + 1, bits*30103/100000 + 1 // log 2 is 0.301029996
}

// powerOfTen returns 10^n. Its callers bound n: they have compared the numbers of digits before.
func powerOfTen(n int64) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil) }

// compareFloats compares like Java's Float.compare and Double.compare: -0.0 comes before 0.0, and
// NaN equals itself and comes last.
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

// signOf returns -1 or 1, which tells the zeros apart.
func signOf(f float64) int {
	if math.Signbit(f) {
		return -1
	}
	return 1
}

// nan returns 1 for NaN, else 0.
func nan(f float64) int {
	if math.IsNaN(f) {
		return 1
	}
	return 0
}
