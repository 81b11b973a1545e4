package rewrite

// Apply appends text without the spans of cut to dst and returns the longer
// slice. cut is what Statement.Cut holds: in order, disjoint, from one token's
// start to another's end. Bytes outside it stay as they are; where two tokens
// would become one, or a comment, a space is put between them.
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

// Edit puts Text in the place of a span of a statement.
type Edit struct {
	Span
	Text string
}

// Replace appends text with edits, which are in order and disjoint, to dst and
// returns the longer slice. An edit without Text is a cut, as Apply makes it.
func Replace(dst, text []byte, edits []Edit) []byte {
	at := 0
	for _, e := range edits {
		switch {
		case e.Text != "":
			dst = append(append(dst, text[at:e.Start]...), e.Text...)
		case !e.Empty():
			dst = Apply(dst, text[at:e.End], []Span{{e.Start - at, e.End - at}})
			if e.Start > 0 && e.End < len(text) && joins(text[e.Start-1], text[e.End]) {
				dst = append(dst, ' ')
			}
		default:
			dst = append(dst, text[at:e.Start]...)
		}
		at = e.End
	}
	return append(dst, text[at:]...)
}

// joins reports whether two neighbours may be read as one. It says so too often
// rather than once too little: apart from blanks only those are safe that are
// whole tokens whatever stands beside them.
func joins(left, right byte) bool { return !standsAlone(left) && !standsAlone(right) }

// standsAlone reports whether a byte is a token by itself, whatever stands beside it.
func standsAlone(c byte) bool {
	switch c {
	case ' ', '\n', '\t', '\r', ',', ';', '(', ')', '[', ']', '{', '}', '?':
		return true
	}
	return false
}
