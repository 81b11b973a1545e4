package frontend

import (
	"bytes"
	"encoding/binary"
	"slices"

	"music/rewrite"
)

// existence is what IF asks of the row itself.
type existence uint8

const (
	anyway    existence = iota // its columns are compared
	exists                     // IF EXISTS
	notExists                  // IF NOT EXISTS
)

// conditional is a write with IF under a lock: the row is read, the condition tried, and the write sent if it holds (DESIGN.md 4). The
// lock keeps everybody else from the row meanwhile; turns keeps other conditional writes of its own holder.
type conditional struct {
	existence existence
	tests     []test
	columns   []string // that are compared, each once
	statics   bool     // they are static, and no row is named
	hidden    []string // of IF NOT EXISTS: columns that Cassandra does not look at
	write     kept
	warnings  []string // of the read
	leave     func()   // lets the next one have its turn; may be called again
}

// test is one comparison: a column of those read, and what it is compared with.
type test struct {
	column int
	kind   string // CQL type of the column
	sign   string // = != < <= > >= or IN
	values [][]byte
}

// checkCondition refuses conditions that the proxy does not try itself.
func (s *section) checkCondition() *Failure {
	st := s.statement
	for _, name := range s.conditionKey() {
		if r := s.restriction(st, Column{Name: name}); r == nil || r.Op != rewrite.OpEq || r.Value.Kind == rewrite.TermOther {
			return invalid("MUSIC_REFUSED: %s is critical: IF takes one row under a lock: give every column of the primary key as a value", s.table)
		}
	}
	statics := s.onlyStatics()
	for i := range st.Conditions {
		r := &st.Conditions[i]
		name := string(r.Column.AppendTo(nil, s.text))
		column, known := s.critical.Columns[name]
		switch {
		case r.Op != rewrite.OpEq && r.Op != rewrite.OpCompare && r.Op != rewrite.OpIn:
			return invalid("MUSIC_REFUSED: %s is critical: this condition is not served under a lock: read USING LOCK, decide, write", s.table)
		case !known:
			return invalid("Undefined column name %s in table %s", name, s.table)
		case slices.Contains(s.critical.Primary, name):
			return invalid("PRIMARY KEY column '%s' cannot have IF conditions", name)
		case column.Static != statics, !comparedBy(column.Type, string(r.Sign.Of(s.text))):
			return invalid("MUSIC_REFUSED: %s is critical: this condition on %s is not served under a lock: read USING LOCK, decide, write", s.table, name)
		}
	}
	return nil
}

// conditionKey are the columns of the key that name what a condition is about: a row, or where only static columns are compared and no
// row is named, the partition.
func (s *section) conditionKey() []string {
	if !s.onlyStatics() {
		return s.critical.Primary
	}
	var names []string
	for _, column := range s.critical.partition() {
		names = append(names, column.Name)
	}
	return names
}

// onlyStatics tells whether the statement is about the static columns of a partition alone.
func (s *section) onlyStatics() bool {
	for _, name := range s.critical.Primary {
		inKey := slices.ContainsFunc(s.critical.partition(), func(column Column) bool { return column.Name == name })
		if !inKey && s.restriction(s.statement, Column{Name: name}) != nil {
			return false
		}
	}
	return len(s.statement.Conditions) > 0 && !slices.ContainsFunc(s.statement.Conditions, func(r rewrite.Relation) bool {
		return !s.critical.Columns[string(r.Column.AppendTo(nil, s.text))].Static
	})
}

// condition reads what IF compares.
func (s *section) condition() (*conditional, *Failure) {
	x := &conditional{statics: s.onlyStatics()}
	st := s.statement
	switch {
	case st.Verb == rewrite.Insert:
		x.existence, x.hidden = notExists, s.untouchedStatics()
	case st.Exists:
		x.existence = exists
	}
	for i := range st.Conditions {
		r := &st.Conditions[i]
		name := string(r.Column.AppendTo(nil, s.text))
		t := test{column: slices.Index(x.columns, name), kind: s.critical.Columns[name].Type, sign: "="}
		if t.column < 0 {
			t.column = len(x.columns)
			x.columns = append(x.columns, name)
		}
		var f *Failure
		switch r.Op {
		case rewrite.OpIn:
			t.sign = "IN"
			t.values, f = s.comparedList(r, t.kind)
		case rewrite.OpCompare:
			t.sign = string(r.Sign.Of(s.text))
			fallthrough
		default:
			var value []byte
			value, f = s.compared(r.Value, t.kind)
			t.values = [][]byte{value}
		}
		if f == nil {
			f = t.check()
		}
		if f != nil {
			return nil, f
		}
		x.tests = append(x.tests, t)
	}
	return x, nil
}

// check refuses what Cassandra refuses, in its words.
func (t *test) check() *Failure {
	for _, value := range t.values {
		if value == nil && t.sign != "=" && t.sign != "!=" && t.sign != "IN" {
			return invalid("Invalid comparison with null for operator \"%s\"", t.sign)
		}
		if !fits(t.kind, value) {
			return invalid("MUSIC_SYNTAX: a value of %d bytes is no %s", len(value), t.kind)
		}
	}
	return nil
}

