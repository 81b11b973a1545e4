package frontend

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// evaluation is a conditional write whose rows have been read, while its conditions are evaluated.
type evaluation struct {
	*conditionalWrite
	readColumns []*message.ColumnMetadata
	readRows    message.RowSet
	named       map[string]message.Row // those of a batch, see rowOf; nil until they are asked for
}

// holds tells whether all conditions hold.
func (y *evaluation) holds() (bool, *wire.Failure) {
	all := y.rows
	if y.static != nil {
		all = append([]*rowCondition{y.static}, all...)
	}
	for _, a := range all {
		if ok, f := y.tried(a); f != nil || !ok {
			return false, f
		}
	}
	return true, nil
}

// tried tells whether what is asked of one row holds.
func (y *evaluation) tried(a *rowCondition) (bool, *wire.Failure) {
	row := y.find(a)
	switch {
	case a == y.static && a.existence != existenceAny:
		return y.hasStatics(row) == (a.existence == existenceRequired), nil
	case a.existence != existenceAny:
		return (row != nil) == (a.existence == existenceRequired), nil
	}
	for i := range a.tests {
		if ok, f := y.test(&a.tests[i], row); f != nil || !ok {
			return false, f
		}
	}
	return true, nil
}

// find is the row that something is asked of, or nil. Any row has the static columns.
func (y *evaluation) find(a *rowCondition) message.Row {
	switch {
	case len(y.readRows) == 0 || a != y.static && y.rowless:
		return nil
	case a == y.static || !y.batch:
		return y.readRows[0]
	case y.named == nil:
		y.nameRows()
	}
	return y.named[a.row]
}

// nameRows makes the rows of a batch known by their names.
func (y *evaluation) nameRows() {
	y.named = map[string]message.Row{}
	clustering := y.critical().ClusteringColumns()
	for _, row := range y.readRows {
		var values [][]byte
		for _, column := range clustering {
			values = append(values, column.Canonical(row[y.index(column.Name)]))
		}
		y.named[rowName(values)] = row
	}
}

// index is where a column stands among those that were read. All that are asked for do.
func (y *evaluation) index(column string) int {
	return slices.IndexFunc(y.readColumns, func(c *message.ColumnMetadata) bool { return c.Name == column })
}

// hasStatics tells whether a static column has a value.
func (y *evaluation) hasStatics(row message.Row) bool {
	for i, column := range y.readColumns {
		if static := y.critical().Columns[column.Name]; row != nil && row[i] != nil && static.Static && y.looked(static) {
			return true
		}
	}
	return false
}

// looked tells whether Cassandra reads a column.
func (y *evaluation) looked(column catalog.Column) bool {
	switch {
	case slices.Contains(y.critical().Primary, column.Name), slices.Contains(y.told, column.Name):
		return true
	case column.Static:
		return y.statics
	}
	return y.regulars
}

// refusal is what is told where a condition does not hold: the rows that are there, without what Cassandra does not read.
func (y *evaluation) refusal() *message.RowsResult {
	told := len(y.readColumns)
	if !y.all {
		told = len(y.toldColumns())
	}
	partition := y.critical().Primary[:len(y.critical().PartitionKey())]
	result := &message.RowsResult{Metadata: &message.RowsMetadata{Columns: y.readColumns[:told]}}
	for _, row := range y.readRows {
		if y.rowless && !y.hasStatics(row) {
			continue
		}
		for i, c := range y.readColumns {
			column := y.critical().Columns[c.Name]
			if !y.looked(column) || y.rowless && !column.Static && !slices.Contains(partition, c.Name) {
				row[i] = nil
			}
		}
		result.Data = append(result.Data, row[:told])
	}
	return result
}

// test tries one comparison, as Cassandra does (5.0: ColumnCondition).
func (y *evaluation) test(t *columnCondition, row message.Row) (bool, *wire.Failure) {
	at := y.index(t.column)
	var value []byte
	if row != nil {
		value = row[at]
	}
	frozen := strings.HasPrefix(y.critical().Columns[t.column].Type, "frozen<")
	kind := known(y.readColumns[at].Type)
	o := operand{kind: kind, value: value, cells: !frozen && isCollection(kind)}
	o, f := y.part(t, o)
	if f != nil {
		return false, f
	}
	values, f := y.values(t, o.compared(t.operator))
	if f != nil {
		return false, f
	}
	sign := t.operator
	if sign == "IN" {
		sign = "="
	}
	for _, v := range values {
		if ok, f := o.holds(sign, v); f != nil || ok {
			return ok, f
		}
	}
	return false, nil
}

