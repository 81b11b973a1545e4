package condition

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/datatype"

	"music/frontend/wire"
	"music/rewrite"
)

// Source is a statement's text with the values bound to its markers, from which the terms of
// conditions are evaluated. It must not lie in a read buffer: conditions are evaluated later, when
// Cassandra has answered.
type Source struct {
	Text   []byte
	Values [][]byte // each with its length before it, as on the wire
	Table  string   // the name of the statement's table, for errors
}

// name returns a name as Cassandra knows it.
func (s *Source) name(n rewrite.Name) string { return string(n.AppendTo(nil, s.Text)) }

// value returns a term's value as a value of a type, nil for null.
func (s *Source) value(t rewrite.Term, kind datatype.DataType) ([]byte, *wire.Failure) {
	switch t.Kind {
	case rewrite.TermNull:
		return nil, nil
	case rewrite.TermMarker:
		value, ok := wire.Bound(s.Values, t.Marker)
		if !ok && wire.IsUnset(s.Values, t.Marker) {
			return nil, wire.Invalid("Invalid 'unset' value in condition")
		}
		if !ok {
			return nil, nil
		}
		return normalise(kind, value)
	}
	return s.constant(t, kind)
}

// list returns the values of the list that is bound to IN ? (v4 spec section 6).
func (s *Source) list(t rewrite.Term, kind datatype.DataType) (values [][]byte, f *wire.Failure) {
	raw, ok := wire.Bound(s.Values, t.Marker)
	switch {
	case !ok && wire.IsUnset(s.Values, t.Marker):
		return nil, wire.Invalid("Invalid 'unset' value in condition")
	case !ok:
		return nil, wire.Invalid("Invalid null list in IN condition")
	}
	elements, ok := elementsOf(raw, 1)
	if !ok {
		return nil, wire.Invalid("MUSIC_SYNTAX: the value bound to IN ? must be a list")
	}
	for _, element := range elements {
		if element != nil {
			if element, f = normalise(kind, element); f != nil {
				return nil, f
			}
		}
		values = append(values, element)
	}
	return values, nil
}

// constant returns the value of a literal in a statement, in wire form (v4 spec section 6); nil for
// null.
func (s *Source) constant(t rewrite.Term, kind datatype.DataType) ([]byte, *wire.Failure) {
	if t.Kind == rewrite.TermNull {
		return nil, nil
	}
	open, entries, ok := rewrite.Entries(s.Text, t)
	w := writer{Source: s, entries: entries}
	switch kind := kind.(type) {
	case *datatype.PrimitiveType:
		return scalar(s, t, kind)
	case *datatype.List:
		if ok && open == '[' {
			return w.collection(kind, kind.ElementType)
		}
	case *datatype.Set:
		if ok && open == '{' {
			return w.collection(kind, kind.ElementType)
		}
	case *datatype.Map:
		if ok && open == '{' {
			return w.collection(kind, kind.KeyType, kind.ValueType)
		}
	case *vector:
		if ok && open == '[' && len(entries) == kind.length {
			return w.vector(kind)
		}
	case *datatype.Tuple:
		if ok && open == '(' && len(entries) <= len(kind.FieldTypes) {
			return w.fields(kind.FieldTypes[:len(entries)], func(i int) rewrite.Term { return entries[i].Value })
		}
	case *datatype.UserDefined:
		if ok && open == '{' && w.fieldsOf(kind) {
			return w.fields(kind.FieldTypes, func(i int) rewrite.Term { return w.field(kind.FieldNames[i]) })
		}
	}
	return nil, notOf(s, t, kind)
}

// notOf returns the error for a literal that is not of its column's type.
func notOf(s *Source, t rewrite.Term, kind datatype.DataType) *wire.Failure {
	return wire.Invalid("MUSIC_SYNTAX: %s is not a %s: write %s, or bind it", rewrite.Excerpt(s.Text, t), kind.AsCql(), rewrite.HowToWrite(kind.AsCql()))
}

// scalar returns the value of a literal that is neither a collection nor a tuple.
func scalar(s *Source, t rewrite.Term, kind *datatype.PrimitiveType) ([]byte, *wire.Failure) {
	value, err := rewrite.Encode(kind.AsCql(), s.Text, t)
	if err != nil {
		return nil, notOf(s, t, kind)
	}
	return value, nil
}

// writer encodes the entries of a literal in brackets.
type writer struct {
	*Source
	entries []rewrite.Entry
}

// collection encodes the entries of a list, a set or, with two kinds, a map.
func (w *writer) collection(whole datatype.DataType, kinds ...datatype.DataType) ([]byte, *wire.Failure) {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(w.entries)))
	for _, e := range w.entries {
		pair := e.Key.Kind != rewrite.NoTerm
		if pair != (len(kinds) > 1) || e.Field != (rewrite.Name{}) {
			return nil, notOf(w.Source, e.Value, whole)
		}
		terms := []rewrite.Term{e.Key, e.Value}
		for i, kind := range kinds {
			term := terms[2-len(kinds)+i]
			value, f := w.constant(term, kind)
			switch {
			case term.Kind == rewrite.TermMarker:
				return nil, wire.Invalid("Invalid %s literal: bind variables are not supported inside collection literals", strings.ToLower(kindOf(whole)))
			case f != nil:
				return nil, f
			case value == nil:
				return nil, wire.Invalid("null is not supported inside collections")
			}
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
		}
	}
	return normalise(whole, b)
}

// fields encodes a tuple field by field.
func (w *writer) fields(kinds []datatype.DataType, at func(int) rewrite.Term) (b []byte, f *wire.Failure) {
	for i, kind := range kinds {
		value, f := w.value(at(i), kind)
		switch {
		case f != nil:
			return nil, f
		case value == nil:
			b = append(b, 0xff, 0xff, 0xff, 0xff)
		default:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
		}
	}
	return b, nil
}

// fieldsOf reports whether all entries are fields of a user-defined type.
func (w *writer) fieldsOf(kind *datatype.UserDefined) bool {
	return !slices.ContainsFunc(w.entries, func(e rewrite.Entry) bool {
		return e.Field == (rewrite.Name{}) || !slices.Contains(kind.FieldNames, w.name(e.Field))
	})
}

// field returns the value of a field, null if it is not given.
func (w *writer) field(name string) rewrite.Term {
	for _, e := range w.entries {
		if w.name(e.Field) == name {
			return e.Value
		}
	}
	return rewrite.Term{Kind: rewrite.TermNull, Marker: -1}
}
