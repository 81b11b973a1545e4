package statement

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"music/frontend/catalog"
	"music/rewrite"
)

// FixKey puts constants in the place of what the statement gives its primary key by uuid(), by now()
// or as a cast to the column's type: the key that is locked is the one that is written, and a write
// with IF reads the row that it writes. All else is left as it is, and no constant then. It reports whether
// it has written the statement anew.
func (s *Statement) FixKey() bool {
	if s.Critical == nil {
		return false
	}
	var edits []rewrite.Edit
	for _, part := range s.Parts() {
		for _, r := range part.Parsed.Where {
			name := part.name(r.Column)
			if r.Op != rewrite.OpEq || r.Value.Kind != rewrite.TermOther || !slices.Contains(s.Critical.Primary, name) || !s.sameTable(part.Parsed) {
				continue
			}
			if constant := s.constantOf(r.Value, s.column(name)); constant != "" {
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

// Evaluates reports whether a column of the statement is given a value that Cassandra has to evaluate.
func (s *Statement) Evaluates() bool {
	return slices.ContainsFunc(s.Parts(), func(part Statement) bool {
		return part.IsWrite() && slices.ContainsFunc(part.Parsed.Where, func(r rewrite.Relation) bool {
			return r.Op == rewrite.OpEq && r.Value.Kind == rewrite.TermOther
		})
	})
}

// column returns a column of the primary key.
func (s *Statement) column(name string) catalog.Column {
	for _, c := range s.Critical.Key {
		if c.Name == name {
			return c
		}
	}
	return s.Critical.Columns[name]
}

// constantOf returns the constant that a term stands for; "" where it is not known to be one.
func (s *Statement) constantOf(t rewrite.Term, c catalog.Column) string {
	function, _ := rewrite.Call(s.Text, t)
	typ, literal, _ := rewrite.Cast(s.Text, t)
	switch {
	case function == "uuid" && c.Type == "uuid":
		return newUUID(false)
	case function == "now" && c.Type == "timeuuid":
		return newUUID(true)
	case typ == c.Type, typ == "varchar" && c.Type == "text":
		return literal
	}
	return ""
}

// newUUID returns a new UUID: of the present time (version 1), or random (version 4).
func newUUID(ofTime bool) string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // it never fails
	u[6], u[8] = 0x40|u[6]&0x0f, 0x80|u[8]&0x3f
	if ofTime {
		const since1582 = 0x01b21dd213814000 // of 100 ns, up to 1970 (RFC 9562)
		ticks := uint64(time.Now().UnixNano()/100) + since1582
		binary.BigEndian.PutUint32(u[:], uint32(ticks))
		binary.BigEndian.PutUint16(u[4:], uint16(ticks>>32))
		binary.BigEndian.PutUint16(u[6:], uint16(ticks>>48)&0x0fff|0x1000)
		u[10] |= 1 // no network card's
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
