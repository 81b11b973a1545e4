package condition

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
	"music/rewrite"
)

// part returns what a condition compares: an element or a field of the column, or the column
// itself.
func (t *ColumnCondition) part(column operand) (operand, *wire.Failure) {
	switch {
	case t.Field != "":
		return column.field(t)
	case t.Element.Kind == rewrite.NoTerm:
		return column, nil
	}
	kind, f := column.elementKind(t)
	if f != nil {
		return column, f
	}
	element, f := t.Source.value(t.Element, kind)
	if f != nil {
		return column, f
	}
	return column.element(element)
}

// values returns the values that a condition compares with, each well-formed. kind is their type;
// nil if the proxy cannot evaluate the comparison.
func (t *ColumnCondition) values(kind datatype.DataType) (values [][]byte, f *wire.Failure) {
	if kind == nil {
		return nil, wire.Invalid("MUSIC_REFUSED: %s is critical: this condition on %s is not served under a lock: read USING LOCK, decide, write", t.Source.Table, t.Column)
	}
	if t.Listed {
		return t.Source.list(t.Values[0], kind)
	}
	for _, term := range t.Values {
		if t.Operator == "IN" && term.Kind == rewrite.TermMarker && wire.IsUnset(t.Source.Values, term.Marker) {
			continue // as Cassandra does
		}
		if !assignable(term.Kind, kind) && t.whole() {
			return nil, t.invalidConstant(term, kind)
		}
		value, f := t.Source.value(term, kind)
		if f != nil {
			return nil, f
		}
		values = append(values, value)
	}
	return values, nil
}

// whole reports whether a condition compares its column, not an element or a field of it.
func (t *ColumnCondition) whole() bool {
	return t.Element.Kind == rewrite.NoTerm && t.Field == "" && !strings.HasPrefix(t.Operator, "CONTAINS")
}

// operand is the left side of a comparison.
type operand struct {
	kind  datatype.DataType
	value []byte // nil for null
	cells bool   // a collection that is not frozen: null if it has no elements
}

// isCollection reports whether a type is a list, a set or a map.
func isCollection(kind datatype.DataType) bool {
	switch kind.(type) {
	case *datatype.List, *datatype.Set, *datatype.Map:
		return true
	}
	return false
}

// field returns a field of a user-defined type.
func (o operand) field(t *ColumnCondition) (operand, *wire.Failure) {
	kind, ok := o.kind.(*datatype.UserDefined)
	if !ok {
		return o, wire.Invalid("MUSIC_SYNTAX: the type of %s is not a user-defined type, so it has no field %s", t.Column, t.Field)
	}
	i := slices.Index(kind.FieldNames, t.Field)
	if i < 0 {
		return o, wire.Invalid("Unknown field %s for column %s", t.Field, t.Column)
	}
	field := operand{kind: kind.FieldTypes[i]}
	if fields := fieldsOf(o.value); i < len(fields) {
		field.value = fields[i]
	}
	return field, nil
}

// elementKind returns the type of the key or index that names an element.
func (o operand) elementKind(t *ColumnCondition) (datatype.DataType, *wire.Failure) {
	switch kind := o.kind.(type) {
	case *datatype.Map:
		return kind.KeyType, nil
	case *datatype.List:
		return datatype.Int, nil
	case *datatype.Set:
		return nil, wire.Invalid("Invalid element access syntax for set column %s", t.Column)
	}
	return nil, wire.Invalid("Invalid element access syntax for non-collection column %s", t.Column)
}

// element returns the element at a key or an index.
func (o operand) element(at []byte) (operand, *wire.Failure) {
	if m, ok := o.kind.(*datatype.Map); ok {
		if at == nil {
			return o, wire.Invalid("Invalid null value for map element access")
		}
		return operand{kind: m.ValueType, value: lookUp(m, o.value, at)}, nil
	}
	element := operand{kind: o.kind.(*datatype.List).ElementType}
	switch {
	case len(at) != 4:
		return o, wire.Invalid("Invalid null value for list element access")
	case int32(binary.BigEndian.Uint32(at)) < 0:
		return o, wire.Invalid("Invalid negative list index %d", int32(binary.BigEndian.Uint32(at)))
	}
	elements, _ := elementsOf(o.value, 1)
	if i := int(binary.BigEndian.Uint32(at)); i < len(elements) {
		element.value = elements[i]
	}
	return element, nil
}

