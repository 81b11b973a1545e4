package condition

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
	"music/rewrite"
)

// comparisonOf returns Cassandra's comparison of the values of a type, or nil if the proxy does not
// compare it.
func comparisonOf(kind datatype.DataType) comparison {
	switch kind := kind.(type) {
	case *datatype.PrimitiveType:
		return scalarComparison(kind.Code())
	case *datatype.List:
		return sequence(1, comparisonOf(kind.ElementType))
	case *datatype.Set:
		return sequence(1, comparisonOf(kind.ElementType))
	case *datatype.Map:
		return sequence(2, comparisonOf(kind.KeyType), comparisonOf(kind.ValueType))
	case *datatype.Tuple:
		return tuple(kind.FieldTypes)
	case *datatype.UserDefined:
		return tuple(kind.FieldTypes)
	case *vector:
		return kind.compare
	}
	return nil
}

// currentType returns a type in the form of the protocol's latest version: an earlier version has
// the names of Cassandra's classes for types that came later (v3 spec section 4.2.5.2).
func currentType(kind datatype.DataType) datatype.DataType {
	switch kind := kind.(type) {
	case *datatype.Custom:
		return classType(kind)
	case *datatype.List:
		return datatype.NewList(currentType(kind.ElementType))
	case *datatype.Set:
		return datatype.NewSet(currentType(kind.ElementType))
	case *datatype.Map:
		return datatype.NewMap(currentType(kind.KeyType), currentType(kind.ValueType))
	case *datatype.Tuple:
		return &datatype.Tuple{FieldTypes: currentTypes(kind.FieldTypes)}
	case *datatype.UserDefined:
		return &datatype.UserDefined{Keyspace: kind.Keyspace, Name: kind.Name, FieldNames: kind.FieldNames, FieldTypes: currentTypes(kind.FieldTypes)}
	}
	return kind
}

// currentTypes returns the currentType of each.
func currentTypes(kinds []datatype.DataType) (all []datatype.DataType) {
	for _, kind := range kinds {
		all = append(all, currentType(kind))
	}
	return all
}

// classType returns the type that one of Cassandra's classes implements, or custom itself if there
// is none.
func classType(custom *datatype.Custom) datatype.DataType {
	switch strings.TrimPrefix(custom.ClassName, "org.apache.cassandra.db.marshal.") {
	case "ByteType":
		return datatype.Tinyint
	case "ShortType":
		return datatype.Smallint
	case "SimpleDateType":
		return datatype.Date
	case "TimeType":
		return datatype.Time
	case "DurationType":
		return datatype.Duration
	}
	if v, ok := vectorOf(custom); ok {
		return v
	}
	return custom
}

// sequence returns a comparison of collections element by element, for a map pair by pair. If one
// is the beginning of the other, the shorter comes first.
func sequence(width int, of ...comparison) comparison {
	if slices.ContainsFunc(of, func(c comparison) bool { return c == nil }) {
		return nil
	}
	return compareFilled(func(a, b []byte) int {
		left, _ := elementsOf(a, width)
		right, _ := elementsOf(b, width)
		for i := range min(len(left), len(right)) {
			if order := of[i%width](left[i], right[i]); order != 0 {
				return order
			}
		}
		return cmp.Compare(len(left), len(right))
	})
}

// tuple returns a comparison field by field. A field that is null, or missing at the end, comes
// first.
func tuple(kinds []datatype.DataType) comparison {
	var of []comparison
	for _, kind := range kinds {
		of = append(of, comparisonOf(kind))
	}
	if slices.ContainsFunc(of, func(c comparison) bool { return c == nil }) {
		return nil
	}
	return compareFilled(func(a, b []byte) int {
		left, right := fieldsOf(a), fieldsOf(b)
		for i, compare := range of {
			if order := nullFirst(compare)(fieldAt(left, i), fieldAt(right, i)); order != 0 {
				return order
			}
		}
		return 0
	})
}

// nullFirst returns a comparison that puts nulls before all values.
func nullFirst(compare comparison) comparison {
	return func(a, b []byte) int {
		switch {
		case a == nil && b == nil:
			return 0
		case a == nil:
			return -1
		case b == nil:
			return 1
		}
		return compare(a, b)
	}
}

// fieldAt returns field i, or nil if there are fewer fields.
func fieldAt(fields [][]byte, i int) []byte {
	if i < len(fields) {
		return fields[i]
	}
	return nil
}

// elementsOf returns the elements of a collection in wire form (v4 spec section 6). width is the
// number of elements per entry, 2 for a map. ok is false if the value is malformed.
func elementsOf(value []byte, width int) (elements [][]byte, ok bool) {
	cur := wire.Cursor{Body: value}
	if len(value) == 0 {
		return nil, true
	}
	n := cur.Int() * width
	elements = make([][]byte, 0, max(0, min(n, len(value)/4))) // each has its length before it
	for ; n > 0 && !cur.Bad; n-- {
		elements = append(elements, cur.Value())
	}
	return elements, !cur.Bad && cur.At == len(value)
}

// fieldsOf returns the fields of a tuple or user-defined value in wire form; those at the end may
// be missing.
func fieldsOf(value []byte) (fields [][]byte) {
	cur := wire.Cursor{Body: value}
	for cur.At < len(value) && !cur.Bad {
		fields = append(fields, cur.Value())
	}
	return fields
}

// empty reports whether a collection has no elements.
func empty(value []byte) bool {
	cur := wire.Cursor{Body: value}
	return len(value) == 0 || cur.Int() <= 0
}

