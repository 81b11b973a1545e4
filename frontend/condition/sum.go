package condition

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
	"music/rewrite"
)

// Sum is an addition of a write, as in SET v = v + 1: to a number, or to the end of a text.
type Sum struct {
	Source *Source
	Row    *RowCondition // the row of the column; nil for a static column
	Column string
	Value  rewrite.Term // the value to add
}

// Summable reports whether an addition to a column of this CQL type must read the column's value.
// An addition to a collection need not.
func Summable(cqlType string) bool {
	switch cqlType {
	case "tinyint", "smallint", "int", "bigint", "varint", "decimal", "float", "double", "text", "varchar", "ascii":
		return true
	}
	return false
}

// sumsStatic reports whether something is added to a static column.
func (c *Conditions) sumsStatic() bool {
	return slices.ContainsFunc(c.Sums, func(s Sum) bool { return s.Row == nil })
}

// Summed returns the value of the column after the addition, in wire form. It is nil if the column
// is null before: null plus a value is null.
func (y *Evaluation) Summed(s *Sum) ([]byte, *wire.Failure) {
	var row message.Row
	switch {
	case s.Row != nil:
		row = y.find(s.Row)
	case len(y.rows) > 0:
		row = y.rows[0]
	}
	at := y.index(s.Column)
	if at < 0 {
		return nil, wire.Invalid("Undefined column name %s in table %s", s.Column, s.Source.Table) // it was dropped meanwhile
	}
	kind := currentType(y.columns[at].Type)
	value, f := s.Source.value(s.Value, kind)
	switch {
	case f != nil:
		return nil, f
	case value == nil:
		return nil, wire.Invalid("MUSIC_SYNTAX: null cannot be added to %s: add a value", s.Column)
	case row == nil || row[at] == nil:
		return nil, nil
	}
	sum, ok := add(kind.Code(), row[at], value)
	if !ok {
		return nil, wire.Invalid("MUSIC_REFUSED: %s is critical: the proxy cannot compute this addition to %s as Cassandra does: read the value, add to it, write it", s.Source.Table, s.Column)
	}
	return sum, nil
}

// maxDigits is the number of digits that Cassandra keeps exactly when it adds decimals.
const maxDigits = 34

// add adds two values of a type in wire form, as Cassandra does: integers wrap around. ok is false
// if the proxy cannot add them exactly so.
func add(code primitive.DataTypeCode, a, b []byte) ([]byte, bool) {
	switch code {
	case primitive.DataTypeCodeVarchar, primitive.DataTypeCodeAscii:
		return slices.Concat(a, b), true
	case primitive.DataTypeCodeVarint:
		return rewrite.IntegerBytes(new(big.Int).Add(varint(a), varint(b))), len(a) > 0 && len(b) > 0
	case primitive.DataTypeCodeDecimal:
		return addDecimals(a, b)
	}
	switch {
	case len(a) != len(b) || len(a) == 0:
		return nil, false
	case code == primitive.DataTypeCodeFloat:
		sum := math.Float32frombits(binary.BigEndian.Uint32(a)) + math.Float32frombits(binary.BigEndian.Uint32(b))
		return binary.BigEndian.AppendUint32(nil, math.Float32bits(sum)), true
	case code == primitive.DataTypeCodeDouble:
		sum := math.Float64frombits(binary.BigEndian.Uint64(a)) + math.Float64frombits(binary.BigEndian.Uint64(b))
		return binary.BigEndian.AppendUint64(nil, math.Float64bits(sum)), true
	}
	sum := binary.BigEndian.AppendUint64(nil, uint64(signed(a)+signed(b)))
	return sum[8-len(a):], true
}

// addDecimals adds two decimals; it is not ok if the sum has more digits than Cassandra keeps.
func addDecimals(a, b []byte) ([]byte, bool) {
	if len(a) < 5 || len(b) < 5 {
		return nil, false
	}
	scaleA, scaleB := signed(a[:4]), signed(b[:4])
	x, y := varint(a[4:]), varint(b[4:])
	scale := max(scaleA, scaleB)
	if scale-scaleA > maxDigits || scale-scaleB > maxDigits {
		return nil, false
	}
	x.Mul(x, powerOfTen(scale-scaleA))
	x.Add(x, y.Mul(y, powerOfTen(scale-scaleB)))
	if x.Sign() != 0 {
		if least, _ := digits(x); least > maxDigits {
			return nil, false
		}
	}
	sum := binary.BigEndian.AppendUint32(nil, uint32(int32(scale)))
	return append(sum, rewrite.IntegerBytes(x)...), len(new(big.Int).Abs(x).String()) <= maxDigits
}
