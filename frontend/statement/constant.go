package statement

import (
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"music/rewrite"
)

// FixTerms replaces functions such as now(), and casts to the column's type, by constants where they
// give a column of the key or, of a write with IF, another one of the primary key or a value of the
// IF. So the key that is locked is the one that is written, and a write with IF reads the row that
// it writes. Other terms that Cassandra must evaluate stay. It reports whether it has changed the
// statement.
func (s *Statement) FixTerms() bool {
	if s.Critical == nil {
		return false
	}
	var edits []rewrite.Edit
	for _, part := range s.Parts() {
		for _, e := range part.evaluated() {
			if constant := s.constantOf(e.term, s.Critical.Columns[part.name(e.column)].Type); constant != "" {
				edits = append(edits, rewrite.Edit{Span: e.term.Span, Text: " " + constant + " "})
			}
		}
	}
	if len(edits) == 0 {
		return false
	}
	text := rewrite.Replace(nil, s.Text, edits)
	fixed, err := rewrite.Parse(text)
	if err != nil || fixed.Markers != s.Parsed.Markers {
		return false
	}
	s.Parsed, s.Text, s.Fixed = &fixed, text, true
	return true
}

// evaluatedTerm is a term that Cassandra would have to evaluate, with its column.
type evaluatedTerm struct {
	column rewrite.Name
	term   rewrite.Term
}

// evaluated returns the terms of a write that must be known before it is sent, and that Cassandra
// would have to evaluate, in the order of the text; none of a statement of a batch that is on
// another table.
func (s *Statement) evaluated() (all []evaluatedTerm) {
	if !s.IsWrite() || s.elsewhere {
		return nil
	}
	for _, r := range s.Parsed.Where {
		if r.Op == rewrite.OpEq && r.Value.Kind == rewrite.TermOther && s.needsColumn(s.name(r.Column)) {
			all = append(all, evaluatedTerm{r.Column, r.Value})
		}
	}
	for _, r := range s.Parsed.Conditions {
		if r.Element.Kind != rewrite.NoTerm || !r.Field.Empty() {
			continue
		}
		for _, t := range r.Terms() {
			if t.Kind == rewrite.TermOther {
				all = append(all, evaluatedTerm{r.Column, t})
			}
		}
	}
	return all
}

// Evaluates reports whether the statement has terms that FixTerms may replace, whatever its table is
// like when it is executed.
func (s *Statement) Evaluates() bool {
	other := func(t rewrite.Term) bool { return t.Kind == rewrite.TermOther }
	return slices.ContainsFunc(s.Parts(), func(part Statement) bool {
		given := slices.ContainsFunc(part.Parsed.Where, func(r rewrite.Relation) bool { return r.Op == rewrite.OpEq && other(r.Value) })
		return part.IsWrite() && (given || slices.ContainsFunc(part.Parsed.Conditions, func(r rewrite.Relation) bool { return slices.ContainsFunc(r.Terms(), other) }))
	})
}

// constantOf returns a constant to replace a term by in a column of a type; "" if there is none.
// The present time is that of the proxy's clock.
func (s *Statement) constantOf(t rewrite.Term, columnType string) string {
	typ, literal, _ := rewrite.Cast(s.Text, t)
	if typ == columnType || typ == "varchar" && columnType == "text" {
		return literal
	}
	const day = 24 * time.Hour
	switch columnType + " = " + rewrite.Call(s.Text, t) {
	case "uuid = uuid()":
		return uuid.NewString()
	case "timeuuid = now()", "timeuuid = currenttimeuuid()", "timeuuid = current_timeuuid()":
		return newTimeUUID()
	case "timestamp = totimestamp(now())", "timestamp = to_timestamp(now())", "timestamp = currenttimestamp()", "timestamp = current_timestamp()":
		return strconv.FormatInt(time.Now().UnixMilli(), 10)
	case "date = todate(now())", "date = to_date(now())", "date = currentdate()", "date = current_date()":
		return strconv.FormatInt(1<<31+time.Now().UnixMilli()/day.Milliseconds(), 10)
	}
	return ""
}

// newTimeUUID returns a UUID of the present time, version 1; "" if there is none. Its node id is
// random and has the multicast bit set (RFC 9562 section 6.10), so that it does not show the
// address of a network card.
func newTimeUUID() string {
	u, err := uuid.NewUUID()
	if err != nil {
		return ""
	}
	random := uuid.New()
	copy(u[10:], random[10:])
	u[10] |= 1
	return u.String()
}
