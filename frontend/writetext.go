package frontend

import (
	"bytes"
	"slices"
	"strconv"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// stamps says what a statement of a write is stamped with in its text; 0 leaves it to the request.
type stamps func(part *lockStatement) int64

// requestStamps leaves every statement to the stamp of the request.
func requestStamps(*lockStatement) int64 { return 0 }

// writeText returns the statement as Cassandra is to carry it out: without its lock clauses and its conditions, and with the
// proxy's stamps in place of the client's own timestamps. A table gets its keyspace: the connection may be in another one than
// the statement was prepared in.
func (s *lockStatement) writeText(stamp stamps) []byte {
	var edits []rewrite.Edit
	if s.statement.Verb == rewrite.Batch {
		edits = append(edits, rewrite.Edit{Span: s.statement.UsingClause, Text: s.usingText(0)})
	}
	for _, part := range s.parts() {
		st := part.statement
		if st.Verb == rewrite.Select {
			for _, cut := range st.Cut {
				edits = append(edits, rewrite.Edit{Span: cut})
			}
		} else {
			edits = append(edits, rewrite.Edit{Span: st.UsingClause, Text: part.usingText(stamp(&part))})
		}
		if st.Conditional {
			edits = append(edits, rewrite.Edit{Span: st.If})
		}
		if st.Keyspace.Empty() {
			edits = append(edits, rewrite.Edit{Span: rewrite.Span{Start: st.Table.Start, End: st.Table.Start}, Text: rewrite.Quote(s.table.Keyspace) + "."})
		}
	}
	slices.SortStableFunc(edits, func(a, b rewrite.Edit) int { return a.Start - b.Start })
	return rewrite.Replace(nil, s.text, edits)
}

// usingText returns what stands in the place of the statement's USING: its TTL, and a stamp where that is not 0.
func (s *lockStatement) usingText(stamp int64) (text string) {
	if stamp != 0 {
		text = " USING TIMESTAMP " + strconv.FormatInt(stamp, 10) + " "
	}
	if ttl := s.statement.TTL; ttl.Kind != rewrite.NoTerm {
		text += [2]string{" USING", "AND"}[min(len(text), 1)] + " TTL " + string(ttl.Of(s.text)) + " "
	}
	return text
}

// writeValues returns the values of the markers that writeText leaves.
func (s *lockStatement) writeValues() (values [][]byte) {
	gone := map[int]bool{}
	leave := func(terms ...rewrite.Term) {
		for _, t := range terms {
			gone[t.Marker] = t.Kind == rewrite.TermMarker || gone[t.Marker]
		}
	}
	leave(s.statement.OwnMarkers()...)
	leave(s.statement.Timestamp)
	for _, part := range s.parts() {
		leave(part.statement.OwnMarkers()...)
		leave(part.statement.Timestamp)
		for i := range part.statement.Conditions {
			leave(part.statement.Conditions[i].Terms()...)
		}
	}
	for i, v := range s.values {
		if !gone[i] {
			values = append(values, bytes.Clone(v))
		}
	}
	return values
}

// timed reports whether the statement, or one of a batch's text, gives a timestamp of its own.
func (s *lockStatement) timed() bool {
	for i := range s.statement.Children {
		if s.statement.Children[i].Timestamp.Kind != rewrite.NoTerm {
			return true
		}
	}
	return s.statement.Timestamp.Kind != rewrite.NoTerm
}

// checkTimestamps refuses timestamps of the client's own where the table does not ignore them, and those that Cassandra refuses,
// in its words.
func (s *lockStatement) checkTimestamps() *wire.Failure {
	if !s.timed() {
		return nil
	}
	if !s.critical.Ignore {
		return timestampRefused(s.table)
	}
	batch := s.statement.Verb == rewrite.Batch && s.statement.Timestamp.Kind != rewrite.NoTerm
	for _, part := range s.parts() {
		own := part.statement.Timestamp.Kind != rewrite.NoTerm
		switch {
		case batch && own:
			return wire.Invalid("Timestamp must be set either on BATCH or individual statements")
		case batch && part.statement.Conditional:
			return wire.Invalid("Cannot provide custom timestamp for conditional BATCH")
		case own && part.statement.Conditional:
			return wire.Invalid("Cannot provide custom timestamp for conditional updates")
		}
	}
	return nil
}

// timestampRefused returns the error for a timestamp of the client's own.
func timestampRefused(t *catalog.Table) *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: %s is critical: the lock gives the timestamp, USING TIMESTAMP cannot stand beside it: leave it out, or have it ignored by timestamp=ignore in the table's @critical(…)", t)
}

// timestampWarning returns a warning for a client whose timestamps are ignored: once a connection, since drivers and mappers
// that send them do so with every statement.
func (c *conn) timestampWarning(s *lockStatement) []string {
	if !s.timed() || c.timestampsTold.Swap(true) {
		return nil
	}
	return []string{"MUSIC: " + s.table.String() + " is critical with timestamp=ignore: USING TIMESTAMP has no effect, the lock gives the timestamp (told once a connection)"}
}
