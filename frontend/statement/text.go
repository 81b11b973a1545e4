package statement

import (
	"bytes"
	"slices"
	"strconv"

	"music/rewrite"
)

// Stamps says what a statement of a write is stamped with in its text; 0 leaves it to the request.
type Stamps func(part *Statement) int64

// RequestStamps leaves every statement to the stamp of the request.
func RequestStamps(*Statement) int64 { return 0 }

// WriteText returns the statement as Cassandra is to carry it out: without its lock clauses and its conditions, and with the
// proxy's stamps in place of the client's own timestamps. A table gets its keyspace: the connection may be in another one than
// the statement was prepared in.
func (s *Statement) WriteText(stamp Stamps) []byte {
	var edits []rewrite.Edit
	if s.Parsed.Verb == rewrite.Batch {
		edits = append(edits, rewrite.Edit{Span: s.Parsed.UsingClause, Text: s.usingText(0)})
	}
	for _, part := range s.Parts() {
		st := part.Parsed
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
			edits = append(edits, rewrite.Edit{Span: rewrite.Span{Start: st.Table.Start, End: st.Table.Start}, Text: rewrite.Quote(s.Table.Keyspace) + "."})
		}
	}
	slices.SortStableFunc(edits, func(a, b rewrite.Edit) int { return a.Start - b.Start })
	return rewrite.Replace(nil, s.Text, edits)
}

// usingText returns what stands in the place of the statement's USING: its TTL, and a stamp where that is not 0.
func (s *Statement) usingText(stamp int64) (text string) {
	if stamp != 0 {
		text = " USING TIMESTAMP " + strconv.FormatInt(stamp, 10) + " "
	}
	if ttl := s.Parsed.TTL; ttl.Kind != rewrite.NoTerm {
		text += [2]string{" USING", "AND"}[min(len(text), 1)] + " TTL " + string(ttl.Of(s.Text)) + " "
	}
	return text
}

// WriteValues returns the values of the markers that writeText leaves.
func (s *Statement) WriteValues() (values [][]byte) {
	gone := map[int]bool{}
	leave := func(terms ...rewrite.Term) {
		for _, t := range terms {
			gone[t.Marker] = t.Kind == rewrite.TermMarker || gone[t.Marker]
		}
	}
	leave(s.Parsed.OwnMarkers()...)
	leave(s.Parsed.Timestamp)
	for _, part := range s.Parts() {
		leave(part.Parsed.OwnMarkers()...)
		leave(part.Parsed.Timestamp)
		for i := range part.Parsed.Conditions {
			leave(part.Parsed.Conditions[i].Terms()...)
		}
	}
	for i, v := range s.Values {
		if !gone[i] {
			values = append(values, bytes.Clone(v))
		}
	}
	return values
}

// Timed reports whether the statement, or one of a batch's text, gives a timestamp of its own.
func (s *Statement) Timed() bool {
	for i := range s.Parsed.Children {
		if s.Parsed.Children[i].Timestamp.Kind != rewrite.NoTerm {
			return true
		}
	}
	return s.Parsed.Timestamp.Kind != rewrite.NoTerm
}

// BelowWrites returns the stamps of a batch with IF: a lightweight transaction stamps the deletion of a range or a partition one
// below all else, so that what it writes is there. A deletion of one row hides what the batch writes to the row, as one stamp for
// both has it. The stamp below is of this holder too, or of nobody's last write: what was written by then is deleted all the same.
func BelowWrites(stamp int64) Stamps {
	return func(part *Statement) int64 {
		if part.deletesRange() {
			return stamp - 1
		}
		return 0
	}
}
