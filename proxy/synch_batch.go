package proxy

import (
	"maps"
	"slices"
	"strings"

	"music/musiccore"
)

// synchWrite is one statement. A value that is nil leaves its column alone (UNSET): so no null is ever written, and one
// text serves every row.
type synchWrite struct {
	text   string
	values []rawBytes
}

// size is what the statement takes in a BATCH frame, prepared: kind, id, count, and the values with their lengths.
func (w synchWrite) size() int {
	n := 1 + 2 + 16 + 2
	for _, v := range w.values {
		n += 4 + len(v)
	}
	return n
}

// rewrite is the batch that writes a partition back as it was read (PROTOCOL.md 1, Synch): all of it is deleted at the
// fence, and what was there stands at fence+1. The statements are to be sent as one unlogged batch, in this order.
func (t synchTable) rewrite(pk []synchTerm, rows []synchRow, fence musiccore.Stamp) []synchWrite {
	writes := []synchWrite{{
		text:   "DELETE FROM " + t.name + " USING TIMESTAMP ? WHERE " + equations(t.partition, pk, " AND "),
		values: slices.Concat([]rawBytes{wireInt64(int64(fence))}, valuesOf(pk)),
	}}
	stamp := wireInt64(int64(fence) + 1)
	if len(rows) > 0 {
		static := synchTarget{table: t.name, columns: t.static, key: t.partition, at: pk, stamp: stamp}
		writes = append(writes, static.updates(rows[0].static, byTTL(rows[0].static))...)
	}
	target := synchTarget{table: t.name, columns: t.regular, key: slices.Concat(t.partition, t.clustering), stamp: stamp}
	for _, r := range rows {
		if r.staticOnly() {
			continue
		}
		target.at = slices.Concat(pk, r.clustering)
		writes = append(writes, target.row(r)...)
	}
	return writes
}

// synchTarget is where statements write: columns of a row, or the static ones of the partition.
type synchTarget struct {
	table   string
	columns []synchColumn
	key     []synchColumn
	at      []synchTerm // values of key
	stamp   rawBytes
}

// row writes a row. The INSERT makes the row's marker, whatever columns it has; the columns of other TTLs follow.
func (g synchTarget) row(r synchRow) []synchWrite {
	whole := byTTL(r.regular)
	marker := r.markerTTL()
	first := g.insert(marker, whole[marker])
	delete(whole, marker)
	return append([]synchWrite{first}, g.updates(r.regular, whole)...)
}

// updates writes columns by TTL, then those that have more than one.
func (g synchTarget) updates(cells []synchCell, whole map[int32][]synchTerm) []synchWrite {
	var writes []synchWrite
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

// set pairs columns with terms. Those without a term are UNSET, but for tuples, which have no marker to say so and are
// left out.
func (g synchTarget) set(terms []synchTerm) (columns []synchColumn, all []synchTerm) {
	for i, c := range g.columns {
		switch {
		case terms != nil && !terms[i].null():
			columns, all = append(columns, c), append(all, terms[i])
		case c.shape == nil:
			columns, all = append(columns, c), append(all, synchTerm{text: "?", values: []rawBytes{nil}})
		}
	}
	return columns, all
}

// insert writes the row's marker and columns of one TTL; terms may be nil as a whole.
func (g synchTarget) insert(ttl int32, terms []synchTerm) synchWrite {
	columns, terms := g.set(terms)
	columns, terms = slices.Concat(g.key, columns), slices.Concat(g.at, terms)
	names := make([]string, len(columns))
	texts := make([]string, len(columns))
	for i, c := range columns {
		names[i], texts[i] = c.name, terms[i].text
	}
	return synchWrite{
		text: "INSERT INTO " + g.table + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(texts, ", ") +
			") USING TIMESTAMP ? AND TTL ?",
		values: append(valuesOf(terms), g.stamp, wireInt32(ttl)),
	}
}

// update writes what an UPDATE may set, under one TTL. It makes no marker.
func (g synchTarget) update(set string, ttl int32, values []rawBytes) synchWrite {
	return synchWrite{
		text:   "UPDATE " + g.table + " USING TIMESTAMP ? AND TTL ? SET " + set + " WHERE " + equations(g.key, g.at, " AND "),
		values: slices.Concat([]rawBytes{g.stamp, wireInt32(ttl)}, values, valuesOf(g.at)),
	}
}

// addition is the SET clause that adds elements to what the batch has written of the column before.
func (c synchColumn) addition() string {
	if c.storage != udtStorage {
		return c.name + " = " + c.name + " + ?"
	}
	set := make([]string, len(c.fields))
	for i, f := range c.fields {
		set[i] = c.name + "." + f + " = ?"
	}
	return strings.Join(set, ", ")
}

// byTTL is, for each TTL, a term for each column, null where it is of another. Columns with more than one TTL are in none.
func byTTL(cells []synchCell) map[int32][]synchTerm {
	whole := map[int32][]synchTerm{}
	for i, c := range cells {
		if c.term.null() || c.parts != nil {
			continue
		}
		if whole[c.ttl] == nil {
			whole[c.ttl] = make([]synchTerm, len(cells))
		}
		whole[c.ttl][i] = c.term
	}
	return whole
}
