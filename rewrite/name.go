package rewrite

import "strings"

// Name is an identifier as written. The zero value is an absent one.
type Name struct {
	Span
	Quoted bool
}

// AppendTo appends the name as Cassandra knows it to dst and returns the longer
// slice: in lower case, or as it stands between its quotes. text is what the
// name was read from. It allocates nothing but what dst needs to grow.
func (n Name) AppendTo(dst, text []byte) []byte {
	if !n.Quoted {
		for _, c := range n.Of(text) {
			dst = append(dst, lower(c))
		}
		return dst
	}
	return appendUnquoted(dst, text[n.Start+1:n.End-1], '"')
}

// nameOf reports whether the token can be a name. A word that is also a duration
// (P1Y) counts as one: to take a name for a literal would lose a table.
func nameOf(text []byte, t Token) (Name, bool) {
	switch t.Kind {
	case TokenQuoted:
		return Name{Span: t.Span, Quoted: true}, true
	case TokenIdent:
		return Name{Span: t.Span}, true
	case TokenDuration:
		return Name{Span: t.Span}, isLetter(text[t.Start]) && wordEnd(text, t.Start) == t.End
	}
	return Name{}, false
}

// appendUnquoted appends inner to dst with doubled quotes made single.
func appendUnquoted(dst, inner []byte, quote byte) []byte {
	for i := 0; i < len(inner); i++ {
		dst = append(dst, inner[i])
		if inner[i] == quote {
			i++
		}
	}
	return dst
}

// isWord reports whether a token is a keyword, given in capitals. Quoted names are
// never keywords.
func isWord(text []byte, t Token, upper string) bool {
	return t.Kind == TokenIdent && t.End-t.Start == len(upper) && foldEqual(text[t.Start:t.End], upper)
}

// foldEqual reports whether word is upper in any case. upper is a keyword in capitals, of the same
// length.
func foldEqual(word []byte, upper string) bool {
	for i, c := range word {
		if c&^0x20 != upper[i] {
			return false
		}
	}
	return true
}

// lower returns an ASCII letter in lower case, and any other byte as it is.
func lower(c byte) byte {
	if c-'A' < 26 {
		c |= 0x20
	}
	return c
}

// Quote writes a name so that CQL reads exactly it, whatever it holds.
func Quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// QuoteString writes a text as a string of CQL, whatever it holds.
func QuoteString(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
