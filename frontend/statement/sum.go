package statement

import (
	"slices"

	"music/frontend/condition"
	"music/frontend/wire"
	"music/rewrite"
)

// addition is where a write adds to a column of what is there, which Cassandra reads in a lightweight
// transaction alone.
type addition struct {
	part int // which of the statements
	rewrite.Addition
}

// Sum is what a column is after an addition, in the place of that.
type Sum struct {
	Part int // the statement of the write that it stands in
	edit
}

// addSums takes in what a statement with IF adds to columns of what is there.
func (x *Conditional) addSums(part int) *wire.Failure {
	s := &x.parts[part]
	var seen []string
	for _, a := range s.Parsed.Additions {
		name := s.name(a.Column)
		column := s.Critical.Columns[name]
		switch {
		case !s.Parsed.Conditional || !condition.Summable(column.Type):
			continue // Cassandra's to carry out, or to refuse
		case slices.Contains(seen, name):
			return wire.Invalid("MUSIC_REFUSED: %s is critical: a statement adds to %s twice: add once", s.Table, name)
		case a.Value.Kind != rewrite.TermMarker && !rewrite.Constant(s.Text, a.Value):
			return wire.Invalid("MUSIC_REFUSED: %s is critical: give what is added to %s as a literal, or bind it", s.Table, name)
		case !column.Static && !s.comparesRow():
			return wire.Invalid("MUSIC_REFUSED: %s is critical: what is added to %s takes a condition on its row: one on static columns alone does not read it", s.Table, name)
		}
		seen = append(seen, name)
		sum := condition.Sum{Source: s.source(), Column: name, Value: a.Value}
		if !column.Static {
			row, f := x.rowCondition(s, true)
			if f != nil {
				return f
			}
			sum.Row = row
		}
		x.Conditions.Sums = append(x.Conditions.Sums, sum)
		x.additions = append(x.additions, addition{part, a})
	}
	return nil
}

// comparesRow reports whether the IF of a statement is about its row, and not about static columns alone.
func (s *Statement) comparesRow() bool {
	return s.namesRow() && (s.Parsed.Exists || slices.ContainsFunc(s.Parsed.Conditions, func(r rewrite.Relation) bool { return !s.Critical.Columns[s.name(r.Column)].Static }))
}

// source returns the statement as where terms have their values from.
func (s *Statement) source() *condition.Source {
	return &condition.Source{Text: s.Text, Values: s.Values, Table: s.Table.String()}
}

// Sums returns what all columns are that something is added to, as they were read.
func (x *Conditional) Sums(y *condition.Evaluation) (all []Sum, f *wire.Failure) {
	for i, a := range x.additions {
		s := &x.Conditions.Sums[i]
		value, f := y.Summed(s)
		if f != nil {
			return nil, f
		}
		e := replace(a.Span, rewrite.Quote(s.Column)+" = null ")
		if value != nil {
			e.Text = rewrite.Quote(s.Column) + " = ? "
			e.values = [][]byte{wire.Value(value)}
		}
		all = append(all, Sum{a.part, e})
	}
	return all, nil
}

// Put has Write put a sum in its place.
func (s *Statement) Put(sum Sum) { s.sums = append(s.sums, sum.edit) }
