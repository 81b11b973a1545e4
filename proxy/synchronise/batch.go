package synchronise

import (
	"maps"
	"math"
	"slices"
	"strings"

	"music/musiccore"
)

// statement is a statement with its values. A nil value is sent as UNSET, which leaves its column
// as it is: so no null is ever written, and one text serves for all rows.
type statement struct {
	text   string
	values []RawValue
}

// size returns how many bytes the prepared statement takes in a BATCH frame: kind, id, count, and
// the values with their lengths.
func (w statement) size() int {
	n := 1 + 2 + 16 + 2
	for _, v := range w.values {
		n += 4 + len(v)
	}
	return n
}

// mutation is a list of statements to be sent as one unlogged batch in this order, which makes them
// one mutation.
type mutation struct {
	writes []statement
	weight int // bytes of the frame or of the mutation, whichever is larger
}

// Limits and sizes of a batch, in statements and in bytes.
const (
	maxStatements = math.MaxUint16
	frameOverhead = 9 + 1 + 2 + 2 + 4 + 2 + 8 + 4
	listOverhead  = 20 // per element of a list in a mutation: its position, a stamp, flags
)

// weigh returns how many bytes statements take in a BATCH frame.
func weigh(writes []statement) int {
	n := 0
	for _, w := range writes {
		n += w.size()
	}
	return n
}

// chunk is a batch that is being built: rows, and the interval whose only rows they are.
type chunk struct {
	interval
	static, rows []statement
	weight       int
}

// rewriting holds the parameters for writing a page back.
type rewriting struct {
	fence musiccore.Stamp
	batch int // the most bytes of a batch with several rows
}

// rewrite returns the batches that write a page back as it was read (docs/protocol.md 3.9, Synch):
// each deletes an interval at the fence, and writes its rows at fence+1. Together the intervals are
// that of the page.
func (t tableLayout) rewrite(pk []cqlTerm, page resultPage, how rewriting) []mutation {
	stamp := wireInt64(int64(how.fence) + 1)
	open := chunk{interval: interval{lo: page.after}}
	if len(page.rows) > 0 {
		static := writeTarget{table: t.name, columns: t.static, key: t.partition, at: pk, stamp: stamp}
		open.static = static.updates(page.rows[0].static, byTTL(page.rows[0].static))
		open.weight = weigh(open.static)
	}
	var all []mutation
	target := writeTarget{table: t.name, columns: t.regular, key: slices.Concat(t.partition, t.clustering), stamp: stamp}
	for _, r := range page.rows {
		if r.staticOnly() {
			continue
		}
		target.at = slices.Concat(pk, r.clustering)
		writes := target.row(r)
		weight := weigh(writes) + listOverhead*r.listed()
		if len(open.rows) > 0 && open.weight+weight > how.batch {
			all = append(all, t.mutation(pk, open, how.fence))
			open = chunk{interval: interval{lo: open.hi}}
		}
		open.hi, open.rows = r.clustering, append(open.rows, writes...)
		open.weight += weight
	}
	switch {
	case !page.more:
		open.hi = nil
	case len(open.rows) == 0:
		return all
	}
	return append(all, t.mutation(pk, open, how.fence))
}

// mutation returns the batch for a chunk, with its deletions. The deletion of a range leaves static
// columns, so these are deleted with the first interval.
func (t tableLayout) mutation(pk []cqlTerm, c chunk, fence musiccore.Stamp) mutation {
	var writes []statement
	at := slices.Concat([]RawValue{wireInt64(int64(fence))}, valuesOf(pk))
	where := t.name + " USING TIMESTAMP ? WHERE " + equations(t.partition, pk, " AND ")
	for _, rows := range t.clauses(c.interval) {
		writes = append(writes, statement{"DELETE FROM " + where + rows.text, slices.Concat(at, rows.values)})
	}
	if c.lo == nil && c.hi != nil && len(t.static) > 0 {
		names := make([]string, len(t.static))
		for i, column := range t.static {
			names[i] = column.name
		}
		writes = append(writes, statement{"DELETE " + strings.Join(names, ", ") + " FROM " + where, at})
	}
	return mutation{weight: frameOverhead + weigh(writes) + c.weight, writes: slices.Concat(writes, c.static, c.rows)}
}

