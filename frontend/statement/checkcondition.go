package statement

import (
	"slices"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// checkCondition refuses conditions that the proxy cannot evaluate, and those that Cassandra
// refuses, in its words.
func (s *Statement) checkCondition() *wire.Failure {
	if f := s.checkTarget(); f != nil {
		return f
	}
	for i := range s.Parsed.Conditions {
		if f := s.checkRelation(&s.Parsed.Conditions[i]); f != nil {
			return f
		}
	}
	return nil
}

// checkTarget refuses a condition that is neither on one row nor on static columns alone. With
// INSERT JSON or IN that is checked when the statement has been rewritten.
func (s *Statement) checkTarget() *wire.Failure {
	if s.Parsed.JSON || len(s.keysIn()) > 0 {
		return nil
	}
	if s.Critical.Row && (s.conditionStatic() || s.Parsed.Exists && s.writesStatic()) {
		return wire.Invalid("MUSIC_REFUSED: %s is critical: one lock covers one row of it, and static columns belong to all rows, so conditions on them cannot be evaluated under it: read them, decide, write", s.Table)
	}
	named := s.Critical.Primary
	if !s.namesRow() {
		named = named[:len(s.Critical.PartitionKey())]
		if !s.staticsAlone() {
			return wire.Invalid("MUSIC_REFUSED: %s is critical: IF takes one row under a lock: give every column of the primary key as a value", s.Table)
		}
	}
	for _, name := range named {
		r := s.Restriction(s.Parsed, catalog.Column{Name: name})
		if r == nil || r.Op != rewrite.OpEq || r.Value.Kind == rewrite.TermOther && !s.asks(typedTerm{r.Value, s.Critical.Columns[name].Type}) {
			return wire.Invalid("MUSIC_REFUSED: %s is critical: IF takes one row under a lock: give every column of the primary key as a value", s.Table)
		}
	}
	return nil
}

// conditionStatic reports whether the statement has a condition on a static column.
func (s *Statement) conditionStatic() bool {
	return slices.ContainsFunc(s.Parsed.Conditions, func(r rewrite.Relation) bool { return s.Critical.Columns[s.name(r.Column)].Static })
}

// staticsAlone reports whether a statement that names no row writes and compares only static
// columns.
func (s *Statement) staticsAlone() bool {
	regular := func(n rewrite.Name) bool {
		name := s.name(n)
		return !s.Critical.Columns[name].Static && !slices.Contains(s.Critical.Primary, name)
	}
	if slices.ContainsFunc(s.written(), regular) || slices.ContainsFunc(s.Parsed.Conditions, func(r rewrite.Relation) bool { return regular(r.Column) }) {
		return false
	}
	return s.conditionStatic() || s.writesStatic()
}

// checkRelation refuses a condition that the proxy cannot evaluate, or that Cassandra refuses.
func (s *Statement) checkRelation(r *rewrite.Relation) *wire.Failure {
	name := s.name(r.Column)
	_, known := s.Critical.Columns[name]
	switch r.Op {
	case rewrite.OpOther, rewrite.OpToken, rewrite.OpTuple:
		return wire.Invalid("MUSIC_REFUSED: %s is critical: this condition is not served under a lock: read USING LOCK, decide, write", s.Table)
	}
	switch {
	case !known:
		return wire.Invalid("Undefined column name %s in table %s", name, s.Table)
	case slices.Contains(s.Critical.Primary, name):
		return wire.Invalid("PRIMARY KEY column '%s' cannot have IF conditions", name)
	}
	for _, t := range s.inCondition(r) {
		if !s.asks(t) {
			return s.notServed(t.Term)
		}
	}
	return nil
}

// notServed returns the error for a value that neither the proxy nor a SELECT of it can evaluate.
func (s *Statement) notServed(t rewrite.Term) *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: %s is critical: %s cannot be evaluated before the write: write a literal, or bind the value: a column's name, token(), fromJson(), and functions that give a user-defined type or a part of one are not served", s.Table, rewrite.Excerpt(s.Text, t))
}
