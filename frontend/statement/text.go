package statement

import (
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
func (s *Statement) WriteText(stamp Stamps) []byte { return s.Write(stamp).Text }

// Write is WriteText with the values of the markers that are left.
func (s *Statement) Write(stamp Stamps) Query {
	edits := slices.Clone(s.sums)
	if s.Parsed.Verb == rewrite.Batch {
		edits = append(edits, replace(s.Parsed.UsingClause, s.usingText(0)))
	}
	for _, part := range s.Parts() {
		st := part.Parsed
		if st.Verb == rewrite.Select {
			for _, cut := range st.Cut {
				edits = append(edits, replace(cut, ""))
			}
		} else {
			edits = append(edits, part.usingEdit(stamp(&part)))
		}
		if st.Conditional {
			edits = append(edits, replace(st.If, ""))
		}
		if st.Keyspace.Empty() {
			edits = append(edits, replace(rewrite.Span{Start: st.Table.Start, End: st.Table.Start}, rewrite.Quote(s.Table.Keyspace)+"."))
		}
	}
	return s.edited(edits)
}

// usingEdit returns what puts usingText in the place of the statement's USING.
func (s *Statement) usingEdit(stamp int64) edit {
	e := replace(s.Parsed.UsingClause, s.usingText(stamp))
	if ttl := s.Parsed.TTL; ttl.Kind == rewrite.TermMarker && ttl.Marker < len(s.Values) {
		e.values = s.Values[ttl.Marker : ttl.Marker+1]
	}
	return e
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
// both has it. No write of an earlier holder has the stamp below: what was written before is deleted all the same.
func BelowWrites(stamp int64) Stamps {
	return func(part *Statement) int64 {
		if part.deletesRange() {
			return stamp - 1
		}
		return 0
	}
}
