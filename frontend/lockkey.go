package frontend

import (
	"encoding/binary"
	"math"
	"slices"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// key returns the key that the statement names: the same one in each statement of a batch.
func (s *lockStatement) key() (musiccore.Key, *wire.Failure) {
	if s.statement.Verb != rewrite.Batch {
		return s.keyOf(s.statement)
	}
	var first musiccore.Key
	for i := range s.statement.Children {
		child := &s.statement.Children[i]
		if !s.sameTable(child) {
			return first, wire.Invalid("MUSIC_REFUSED: a batch under a lock stays in one %s of one table, %s", s.critical.Unit(), s.table)
		}
		k, f := s.keyOf(child)
		if f != nil {
			return k, f
		}
		if i > 0 && k != first {
			return k, wire.Invalid("MUSIC_REFUSED: a batch under a lock stays in one %s of one table, %s: this one names two keys: send one batch for each", s.critical.Unit(), s.table)
		}
		first = k
	}
	return first, nil
}

// keyOf returns the key that one statement names; it refuses what such a statement may not write.
func (s *lockStatement) keyOf(st *rewrite.Statement) (musiccore.Key, *wire.Failure) {
	if f := s.checkStatic(st); f != nil {
		return musiccore.Key{}, f
	}
	var room [4][]byte // on the stack; more have memory of their own
	parts := room[:0]
	for _, column := range s.critical.Key {
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
func (s *lockStatement) keyFrom(parts [][]byte) (k musiccore.Key, f *wire.Failure) {
	longest := 0
	for _, part := range parts {
		longest = max(longest, len(part))
	}
	k = musiccore.Key{Table: s.critical.ID, PK: string(rewrite.RoutingKey(parts))}
	if longest = max(longest, len(k.PK)); longest > maxKey {
		return k, wire.Invalid("MUSIC_KEY: the key has %d bytes: Cassandra takes %d at most", longest, maxKey)
	}
	return k, nil
}

// keyColumn returns the value that a statement gives a column of the key.
func (s *lockStatement) keyColumn(st *rewrite.Statement, column catalog.Column) ([]byte, *wire.Failure) {
	r := s.restriction(st, column)
	switch {
	case r == nil || r.Op != rewrite.OpEq:
		return nil, s.missingColumn(column)
	case s.restrictedTwice(st, column):
		return nil, wire.Invalid("MUSIC_KEY: %s stands twice: name it once", column.Name)
	}
	return s.keyValue(r.Value, column)
}

// missingColumn returns the error for a statement that does not give a column of the key.
func (s *lockStatement) missingColumn(column catalog.Column) *wire.Failure {
	return wire.Invalid("MUSIC_KEY: the statement must give %s = <value>: one lock covers one %s of %s", column.Name, s.critical.Unit(), s.table)
}

// restriction returns the first one of a column, or nil.
func (s *lockStatement) restriction(st *rewrite.Statement, column catalog.Column) *rewrite.Relation {
	if i := s.restrictionIndex(st.Where, column); i >= 0 {
		return &st.Where[i]
	}
	return nil
}

// restrictedTwice reports whether a column that is restricted is so more than once.
func (s *lockStatement) restrictedTwice(st *rewrite.Statement, column catalog.Column) bool {
	return s.restrictionIndex(st.Where[s.restrictionIndex(st.Where, column)+1:], column) >= 0
}

// restrictionIndex returns the first of some relations that is about a column, or -1.
func (s *lockStatement) restrictionIndex(where []rewrite.Relation, column catalog.Column) int {
	var name [64]byte // on the stack; a longer one has memory of its own
	for i := range where {
		if string(where[i].Column.AppendTo(name[:0], s.text)) == column.Name {
			return i
		}
	}
	return -1
}

// keyValue returns the value of one term of the key. A literal means the same wherever it is read:
// Cassandra reads it again when it carries the statement out.
func (s *lockStatement) keyValue(t rewrite.Term, column catalog.Column) ([]byte, *wire.Failure) {
	if t.Kind == rewrite.TermMarker {
		return s.boundKey(t, column)
	}
	value, err := rewrite.Encode(column.Type, s.text, t)
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
func (s *lockStatement) notConstant(t rewrite.Term, column catalog.Column) *wire.Failure {
	return wire.Invalid("MUSIC_KEY: %s is of type %s, and %s is no constant of it: write %s, or bind the value", column.Name, column.Type, rewrite.Excerpt(s.text, t), rewrite.HowToWrite(column.Type))
}

// checkRow refuses a conditional write on a row that is not named by constants: the row is read and
// then written, and Cassandra reads its name each time.
func (s *lockStatement) checkRow() *wire.Failure {
	for _, column := range s.critical.ClusteringColumns() {
		r := s.restriction(s.statement, column)
		if r == nil || r.Op != rewrite.OpEq || r.Value.Kind == rewrite.TermMarker {
			continue
		}
		if _, err := rewrite.Encode(column.Type, s.text, r.Value); err != nil {
			return s.notConstant(r.Value, column)
		}
	}
	return nil
}

// fitsKey reports whether a value may be that of a column of the key, as far as its length says: of
// a partition key, a column that stands alone is never empty, and one of several only where its
// type has an empty value.
func (s *lockStatement) fitsKey(column catalog.Column, value []byte) bool {
	if len(value) > 0 || column.Clustering {
		return true
	}
	switch column.Type {
	case "text", "varchar", "ascii", "blob":
		return value != nil && len(s.critical.PartitionKey()) > 1
	}
	return false
}

// boundKey returns the value of a column of the key that is bound to a marker.
func (s *lockStatement) boundKey(t rewrite.Term, column catalog.Column) ([]byte, *wire.Failure) {
	value, ok := s.bound(t)
	if !ok || !s.fitsKey(column, value) {
		return nil, wire.Invalid("MUSIC_KEY: the value bound to %s is null, unset or empty: a key needs one", column.Name)
	}
	if !rewrite.Fits(column.Type, value) {
		return nil, wire.Invalid("MUSIC_KEY: the %d bytes bound to %s are no %s", len(value), column.Name, column.Type)
	}
	return column.Canonical(value), nil
}

// bound returns the value of a marker; ok is false where it is null or not set.
func (s *lockStatement) bound(t rewrite.Term) (value []byte, ok bool) {
	return wire.Bound(s.values, t.Marker)
}

// checkStatic refuses to write a static column under a lock that covers a row: it is of all rows of
// the partition.
func (s *lockStatement) checkStatic(st *rewrite.Statement) *wire.Failure {
	if !s.critical.Row {
		return nil
	}
	one := *s
	one.statement = st
	for _, column := range one.written() {
		if name := s.name(column); slices.Contains(s.critical.Static, name) {
			return wire.Invalid("MUSIC_REFUSED: %s is static, and one lock covers one row of %s: move it to a table of its own, or lock partitions (without key=row)", name, s.table)
		}
	}
	return nil
}

// ref returns the lock reference that the statement gives, as its client sees it; 0 where it gives
// none.
func (s *lockStatement) ref() (int64, *wire.Failure) {
	t := s.statement.Lock
	if t.Kind == rewrite.NoTerm {
		return 0, nil
	}
	n, f := s.integer(t, "USING LOCK")
	if f == nil && n <= 0 {
		f = wire.Invalid("MUSIC_NOT_HELD: %d is no lock reference: write the lock_ref that LOCK has answered", n)
	}
	return n, f
}

// integer returns a literal or bound whole number: a bigint, or an int.
func (s *lockStatement) integer(t rewrite.Term, what string) (int64, *wire.Failure) {
	if t.Kind != rewrite.TermMarker {
		n, err := rewrite.Int(s.text, t)
		if err != nil {
			return 0, wire.Invalid("MUSIC_SYNTAX: %s: %v", what, err)
		}
		return n, nil
	}
	value, ok := s.bound(t)
	switch {
	case ok && len(value) == 8:
		return wholeNumber(binary.BigEndian.Uint64(value), what)
	case ok && len(value) == 4:
		return int64(int32(binary.BigEndian.Uint32(value))), nil
	}
	return 0, wire.Invalid("MUSIC_SYNTAX: the value bound to %s must be a bigint, not null or unset", what)
}

// wholeNumber returns a bound bigint. No number that means anything here is as large as the bits of
// a double from 1 on: such bits are of a driver that does not know the type of the marker, as the
// one for Node.js where a statement is not prepared.
func wholeNumber(bits uint64, what string) (int64, *wire.Failure) {
	if n := math.Float64frombits(bits); n >= 1 && n == math.Trunc(n) && !math.IsInf(n, 0) {
		return 0, wire.Invalid("MUSIC_SYNTAX: the value bound to %s is the double %v: prepare the statement, or bind a bigint (in Node.js a Long)", what, n)
	}
	return int64(bits), nil
}
