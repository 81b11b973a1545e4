package statement

import (
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// KeyMarkers returns the bind markers of the key's columns, in their order, if the statement is
// simple: a read or write of one key that it gives by = and bind markers, and that is carried out
// by its own text, without a lock clause. Otherwise it returns nil. The result depends on the statement
// and on the state of its table, but not on the values.
func (s *Statement) KeyMarkers() (markers []int) {
	st := s.Parsed
	one := s.IsWrite() || st.Verb == rewrite.Select && st.Lock.Kind != rewrite.NoTerm
	if !one || st.ForUpdate || st.Conditional || st.JSON || s.Timed() || s.Fixed || computes(st) || s.KeysByIn() || s.checkStatic(st) != nil {
		return nil
	}
	for _, column := range s.Critical.Key {
		r := s.Restriction(st, column)
		if r == nil || r.Op != rewrite.OpEq || r.Value.Kind != rewrite.TermMarker || s.restrictedTwice(st, column) {
			return nil
		}
		markers = append(markers, r.Value.Marker)
	}
	return markers
}

// KeyAt is Key for a statement whose KeyMarkers are these.
func (s *Statement) KeyAt(markers []int) (musiccore.Key, *wire.Failure) {
	var room [4][]byte // on the stack; a longer key is allocated
	parts := room[:0]
	for i, marker := range markers {
		value, f := s.boundKey(marker, &s.Critical.Key[i])
		if f != nil {
			return musiccore.Key{}, f
		}
		parts = append(parts, value)
	}
	return s.keyFrom(parts)
}
