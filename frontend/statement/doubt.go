package statement

import (
	"slices"

	"music/rewrite"
)

// Doubtful returns the texts of those statements of the write that Cassandra may refuse for what
// they write: the proxy does not know a column, or does not read a literal as a value of its
// column's type. They are complete but for the lock clauses, and a PREPARE of them tells. Whether a
// function or a value in brackets is of its column's type is not looked at.
func (x *Conditional) Doubtful() (texts [][]byte) {
	for i := range x.parts {
		if s := &x.parts[i]; s.doubtful() {
			texts = append(texts, s.alone())
		}
	}
	return texts
}

// doubtful reports whether Cassandra may refuse the statement for what it writes.
func (s *Statement) doubtful() bool {
	doubt := func(column rewrite.Name, value rewrite.Term) bool {
		known, ok := s.Critical.Columns[s.name(column)]
		return !ok || !s.mayBe(value, known.Type)
	}
	if slices.ContainsFunc(s.Parsed.Sets, func(column rewrite.Name) bool {
		literal, _ := rewrite.AssignedValue(s.Text, column)
		return doubt(column, literal)
	}) {
		return true
	}
	return slices.ContainsFunc(s.Parsed.Where, func(r rewrite.Relation) bool { return r.Op == rewrite.OpEq && doubt(r.Column, r.Value) })
}

// mayBe reports whether a term may be a value of a type: it is not a literal, or one of the type.
func (s *Statement) mayBe(t rewrite.Term, columnType string) bool {
	switch t.Kind {
	case rewrite.NoTerm, rewrite.TermNull, rewrite.TermMarker, rewrite.TermOther:
		return true
	}
	_, err := rewrite.Encode(columnType, s.Text, t)
	return err == nil
}

// alone returns the text of the statement, of one in a BATCH text that of it alone, without lock
// clauses. The table gets its keyspace.
func (s *Statement) alone() []byte {
	st, text, start := s.Parsed, s.Text, 0
	if !st.Whole.Empty() {
		text, start = st.Whole.Of(s.Text), st.Whole.Start
	}
	var edits []rewrite.Edit
	for _, cut := range st.Cut {
		edits = append(edits, rewrite.Edit{Span: rewrite.Span{Start: cut.Start - start, End: cut.End - start}})
	}
	if st.Keyspace.Empty() {
		at := st.Table.Start - start
		edits = append(edits, rewrite.Edit{Span: rewrite.Span{Start: at, End: at}, Text: rewrite.Quote(s.Table.Keyspace) + "."})
	}
	slices.SortStableFunc(edits, func(a, b rewrite.Edit) int { return a.Start - b.Start })
	return rewrite.Replace(nil, text, edits)
}
