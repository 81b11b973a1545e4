// Package condition evaluates the IF of a write as Cassandra does (5.0: CQL3CasRequest,
// RowCondition, ColumnCondition), on rows that have been read, with values in wire form. It knows
// nothing of connections and locks.
package condition

import (
	"encoding/binary"
	"slices"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// Existence says whether IF requires a row to exist.
type Existence uint8

// The values of Existence.
const (
	ExistenceAny       Existence = iota // no requirement, or only on columns
	ExistenceRequired                   // IF EXISTS
	ExistenceForbidden                  // IF NOT EXISTS
)

// Conditions are the conditions of one write: of a statement, or of all statements of a batch.
type Conditions struct {
	Table *catalog.Critical
	Batch bool // the write is a batch: a refusal shows rows with their primary key

	Rows   []*RowCondition // the conditions on rows, one for each row
	Static *RowCondition   // the conditions on the static columns, or nil
	Sums   []Sum           // the additions of the write
	Told   []string        // the columns that a refusal shows to the client, each once

	All      bool // a refusal shows all columns
	Regulars bool // Cassandra reads all regular columns, not only the compared ones
	Statics  bool // Cassandra reads all static columns, not only the compared ones

	byName  map[string]*RowCondition // Rows by their names
	rowless bool                     // none of the rows exists, and the partition has been asked for
}

// RowCondition holds the conditions on one row, or on the static columns.
type RowCondition struct {
	Row       string // in a batch: the name of the row, see RowName
	Existence Existence
	Columns   []ColumnCondition
}

// ColumnCondition compares a column, an element of a collection, or a field of a user-defined type
// with a value.
type ColumnCondition struct {
	Source   *Source
	Column   string
	Element  rewrite.Term
	Field    string
	Operator string         // = != < <= > >= IN CONTAINS or CONTAINS KEY
	Values   []rewrite.Term // one, or with IN (…) any number
	Listed   bool           // IN ?: the one value is a list
}

// NewColumnCondition returns the condition of a statement's relation after IF.
func NewColumnCondition(s *Source, r *rewrite.Relation) ColumnCondition {
	t := ColumnCondition{Source: s, Column: s.name(r.Column), Element: r.Element, Operator: "=", Values: []rewrite.Term{r.Value}}
	if !r.Field.Empty() {
		t.Field = s.name(r.Field)
	}
	switch r.Op {
	case rewrite.OpIn:
		t.Operator, t.Listed = "IN", r.Value.Kind == rewrite.TermMarker
		if !t.Listed {
			t.Values = r.Values
		}
	case rewrite.OpCompare:
		t.Operator = string(r.Sign.Of(s.Text))
	case rewrite.OpContains:
		t.Operator = "CONTAINS"
	case rewrite.OpContainsKey:
		t.Operator = "CONTAINS KEY"
	}
	return t
}

// Row returns the conditions on the row with a name, and adds them if there are none yet; added
// reports whether it did.
func (c *Conditions) Row(name string) (row *RowCondition, added bool) {
	if row = c.byName[name]; row != nil {
		return row, false
	}
	if c.byName == nil {
		c.byName = map[string]*RowCondition{}
	}
	row = &RowCondition{Row: name}
	c.byName[name] = row
	c.Rows = append(c.Rows, row)
	return row, true
}

// StaticRow returns the conditions on the static columns, and adds them if there are none yet.
func (c *Conditions) StaticRow() *RowCondition {
	if c.Static == nil {
		c.Static = &RowCondition{}
	}
	return c.Static
}

// Compare adds a condition on a column of the row.
func (r *RowCondition) Compare(t ColumnCondition) *wire.Failure {
	if r.Existence != ExistenceAny {
		return wire.Invalid("Cannot mix IF conditions and IF NOT EXISTS for the same row")
	}
	r.Columns = append(r.Columns, t)
	return nil
}

// Tell adds a column to those that a refusal shows.
func (c *Conditions) Tell(column string) {
	if !slices.Contains(c.Told, column) {
		c.Told = append(c.Told, column)
	}
}

// Exist requires the row to exist, or not to exist. Several statements may require the same.
func (r *RowCondition) Exist(e Existence) *wire.Failure {
	switch {
	case r.Existence == e:
	case r.Existence != ExistenceAny:
		return wire.Invalid("Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row")
	case len(r.Columns) > 0 && e == ExistenceForbidden:
		return wire.Invalid("Cannot mix IF conditions and IF NOT EXISTS for the same row")
	case len(r.Columns) > 0:
		return wire.Invalid("Cannot mix IF conditions and IF EXISTS for the same row")
	}
	r.Existence = e
	return nil
}

// RowName returns a string that is unique to these values of the clustering columns.
func RowName(values [][]byte) string {
	var name []byte
	for _, value := range values {
		name = append(binary.BigEndian.AppendUint32(name, uint32(len(value))), value...)
	}
	return string(name)
}

// Columns returns the columns to read, unless all are read: first those that a refusal shows, then
// static columns and summed columns.
func (c *Conditions) Columns() []string {
	columns := c.toldColumns()
	for _, name := range c.Table.Static {
		if c.Statics && !slices.Contains(columns, name) {
			columns = append(columns, name)
		}
	}
	for _, s := range c.Sums {
		if !slices.Contains(columns, s.Column) {
			columns = append(columns, s.Column)
		}
	}
	return columns
}

// toldColumns returns the columns that a refusal shows, unless it shows all.
func (c *Conditions) toldColumns() []string {
	if c.Batch {
		return slices.Concat(c.Table.Primary, c.Told)
	}
	return slices.Clone(c.Told)
}
