package statement

import (
	"bytes"
	"encoding/binary"
	"slices"

	"music/frontend/catalog"
	"music/frontend/wire"
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
	one, f := s.rewritten(s.edited(edits))
	if f == nil {
		f = one.CheckUnderLock()
	}
	return []Statement{one}, f
}

// MaxSplit is how many bytes the statements that are made of writes with IN may have together, text
// and values. Each of them is a whole statement again, so without a bound a message of a client
// would grow by the number of its keys. Cassandra takes much smaller batches by default.
const MaxSplit = 1 << 20

// TooMuchSplit returns the error for a write, or a batch, beyond MaxSplit.
func TooMuchSplit() *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: with one statement for each key that IN names, the write has more than %d bytes, the most that the proxy makes of one: name fewer keys at a time", MaxSplit)
}

// each is Each of one write. The statements share the values that they have in common. How many
// keys there are is looked at first: nothing is made for a write that is refused for that.
func (s *Statement) each() (all []Statement, f *wire.Failure) {
	choices, f := s.choices()
	switch {
	case f != nil:
		return nil, f
	case s.Parsed.Conditional && len(choices) != 1:
		return nil, s.inWithIf()
	case !s.PlainWrite() && len(choices) != 1:
		return nil, s.severalKeys(len(choices))
	case len(choices) == 0:
		return nil, nil
	}
	size := 0
	for i, edits := range choices {
		q := s.shared(edits)
		if size += q.size(); size > MaxSplit && len(choices) > 1 {
			return nil, TooMuchSplit()
		}
		if i > 0 && bytes.Equal(q.Text, all[i-1].Text) { // only bound values differ
			all = append(all, all[i-1])
			all[i].Values = q.Values
			continue
		}
		one, f := s.rewritten(q)
		if f != nil {
			return nil, f
		}
		all = append(all, one)
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
			return nil, s.tooManyKeys()
		}
		all = eachWith(all, values)
	}
	return all, nil
}

// tooManyKeys returns the error for a write that names more keys than MaxKeys.
func (s *Statement) tooManyKeys() *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: one statement writes %d keys of %s at most: send several", MaxKeys, s.Table)
}

// valuesIn returns, for each value that IN lists, the edit that replaces IN by = and the value. A
// value that is listed twice is one key, except that Cassandra counts both of a write with IF. A bound
// list of more than MaxKeys values, which is not read to its end, is refused whatever they are.
func (s *Statement) valuesIn(column catalog.Column, r *rewrite.Relation) (all []edit, f *wire.Failure) {
	seen := map[string]bool{}
	add := func(e edit, value []byte) {
		if !seen[string(value)] || s.Parsed.Conditional {
			seen[string(value)] = true
			all = append(all, e)
		}
	}
	if r.Value.Kind == rewrite.TermMarker {
		values, f := s.listOf(r.Value, column)
		if len(values) > MaxKeys && !s.Parsed.Conditional {
			return nil, s.tooManyKeys()
		}
		for _, value := range values {
			add(edit{rewrite.Edit{Span: r.Behind, Text: "= ? "}, [][]byte{wire.Value(value)}}, value)
		}
		return all, f
	}
	for _, t := range r.Values {
		e, value := replace(r.Behind, "= "+string(t.Of(s.Text))+" "), []byte(nil)
		if t.Kind == rewrite.TermMarker {
			e.values = s.Values[t.Marker : t.Marker+1]
		}
		if !s.Parsed.Conditional {
			if value, f = s.keyValue(t, column); f != nil {
				return nil, f
			}
		}
		if add(e, value); len(all) > MaxKeys {
			break
		}
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
