package frontend

import (
	"cmp"
	"encoding/binary"

	"music/musiccore"
	"music/rewrite"
)

// key is the key that the statement names: the same one in each statement of a batch.
func (s *section) key() (musiccore.Key, *Failure) {
	if s.statement.Verb != rewrite.Batch {
		return s.keyOf(s.statement)
	}
	var first musiccore.Key
	for i := range s.statement.Children {
		child := &s.statement.Children[i]
		if !s.sameTable(child) {
			return first, invalid("MUSIC_REFUSED: a batch under a lock stays in one %s of one table, %s", s.critical.unit(), s.table)
		}
		k, f := s.keyOf(child)
		if f != nil {
			return k, f
		}
		if i > 0 && k != first {
			return k, invalid("MUSIC_REFUSED: a batch under a lock stays in one %s of one table, %s: this one names two keys", s.critical.unit(), s.table)
		}
		first = k
	}
	return first, nil
}

func (s *section) keyOf(st *rewrite.Statement) (musiccore.Key, *Failure) {
	if f := cmp.Or(s.checkTTL(st), s.checkStatic(st)); f != nil {
		return musiccore.Key{}, f
	}
	parts := make([][]byte, 0, len(s.critical.Key))
	for _, column := range s.critical.Key {
		value, f := s.keyColumn(st, column)
		if f != nil {
			return musiccore.Key{}, f
		}
		parts = append(parts, value)
	}
	return musiccore.Key{Table: s.critical.ID, PK: string(rewrite.RoutingKey(parts))}, nil
}

func (s *section) keyColumn(st *rewrite.Statement, column Column) ([]byte, *Failure) {
	r := s.restriction(st, column)
	if r == nil || r.Op != rewrite.OpEq {
		return nil, invalid("MUSIC_KEY: the statement must give %s = <value>: one lock covers one %s of %s", column.Name, s.critical.unit(), s.table)
	}
	return s.keyValue(r.Value, column)
}

// restriction is the first one of a column, or nil.
func (s *section) restriction(st *rewrite.Statement, column Column) *rewrite.Relation {
	var name [64]byte // on the stack; a longer one has memory of its own
	for i := range st.Where {
		if string(st.Where[i].Column.AppendTo(name[:0], s.text)) == column.Name {
			return &st.Where[i]
		}
	}
	return nil
}

// keyValue is the value of one term of the key.
func (s *section) keyValue(t rewrite.Term, column Column) ([]byte, *Failure) {
	if t.Kind == rewrite.TermMarker {
		return s.boundKey(t, column)
	}
	value, err := rewrite.EncodeKey(column.Type, s.text, t)
	if err != nil {
		value, f := s.foreignKey(t, column)
		return column.spelt(value), f
	}
	return column.spelt(value), nil
}

// foreignKey is the value of a literal that only Cassandra can read.
func (s *section) foreignKey(t rewrite.Term, column Column) ([]byte, *Failure) {
	literal := string(s.text[t.Start:t.End])
	switch t.Kind {
	case rewrite.TermNull, rewrite.TermOther:
		return nil, invalid("MUSIC_KEY: %s = %s: give the key as a literal or bind it", column.Name, literal)
	}
	return s.literal(column.Type, literal)
}

func (s *section) boundKey(t rewrite.Term, column Column) ([]byte, *Failure) {
	value, ok := s.bound(t)
	if !ok || len(value) == 0 && !column.Clustering {
		return nil, invalid("MUSIC_KEY: the value bound to %s is null, unset or empty", column.Name)
	}
	if !rewrite.Fits(column.Type, value) {
		return nil, invalid("MUSIC_KEY: the %d bytes bound to %s are no %s", len(value), column.Name, column.Type)
	}
	return column.spelt(value), nil
}

// bound is the value of a marker; not ok where it is null or not set.
func (s *section) bound(t rewrite.Term) ([]byte, bool) {
	if t.Marker < 0 || t.Marker >= len(s.values) || len(s.values[t.Marker]) < 4 {
		return nil, false
	}
	raw := s.values[t.Marker]
	return raw[4:], int32(binary.BigEndian.Uint32(raw)) >= 0
}
