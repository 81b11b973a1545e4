package frontend

import (
	"encoding/binary"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/datatype"

	"music/frontend/wire"
	"music/rewrite"
)

// constant is a value that stands in a statement, in wire form (v4 spec section 6); nil for null.
func (y *evaluation) constant(s *lockStatement, t rewrite.Term, kind datatype.DataType) ([]byte, *wire.Failure) {
	if t.Kind == rewrite.TermNull {
		return nil, nil
	}
	open, entries, ok := rewrite.Entries(s.text, t)
	w := writer{evaluation: y, section: s, entries: entries}
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

// notOf is the answer to a value that is none of its type.
func notOf(s *lockStatement, t rewrite.Term, kind datatype.DataType) *wire.Failure {
	return wire.Invalid("MUSIC_SYNTAX: %s is no %s: write %s, or bind it", shown(s.text, t), kind.AsCql(), written(kind.AsCql()))
}

// scalar is a literal of one token.
func scalar(s *lockStatement, t rewrite.Term, kind *datatype.PrimitiveType) ([]byte, *wire.Failure) {
	value, err := rewrite.Encode(kind.AsCql(), s.text, t)
	if err != nil {
		return nil, notOf(s, t, kind)
	}
	return value, nil
}

// writer writes the entries of a value in brackets.
type writer struct {
	*evaluation
	section *lockStatement
	entries []rewrite.Entry
}

// collection writes the entries of a list, a set or, with two kinds, a map.
func (w *writer) collection(whole datatype.DataType, kinds ...datatype.DataType) ([]byte, *wire.Failure) {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(w.entries)))
	for _, e := range w.entries {
		pair := e.Key.Kind != rewrite.NoTerm
		if pair != (len(kinds) > 1) || e.Field != (rewrite.Name{}) {
			return nil, notOf(w.section, e.Value, whole)
		}
		terms := []rewrite.Term{e.Key, e.Value}
		for i, kind := range kinds {
			value, f := w.constant(w.section, terms[2-len(kinds)+i], kind)
			switch {
			case f != nil:
				return nil, f
			case value == nil:
				return nil, wire.Invalid("null is not supported inside collections")
			}
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
		}
	}
	return settle(whole, b)
}

// fields writes a tuple field by field.
func (w *writer) fields(kinds []datatype.DataType, at func(int) rewrite.Term) (b []byte, f *wire.Failure) {
	for i, kind := range kinds {
		value, f := w.constant(w.section, at(i), kind)
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

// fieldsOf tells whether all entries are fields of a user-defined type.
func (w *writer) fieldsOf(kind *datatype.UserDefined) bool {
	return !slices.ContainsFunc(w.entries, func(e rewrite.Entry) bool {
		return e.Field == (rewrite.Name{}) || !slices.Contains(kind.FieldNames, w.section.name(e.Field))
	})
}

// field is the value of a field, null where it is not given.
func (w *writer) field(name string) rewrite.Term {
	for _, e := range w.entries {
		if w.section.name(e.Field) == name {
			return e.Value
		}
	}
	return rewrite.Term{Kind: rewrite.TermNull, Marker: -1}
}
