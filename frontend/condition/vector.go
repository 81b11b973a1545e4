package condition

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/datatype"

	"music/frontend/wire"
	"music/rewrite"
)

// vector is the type vector<element, length>, which the protocol names by its class in Cassandra.
type vector struct {
	*datatype.Custom
	element *datatype.PrimitiveType
	width   int // of an element in bytes; 0: each has its length before it
	length  int
}

// marshal is the package of Cassandra's classes of types.
const marshal = "org.apache.cassandra.db.marshal."

// vectorOf returns the vector that a class implements. ok is false for other classes, and for
// vectors whose elements are not of a native type.
func vectorOf(class *datatype.Custom) (v *vector, ok bool) {
	parameters, found := strings.CutPrefix(class.ClassName, marshal+"VectorType(")
	element, length, comma := strings.Cut(strings.TrimSuffix(parameters, ")"), ",")
	n, err := strconv.Atoi(strings.TrimSpace(length))
	of, width := elementOf(strings.TrimPrefix(strings.TrimSpace(element), marshal))
	if !found || !comma || err != nil || of == nil {
		return nil, false
	}
	return &vector{class, of, width, n}, true
}

// elementOf returns the type that a class implements, and how many bytes each of its values has in
// a vector: 0 if they have their lengths before them (5.0: AbstractType.valueLengthIfFixed). The
// type is nil if the proxy does not know the class.
func elementOf(class string) (of *datatype.PrimitiveType, width int) {
	switch class {
	case "FloatType":
		return datatype.Float, 4
	case "DoubleType":
		return datatype.Double, 8
	case "Int32Type":
		return datatype.Int, 4
	case "LongType":
		return datatype.Bigint, 8
	case "TimestampType":
		return datatype.Timestamp, 8
	case "UUIDType":
		return datatype.Uuid, 16
	case "TimeUUIDType":
		return datatype.Timeuuid, 16
	case "BooleanType":
		return datatype.Boolean, 1
	case "ShortType":
		return datatype.Smallint, 0
	case "ByteType":
		return datatype.Tinyint, 0
	case "UTF8Type":
		return datatype.Varchar, 0
	case "IntegerType":
		return datatype.Varint, 0
	}
	return nil, 0
}

// AsCql returns the type as CQL writes it.
func (v *vector) AsCql() string {
	return "vector<" + v.element.AsCql() + ", " + strconv.Itoa(v.length) + ">"
}

// compare compares two vectors element by element.
func (v *vector) compare(a, b []byte) int {
	left, _ := v.elements(a)
	right, _ := v.elements(b)
	of := comparisonOf(v.element)
	for i := range min(len(left), len(right)) {
		if order := of(left[i], right[i]); order != 0 {
			return order
		}
	}
	return 0
}

// elements returns the elements of a vector in wire form. ok is false if the value is malformed.
func (v *vector) elements(value []byte) (all [][]byte, ok bool) {
	for range v.length {
		width := v.width
		if width == 0 {
			if width, value, ok = vint(value); !ok {
				return nil, false
			}
		}
		if len(value) < width || !fits(v.element, value[:width]) {
			return nil, false
		}
		all, value = append(all, value[:width]), value[width:]
	}
	return all, len(value) == 0
}

// vint reads an unsigned integer of variable length (v5 spec section 3): its first byte begins with
// as many ones as bytes follow.
func vint(b []byte) (n int, rest []byte, ok bool) {
	if len(b) == 0 {
		return 0, nil, false
	}
	more := bits.LeadingZeros8(^b[0])
	if more > 3 || len(b) <= more {
		return 0, nil, false
	}
	n = int(b[0] & (0xff >> more))
	for _, c := range b[1 : 1+more] {
		n = n<<8 | int(c)
	}
	return n, b[1+more:], true
}

// vector encodes a literal with as many entries as the vector has elements.
func (w *writer) vector(kind *vector) (b []byte, f *wire.Failure) {
	for _, e := range w.entries {
		value, f := w.value(e.Value, kind.element)
		switch {
		case f != nil:
			return nil, f
		case value == nil:
			return nil, wire.Invalid("null is not supported inside vectors")
		case kind.width == 0:
			b = rewrite.AppendVint(b, uint64(len(value)))
		}
		b = append(b, value...)
	}
	return b, nil
}