// compared returns the type of the right side of a comparison by an operator; nil if the proxy
// cannot evaluate it.
func (o operand) compared(operator string) datatype.DataType {
	kind := o.kind
	switch list, isList := kind.(*datatype.List); {
	case !strings.HasPrefix(operator, "CONTAINS"):
	case isList && operator == "CONTAINS":
		kind = list.ElementType
	default:
		kind = containedIn(kind, operator)
	}
	if kind == nil || comparisonOf(kind) == nil || !ordered(kind) && strings.ContainsAny(operator, "<>") {
		return nil
	}
	return kind
}

// containedIn returns the type of a set's elements, or of a map's values or keys, by the operator.
func containedIn(kind datatype.DataType, operator string) datatype.DataType {
	switch kind := kind.(type) {
	case *datatype.Set:
		if operator == "CONTAINS" {
			return kind.ElementType
		}
	case *datatype.Map:
		if operator == "CONTAINS" {
			return kind.ValueType
		}
		return kind.KeyType
	}
	return nil
}

// holds reports whether the comparison with other holds, as Cassandra evaluates it: null equals
// only null, and has no order. A collection that is not frozen is null if it is empty.
func (o operand) holds(operator string, other []byte) (bool, *wire.Failure) {
	contains := strings.HasPrefix(operator, "CONTAINS")
	if o.cells && !contains && other != nil && empty(other) {
		if operator != "=" && operator != "!=" {
			return false, wire.Invalid("Invalid comparison with an empty %s for operator \"%s\"", kindOf(o.kind), operator)
		}
		other = nil
	}
	switch {
	case other == nil && operator == "=":
		return o.value == nil, nil
	case other == nil && operator == "!=":
		return o.value != nil, nil
	case other == nil:
		return false, wire.Invalid("Invalid comparison with null for operator \"%s\"", operator)
	case o.value == nil:
		return operator == "!=", nil
	case contains:
		return o.contains(operator, other), nil
	}
	return satisfies(operator, comparisonOf(o.kind)(o.value, other)), nil
}

// cost returns about how many bytes a comparison with other looks through beyond what other has. Decimals of
// different scales are multiplied for that, which takes longer than to look through them.
func (o operand) cost(other []byte) int {
	n := len(o.value) + len(other)
	_, scalar := o.kind.(*datatype.PrimitiveType)
	switch code := o.kind.Code(); {
	case code == primitive.DataTypeCodeDecimal && len(o.value) >= 4 && len(other) >= 4 && !bytes.Equal(o.value[:4], other[:4]):
		const asFast = 1024
		return max(n, n*n/asFast)
	case scalar && code != primitive.DataTypeCodeDecimal && code != primitive.DataTypeCodeVarint:
		return 0
	}
	return n
}

// contains reports whether a collection has an element, or a key.
func (o operand) contains(operator string, other []byte) bool {
	kind := o.compared(operator)
	elements, _ := elementsOf(o.value, 1)
	if _, ok := o.kind.(*datatype.Map); ok {
		pairs, _ := elementsOf(o.value, 2)
		elements = nil
		for i, element := range pairs {
			if (i%2 == 0) == (operator == "CONTAINS KEY") {
				elements = append(elements, element)
			}
		}
	}
	return slices.ContainsFunc(elements, func(element []byte) bool { return comparisonOf(kind)(element, other) == 0 })
}

// satisfies reports whether an operator holds for two values whose comparison gave order.
func satisfies(operator string, order int) bool {
	switch operator {
	case "=":
		return order == 0
	case "!=":
		return order != 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}
