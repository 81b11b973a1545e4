package statement

import (
	"encoding/binary"
	"slices"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// KeysByIn reports whether the statement is a write, or a batch with a write, that names its keys
// by IN.
func (s *Statement) KeysByIn() bool {
	in := func(r rewrite.Relation) bool { return r.Op == rewrite.OpIn }
	some := s.IsBatchOrWrite() && s.has(func(st *rewrite.Statement) bool { return slices.ContainsFunc(st.Where, in) })
	return some && slices.ContainsFunc(s.Parts(), func(part Statement) bool { return len(part.keysIn()) > 0 })
}

// keysIn returns the key columns that a write restricts by IN; for a write with IF, the columns of
// the primary key.
func (s *Statement) keysIn() (all []catalog.Column) {
	columns := s.Critical.Key
	if s.Parsed.Conditional && !s.Critical.Row {
		columns = append(slices.Clip(columns), s.Critical.ClusteringColumns()...)
	}
	for _, column := range columns {
		if r := s.Restriction(s.Parsed, column); r != nil && r.Op == rewrite.OpIn {
			all = append(all, column)
		}
	}
	return all
}

// Each returns one statement for each key that a write names by IN, with = instead of IN; none if
// the list is empty. A batch is returned as one statement, and each statement in it must name one
// key.
func (s *Statement) Each() ([]Statement, *wire.Failure) {
	if s.Parsed.Verb != rewrite.Batch {
		return s.each()
	}
	var edits []edit
	for _, part := range s.Parts() {
		choices, f := part.choices()
		switch {
		case f != nil:
			return nil, f
		case len(choices) != 1:
			return nil, s.severalKeys(len(choices))
		}
		edits = append(edits, choices[0]...)
	}
	one, f := s.anew(edits)
	if f == nil {
		f = one.CheckUnderLock()
	}
	return []Statement{one}, f
}

// each is Each of one write.
func (s *Statement) each() (all []Statement, f *wire.Failure) {
	choices, f := s.choices()
	seen := map[musiccore.Key]bool{}
	for _, edits := range choices {
		one, f := s.anew(edits)
		if f != nil {
			return nil, f
		}
		k, f := one.Key()
		if f != nil {
			return nil, f
		}
		if !seen[k] || s.Parsed.Conditional {
			seen[k] = true
			all = append(all, one)
		}
	}
	switch {
	case f != nil:
		return nil, f
	case s.Parsed.Conditional && len(all) != 1:
		return nil, s.inWithIf()
	case !s.PlainWrite() && len(all) != 1:
		return nil, s.severalKeys(len(all))
	case len(all) == 0:
		return nil, nil
	}
	return all, all[0].CheckUnderLock() // they differ in the key only
}

// severalKeys returns the error for a statement under a lock that names n keys.
func (s *Statement) severalKeys(n int) *wire.Failure {
	return wire.Invalid("MUSIC_KEY: the statement names %d keys by IN, and one lock covers one %s of %s: send one statement for each", n, s.Critical.Unit(), s.Table)
}

// inWithIf returns Cassandra's error for a write with IF of several keys.
func (s *Statement) inWithIf() *wire.Failure {
	for _, column := range s.Critical.PartitionKey() {
		r := s.Restriction(s.Parsed, column)
		if r == nil || r.Op != rewrite.OpIn {
			continue
		}
		if values, f := s.valuesIn(column, r); f == nil && len(values) != 1 {
			return wire.Invalid("IN on the partition key is not supported with conditional %s", s.writeKind())
		}
	}
	return wire.Invalid("IN on the clustering key columns is not supported with conditional %s", s.writeKind())
}

// choices returns, for each key that a write names by IN, the edits that restrict it to that key.
func (s *Statement) choices() ([][]edit, *wire.Failure) {
	all := [][]edit{nil}
	for _, column := range s.keysIn() {
		values, f := s.valuesIn(column, s.Restriction(s.Parsed, column))
		if f != nil {
			return nil, f
		}
		if len(all)*len(values) > MaxKeys {
			return nil, wire.Invalid("MUSIC_REFUSED: one statement writes %d keys of %s at most: send several", MaxKeys, s.Table)
		}
		all = eachWith(all, values)
	}
	return all, nil
}

// valuesIn returns, for each value that IN lists, the edit that replaces IN by = and the value.
func (s *Statement) valuesIn(column catalog.Column, r *rewrite.Relation) (all []edit, f *wire.Failure) {
	if r.Value.Kind == rewrite.TermMarker {
		values, f := s.listOf(r.Value, column)
		for _, value := range values {
			all = append(all, edit{rewrite.Edit{Span: r.Behind, Text: "= ? "}, [][]byte{wire.Value(value)}})
		}
		return all, f
	}
	for _, t := range r.Values {
		e := replace(r.Behind, "= "+string(t.Of(s.Text))+" ")
		if t.Kind == rewrite.TermMarker {
			e.values = s.Values[t.Marker : t.Marker+1]
		}
		all = append(all, e)
	}
	return all, nil
}

// listOf returns the values of the list that is bound to IN ?. The list may be empty.
func (s *Statement) listOf(t rewrite.Term, column catalog.Column) ([][]byte, *wire.Failure) {
	if raw, ok := s.Bound(t); ok && len(raw) == 4 && binary.BigEndian.Uint32(raw) == 0 {
		return nil, nil
	}
	return s.boundList(t, column)
}
