package synchronise

import (
	"math/bits"
	"slices"
	"strings"

	"music/rewrite"
)

// interval is the rows of a partition after lo and up to hi, in the table's clustering order. A nil
// lo is the beginning, a nil hi the end.
type interval struct{ lo, hi []cqlTerm }

// clause restricts a statement to some rows of a partition; the zero value does not.
type clause struct {
	text   string // begins with AND
	values []RawValue
}

// clauses returns restrictions that divide the interval: each of its rows meets exactly one of
// them. Cassandra compares `(a, b) > (1, 2)` by values, not by clustering order, so that such a
// comparison is one range of that order only if all columns have the same direction. Else an
// interval is the union of ranges with a common prefix each, 2n-1 at most (docs/protocol.md 3.9,
// Synch).
func (t tableLayout) clauses(v interval) []clause {
	switch {
	case v.lo == nil && v.hi == nil:
		return []clause{{}}
	case t.oneWay():
		return []clause{t.slice(v)}
	}
	return t.ranges(v)
}

// oneWay reports whether all clustering columns ascend, or all descend.
func (t tableLayout) oneWay() bool {
	other := func(c columnLayout) bool { return c.descending != t.clustering[0].descending }
	return !slices.ContainsFunc(t.clustering, other)
}

// slice returns the interval as one comparison of all clustering columns.
func (t tableLayout) slice(v interval) clause {
	names := make([]string, len(t.clustering))
	for i, c := range t.clustering {
		names[i] = c.name
	}
	var all clause
	for _, end := range []struct {
		comparison string
		at         []cqlTerm
	}{{t.clustering[0].after(), v.lo}, {t.clustering[0].upTo(), v.hi}} {
		if end.at == nil {
			continue
		}
		texts := make([]string, len(end.at))
		for i, term := range end.at {
			texts[i] = term.text
		}
		all.text += " AND " + inBrackets(names) + end.comparison + inBrackets(texts)
		all.values = append(all.values, valuesOf(end.at)...)
	}
	return all
}

// among returns the restriction to some rows. The list is filled up to a power of two by repeating
// the last row, so that few different texts need to be prepared.
func (t tableLayout) among(rows []*dataRow) clause {
	if len(t.clustering) == 0 {
		return clause{}
	}
	names := make([]string, len(t.clustering))
	for i, c := range t.clustering {
		names[i] = c.name
	}
	var values []RawValue
	listed := make([]string, 1<<bits.Len(uint(len(rows)-1)))
	for i := range listed {
		at := rows[min(i, len(rows)-1)].clustering
		texts := make([]string, len(at))
		for j, term := range at {
			texts[j] = term.text
		}
		listed[i] = inBrackets(texts)
		values = append(values, valuesOf(at)...)
	}
	return clause{" AND " + inBrackets(names) + " IN (" + strings.Join(listed, ", ") + ")", values}
}

// inBrackets returns a list as a tuple, or its only element.
func inBrackets(texts []string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	return "(" + strings.Join(texts, ", ") + ")"
}

// ranges returns the interval as ranges with a common prefix each. If it is not known whether lo
// and hi share a prefix the result begins at the start of the partition. The rows before lo have
// already been written back above the fence, so the deletion does not affect them; only on a
// replica that has missed those writes they are gone until it is repaired.
func (t tableLayout) ranges(v interval) []clause {
	fork, known := t.fork(v)
	if !known {
		return t.ranges(interval{hi: v.hi})
	}
	n := len(t.clustering)
	var all []clause
	for i := n - 1; v.lo != nil && i > fork; i-- {
		all = append(all, t.prefix(v.lo, i).and(t.clustering[i], t.clustering[i].after(), v.lo[i]))
	}
	for i := max(0, fork); v.hi != nil && i < n; i++ {
		c := t.prefix(v.hi, i)
		if i == fork {
			c = c.and(t.clustering[i], t.clustering[i].after(), v.lo[i])
		}
		comparison := t.clustering[i].upTo()
		if i < n-1 {
			comparison = strings.Replace(comparison, "=", "", 1)
		}
		all = append(all, c.and(t.clustering[i], comparison, v.hi[i]))
	}
	return all
}

// fork returns the first column in which lo and hi differ, -1 if one of them is nil. known is false
// if two different values may be equal to Cassandra. In the last column that does not matter.
func (t tableLayout) fork(v interval) (column int, known bool) {
	if v.lo == nil || v.hi == nil {
		return -1, true
	}
	last := len(t.clustering) - 1
	for i, c := range t.clustering[:last] {
		if same, known := c.same(v.lo[i], v.hi[i]); !same || !known {
			return i, known
		}
	}
	return last, true
}

// prefix returns `a = ? AND b = ?` for the first columns.
func (t tableLayout) prefix(at []cqlTerm, columns int) clause {
	var c clause
	for i := range columns {
		c = c.and(t.clustering[i], " = ", at[i])
	}
	return c
}

// and returns the clause with a comparison added, in memory of its own.
func (c clause) and(column columnLayout, comparison string, term cqlTerm) clause {
	return clause{c.text + " AND " + column.name + comparison + term.text, slices.Concat(c.values, term.values)}
}

// after returns the operator for "later in the clustering order".
func (c columnLayout) after() string {
	if c.descending {
		return " < "
	}
	return " > "
}

// upTo returns the operator for "earlier in the clustering order, or equal".
func (c columnLayout) upTo() string {
	if c.descending {
		return " >= "
	}
	return " <= "
}

// same reports whether two values of a clustering column are equal to Cassandra; known is false if
// that is not known.
func (c columnLayout) same(a, b cqlTerm) (same, known bool) {
	if a.text == b.text && slices.EqualFunc(a.values, b.values, func(a, b RawValue) bool { return string(a) == string(b) }) {
		return true, true
	}
	if len(a.values) != 1 || len(b.values) != 1 {
		return false, false
	}
	one, known := rewrite.Canonical(c.typeName, a.values[0])
	other, _ := rewrite.Canonical(c.typeName, b.values[0])
	return string(one) == string(other), known
}
