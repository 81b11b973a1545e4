package frontend

import (
	"slices"

	"music/frontend/catalog"
	"music/frontend/condition"
	"music/frontend/wire"
	"music/rewrite"
)

// conditionalWrite is a write with IF under a lock: the rows that its conditions are about are
// read, the conditions evaluated, and the write is sent if all of them hold (docs/design.md 4). The
// lock keeps everybody else from the key meanwhile; turns keeps other conditional writes of its own
// holder. What is asked, read and answered is what Cassandra asks, reads and answers (5.0:
// CQL3CasRequest).
type conditionalWrite struct {
	condition.Conditions
	parts []lockStatement  // its statements, in memory of their own
	named []*lockStatement // of each of Rows, the statement whose WHERE names it

	again    lockedOperation // the read of the partition, where none of the rows is there
	write    lockedOperation
	warned   []string // by Cassandra, of the reads
	nextTurn func()   // lets the next one have its turn; may be called again
}

// readConditional reads what the statements of a write ask. They are of one key.
func readConditional(parts []lockStatement, batch bool) (*conditionalWrite, *wire.Failure) {
	x := &conditionalWrite{parts: parts, Conditions: condition.Conditions{Table: parts[0].critical, Batch: batch}}
	for i := range parts {
		if f := x.add(&parts[i]); f != nil {
			return nil, f
		}
	}
	return x, x.checkDeletes()
}

// checkDeletes refuses a batch of which cannot be told whether it deletes one row, beside writes.
func (x *conditionalWrite) checkDeletes() *wire.Failure {
	tuple := func(r rewrite.Relation) bool { return r.Op == rewrite.OpTuple }
	deletes := func(s lockStatement) bool { return s.statement.Verb == rewrite.Delete && len(s.statement.Sets) == 0 }
	unclear := func(s lockStatement) bool { return deletes(s) && slices.ContainsFunc(s.statement.Where, tuple) }
	if slices.ContainsFunc(x.parts, unclear) && slices.ContainsFunc(x.parts, func(s lockStatement) bool { return !deletes(s) }) {
		return wire.Invalid("MUSIC_REFUSED: %s is critical: a batch with IF that writes rows names those that it deletes by column = value", x.parts[0].table)
	}
	return nil
}

// deletesRange reports whether the statement deletes a range of rows, or all of a partition.
func (s *lockStatement) deletesRange() bool {
	return s.statement.Verb == rewrite.Delete && len(s.statement.Sets) == 0 && (!s.oneRow() || len(s.critical.ClusteringColumns()) == 0)
}

// deletesRange reports whether one of the statements does.
func (x *conditionalWrite) deletesRange() bool {
	return slices.ContainsFunc(x.parts, func(s lockStatement) bool { return s.deletesRange() })
}

// belowWrites returns the stamps of a batch with IF: a lightweight transaction stamps the deletion of a range or a partition one
// below all else, so that what it writes is there. A deletion of one row hides what the batch writes to the row, as one stamp for
// both has it. The stamp below is of this holder too, or of nobody's last write: what was written by then is deleted all the same.
func belowWrites(stamp int64) stamps {
	return func(part *lockStatement) int64 {
		if part.deletesRange() {
			return stamp - 1
		}
		return 0
	}
}

// oneRow reports whether the statement gives a value for each clustering column.
func (s *lockStatement) oneRow() bool {
	return !slices.ContainsFunc(s.critical.ClusteringColumns(), func(column catalog.Column) bool {
		r := s.restriction(s.statement, column)
		return r == nil || r.Op != rewrite.OpEq
	})
}

// add takes in one statement.
func (x *conditionalWrite) add(s *lockStatement) *wire.Failure {
	row := s.namesRow()
	x.Regulars = x.Regulars || row
	if r := s.clusteringIn(); r != nil {
		return wire.Invalid("IN on the clustering key columns is not supported with conditional %s", s.writeKind())
	}
	if !s.statement.Conditional {
		return nil
	}
	x.Statics = x.Statics || s.writesStatic()
	if s.statement.Exists {
		x.All = true
		required, f := x.rowCondition(s, row)
		if f != nil {
			return f
		}
		return required.Exist(s.existence())
	}
	return x.addComparisons(s)
}

