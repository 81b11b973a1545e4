package statement

import (
	"slices"

	"music/frontend/condition"
	"music/frontend/wire"
	"music/rewrite"
)

// addition is the place of an addition to a number or a text in a write with IF. Without IF
// Cassandra refuses such an addition, since it would have to read the column.
type addition struct {
	part int // index of the statement in the write
	rewrite.Addition
}

// Sum replaces an addition by the column's new value.
type Sum struct {
	Part int // index of the statement in the write
	edit
}

// addSums adds the additions of a statement with IF.
func (x *Conditional) addSums(part int) *wire.Failure {
	s := &x.parts[part]
	var seen []string
	for _, a := range s.Parsed.Additions {
		name := s.name(a.Column)
		column := s.Critical.Columns[name]
		switch {
		case !s.Parsed.Conditional || !condition.Summable(column.Type):
			continue // Cassandra carries it out or refuses it
		case slices.Contains(seen, name):
			return wire.Invalid("MUSIC_REFUSED: %s is critical: a statement may add to %s only once: add the sum", s.Table, name)
		case !rewrite.Written(s.Text, a.Value):
			return s.notServed(a.Value)
		case !column.Static && !s.comparesRow():
			return wire.Invalid("MUSIC_REFUSED: %s is critical: an addition to %s needs a condition on its row: one on static columns alone does not read the row", s.Table, name)
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

// comparesRow reports whether the IF of a statement is on its row, not on static columns alone.
func (s *Statement) comparesRow() bool {
	return s.namesRow() && (s.Parsed.Exists || slices.ContainsFunc(s.Parsed.Conditions, func(r rewrite.Relation) bool { return !s.Critical.Columns[s.name(r.Column)].Static }))
}

// source returns the statement's text and values, from which conditions are evaluated.
func (s *Statement) source() *condition.Source {
	return &condition.Source{Text: s.Text, Values: s.Values, Table: s.Table.String()}
}

// Sums returns the new values of all columns that the write adds to, computed from the rows that
// were read for y. A column that is null stays as it is (5.0: Constants.Adder), so that another statement
// of the write may give it a value. unset says that the protocol has a value "not set"; without, null is
// written.
func (x *Conditional) Sums(y *condition.Evaluation, unset bool) (all []Sum, f *wire.Failure) {
	size := 0
	for i, a := range x.additions {
		s := &x.Conditions.Sums[i]
		value, f := y.Summed(s)
		if f != nil {
			return nil, f
		}
		if size += len(value); size > maxSums && i > 0 {
			return nil, wire.Invalid("MUSIC_REFUSED: %s is critical: what the batch adds to has more than %d bytes together: send several batches", x.parts[a.part].Table, maxSums)
		}
		e := replace(a.Span, rewrite.Quote(s.Column)+" = ? ")
		switch {
		case value != nil:
			e.values = [][]byte{wire.Value(value)}
		case unset:
			e.values = [][]byte{wire.Unset()}
		default:
			e.Text = rewrite.Quote(s.Column) + " = null "
		}
		all = append(all, Sum{a.part, e})
	}
	return all, nil
}

// maxSums is how many bytes the sums of a write may have together. As much is more than Cassandra takes of
// one write by default.
const maxSums = 16 << 20

// Put has Write replace an addition by its sum.
func (s *Statement) Put(sum Sum) { s.sums = append(s.sums, sum.edit) }
