package frontend

import (
	"bytes"
	"slices"

	"music/frontend/catalog"
	"music/rewrite"
)

// queryText is a text of the proxy's making with the values of its markers.
type queryText struct {
	text   []byte
	values [][]byte
}

// add appends text.
func (w *queryText) add(text string) { w.text = append(w.text, text...) }

// names appends names of columns, separated by commas.
func (w *queryText) names(names []string) {
	for i, name := range names {
		w.add([2]string{"", ", "}[min(i, 1)] + rewrite.Quote(name))
	}
}

// key appends the value that a statement gives a column of its key.
func (w *queryText) key(s *lockStatement, name string) {
	t := s.restriction(s.statement, catalog.Column{Name: name}).Value
	if t.Kind != rewrite.TermMarker {
		w.text = append(w.text, t.Of(s.text)...)
		return
	}
	w.add("?")
	w.values = append(w.values, bytes.Clone(s.values[t.Marker]))
}

// equals appends name = value, and AND before it.
func (w *queryText) equals(s *lockStatement, name, before string) {
	w.add(before + rewrite.Quote(name) + " = ")
	w.key(s, name)
}

// read returns the SELECT of what the conditions ask for: of the rows that they name, or of the
// partition where they name none.
func (x *conditionalWrite) read() queryText {
	w := x.readPartition(len(x.named) == 0)
	clustering := x.Table.ClusteringColumns()
	switch {
	case len(x.named) == 0 || len(clustering) == 0:
	case len(x.named) == 1:
		for _, column := range clustering {
			w.equals(x.named[0], column.Name, " AND ")
		}
	default:
		x.readRows(&w)
	}
	return w
}

// readRows appends the restriction to several rows.
func (x *conditionalWrite) readRows(w *queryText) {
	clustering := x.Table.Primary[len(x.Table.PartitionKey()):]
	w.add(" AND (")
	w.names(clustering)
	w.add(") IN (")
	for i, s := range x.named {
		w.add([2]string{"(", ", ("}[min(i, 1)])
		for j, name := range clustering {
			w.add([2]string{"", ", "}[min(j, 1)])
			w.key(s, name)
		}
		w.add(")")
	}
	w.add(")")
}

// readPartition returns the SELECT without restriction to rows; first is for one row of the
// partition at most, with the static columns. Where only static columns matter no rows are looked
// at: they may be many, and dead.
func (x *conditionalWrite) readPartition(first bool) queryText {
	var w queryText
	partition := x.Table.Primary[:len(x.Table.PartitionKey())]
	distinct := first && !x.Regulars && !x.Batch && !x.All
	w.add("SELECT ")
	switch {
	case distinct:
		w.add("DISTINCT ")
		w.names(slices.Concat(x.Columns(), partition)) // DISTINCT wants them
	case x.All:
		w.add("*")
	default:
		w.names(x.Columns())
	}
	s := &x.parts[0]
	w.add(" FROM " + rewrite.Quote(s.table.Keyspace) + "." + rewrite.Quote(s.table.Name))
	for i, name := range partition {
		w.equals(s, name, [2]string{" WHERE ", " AND "}[min(i, 1)])
	}
	if first && !distinct {
		w.add(" LIMIT 1")
	}
	return w
}

// clone returns the section in memory of its own.
func (s lockStatement) clone() lockStatement {
	s.text = bytes.Clone(s.text)
	s.values = slices.Clone(s.values)
	for i := range s.values {
		s.values[i] = bytes.Clone(s.values[i])
	}
	return s
}