// writeTarget is the target of statements: the columns of a row, or the static columns of the
// partition.
type writeTarget struct {
	table   string
	columns []columnLayout
	key     []columnLayout
	at      []cqlTerm // values of key
	stamp   RawValue
}

// row returns the statements that write a row. The INSERT writes the row's marker, and the columns
// with the marker's TTL; columns with other TTLs follow.
func (g writeTarget) row(r dataRow) []statement {
	whole := byTTL(r.regular)
	marker := r.markerTTL()
	first := g.insert(marker, whole[marker])
	delete(whole, marker)
	return append([]statement{first}, g.updates(r.regular, whole)...)
}

// updates returns the statements that write columns: one for each TTL, then those for columns with
// several TTLs.
func (g writeTarget) updates(cells []dataCell, whole map[int32][]cqlTerm) []statement {
	var writes []statement
	for _, ttl := range slices.Sorted(maps.Keys(whole)) {
		columns, terms := g.set(whole[ttl])
		writes = append(writes, g.update(equations(columns, terms, ", "), ttl, valuesOf(terms)))
	}
	for i, cell := range cells {
		for _, p := range cell.parts {
			writes = append(writes, g.update(g.columns[i].addition(), p.ttl, p.values))
		}
	}
	return writes
}

// set returns the columns to write, with their terms. Columns without a term are written as UNSET,
// except tuples, which have no single marker and are left out.
func (g writeTarget) set(terms []cqlTerm) (columns []columnLayout, all []cqlTerm) {
	for i, c := range g.columns {
		switch {
		case terms != nil && !terms[i].null():
			columns, all = append(columns, c), append(all, terms[i])
		case c.shape == nil:
			columns, all = append(columns, c), append(all, cqlTerm{text: "?", values: []RawValue{nil}})
		}
	}
	return columns, all
}

// insert returns the INSERT of the row's marker and of columns with one TTL. terms may be nil.
func (g writeTarget) insert(ttl int32, terms []cqlTerm) statement {
	columns, terms := g.set(terms)
	columns, terms = slices.Concat(g.key, columns), slices.Concat(g.at, terms)
	names := make([]string, len(columns))
	texts := make([]string, len(columns))
	for i, c := range columns {
		names[i], texts[i] = c.name, terms[i].text
	}
	return statement{
		text: "INSERT INTO " + g.table + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(texts, ", ") +
			") USING TIMESTAMP ? AND TTL ?",
		values: append(valuesOf(terms), g.stamp, wireInt32(ttl)),
	}
}

// update returns an UPDATE with a SET clause and a TTL. It writes no marker.
func (g writeTarget) update(set string, ttl int32, values []RawValue) statement {
	return statement{
		text:   "UPDATE " + g.table + " USING TIMESTAMP ? AND TTL ? SET " + set + " WHERE " + equations(g.key, g.at, " AND "),
		values: slices.Concat([]RawValue{g.stamp, wireInt32(ttl)}, values, valuesOf(g.at)),
	}
}

// addition returns the SET clause that adds elements to those that the batch has already written.
func (c columnLayout) addition() string {
	if c.storage != udtStorage {
		return c.name + " = " + c.name + " + ?"
	}
	set := make([]string, len(c.fields))
	for i, f := range c.fields {
		set[i] = c.name + "." + f + " = ?"
	}
	return strings.Join(set, ", ")
}

// byTTL returns, for each TTL, a list with a term for each column: null if the column has another
// TTL, or several.
func byTTL(cells []dataCell) map[int32][]cqlTerm {
	whole := map[int32][]cqlTerm{}
	for i, c := range cells {
		if c.term.null() || c.parts != nil {
			continue
		}
		if whole[c.ttl] == nil {
			whole[c.ttl] = make([]cqlTerm, len(cells))
		}
		whole[c.ttl][i] = c.term
	}
	return whole
}
