package statement

import (
	"slices"

	"github.com/google/uuid"

	"music/rewrite"
)

// FixKey replaces uuid(), now() and casts to the column's type by constants where they give a
// column of the primary key. So the key that is locked is the one that is written, and a write with
// IF reads the row that it writes. Other terms that Cassandra must evaluate stay. It reports
// whether it has changed the statement.
func (s *Statement) FixKey() bool {
	if s.Critical == nil {
		return false
	}
	var edits []rewrite.Edit
	for _, part := range s.Parts() {
		for _, r := range part.Parsed.Where {
			name := part.name(r.Column)
			if r.Op != rewrite.OpEq || r.Value.Kind != rewrite.TermOther || !slices.Contains(s.Critical.Primary, name) || part.elsewhere {
				continue
			}
			if constant := s.constantOf(r.Value, s.Critical.Columns[name].Type); constant != "" {
				edits = append(edits, rewrite.Edit{Span: r.Value.Span, Text: " " + constant + " "})
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

// Evaluates reports whether a write gives a column in WHERE a value that Cassandra has to evaluate.
func (s *Statement) Evaluates() bool {
	return slices.ContainsFunc(s.Parts(), func(part Statement) bool {
		return part.IsWrite() && slices.ContainsFunc(part.Parsed.Where, func(r rewrite.Relation) bool {
			return r.Op == rewrite.OpEq && r.Value.Kind == rewrite.TermOther
		})
	})
}

// constantOf returns a constant to replace a term by in a column of a type; "" if there is none.
func (s *Statement) constantOf(t rewrite.Term, columnType string) string {
	function, _ := rewrite.Call(s.Text, t)
	typ, literal, _ := rewrite.Cast(s.Text, t)
	switch {
	case function == "uuid" && columnType == "uuid":
		return uuid.NewString()
	case function == "now" && columnType == "timeuuid":
		return newTimeUUID()
	case typ == columnType, typ == "varchar" && columnType == "text":
		return literal
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