// part is the element or the field that a test is about, or the column.
func (y *evaluation) part(t *columnCondition, column operand) (operand, *wire.Failure) {
	switch {
	case t.field != "":
		return column.field(t)
	case t.element.Kind == rewrite.NoTerm:
		return column, nil
	}
	kind, f := column.elementKind(t)
	if f != nil {
		return column, f
	}
	element, f := y.value(t.statement, t.element, kind)
	if f != nil {
		return column, f
	}
	return column.element(element)
}

// values are what a test compares with, each well-formed.
func (y *evaluation) values(t *columnCondition, kind datatype.DataType) (values [][]byte, f *wire.Failure) {
	if kind == nil {
		return nil, wire.Invalid("MUSIC_REFUSED: %s is critical: this condition on %s is not served under a lock: read USING LOCK, decide, write", t.statement.table, t.column)
	}
	if t.listed {
		return t.statement.boundValues(t.values[0], kind)
	}
	for _, term := range t.values {
		if t.operator == "IN" && term.Kind == rewrite.TermMarker && t.statement.unset(term) {
			continue // as Cassandra does
		}
		value, f := y.value(t.statement, term, kind)
		if f != nil {
			return nil, f
		}
		values = append(values, value)
	}
	return values, nil
}

// value is a term's value as one of a type, nil for null.
func (y *evaluation) value(s *lockStatement, t rewrite.Term, kind datatype.DataType) ([]byte, *wire.Failure) {
	switch t.Kind {
	case rewrite.TermNull:
		return nil, nil
	case rewrite.TermMarker:
		value, ok := s.bound(t)
		if !ok && s.unset(t) {
			return nil, wire.Invalid("Invalid 'unset' value in condition")
		}
		if !ok {
			return nil, nil
		}
		return settle(kind, value)
	}
	return y.constant(s, t, kind)
}

// boundValues are those of a list bound to IN ? (v4 spec section 6).
func (s *lockStatement) boundValues(t rewrite.Term, kind datatype.DataType) (values [][]byte, f *wire.Failure) {
	raw, ok := s.bound(t)
	switch {
	case !ok && s.unset(t):
		return nil, wire.Invalid("Invalid 'unset' value in condition")
	case !ok:
		return nil, wire.Invalid("Invalid null list in IN condition")
	}
	elements, ok := elementsOf(raw, 1)
	if !ok {
		return nil, wire.Invalid("MUSIC_SYNTAX: the value bound to IN ? must be a list")
	}
	for _, element := range elements {
		if element != nil {
			if element, f = settle(kind, element); f != nil {
				return nil, f
			}
		}
		values = append(values, element)
	}
	return values, nil
}

// operand is what stands on the left of a comparison.
type operand struct {
	kind  datatype.DataType
	value []byte // nil for null
	cells bool   // a collection whose elements are kept one by one: to have none is to be null
}

// isCollection tells whether a type is a list, a set or a map.
func isCollection(kind datatype.DataType) bool {
	switch kind.(type) {
	case *datatype.List, *datatype.Set, *datatype.Map:
		return true
	}
	return false
}

// field is a field of a user-defined type.
func (o operand) field(t *columnCondition) (operand, *wire.Failure) {
	kind, ok := o.kind.(*datatype.UserDefined)
	if !ok {
		return o, wire.Invalid("MUSIC_SYNTAX: %s is of no user-defined type and has no field %s", t.column, t.field)
	}
	i := slices.Index(kind.FieldNames, t.field)
	if i < 0 {
		return o, wire.Invalid("Unknown field %s for column %s", t.field, t.column)
	}
	field := operand{kind: kind.FieldTypes[i]}
	if fields := fieldsOf(o.value); i < len(fields) {
		field.value = fields[i]
	}
	return field, nil
}

