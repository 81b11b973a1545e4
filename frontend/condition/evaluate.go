package condition

import (
	"slices"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/message"

	"music/frontend/catalog"
	"music/frontend/wire"
)

// Evaluation evaluates the conditions of a write on the rows that were read for it.
type Evaluation struct {
	*Conditions
	columns []*message.ColumnMetadata
	rows    message.RowSet
	named   map[string]message.Row // in a batch: rows by RowName; nil until first needed
	through int                    // see lookThrough
}

// Evaluate returns an evaluation on rows that were read with Conditions.Columns, or with all
// columns.
func (c *Conditions) Evaluate(columns []*message.ColumnMetadata, rows message.RowSet) *Evaluation {
	return &Evaluation{Conditions: c, columns: columns, rows: rows}
}

// Step is what follows from an Evaluation.
type Step uint8

// The steps.
const (
	Refuse        Step = iota // a condition does not hold: the client gets Refusal
	Write                     // all conditions hold
	ReadPartition             // no row exists, but static columns matter: read the partition and evaluate on that
)

// Next returns the next step. It returns ReadPartition at most once.
func (y *Evaluation) Next() (Step, *wire.Failure) {
	rowless := len(y.rows) == 0 && len(y.Rows) > 0 && !y.rowless && len(y.Table.Static) > 0
	if rowless && y.Static != nil {
		y.rowless = true
		return ReadPartition, nil
	}
	ok, f := y.holds()
	switch {
	case f != nil:
		return Refuse, f
	case ok && rowless && y.sumsStatic():
		y.rowless = true
		return ReadPartition, nil
	case ok:
		return Write, nil
	case rowless && y.Statics:
		y.rowless = true
		return ReadPartition, nil
	}
	return Refuse, nil
}

// holds reports whether all conditions hold.
func (y *Evaluation) holds() (bool, *wire.Failure) {
	all := y.Rows
	if y.Static != nil {
		all = append([]*RowCondition{y.Static}, all...)
	}
	for _, a := range all {
		if f := y.checkValues(a); f != nil {
			return false, f
		}
	}
	for _, a := range all {
		if ok, f := y.tried(a); f != nil || !ok {
			return false, f
		}
	}
	return true, nil
}

// checkValues refuses a value that is not of its column's type, in whatever condition it is:
// Cassandra reads all of them before it evaluates one.
func (y *Evaluation) checkValues(a *RowCondition) *wire.Failure {
	for i := range a.Columns {
		if _, _, f := y.operands(&a.Columns[i], nil); f != nil {
			return f
		}
	}
	return nil
}

// tried reports whether the conditions on one row hold.
func (y *Evaluation) tried(a *RowCondition) (bool, *wire.Failure) {
	row := y.find(a)
	switch {
	case a == y.Static && a.Existence != ExistenceAny:
		return y.hasStatics(row) == (a.Existence == ExistenceRequired), nil
	case a.Existence != ExistenceAny:
		return (row != nil) == (a.Existence == ExistenceRequired), nil
	}
	for i := range a.Columns {
		if ok, f := y.test(&a.Columns[i], row); f != nil || !ok {
			return false, f
		}
	}
	return true, nil
}

// find returns the row that conditions are on, or nil if it does not exist. Any row has the static
// columns.
func (y *Evaluation) find(a *RowCondition) message.Row {
	switch {
	case len(y.rows) == 0 || a != y.Static && y.rowless:
		return nil
	case a == y.Static || !y.Batch:
		return y.rows[0]
	case y.named == nil:
		y.nameRows()
	}
	return y.named[a.Row]
}

// nameRows sets named.
func (y *Evaluation) nameRows() {
	y.named = map[string]message.Row{}
	clustering := y.Table.ClusteringColumns()
	for _, row := range y.rows {
		var values [][]byte
		for _, column := range clustering {
			value, _ := column.Canonical(row[y.index(column.Name)]) // a statement that names a row gives only values that have one
			values = append(values, value)
		}
		y.named[RowName(values)] = row
	}
}

