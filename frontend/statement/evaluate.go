package statement

import (
	"bytes"
	"slices"

	"music/frontend/catalog"
	"music/frontend/condition"
	"music/frontend/wire"
	"music/rewrite"
)

// typedTerm is a term with the CQL type of its place; the type is empty if it is not known.
type typedTerm struct {
	rewrite.Term
	cqlType string
}

// Ask adds to a question the terms of a write that must be known before it is carried out and that
// the proxy cannot evaluate: functions, sums and casts in its key, its IF and its additions. Cassandra
// evaluates them as the selection of a SELECT. It returns how many they are; Answered takes the values.
func (s *Statement) Ask(question *Query) (terms int) {
	for _, t := range s.unevaluated() {
		if len(question.Text) > 0 {
			question.add(", ")
		}
		question.Text = append(question.Text, s.selection(t)...)
		for _, value := range s.valuesOf(t.Span) {
			question.Values = append(question.Values, bytes.Clone(value))
		}
		terms++
	}
	return terms
}

// selection returns a term as one of the selection of a SELECT, which Cassandra takes for a value of
// no type: it is cast, and so are the operands of its arithmetic.
func (s *Statement) selection(t typedTerm) []byte {
	cast := "(" + t.cqlType + ") "
	if _, parameters := rewrite.TypeParameters(t.cqlType); len(parameters) > 0 {
		return append([]byte(cast), t.Of(s.Text)...)
	}
	var hints []rewrite.Edit
	for _, at := range rewrite.Operands(s.Text, t.Term) {
		at -= t.Start
		hints = append(hints, rewrite.Edit{Span: rewrite.Span{Start: at, End: at}, Text: cast})
	}
	return append(rewrite.Replace([]byte(cast+"("), t.Of(s.Text), hints), ')')
}

// Answered returns the statement with Cassandra's values, nil for null, in the place of the terms
// that Ask adds.
func (s *Statement) Answered(values [][]byte) (Statement, *wire.Failure) {
	var edits []edit
	for i, t := range s.unevaluated() {
		edits = append(edits, edit{rewrite.Edit{Span: t.Span, Text: " ? "}, [][]byte{wire.Value(values[i])}})
	}
	fresh, f := s.rewritten(s.edited(edits))
	if f == nil {
		f = fresh.CheckUnderLock()
	}
	return fresh, f
}

// valuesOf returns the values of the markers in a span of the text.
func (s *Statement) valuesOf(span rewrite.Span) [][]byte {
	from, _ := slices.BinarySearch(s.Parsed.MarkersAt, span.Start)
	to, _ := slices.BinarySearch(s.Parsed.MarkersAt, span.End)
	return s.Values[from:to]
}

// unevaluated returns the terms that Ask adds, in the order of the text.
func (s *Statement) unevaluated() (all []typedTerm) {
	if s.Critical == nil || !s.IsBatchOrWrite() || !s.has(computes) {
		return nil
	}
	for _, part := range s.Parts() {
		for _, t := range part.needed() {
			if part.asks(t) {
				all = append(all, t)
			}
		}
	}
	slices.SortFunc(all, func(a, b typedTerm) int { return a.Start - b.Start })
	return all
}

// computes reports whether a statement has a term in a place that Ask looks at which is neither
// a single literal nor a marker. It does not allocate.
func computes(st *rewrite.Statement) bool {
	other := func(t rewrite.Term) bool { return t.Kind == rewrite.TermOther }
	among := func(r rewrite.Relation) bool {
		return other(r.Value) || other(r.Element) || slices.ContainsFunc(r.Values, other)
	}
	return slices.ContainsFunc(st.Where, among) || slices.ContainsFunc(st.Conditions, among) ||
		slices.ContainsFunc(st.Additions, func(a rewrite.Addition) bool { return other(a.Value) })
}

// asks reports whether Cassandra can be asked for the value of a term that the proxy cannot read.
func (s *Statement) asks(t typedTerm) bool {
	return t.Kind == rewrite.TermOther && rewrite.Native(t.cqlType) && rewrite.Selectable(s.Text, t.Term)
}

// needed returns the terms of a write that must be known before it is sent and are not written as
// the proxy reads them; none of a statement of a batch that is on another table.
func (s *Statement) needed() (all []typedTerm) {
	if !s.IsWrite() || s.elsewhere {
		return nil
	}
	for i := range s.Parsed.Where {
		r := &s.Parsed.Where[i]
		if name := s.name(r.Column); (r.Op == rewrite.OpEq || r.Op == rewrite.OpIn) && s.needsColumn(name) {
			all = append(all, s.others(r, s.Critical.Columns[name].Type)...)
		}
	}
	for i := range s.Parsed.Conditions {
		all = append(all, s.inCondition(&s.Parsed.Conditions[i])...)
	}
	for _, a := range s.Parsed.Additions {
		if kind := s.Critical.Columns[s.name(a.Column)].Type; s.Parsed.Conditional && condition.Summable(kind) {
			all = append(all, typedTerm{a.Value, kind})
		}
	}
	return all
}

// needsColumn reports whether the proxy must know the value of a column to carry the write out.
func (s *Statement) needsColumn(name string) bool {
	return slices.ContainsFunc(s.Critical.Key, func(c catalog.Column) bool { return c.Name == name }) || s.Parsed.Conditional && slices.Contains(s.Critical.Primary, name)
}

// others returns the terms on the right side of a relation that are neither single literals nor
// markers, as terms of a type.
func (s *Statement) others(r *rewrite.Relation, cqlType string) (all []typedTerm) {
	for _, t := range append(slices.Clip(r.Values), r.Value) {
		if t.Kind == rewrite.TermOther {
			all = append(all, typedTerm{t, cqlType})
		}
	}
	return all
}

// inCondition returns the terms of a condition that the proxy does not read, with the types of their
// places.
func (s *Statement) inCondition(r *rewrite.Relation) []typedTerm {
	kind := s.Critical.Columns[s.name(r.Column)].Type
	name, parameters := rewrite.TypeParameters(kind)
	first, last := "", ""
	if n := len(parameters); n > 0 {
		first, last = parameters[0], parameters[n-1]
	}
	var all []typedTerm
	switch {
	case !r.Field.Empty():
		kind = ""
	case r.Element.Kind != rewrite.NoTerm:
		if kind = last; name == "list" {
			first = "int"
		}
		all = append(all, typedTerm{r.Element, first})
	case r.Op == rewrite.OpContains:
		kind = last
	case r.Op == rewrite.OpContainsKey:
		kind = first
	}
	all = append(all, s.others(r, kind)...)
	return slices.DeleteFunc(all, func(t typedTerm) bool { return rewrite.Written(s.Text, t.Term) })
}
