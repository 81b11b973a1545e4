package statement

import (
	"math"
	"slices"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// Key returns the key that the statement names: the same one in each statement of a batch.
func (s *Statement) Key() (musiccore.Key, *wire.Failure) {
	if s.Parsed.Verb != rewrite.Batch {
		return s.KeyOf(s.Parsed)
	}
	var first musiccore.Key
	for i := range s.Parsed.Children {
		if !s.onTable(i) {
			return first, wire.Invalid("MUSIC_REFUSED: a batch under a lock stays in one %s of one table, %s", s.Critical.Unit(), s.Table)
		}
		k, f := s.KeyOf(&s.Parsed.Children[i])
		if f != nil {
			return k, f
		}
		if i > 0 && k != first {
			return k, wire.Invalid("MUSIC_REFUSED: a batch under a lock stays in one %s of one table, %s: this one names two keys: send one batch for each", s.Critical.Unit(), s.Table)
		}
		first = k
	}
	return first, nil
}

// KeyOf returns the key that one statement names; it refuses what such a statement may not write.
func (s *Statement) KeyOf(st *rewrite.Statement) (musiccore.Key, *wire.Failure) {
	if f := s.checkStatic(st); f != nil {
		return musiccore.Key{}, f
	}
	var room [4][]byte // on the stack; more have memory of their own
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

// maxKey is the longest key that Cassandra takes, of a table and of its lock rows.
const maxKey = math.MaxUint16

// keyFrom returns the key of the columns' values.
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

// keyColumn returns the value that a statement gives a column of the key.
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

// Restriction returns the first one of a column, or nil.
func (s *Statement) Restriction(st *rewrite.Statement, column catalog.Column) *rewrite.Relation {
	if i := s.restrictionIndex(st.Where, column); i >= 0 {
		return &st.Where[i]
	}
	return nil
}

// restrictedTwice reports whether a column that is restricted is so more than once.
func (s *Statement) restrictedTwice(st *rewrite.Statement, column catalog.Column) bool {
	return s.restrictionIndex(st.Where[s.restrictionIndex(st.Where, column)+1:], column) >= 0
}

// restrictionIndex returns the first of some relations that is about a column, or -1.
func (s *Statement) restrictionIndex(where []rewrite.Relation, column catalog.Column) int {
	var name [64]byte // on the stack; a longer one has memory of its own
	for i := range where {
		if string(where[i].Column.AppendTo(name[:0], s.Text)) == column.Name {
			return i
		}
	}
	return -1
}

// keyValue returns the value of one term of the key. A literal means the same wherever it is read:
// Cassandra reads it again when it carries the statement out.
func (s *Statement) keyValue(t rewrite.Term, column catalog.Column) ([]byte, *wire.Failure) {
	if t.Kind == rewrite.TermMarker {
		return s.boundKey(t, column)
	}
	value, err := rewrite.Encode(column.Type, s.Text, t)
	switch {
	case err != nil:
		return nil, s.notConstant(t, column)
	case !s.fitsKey(column, value):
		return nil, wire.Invalid("MUSIC_KEY: %s is empty: Cassandra takes no such key: give it a value", column.Name)
	}
	return column.Canonical(value), nil
}

// notConstant returns the error for a term that does not mean the same whenever and wherever it is
// read, or is not of its column's type.
func (s *Statement) notConstant(t rewrite.Term, column catalog.Column) *wire.Failure {
	return wire.Invalid("MUSIC_KEY: %s is of type %s, and %s is no constant of it: write %s, or bind the value", column.Name, column.Type, rewrite.Excerpt(s.Text, t), rewrite.HowToWrite(column.Type))
}

// checkRow refuses a conditional write on a row that is not named by constants: the row is read and
// then written, and Cassandra reads its name each time.
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

// fitsKey reports whether a value may be that of a column of the key, as far as its length says: of
// a partition key, a column that stands alone is never empty, and one of several only where its
// type has an empty value.
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

// boundKey returns the value of a column of the key that is bound to a marker.
func (s *Statement) boundKey(t rewrite.Term, column catalog.Column) ([]byte, *wire.Failure) {
	value, ok := s.Bound(t)
	if !ok || !s.fitsKey(column, value) {
		return nil, wire.Invalid("MUSIC_KEY: the value bound to %s is null, unset or empty: a key needs one", column.Name)
	}
	if !rewrite.Fits(column.Type, value) {
		return nil, wire.Invalid("MUSIC_KEY: the %d bytes bound to %s are no %s", len(value), column.Name, column.Type)
	}
	return column.Canonical(value), nil
}

// checkStatic refuses to write a static column under a lock that covers a row: it is of all rows of
// the partition.
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