// index returns the index of a column among those that were read. All compared columns are.
func (y *Evaluation) index(column string) int {
	return slices.IndexFunc(y.columns, func(c *message.ColumnMetadata) bool { return c.Name == column })
}

// hasStatics reports whether a static column has a value.
func (y *Evaluation) hasStatics(row message.Row) bool {
	for i, column := range y.columns {
		if static := y.Table.Columns[column.Name]; row != nil && row[i] != nil && static.Static && y.looked(static) {
			return true
		}
	}
	return false
}

// looked reports whether Cassandra reads a column.
func (y *Evaluation) looked(column catalog.Column) bool {
	switch {
	case slices.Contains(y.Table.Primary, column.Name), slices.Contains(y.Told, column.Name):
		return true
	case column.Static:
		return y.Statics
	}
	return y.Regulars
}

// Refusal returns the rows that a client gets when a condition does not hold: those that exist,
// with nulls in the columns that Cassandra would not read.
func (y *Evaluation) Refusal() *message.RowsResult {
	told := len(y.columns)
	if !y.All {
		told = len(y.toldColumns())
	}
	partition := y.Table.Primary[:len(y.Table.PartitionKey())]
	result := &message.RowsResult{Metadata: &message.RowsMetadata{Columns: y.columns[:told]}}
	var hidden []int // found out once: there may be as many rows as columns
	for i, c := range y.columns {
		column := y.Table.Columns[c.Name]
		if !y.looked(column) || y.rowless && !column.Static && !slices.Contains(partition, c.Name) {
			hidden = append(hidden, i)
		}
	}
	for _, row := range y.rows {
		if y.rowless && !y.hasStatics(row) {
			continue
		}
		for _, i := range hidden {
			row[i] = nil
		}
		result.Data = append(result.Data, row[:told])
	}
	return result
}

// test reports whether a condition holds on a row, which is nil if it does not exist (5.0:
// ColumnCondition).
func (y *Evaluation) test(t *ColumnCondition, row message.Row) (bool, *wire.Failure) {
	o, values, f := y.operands(t, row)
	if f != nil {
		return false, f
	}
	operator := t.Operator
	if operator == "IN" {
		operator = "="
	}
	for _, v := range values {
		if f := y.lookThrough(t, o.cost(v)); f != nil {
			return false, f
		}
		if ok, f := o.holds(operator, v); f != nil || ok {
			return ok, f
		}
	}
	return false, nil
}

// maxThrough is how many bytes the conditions of a write look through, or as many as take that time.
const maxThrough = 256 << 20

// lookThrough counts n bytes that a condition looks through. Each condition on an element of a collection looks
// through all of it, and a write may have thousands: it is refused beyond maxThrough.
func (y *Evaluation) lookThrough(t *ColumnCondition, n int) *wire.Failure {
	if y.through += n; y.through > maxThrough {
		return wire.Invalid("MUSIC_REFUSED: %s is critical: what the conditions look through is too large together, as on %s: compare less of it at a time, or read USING LOCK, decide, write", t.Source.Table, t.Column)
	}
	return nil
}

// operands returns the left side of a condition on a row, which is nil if it does not exist, and
// the values on the right.
func (y *Evaluation) operands(t *ColumnCondition, row message.Row) (o operand, values [][]byte, f *wire.Failure) {
	at := y.index(t.Column)
	if at < 0 {
		return o, nil, wire.Invalid("Undefined column name %s in table %s", t.Column, t.Source.Table) // it was dropped meanwhile
	}
	var value []byte
	if row != nil {
		value = row[at]
	}
	frozen := strings.HasPrefix(y.Table.Columns[t.Column].Type, "frozen<")
	kind := currentType(y.columns[at].Type)
	o = operand{kind: kind, value: value, cells: !frozen && isCollection(kind)}
	if !t.whole() { // an element or a field is looked for
		if f = y.lookThrough(t, len(value)); f != nil {
			return o, nil, f
		}
	}
	if o, f = t.part(o); f != nil {
		return o, nil, f
	}
	values, f = t.values(o.compared(t.Operator))
	return o, values, f
}
