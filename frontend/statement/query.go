package statement

import (
	"bytes"
	"slices"

	"music/frontend/catalog"
	"music/rewrite"
)

// Query is a text that the proxy has made, with the values of its markers in wire form.
type Query struct {
	Text   []byte
	Values [][]byte
}

// size returns how many bytes text and values take.
func (w *Query) size() int {
	n := len(w.Text)
	for _, v := range w.Values {
		n += len(v)
	}
	return n
}

// add appends text.
func (w *Query) add(text string) { w.Text = append(w.Text, text...) }

// names appends names of columns, separated by commas.
func (w *Query) names(names []string) {
	for i, name := range names {
		w.add([2]string{"", ", "}[min(i, 1)] + rewrite.Quote(name))
	}
}

// key appends the term that a statement gives a column of its primary key.
func (w *Query) key(s *Statement, name string) {
	t := s.Restriction(s.Parsed, catalog.Column{Name: name}).Value
	if t.Kind != rewrite.TermMarker {
		w.Text = append(w.Text, t.Of(s.Text)...)
		return
	}
	w.add("?")
	w.Values = append(w.Values, bytes.Clone(s.Values[t.Marker]))
}

// equals appends "name = value", with a text before it.
func (w *Query) equals(s *Statement, name, before string) {
	w.add(before + rewrite.Quote(name) + " = ")
	w.key(s, name)
}

// Fenced returns a batch of one mutation: it deletes everything of the statement's key at a stamp,
// and does write, which is the statement as Write returns it. The stamp is the first value, which
// the caller sets. ok is false if the text does not fit into a batch.
func (s *Statement) Fenced(write Query) (w Query, ok bool) {
	text := bytes.TrimRight(write.Text, " \t\r\n;")
	for _, comment := range []string{"--", "//", "/*"} {
		if bytes.Contains(text, []byte(comment)) {
			return w, false // what comes behind it may be part of it
		}
	}
	w.add("BEGIN UNLOGGED BATCH DELETE FROM " + rewrite.Quote(s.Table.Keyspace) + "." + rewrite.Quote(s.Table.Name))
	w.add(" USING TIMESTAMP ?")
	w.Values = append(w.Values, nil)
	for i, column := range s.Critical.Key {
		w.equals(s, column.Name, [2]string{" WHERE ", " AND "}[min(i, 1)])
	}
	w.add("; ")
	w.Text = append(append(w.Text, text...), "; APPLY BATCH"...)
	w.Values = append(w.Values, write.Values...)
	return w, true
}

// Read returns the SELECT that reads what the conditions need: the rows that they name, or the
// partition if they name none.
func (x *Conditional) Read() Query {
	w := x.ReadPartition(len(x.named) == 0)
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
func (x *Conditional) readRows(w *Query) {
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

// ReadPartition returns a SELECT of the partition; with first, of at most one row of it and the
// static columns. If only static columns matter it is a SELECT DISTINCT, which reads no rows: there
// may be many deleted ones.
func (x *Conditional) ReadPartition(first bool) Query {
	var w Query
	partition := x.Table.Primary[:len(x.Table.PartitionKey())]
	distinct := first && !x.Regulars && !x.Batch && !x.All
	w.add("SELECT ")
	switch {
	case distinct:
		w.add("DISTINCT ")
		w.names(slices.Concat(x.Columns(), partition)) // DISTINCT requires the partition key
	case x.All:
		w.add("*")
	default:
		w.names(x.Columns())
	}
	s := &x.parts[0]
	w.add(" FROM " + rewrite.Quote(s.Table.Keyspace) + "." + rewrite.Quote(s.Table.Name))
	for i, name := range partition {
		w.equals(s, name, [2]string{" WHERE ", " AND "}[min(i, 1)])
	}
	if first && !distinct {
		w.add(" LIMIT 1")
	}
	return w
}
