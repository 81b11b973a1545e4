package statement

import (
	"math"
	"slices"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// Key returns the key that the statement names. All statements of a batch must name the same key.
func (s *Statement) Key() (musiccore.Key, *wire.Failure) {
	if s.Parsed.Verb != rewrite.Batch {
		return s.KeyOf(s.Parsed)
	}
	var first musiccore.Key
	for i := range s.Parsed.Children {
		if !s.onTable(i) {
			return first, wire.Invalid("MUSIC_REFUSED: a batch under a lock must stay within one %s of one table, %s: send one batch for each", s.Critical.Unit(), s.Table)
		}
		k, f := s.KeyOf(&s.Parsed.Children[i])
		if f != nil {
			return k, f
		}
		if i > 0 && k != first {
			return k, wire.Invalid("MUSIC_REFUSED: a batch under a lock must stay within one %s of one table, %s: this one names two keys: send one batch for each", s.Critical.Unit(), s.Table)
		}
		first = k
	}
	return first, nil
}

// KeyOf returns the key that one statement names. It refuses a statement that writes a static
// column of a table whose locks cover rows.
func (s *Statement) KeyOf(st *rewrite.Statement) (musiccore.Key, *wire.Failure) {
	if f := s.checkStatic(st); f != nil {
		return musiccore.Key{}, f
	}
	var room [4][]byte // on the stack; a longer key is allocated
	parts := room[:0]
	for _, column := range s.Critical.Key {
		value, f := s.keyColumn(st, column)
		if f != nil {
			return musiccore.Key{}, f
		}
		parts = append(parts, value)
	}
	return s.keyFrom(parts)
}

// maxKey is the length in bytes of the longest key that Cassandra takes.
const maxKey = math.MaxUint16

// keyFrom returns the key made of the values of its columns.
func (s *Statement) keyFrom(parts [][]byte) (k musiccore.Key, f *wire.Failure) {
	longest := 0
	for _, part := range parts {
		longest = max(longest, len(part))
	}
	k = musiccore.Key{Table: s.Critical.ID, PK: string(rewrite.RoutingKey(parts))}
	if longest = max(longest, len(k.PK)); longest > maxKey {
		return k, wire.Invalid("MUSIC_KEY: the key has %d bytes: Cassandra takes %d at most", longest, maxKey)
	}
	return k, nil
}

// keyColumn returns the value that a statement gives a key column.
func (s *Statement) keyColumn(st *rewrite.Statement, column catalog.Column) ([]byte, *wire.Failure) {
	r := s.Restriction(st, column)
	switch {
	case r == nil || r.Op != rewrite.OpEq:
		return nil, s.missingColumn(column)
	case s.restrictedTwice(st, column):
		return nil, wire.Invalid("MUSIC_KEY: %s stands twice: name it once", column.Name)
	}
	return s.keyValue(r.Value, column)
}

// missingColumn returns the error for a statement that does not give a column of the key.
func (s *Statement) missingColumn(column catalog.Column) *wire.Failure {
	return wire.Invalid("MUSIC_KEY: the statement must give %s = <value>: one lock covers one %s of %s", column.Name, s.Critical.Unit(), s.Table)
}

// Restriction returns the first relation of st's WHERE on a column, or nil.
func (s *Statement) Restriction(st *rewrite.Statement, column catalog.Column) *rewrite.Relation {
	if i := s.restrictionIndex(st.Where, column); i >= 0 {
		return &st.Where[i]
	}
	return nil
}

// restrictedTwice reports whether a column is restricted more than once.
func (s *Statement) restrictedTwice(st *rewrite.Statement, column catalog.Column) bool {
	return s.restrictionIndex(st.Where[s.restrictionIndex(st.Where, column)+1:], column) >= 0
}

// restrictionIndex returns the index of the first relation on a column, or -1.
func (s *Statement) restrictionIndex(where []rewrite.Relation, column catalog.Column) int {
	var name [64]byte // on the stack; a longer name is allocated
	for i := range where {
		if string(where[i].Column.AppendTo(name[:0], s.Text)) == column.Name {
			return i
		}
	}
	return -1
}

// keyValue returns the value of a key column's term. A term that Cassandra could evaluate to
// another value when it carries the statement out is refused.
func (s *Statement) keyValue(t rewrite.Term, column catalog.Column) ([]byte, *wire.Failure) {
	if t.Kind == rewrite.TermMarker {
		return s.boundKey(t.Marker, &column)
	}
	value, err := rewrite.Encode(column.Type, s.Text, t)
	switch {
	case err != nil:
		return nil, s.notConstant(t, column)
	case !s.fitsKey(column, value):
		return nil, wire.Invalid("MUSIC_KEY: %s is empty, which Cassandra does not allow in this key: give it a value", column.Name)
	}
	return s.canonical(value, column)
}

// canonical returns a value in the form that it has in a key or in the name of a row. It refuses
// types of which it is not known which values are equal: such a column cannot be part of a key, but
// a row may have one.
func (s *Statement) canonical(value []byte, column catalog.Column) ([]byte, *wire.Failure) {
	canonical, ok := column.Canonical(value)
	if !ok {
		return nil, wire.Invalid("MUSIC_REFUSED: %s is critical: in a batch with IF the proxy cannot tell rows apart by %s, of type %s: send one statement for each row", s.Table, column.Name, column.Type)
	}
	return canonical, nil
}

// notConstant returns the error for a term that is not a constant of its column's type.
func (s *Statement) notConstant(t rewrite.Term, column catalog.Column) *wire.Failure {
	return wire.Invalid("MUSIC_KEY: %s is of type %s, and %s is not a constant of that type: write %s, or bind the value", column.Name, column.Type, rewrite.Excerpt(s.Text, t), rewrite.HowToWrite(column.Type))
}

// checkRow refuses a conditional write whose row is not named by constants. The row is read and
// then written, and Cassandra would evaluate its name each time.
func (s *Statement) checkRow() *wire.Failure {
	for _, column := range s.Critical.ClusteringColumns() {
		r := s.Restriction(s.Parsed, column)
		if r == nil || r.Op != rewrite.OpEq || r.Value.Kind == rewrite.TermMarker {
			continue
		}
		if _, err := rewrite.Encode(column.Type, s.Text, r.Value); err != nil {
			return s.notConstant(r.Value, column)
		}
	}
	return nil
}

// fitsKey reports whether a value of this length is possible for a key column. Within the partition
// key a value may be empty only if there are several columns and the type has an empty value.
func (s *Statement) fitsKey(column catalog.Column, value []byte) bool {
	if len(value) > 0 || column.Clustering {
		return true
	}
	switch column.Type {
	case "text", "varchar", "ascii", "blob":
		return value != nil && len(s.Critical.PartitionKey()) > 1
	}
	return false
}

// boundKey returns the value that is bound to a key column's marker.
func (s *Statement) boundKey(marker int, column *catalog.Column) ([]byte, *wire.Failure) {
	value, ok := wire.Bound(s.Values, marker)
	if !ok || !s.fitsKey(*column, value) {
		return nil, wire.Invalid("MUSIC_KEY: the value bound to %s is null, unset or empty: a key needs a value", column.Name)
	}
	if !rewrite.Fits(column.Type, value) {
		return nil, wire.Invalid("MUSIC_KEY: the %d bytes bound to %s are not a valid %s: bind one", len(value), column.Name, column.Type)
	}
	return s.canonical(value, *column)
}

// checkStatic refuses to write a static column under a lock that covers one row, since the column
// belongs to all rows of the partition.
func (s *Statement) checkStatic(st *rewrite.Statement) *wire.Failure {
	if !s.Critical.Row {
		return nil
	}
	one := *s
	one.Parsed = st
	for _, column := range one.written() {
		if name := s.name(column); slices.Contains(s.Critical.Static, name) {
			return wire.Invalid("MUSIC_REFUSED: %s is static, and one lock covers one row of %s: move it to a table of its own, or lock partitions (without key=row)", name, s.Table)
		}
	}
	return nil
}
