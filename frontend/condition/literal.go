package condition

import (
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
	"music/rewrite"
)

// literalTypes returns the name of a kind of literal in Cassandra's errors, and the types that are
// written as such literals (5.0: Constants.Literal). ok is false if the kind is no literal.
func literalTypes(kind rewrite.TermKind) (name string, types []primitive.DataTypeCode, ok bool) {
	numbers := []primitive.DataTypeCode{primitive.DataTypeCodeDecimal, primitive.DataTypeCodeDouble, primitive.DataTypeCodeFloat}
	times := []primitive.DataTypeCode{primitive.DataTypeCodeDate, primitive.DataTypeCodeTime, primitive.DataTypeCodeTimestamp}
	switch kind {
	case rewrite.TermString:
		return "STRING", append(times, primitive.DataTypeCodeAscii, primitive.DataTypeCodeVarchar, primitive.DataTypeCodeInet), true
	case rewrite.TermInteger:
		return "INTEGER", append(append(times, numbers...), primitive.DataTypeCodeTinyint, primitive.DataTypeCodeSmallint, primitive.DataTypeCodeInt,
			primitive.DataTypeCodeBigint, primitive.DataTypeCodeVarint, primitive.DataTypeCodeDuration), true
	case rewrite.TermFloat:
		return "FLOAT", numbers, true
	case rewrite.TermUUID:
		return "UUID", []primitive.DataTypeCode{primitive.DataTypeCodeUuid, primitive.DataTypeCodeTimeuuid}, true
	case rewrite.TermBoolean:
		return "BOOLEAN", []primitive.DataTypeCode{primitive.DataTypeCodeBoolean}, true
	case rewrite.TermBlob:
		return "HEX", []primitive.DataTypeCode{primitive.DataTypeCodeBlob, primitive.DataTypeCodeTinyint}, true
	case rewrite.TermDuration:
		return "DURATION", []primitive.DataTypeCode{primitive.DataTypeCodeDuration}, true
	}
	return "", nil, false
}

// assignable reports whether Cassandra reads a literal of this kind as a value of the type. It is
// true for terms that are no literals, and for types that are not written as one literal.
func assignable(kind rewrite.TermKind, of datatype.DataType) bool {
	_, types, literal := literalTypes(kind)
	_, one := of.(*datatype.PrimitiveType)
	return !literal || !one || slices.Contains(types, of.Code())
}

// invalidConstant returns Cassandra's error for a literal that is not assignable.
func (t *ColumnCondition) invalidConstant(literal rewrite.Term, kind datatype.DataType) *wire.Failure {
	name, _, _ := literalTypes(literal.Kind)
	text, err := rewrite.String(t.Source.Text, literal)
	if err != nil { // it is no string
		text = string(literal.Of(t.Source.Text))
	}
	cqlType := kind.AsCql()
	if kind.Code() == primitive.DataTypeCodeVarchar {
		cqlType = "text"
	}
	return wire.Invalid("Invalid %s constant (%s) for \"%s\" of type %s", name, text, t.Column, cqlType)
}