// compared is a value that a column is compared with, nil for null, in memory of its own.
func (s *section) compared(t rewrite.Term, cqlType string) ([]byte, *Failure) {
	switch t.Kind {
	case rewrite.TermNull:
		return nil, nil
	case rewrite.TermOther:
		return nil, invalid("MUSIC_REFUSED: %s is critical: give the values of IF as literals, or bind them", s.table)
	case rewrite.TermMarker:
		value, ok := s.bound(t)
		if !ok && s.unset(t) {
			return nil, invalid("Invalid 'unset' value in condition")
		}
		if !ok {
			return nil, nil
		}
		return append([]byte{}, value...), nil
	}
	value, err := rewrite.EncodeKey(cqlType, s.text, t)
	if err != nil {
		return s.literal(cqlType, string(t.Of(s.text)))
	}
	return value, nil
}

// unset tells whether a marker has the value that is none (v4 spec section 3, [value] of length -2).
func (s *section) unset(t rewrite.Term) bool {
	raw := s.values[t.Marker]
	return len(raw) == 4 && int32(binary.BigEndian.Uint32(raw)) == -2
}

// comparedList are the values of IN.
func (s *section) comparedList(r *rewrite.Relation, cqlType string) ([][]byte, *Failure) {
	if r.Value.Kind != rewrite.TermMarker {
		values := [][]byte{}
		for _, t := range r.Values {
			if t.Kind == rewrite.TermMarker && s.unset(t) {
				continue // as Cassandra does
			}
			value, f := s.compared(t, cqlType)
			if f != nil {
				return nil, f
			}
			values = append(values, value)
		}
		return values, nil
	}
	raw, ok := s.bound(r.Value)
	switch {
	case !ok && s.unset(r.Value):
		return nil, invalid("Invalid 'unset' value in condition")
	case !ok:
		return nil, invalid("Invalid null list in IN condition")
	}
	cur := cursor{b: raw}
	values := [][]byte{}
	for n := cur.int(); n > 0 && !cur.bad; n-- {
		values = append(values, bytes.Clone(cur.value()))
	}
	if cur.bad || cur.at != len(raw) {
		return nil, invalid("MUSIC_SYNTAX: the value bound to IN ? must be a list")
	}
	return values, nil
}

// rowText is the SELECT of the row that the statement names, with what its condition needs.
func (s *section) rowText(x *conditional) []byte {
	text := []byte("SELECT ")
	switch x.existence {
	case notExists:
		text = append(text, '*')
	case exists:
		text = append(text, rewrite.Quote(s.critical.Primary[0])...)
	default:
		columns := x.columns
		if x.statics {
			text = append(text, "DISTINCT "...)
			columns = slices.Concat(columns, s.conditionKey()) // DISTINCT wants them
		}
		for i, name := range columns {
			if i > 0 {
				text = append(text, ", "...)
			}
			text = append(text, rewrite.Quote(name)...)
		}
	}
	text = append(text, " FROM "+rewrite.Quote(s.table.Keyspace)+"."+rewrite.Quote(s.table.Name)+" WHERE "...)
	for i, name := range s.conditionKey() {
		if i > 0 {
			text = append(text, " AND "...)
		}
		t := s.restriction(s.statement, Column{Name: name}).Value
		text = append(text, rewrite.Quote(name)+" = "...)
		if t.Kind == rewrite.TermMarker {
			text = append(text, '?')
		} else {
			text = append(text, t.Of(s.text)...)
		}
	}
	return text
}

// rowValues are the values of its markers.
func (s *section) rowValues() (values [][]byte) {
	for _, name := range s.conditionKey() {
		if t := s.restriction(s.statement, Column{Name: name}).Value; t.Kind == rewrite.TermMarker {
			values = append(values, bytes.Clone(s.values[t.Marker]))
		}
	}
	return values
}

// writeText is the statement without our clause and without its condition. The table gets its keyspace: the connection may stand in
// another one than the statement was prepared in.
func (s *section) writeText() []byte {
	st := s.statement
	cuts := append(slices.Clone(st.Cut), st.If)
	slices.SortFunc(cuts, func(a, b rewrite.Span) int { return a.Start - b.Start })
	if st.Keyspace.Start != st.Keyspace.End {
		return rewrite.Apply(nil, s.text, cuts)
	}
	before := slices.DeleteFunc(slices.Clone(cuts), func(c rewrite.Span) bool { return c.Start > st.Table.Start })
	text := rewrite.Apply(nil, s.text[:st.Table.Start], before)
	text = append(text, rewrite.Quote(s.table.Keyspace)+"."...)
	var behind []rewrite.Span
	for _, c := range cuts[len(before):] {
		behind = append(behind, rewrite.Span{Start: c.Start - st.Table.Start, End: c.End - st.Table.Start})
	}
	return rewrite.Apply(text, s.text[st.Table.Start:], behind)
}

// writeValues are the values of the markers that writeText leaves.
func (s *section) writeValues() (values [][]byte) {
	gone := map[int]bool{}
	for _, t := range s.statement.OwnMarkers() {
		gone[t.Marker] = true
	}
	for _, r := range s.statement.Conditions {
		for _, t := range append([]rewrite.Term{r.Value}, r.Values...) {
			if t.Kind == rewrite.TermMarker {
				gone[t.Marker] = true
			}
		}
	}
	for i, v := range s.values {
		if !gone[i] {
			values = append(values, bytes.Clone(v))
		}
	}
	return values
}