// addComparisons takes in the comparisons of a statement: those of its row before those of static
// columns, in which order they are told too.
func (x *conditionalWrite) addComparisons(s *lockStatement) *wire.Failure {
	source := &condition.Source{Text: s.text, Values: s.values, Table: s.table.String()}
	for _, row := range []bool{true, false} {
		for i := range s.statement.Conditions {
			compared := condition.NewColumnCondition(source, &s.statement.Conditions[i])
			if s.critical.Columns[compared.Column].Static == row {
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

// rowCondition returns what is required of the row that a statement names, or, where row is false,
// of the static columns.
func (x *conditionalWrite) rowCondition(s *lockStatement, row bool) (*condition.RowCondition, *wire.Failure) {
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

// rowOf returns the name of a statement's row among those of a batch. A statement alone has one
// row.
func (x *conditionalWrite) rowOf(s *lockStatement) (string, *wire.Failure) {
	if !x.Batch {
		return "", s.checkRow()
	}
	var values [][]byte
	for _, column := range s.critical.ClusteringColumns() {
		value, f := s.keyColumn(s.statement, column)
		if f != nil {
			return "", f
		}
		values = append(values, value)
	}
	return condition.RowName(values), nil
}

// existence returns what IF EXISTS or IF NOT EXISTS requires.
func (s *lockStatement) existence() condition.Existence {
	if s.statement.Verb == rewrite.Insert {
		return condition.ExistenceForbidden
	}
	return condition.ExistenceRequired
}

// writeKind returns what Cassandra calls a conditional statement of this kind.
func (s *lockStatement) writeKind() string {
	if s.statement.Verb == rewrite.Delete {
		return "deletions"
	}
	return "updates"
}

// namesRow reports whether the statement is about rows, and not about the partition or its static
// columns alone.
func (s *lockStatement) namesRow() bool {
	clustering := s.critical.ClusteringColumns()
	if slices.ContainsFunc(s.statement.Where, func(r rewrite.Relation) bool { return r.Op == rewrite.OpTuple }) {
		return true
	}
	return len(clustering) == 0 || slices.ContainsFunc(clustering, func(column catalog.Column) bool { return s.restriction(s.statement, column) != nil })
}

// clusteringIn returns the IN on a clustering column, or nil.
func (s *lockStatement) clusteringIn() *rewrite.Relation {
	for _, column := range s.critical.ClusteringColumns() {
		if r := s.restriction(s.statement, column); r != nil && r.Op == rewrite.OpIn {
			return r
		}
	}
	return nil
}

// writesStatic reports whether the statement writes a static column.
func (s *lockStatement) writesStatic() bool {
	return slices.ContainsFunc(s.written(), func(n rewrite.Name) bool { return s.critical.Columns[s.name(n)].Static })
}

// checkCondition refuses conditions that the proxy does not try itself, and those that Cassandra
// refuses, in its words.
func (s *lockStatement) checkCondition() *wire.Failure {
	if f := s.checkTarget(); f != nil {
		return f
	}
	for i := range s.statement.Conditions {
		if f := s.checkRelation(&s.statement.Conditions[i]); f != nil {
			return f
		}
	}
	return nil
}

// checkTarget refuses a condition that is not about one row, nor about static columns alone.
func (s *lockStatement) checkTarget() *wire.Failure {
	if s.critical.Row && (s.conditionStatic() || s.statement.Exists && s.writesStatic()) {
		return wire.Invalid("MUSIC_REFUSED: %s is critical: one lock covers one row of it, and static columns are of all rows: no condition on them is served: read it, decide, write", s.table)
	}
	named := s.critical.Primary
	if !s.namesRow() {
		named = named[:len(s.critical.PartitionKey())]
		if !s.staticsAlone() {
			return wire.Invalid("MUSIC_REFUSED: %s is critical: IF takes one row under a lock: give every column of the primary key as a value", s.table)
		}
	}
	for _, name := range named {
		if r := s.restriction(s.statement, catalog.Column{Name: name}); r == nil || r.Op != rewrite.OpEq || r.Value.Kind == rewrite.TermOther {
			return wire.Invalid("MUSIC_REFUSED: %s is critical: IF takes one row under a lock: give every column of the primary key as a value", s.table)
		}
	}
	return nil
}

// conditionStatic reports whether a static column is compared.
func (s *lockStatement) conditionStatic() bool {
	return slices.ContainsFunc(s.statement.Conditions, func(r rewrite.Relation) bool { return s.critical.Columns[s.name(r.Column)].Static })
}

// staticsAlone reports whether a statement that names no row writes and compares static columns and
// no others.
func (s *lockStatement) staticsAlone() bool {
	regular := func(n rewrite.Name) bool {
		name := s.name(n)
		return !s.critical.Columns[name].Static && !slices.Contains(s.critical.Primary, name)
	}
	if slices.ContainsFunc(s.written(), regular) || slices.ContainsFunc(s.statement.Conditions, func(r rewrite.Relation) bool { return regular(r.Column) }) {
		return false
	}
	return s.conditionStatic() || s.writesStatic()
}

// checkRelation refuses one condition that the proxy does not evaluate, or that Cassandra refuses.
func (s *lockStatement) checkRelation(r *rewrite.Relation) *wire.Failure {
	name := s.name(r.Column)
	_, known := s.critical.Columns[name]
	switch r.Op {
	case rewrite.OpOther, rewrite.OpToken, rewrite.OpTuple:
		return wire.Invalid("MUSIC_REFUSED: %s is critical: this condition is not served under a lock: read USING LOCK, decide, write", s.table)
	}
	switch {
	case !known:
		return wire.Invalid("Undefined column name %s in table %s", name, s.table)
	case slices.Contains(s.critical.Primary, name):
		return wire.Invalid("PRIMARY KEY column '%s' cannot have IF conditions", name)
	}
	for _, t := range r.Terms() {
		if t.Kind != rewrite.TermMarker && !rewrite.Constant(s.text, t) {
			return wire.Invalid("MUSIC_REFUSED: %s is critical: give the values of IF as literals, or bind them: a function, and a bind marker within a value, are not served", s.table)
		}
	}
	return nil
}