// elementKind is the type of what names an element.
func (o operand) elementKind(t *columnCondition) (datatype.DataType, *wire.Failure) {
	switch kind := o.kind.(type) {
	case *datatype.Map:
		return kind.KeyType, nil
	case *datatype.List:
		return datatype.Int, nil
	case *datatype.Set:
		return nil, wire.Invalid("Invalid element access syntax for set column %s", t.column)
	}
	return nil, wire.Invalid("Invalid element access syntax for non-collection column %s", t.column)
}

// element is the element of a key or an index.
func (o operand) element(at []byte) (operand, *wire.Failure) {
	if m, ok := o.kind.(*datatype.Map); ok {
		if at == nil {
			return o, wire.Invalid("Invalid null value for map element access")
		}
		return operand{kind: m.ValueType, value: lookUp(m, o.value, at)}, nil
	}
	element := operand{kind: o.kind.(*datatype.List).ElementType}
	switch {
	case len(at) != 4:
		return o, wire.Invalid("Invalid null value for list element access")
	case int32(binary.BigEndian.Uint32(at)) < 0:
		return o, wire.Invalid("Invalid negative list index %d", int32(binary.BigEndian.Uint32(at)))
	}
	elements, _ := elementsOf(o.value, 1)
	if i := int(binary.BigEndian.Uint32(at)); i < len(elements) {
		element.value = elements[i]
	}
	return element, nil
}

// compared is the type of what the operand is compared with by a sign; nil where that is not served.
func (o operand) compared(sign string) datatype.DataType {
	kind := o.kind
	switch list, isList := kind.(*datatype.List); {
	case !strings.HasPrefix(sign, "CONTAINS"):
	case isList && sign == "CONTAINS":
		kind = list.ElementType
	default:
		kind = containedIn(kind, sign)
	}
	if kind == nil || comparisonOf(kind) == nil || !ordered(kind) && strings.ContainsAny(sign, "<>") {
		return nil
	}
	return kind
}

// containedIn is the type of what a set or a map may contain.
func containedIn(kind datatype.DataType, sign string) datatype.DataType {
	switch kind := kind.(type) {
	case *datatype.Set:
		if sign == "CONTAINS" {
			return kind.ElementType
		}
	case *datatype.Map:
		if sign == "CONTAINS" {
			return kind.ValueType
		}
		return kind.KeyType
	}
	return nil
}

// holds compares as Cassandra does: null equals null and nothing else, and is in no order. A collection that is kept by its elements is
// null where it is empty.
func (o operand) holds(sign string, other []byte) (bool, *wire.Failure) {
	contains := strings.HasPrefix(sign, "CONTAINS")
	if o.cells && !contains && other != nil && empty(other) {
		if sign != "=" && sign != "!=" {
			return false, wire.Invalid("Invalid comparison with an empty %s for operator \"%s\"", kindOf(o.kind), sign)
		}
		other = nil
	}
	switch {
	case other == nil && sign == "=":
		return o.value == nil, nil
	case other == nil && sign == "!=":
		return o.value != nil, nil
	case other == nil:
		return false, wire.Invalid("Invalid comparison with null for operator \"%s\"", sign)
	case o.value == nil:
		return sign == "!=", nil
	case contains:
		return o.contains(sign, other), nil
	}
	return satisfies(sign, comparisonOf(o.kind)(o.value, other)), nil
}

// contains tells whether a collection has an element, or a key.
func (o operand) contains(sign string, other []byte) bool {
	kind := o.compared(sign)
	elements, _ := elementsOf(o.value, 1)
	if _, ok := o.kind.(*datatype.Map); ok {
		pairs, _ := elementsOf(o.value, 2)
		elements = nil
		for i, element := range pairs {
			if (i%2 == 0) == (sign == "CONTAINS KEY") {
				elements = append(elements, element)
			}
		}
	}
	return slices.ContainsFunc(elements, func(element []byte) bool { return comparisonOf(kind)(element, other) == 0 })
}

// satisfies tells what a comparison means by a sign.
func satisfies(sign string, order int) bool {
	switch sign {
	case "=":
		return order == 0
	case "!=":
		return order != 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}
