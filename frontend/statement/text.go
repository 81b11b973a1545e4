package statement

import (
	"slices"
	"strconv"

	"music/rewrite"
)

// Stamps returns the stamp to write into the text of a write's statement; 0 means none, so that the
// timestamp of the request applies.
type Stamps func(part *Statement) int64

// RequestStamps is the Stamps that leaves all statements to the timestamp of the request.
func RequestStamps(*Statement) int64 { return 0 }

// WriteText returns the text to send to Cassandra: without lock clauses and conditions, and with
// stamps in place of the client's own timestamps. Table names get their keyspace, since the
// connection may be in another keyspace than the one that the statement was prepared in.
func (s *Statement) WriteText(stamp Stamps) []byte { return s.Write(stamp).Text }

// Write returns WriteText with the values of its markers.
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

// usingEdit returns the edit that replaces the statement's USING by usingText.
func (s *Statement) usingEdit(stamp int64) edit {
	e := replace(s.Parsed.UsingClause, s.usingText(stamp))
	if ttl := s.Parsed.TTL; ttl.Kind == rewrite.TermMarker && ttl.Marker < len(s.Values) {
		e.values = s.Values[ttl.Marker : ttl.Marker+1]
	}
	return e
}

// usingText returns a USING clause with the statement's TTL, and with a stamp if that is not 0.
func (s *Statement) usingText(stamp int64) (text string) {
	if stamp != 0 {
		text = " USING TIMESTAMP " + strconv.FormatInt(stamp, 10) + " "
	}
	if ttl := s.Parsed.TTL; ttl.Kind != rewrite.NoTerm {
		text += [2]string{" USING", "AND"}[min(len(text), 1)] + " TTL " + string(ttl.Of(s.Text)) + " "
	}
	return text
}

// Timed reports whether the statement, or any statement of a batch, has USING TIMESTAMP.
func (s *Statement) Timed() bool {
	for i := range s.Parsed.Children {
		if s.Parsed.Children[i].Timestamp.Kind != rewrite.NoTerm {
			return true
		}
	}
	return s.Parsed.Timestamp.Kind != rewrite.NoTerm
}

// BelowWrites returns the Stamps of a batch with IF. As in a lightweight transaction of Cassandra,
// the deletion of a range or a partition gets a stamp one below that of the other statements, so
// that it does not delete what the batch itself writes. The deletion of one row gets the same
// stamp, so it does delete that. No earlier holder has written with stamp-1 or above: everything
// older is deleted all the same.
func BelowWrites(stamp int64) Stamps {
	return func(part *Statement) int64 {
		if part.deletesRange() {
			return stamp - 1
		}
		return 0
	}
}
