package statement

import (
	"cmp"
	"slices"

	"music/frontend/catalog"
	"music/frontend/condition"
	"music/frontend/wire"
	"music/rewrite"
)

// Conditional holds the conditions of a write with IF under a lock, or of a batch with one. They
// are read and evaluated as Cassandra does (5.0: CQL3CasRequest).
type Conditional struct {
	condition.Conditions
	parts     []Statement  // the statements of the write
	additions []addition   // for each of Sums: where it stands in the text
	named     []*Statement // for each of Rows: the statement whose WHERE names it
}

// ReadConditional reads the conditions of a write's statements, which must be on one key. It keeps
// parts.
func ReadConditional(parts []Statement, batch bool) (*Conditional, *wire.Failure) {
	x := &Conditional{parts: parts, Conditions: condition.Conditions{Table: parts[0].Critical, Batch: batch}}
	for i := range parts {
		if f := cmp.Or(x.add(&parts[i]), x.addSums(i)); f != nil {
			return nil, f
		}
	}
	return x, x.checkDeletes()
}

// checkDeletes refuses a batch that writes rows if the proxy cannot tell whether a DELETE in it is
// of one row or of several.
func (x *Conditional) checkDeletes() *wire.Failure {
	unread := func(r rewrite.Relation) bool { return r.Op != rewrite.OpToken && r.Column.Empty() } // columns in brackets, or a restriction
	unclear := func(s Statement) bool { return s.deletesRows() && slices.ContainsFunc(s.Parsed.Where, unread) }
	if slices.ContainsFunc(x.parts, unclear) && slices.ContainsFunc(x.parts, func(s Statement) bool { return !s.deletesRows() }) {
		return wire.Invalid("MUSIC_REFUSED: %s is critical: a batch with IF that also writes rows must name the rows that it deletes by column = value", x.parts[0].Table)
	}
	return nil
}

// deletesRows reports whether the statement deletes whole rows, not only columns of them.
func (s *Statement) deletesRows() bool {
	return s.Parsed.Verb == rewrite.Delete && len(s.Parsed.Sets) == 0
}

// deletesRange reports whether the statement deletes a range of rows, or a whole partition.
func (s *Statement) deletesRange() bool {
	return s.deletesRows() && (!s.oneRow() || len(s.Critical.ClusteringColumns()) == 0)
}

// OfOneRow reports whether all that the conditions, and the write, need to know is one row, of which
// Read returns nothing but Columns; of IF EXISTS, that there is a row.
func (x *Conditional) OfOneRow() bool {
	if x.Batch || x.Statics || x.Static != nil || len(x.Rows) != 1 || len(x.Conditions.Sums) > 0 {
		return false
	}
	return !x.All || x.Rows[0].Existence == condition.ExistenceRequired
}

// Leaves returns what the write, once it is applied, leaves in the columns of Columns: one row that Read
// returns from then on, until somebody writes again; of IF EXISTS it returns no columns, only whether
// there is a row. It returns nil if that does not follow from the values bound to the statement, or if
// they do not stay.
func (x *Conditional) Leaves() [][]byte {
	s := &x.parts[0]
	if !x.OfOneRow() || x.Table.Mortal || s.Parsed.Verb != rewrite.Update || s.Parsed.TTL.Kind != rewrite.NoTerm {
		return nil
	}
	if x.All {
		return s.leavesRow()
	}
	var row [][]byte
	for _, name := range x.Columns() {
		value, ok := s.binds(name)
		if !ok {
			return nil
		}
		row = append(row, value)
	}
	return row
}

// leavesRow returns a row without columns if there is one after the UPDATE because of one of the first
// values bound to it; else nil. For each of them it looks at all that the UPDATE sets.
func (s *Statement) leavesRow() [][]byte {
	const first = 16
	for _, b := range s.Parsed.Bindings[:min(first, len(s.Parsed.Bindings))] {
		if _, ok := s.binds(s.name(b.Column)); ok {
			return [][]byte{}
		}
	}
	return nil
}

// Overwrites reports whether the statement is an UPDATE that gives each column it names a bound value, which
// Cassandra is sure to accept, or null. Of two that differ in their values only, the earlier one leaves nothing
// once the later one is done.
func (s *Statement) Overwrites() bool {
	bound := s.Parsed.Bindings
	return s.Parsed.Verb == rewrite.Update && len(bound) == len(s.Parsed.Sets) && !slices.ContainsFunc(bound, s.mayBeRefused)
}

// mayBeRefused reports whether Cassandra may refuse the value of a binding, or it is not set.
func (s *Statement) mayBeRefused(b rewrite.Binding) bool {
	kind := s.Critical.Columns[s.name(b.Column)].Type
	value, bound := wire.Bound(s.Values, b.Marker)
	if !bound {
		return wire.IsUnset(s.Values, b.Marker)
	}
	switch kind {
	case "text", "varchar", "ascii", "blob":
		return !rewrite.Fits(kind, value)
	case "decimal", "timeuuid": // more counts than the length
		return true
	}
	return !asBound(kind) || len(value) == 0 || !rewrite.Fits(kind, value) // of some types a value may be empty, of others not
}

