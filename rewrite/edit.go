package rewrite

// Apply appends text without the spans of cut to dst and returns the longer
// slice. cut is like Statement.Cut: in order, disjoint, each span from the start of a token
// to the end of one. Other bytes do not change; if two tokens would become one, or a
// comment, a space is put between them.
func Apply(dst, text []byte, cut []Span) []byte {
	at := 0
	for _, c := range cut {
		dst = append(dst, text[at:c.Start]...)
		at = c.End
		if c.Start > 0 && at < len(text) && joins(text[c.Start-1], text[at]) {
			dst = append(dst, ' ')
		}
	}
	return append(dst, text[at:]...)
}

// Edit replaces a span of a statement by Text.
type Edit struct {
	Span
	Text string
}

// Replace appends text with edits applied to dst and returns the longer slice. The edits are in
// order and disjoint. An edit without Text is a cut, as for Apply.
func Replace(dst, text []byte, edits []Edit) []byte {
	at := 0
	for _, e := range edits {
		dst = append(append(dst, text[at:e.Start]...), e.Text...)
		at = e.End
		if e.Text == "" && !e.Empty() && e.Start > 0 && at < len(text) && joins(text[e.Start-1], text[at]) {
			dst = append(dst, ' ')
		}
	}
	return append(dst, text[at:]...)
}

// joins reports whether two neighbours may be read as one token. It may say so where they are not:
// apart from blanks only those bytes are safe that are whole tokens beside anything.
func joins(left, right byte) bool { return !standsAlone(left) && !standsAlone(right) }

// standsAlone reports whether a byte is a token by itself, whatever is next to it.
func standsAlone(c byte) bool {
	switch c {
	case ' ', '\n', '\t', '\r', ',', ';', '(', ')', '[', ']', '{', '}', '?':
		return true
	}
	return false
}
