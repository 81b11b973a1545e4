package frontend

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"music/frontend/catalog"
	"music/rewrite"
)

// fixKey puts constants in the place of what the statement gives its primary key by uuid(), by now()
// or as a cast to the column's type: the key that is locked is the one that is written, and a write
// with IF reads the row that it writes. All else is left as it is, and no constant then.
func (s *lockStatement) fixKey() {
	if s.critical == nil {
		return
	}
	var edits []rewrite.Edit
	for _, part := range s.parts() {
		for _, r := range part.statement.Where {
			name := part.name(r.Column)
			if r.Op != rewrite.OpEq || r.Value.Kind != rewrite.TermOther || !slices.Contains(s.critical.Primary, name) || !s.sameTable(part.statement) {
				continue
			}
			if constant := s.constantOf(r.Value, s.column(name)); constant != "" {
				edits = append(edits, rewrite.Edit{Span: r.Value.Span, Text: " " + constant + " "})
			}
		}
	}
	if len(edits) == 0 {
		return
	}
	text := rewrite.Replace(nil, s.text, edits)
	if fixed, err := rewrite.Parse(text); err == nil && fixed.Markers == s.statement.Markers {
		s.statement, s.text, s.prepared, s.fixed = &fixed, text, nil, true
	}
}

// evaluates reports whether a column of the statement is given a value that Cassandra has to evaluate.
func (s *lockStatement) evaluates() bool {
	return slices.ContainsFunc(s.parts(), func(part lockStatement) bool {
		return part.isWrite() && slices.ContainsFunc(part.statement.Where, func(r rewrite.Relation) bool {
			return r.Op == rewrite.OpEq && r.Value.Kind == rewrite.TermOther
		})
	})
}

// column returns a column of the primary key.
func (s *lockStatement) column(name string) catalog.Column {
	for _, c := range s.critical.Key {
		if c.Name == name {
			return c
		}
	}
	return s.critical.Columns[name]
}

// constantOf returns the constant that a term stands for; "" where it is not known to be one.
func (s *lockStatement) constantOf(t rewrite.Term, c catalog.Column) string {
	function, _ := rewrite.Call(s.text, t)
	typ, literal, _ := rewrite.Cast(s.text, t)
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
