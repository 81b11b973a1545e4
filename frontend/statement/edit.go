package statement

import (
	"bytes"
	"slices"

	"music/frontend/wire"
	"music/rewrite"
)

// edit puts a text in the place of a span of a statement, with values of its own for the markers in it.
type edit struct {
	rewrite.Edit
	values [][]byte // in wire form
}

// replace returns the edit that puts a text without markers in the place of a span.
func replace(at rewrite.Span, text string) edit {
	return edit{Edit: rewrite.Edit{Span: at, Text: text}}
}

// edited returns the statement with edits, which are disjoint, and the values of the markers that it has
// then, in memory of their own. A statement whose values are not there yet has none then either.
func (s *Statement) edited(edits []edit) Query {
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
	for i, v := range values {
		values[i] = bytes.Clone(v)
	}
	return Query{rewrite.Replace(nil, s.Text, texts), values}
}

// anew returns the statement with edits, read again: it is not what was prepared any more.
func (s *Statement) anew(edits []edit) (Statement, *wire.Failure) {
	q := s.edited(edits)
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
