package statement

import (
	"bytes"
	"slices"

	"music/frontend/wire"
	"music/rewrite"
)

// edit replaces a span of a statement by a text, with the values of the markers in that text.
type edit struct {
	rewrite.Edit
	values [][]byte // in wire form
}

// replace returns the edit that replaces a span by a text without markers.
func replace(at rewrite.Span, text string) edit {
	return edit{Edit: rewrite.Edit{Span: at, Text: text}}
}

// edited applies edits, which must be disjoint, and returns the new text and the values of its
// markers, both in memory of their own. If the statement's values are not known yet, the result has
// none.
func (s *Statement) edited(edits []edit) Query {
	q := s.shared(edits)
	for i, v := range q.Values {
		q.Values[i] = bytes.Clone(v)
	}
	return q
}

// shared is edited with the values in the memory that they already have, for a write that is made
// once for each of its keys.
func (s *Statement) shared(edits []edit) Query {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.Start - b.Start })
	var texts []rewrite.Edit
	var values [][]byte
	next := 0 // the first marker that has not been seen
	until := func(end int) (passed [][]byte) {
		from := next
		for next < len(s.Values) && s.Parsed.MarkersAt[next] < end {
			next++
		}
		return s.Values[from:next]
	}
	for _, e := range edits {
		texts = append(texts, e.Edit)
		values = append(append(values, until(e.Start)...), e.values...)
		until(e.End)
	}
	values = append(values, until(len(s.Text))...)
	return Query{rewrite.Replace(nil, s.Text, texts), values}
}

// rewritten returns the statement with the text and the values that edits have made. It must be sent as
// text, since it is no longer the statement that was prepared.
func (s *Statement) rewritten(q Query) (Statement, *wire.Failure) {
	parsed, err := rewrite.Parse(q.Text)
	if err != nil {
		return *s, wire.Invalid("MUSIC_SYNTAX: %v", err)
	}
	if len(q.Values) != parsed.Markers {
		return *s, wire.Invalid("MUSIC_SYNTAX: %d bind markers, %d values: bind one value to each", parsed.Markers, len(q.Values))
	}
	fresh := *s
	fresh.Parsed, fresh.Text, fresh.Values, fresh.Fixed = &parsed, q.Text, q.Values, true
	return fresh, nil
}