// asBound reports whether Cassandra returns the values of a type as they were bound.
func asBound(kind string) bool {
	switch kind {
	case "ascii", "bigint", "blob", "boolean", "date", "decimal", "double", "float", "inet", "int", "smallint", "text", "time", "timestamp", "timeuuid",
		"tinyint", "uuid", "varchar", "varint":
		return true
	}
	return false
}

// binds returns the value that SET gives a column, if that is one bound value, and not null. ok reports
// whether it is.
func (s *Statement) binds(column string) (value []byte, ok bool) {
	named := 0
	for _, n := range s.Parsed.Sets {
		if s.name(n) == column {
			named++
		}
	}
	if c := s.Critical.Columns[column]; named != 1 || !asBound(c.Type) || c.Static {
		return nil, false
	}
	for _, b := range s.Parsed.Bindings {
		if s.name(b.Column) == column {
			return wire.Bound(s.Values, b.Marker)
		}
	}
	return nil, false
}

// DeletesRange reports whether one of the statements deletes a range of rows, or a whole partition.
func (x *Conditional) DeletesRange() bool {
	return slices.ContainsFunc(x.parts, func(s Statement) bool { return s.deletesRange() })
}

// oneRow reports whether the statement gives a value for each clustering column.
func (s *Statement) oneRow() bool {
	return !slices.ContainsFunc(s.Critical.ClusteringColumns(), func(column catalog.Column) bool {
		r := s.Restriction(s.Parsed, column)
		return r == nil || r.Op != rewrite.OpEq
	})
}

// add adds the conditions of one statement.
func (x *Conditional) add(s *Statement) *wire.Failure {
	row := s.namesRow()
	x.Regulars = x.Regulars || row
	if r := s.clusteringIn(); r != nil {
		return wire.Invalid("IN on the clustering key columns is not supported with conditional %s", s.writeKind())
	}
	if !s.Parsed.Conditional {
		return nil
	}
	x.Statics = x.Statics || s.writesStatic()
	if s.Parsed.Exists {
		x.All = true
		required, f := x.rowCondition(s, row)
		if f != nil {
			return f
		}
		return required.Exist(s.existence())
	}
	return x.addComparisons(s)
}

// addComparisons adds the comparisons of a statement: those of its row before those of static
// columns. A refusal shows the columns in this order, too.
func (x *Conditional) addComparisons(s *Statement) *wire.Failure {
	source := s.source()
	for _, row := range []bool{true, false} {
		for i := range s.Parsed.Conditions {
			compared := condition.NewColumnCondition(source, &s.Parsed.Conditions[i])
			if s.Critical.Columns[compared.Column].Static == row {
				continue
			}
			x.Tell(compared.Column)
			required, f := x.rowCondition(s, row)
			if f != nil {
				return f
			}
			if f := required.Compare(compared); f != nil {
				return f
			}
		}
	}
	return nil
}

// rowCondition returns the conditions on the row that a statement names or, if row is false, on the
// static columns.
func (x *Conditional) rowCondition(s *Statement, row bool) (*condition.RowCondition, *wire.Failure) {
	if !row {
		return x.StaticRow(), nil
	}
	name, f := x.rowOf(s)
	if f != nil {
		return nil, f
	}
	required, added := x.Row(name)
	if added {
		x.named = append(x.named, s)
	}
	return required, nil
}

// rowOf returns the name of a statement's row (see condition.RowName); "" if the statement is not
// in a batch, since there is only one row then.
func (x *Conditional) rowOf(s *Statement) (string, *wire.Failure) {
	if !x.Batch {
		return "", s.checkRow()
	}
	var values [][]byte
	for _, column := range s.Critical.ClusteringColumns() {
		value, f := s.keyColumn(s.Parsed, column)
		if f != nil {
			return "", f
		}
		values = append(values, value)
	}
	return condition.RowName(values), nil
}

// existence returns what IF EXISTS or IF NOT EXISTS requires.
func (s *Statement) existence() condition.Existence {
	if s.Parsed.Verb == rewrite.Insert {
		return condition.ExistenceForbidden
	}
	return condition.ExistenceRequired
}

// writeKind returns the word for conditional statements of this kind in Cassandra's errors.
func (s *Statement) writeKind() string {
	if s.Parsed.Verb == rewrite.Delete {
		return "deletions"
	}
	return "updates"
}

// namesRow reports whether the statement restricts rows, not only the partition.
func (s *Statement) namesRow() bool {
	clustering := s.Critical.ClusteringColumns()
	if slices.ContainsFunc(s.Parsed.Where, func(r rewrite.Relation) bool { return r.Op == rewrite.OpTuple }) {
		return true
	}
	return len(clustering) == 0 || slices.ContainsFunc(clustering, func(column catalog.Column) bool { return s.Restriction(s.Parsed, column) != nil })
}

// clusteringIn returns the IN on a clustering column, or nil.
func (s *Statement) clusteringIn() *rewrite.Relation {
	for _, column := range s.Critical.ClusteringColumns() {
		if r := s.Restriction(s.Parsed, column); r != nil && r.Op == rewrite.OpIn {
			return r
		}
	}
	return nil
}

// writesStatic reports whether the statement writes a static column.
func (s *Statement) writesStatic() bool {
	return slices.ContainsFunc(s.written(), func(n rewrite.Name) bool { return s.Critical.Columns[s.name(n)].Static })
}