// lookUp returns the value of a key in a map, or nil.
func lookUp(kind *datatype.Map, value, key []byte) []byte {
	pairs, _ := elementsOf(value, 2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if comparisonOf(kind.KeyType)(pairs[i], key) == 0 {
			return pairs[i+1]
		}
	}
	return nil
}

// ordered reports whether values of a type have an order in CQL: durations have none.
func ordered(kind datatype.DataType) bool {
	switch kind := kind.(type) {
	case *datatype.List:
		return ordered(kind.ElementType)
	case *datatype.Map:
		return ordered(kind.ValueType)
	case *datatype.Tuple:
		return !slices.ContainsFunc(kind.FieldTypes, func(k datatype.DataType) bool { return !ordered(k) })
	case *datatype.UserDefined:
		return !slices.ContainsFunc(kind.FieldTypes, func(k datatype.DataType) bool { return !ordered(k) })
	}
	return kind.Code() != primitive.DataTypeCodeDuration
}

// normalise returns a bound value as Cassandra stores it: the elements of a set sorted and each
// once, a map sorted by its keys. A value that is not of the type is refused.
func normalise(kind datatype.DataType, value []byte) ([]byte, *wire.Failure) {
	if !fits(kind, value) {
		return nil, wire.Invalid("MUSIC_SYNTAX: a value of %d bytes is not a %s: bind one", len(value), kind.AsCql())
	}
	width, key := 1, datatype.DataType(nil)
	switch kind := kind.(type) {
	case *datatype.Set:
		key = kind.ElementType
	case *datatype.Map:
		width, key = 2, kind.KeyType
	default:
		return value, nil
	}
	elements, _ := elementsOf(value, width)
	entries := slices.AppendSeq(make([][][]byte, 0, len(elements)/width), slices.Chunk(elements, width))
	compare := comparisonOf(key)
	slices.SortStableFunc(entries, func(a, b [][]byte) int { return compare(a[0], b[0]) })
	slices.Reverse(entries) // the last of equal ones is kept
	entries = slices.CompactFunc(entries, func(a, b [][]byte) bool { return compare(a[0], b[0]) == 0 })
	slices.Reverse(entries)
	normalised := binary.BigEndian.AppendUint32(make([]byte, 0, len(value)), uint32(len(entries)))
	for _, entry := range entries {
		for _, element := range entry {
			normalised = append(binary.BigEndian.AppendUint32(normalised, uint32(len(element))), element...)
		}
	}
	return normalised, nil
}

// fits reports whether a value has the form of a type.
func fits(kind datatype.DataType, value []byte) bool {
	switch kind := kind.(type) {
	case *datatype.PrimitiveType:
		return fitsScalar(kind.Code(), len(value)) && rewrite.Fits(kind.AsCql(), value)
	case *datatype.List:
		return fitElements(value, kind.ElementType)
	case *datatype.Set:
		return fitElements(value, kind.ElementType)
	case *datatype.Map:
		return fitElements(value, kind.KeyType, kind.ValueType)
	case *datatype.Tuple:
		return fitFields(value, kind.FieldTypes)
	case *datatype.UserDefined:
		return fitFields(value, kind.FieldTypes)
	case *vector:
		_, ok := kind.elements(value)
		return ok
	}
	return false
}

// fitElements reports whether the elements of a collection fit their types; none may be null.
func fitElements(value []byte, kinds ...datatype.DataType) bool {
	if len(value) == 0 {
		return true
	}
	cur := wire.Cursor{Body: value}
	n := cur.Int() * len(kinds)
	for i := 0; i < n && !cur.Bad; i++ {
		if element := cur.Value(); element == nil || !fits(kinds[i%len(kinds)], element) {
			return false
		}
	}
	return !cur.Bad && cur.At == len(value)
}

// fitFields reports whether the fields of a tuple fit their types; each may be null.
func fitFields(value []byte, kinds []datatype.DataType) bool {
	cur := wire.Cursor{Body: value}
	for i := 0; cur.At < len(value); i++ {
		field := cur.Value()
		if cur.Bad || i >= len(kinds) || field != nil && !fits(kinds[i], field) {
			return false
		}
	}
	return true
}

// kindOf returns the name of a collection in Cassandra's errors.
func kindOf(kind datatype.DataType) string {
	switch kind.(type) {
	case *datatype.List:
		return "LIST"
	case *datatype.Set:
		return "SET"
	}
	return "MAP"
}

// compareUUIDs compares by version, those of version 1 then by time, and last by bytes.
func compareUUIDs(a, b []byte) int {
	if order := cmp.Compare(a[6]>>4, b[6]>>4); order != 0 {
		return order
	}
	if a[6]>>4 == 1 {
		return cmp.Or(compareTimes(a, b), bytes.Compare(a[8:], b[8:]))
	}
	return bytes.Compare(a, b)
}

// compareTimeUUIDs compares by time, then by signed bytes.
func compareTimeUUIDs(a, b []byte) int {
	return cmp.Or(compareTimes(a, b), slices.CompareFunc(a[8:], b[8:], func(x, y byte) int { return cmp.Compare(int8(x), int8(y)) }))
}

// compareTimes compares the times of two time UUIDs, whose lowest part stands first (RFC 4122,
// 4.1.2).
func compareTimes(a, b []byte) int {
	return cmp.Or(cmp.Compare(a[6]&0x0f, b[6]&0x0f), cmp.Compare(a[7], b[7]), bytes.Compare(a[4:6], b[4:6]), bytes.Compare(a[:4], b[:4]))
}
