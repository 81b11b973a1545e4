// Package condition evaluates the IF of a write as Cassandra does (5.0: CQL3CasRequest,
// RowCondition, ColumnCondition): on rows that were read, with values in wire form. It knows
// neither connections nor locks.
package condition

import (
	"encoding/binary"
	"slices"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// Existence is what IF requires of a row itself.
type Existence uint8

// What may be required.
const (
	ExistenceAny       Existence = iota // nothing: its columns are compared
	ExistenceRequired                   // IF EXISTS
	ExistenceForbidden                  // IF NOT EXISTS
)

// Conditions are those of one write: of a statement, or of all statements of a batch.
type Conditions struct {
	Table *catalog.Critical
	Batch bool // the rows are told with their primary key

	Rows   []*RowCondition // what is required of rows, each row once
	Static *RowCondition   // what is required of the static columns, or nil
	Sums   []Sum           // what the write adds to what is there
	Told   []string        // columns that are told where a condition does not hold, each once

	All      bool // all columns are told then
	Regulars bool // all regular columns are looked at, not only those that are compared
	Statics  bool // all static columns, likewise

	byName  map[string]*RowCondition // Rows by their names
	rowless bool                     // none of the rows is there, and the partition has been asked for
}

// RowCondition is what is required of one row, or of the static columns.
type RowCondition struct {
	Row       string // of a batch: its name, see RowName
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
	Values   []rewrite.Term // one, but for IN (…)
	Listed   bool           // IN ?: the value is a list of them
}

// NewColumnCondition returns what one condition of a statement compares.
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

// Row returns what is required of the row with a name. It is added where it is not there yet: then
// added is true.
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

// StaticRow returns what is required of the static columns. It is added where it is not there yet.
func (c *Conditions) StaticRow() *RowCondition {
	if c.Static == nil {
		c.Static = &RowCondition{}
	}
	return c.Static
}

// Compare requires a column of the row to compare as t says.
func (r *RowCondition) Compare(t ColumnCondition) *wire.Failure {
	if r.Existence != ExistenceAny {
		return wire.Invalid("Cannot mix IF conditions and IF NOT EXISTS for the same row")
	}
	r.Columns = append(r.Columns, t)
	return nil
}

// Tell has a column told where a condition does not hold.
func (c *Conditions) Tell(column string) {
	if !slices.Contains(c.Told, column) {
		c.Told = append(c.Told, column)
	}
}

// Exist requires the row itself to be there, or not to be. Several statements may require the same.
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

// RowName returns one text for the values of clustering columns, which no other values have.
func RowName(values [][]byte) string {
	var name []byte
	for _, value := range values {
		name = append(binary.BigEndian.AppendUint32(name, uint32(len(value))), value...)
	}
	return string(name)
}

// Columns returns the columns that are to be read where not all are: what is told, and behind it
// the static columns that decide whether there is anything.
func (c *Conditions) Columns() []string {
	columns := c.ToldColumns()
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

// ToldColumns returns the columns that are told where not all are.
func (c *Conditions) ToldColumns() []string {
	if c.Batch {
		return slices.Concat(c.Table.Primary, c.Told)
	}
	return slices.Clone(c.Told)
}
