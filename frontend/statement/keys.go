package statement

import (
	"bytes"
	"slices"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// MaxKeys is how many keys one LOCK … IN, or one batch, may name. They are locked within
// the wait of one LOCK.
const MaxKeys = 1000

// MaxKeyBytes is how many bytes the keys of one LOCK … IN may have together. Where IN stands at several
// columns, each of the keys has their values again.
const MaxKeyBytes = 4 << 20

// NamedKey is a key that a statement names, with the value of each of its columns.
type NamedKey struct {
	Key   musiccore.Key
	Parts [][]byte
}

// Keys returns the keys that the statement names, each once, in the order of its text. The values
// are in memory of their own.
func (s *Statement) Keys() ([]NamedKey, *wire.Failure) {
	all := [][][]byte{nil}
	for _, column := range s.Critical.Key {
		values, f := s.columnValues(column)
		if f != nil {
			return nil, f
		}
		if len(all)*len(values) > MaxKeys {
			return nil, wire.Invalid("MUSIC_REFUSED: one LOCK can name at most %d keys of %s: lock the others with another LOCK, in the same order everywhere", MaxKeys, s.Table)
		}
		for i := range values {
			values[i] = bytes.Clone(values[i])
		}
		all = eachWith(all, values)
	}
	size := 0
	var found []NamedKey
	seen := map[musiccore.Key]bool{}
	for _, parts := range all {
		key, f := s.keyFrom(parts)
		if f != nil {
			return nil, f
		}
		if size += len(key.PK); size > MaxKeyBytes {
			return nil, wire.Invalid("MUSIC_REFUSED: the keys of one LOCK can have at most %d bytes together: lock the others with another LOCK, in the same order everywhere", MaxKeyBytes)
		}
		if !seen[key] {
			seen[key] = true
			found = append(found, NamedKey{Key: key, Parts: parts})
		}
	}
	return found, nil
}

// eachWith returns every combination of a row of all with one of the elements appended.
func eachWith[E any](all [][]E, elements []E) [][]E {
	longer := make([][]E, 0, len(all)*len(elements))
	for _, row := range all {
		for _, e := range elements {
			longer = append(longer, append(slices.Clip(row), e))
		}
	}
	return longer
}

// columnValues returns the values that the statement gives a key column; at least one.
func (s *Statement) columnValues(column catalog.Column) ([][]byte, *wire.Failure) {
	r := s.Restriction(s.Parsed, column)
	switch {
	case r == nil || r.Op != rewrite.OpIn:
		value, f := s.keyColumn(s.Parsed, column)
		return [][]byte{value}, f
	case r.Value.Kind == rewrite.TermMarker:
		return s.boundList(r.Value, column)
	}
	var values [][]byte
	for _, t := range r.Values {
		value, f := s.keyValue(t, column)
		if f != nil {
			return nil, f
		}
		values = append(values, value)
	}
	if len(values) == 0 {
		return nil, wire.Invalid("MUSIC_KEY: %s IN () names no key: give one or more", column.Name)
	}
	return values, nil
}

// boundList returns the values of a list that is bound to IN ? (v4 spec section 6: the number of
// values, then each with its length before it). It reads at most one value more than keys may be
// named: the callers refuse a list of so many.
func (s *Statement) boundList(t rewrite.Term, column catalog.Column) ([][]byte, *wire.Failure) {
	raw, ok := s.Bound(t)
	cur := wire.Cursor{Body: raw}
	var values [][]byte
	for n := cur.Int(); n > 0 && ok; n-- {
		value := cur.Value()
		canonical, known := column.Canonical(value)
		ok = value != nil && s.fitsKey(column, value) && !cur.Bad && rewrite.Fits(column.Type, value) && known
		if values = append(values, canonical); ok && len(values) > MaxKeys {
			return values, nil
		}
	}
	if !ok || len(values) == 0 || cur.At != len(raw) {
		return nil, wire.Invalid("MUSIC_KEY: the value bound to %s IN ? must be a list of keys of its type, none of them null or empty", column.Name)
	}
	return values, nil
}
