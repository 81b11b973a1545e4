package rewrite

import "bytes"

// Cast returns the type and the literal of a term that is the cast of one literal,
// (type) literal: the type in lower case, the literal as it is written.
func Cast(text []byte, t Term) (typ, literal string, ok bool) {
	part := t.Of(text)
	lex := NewLexer(part)
	open, name, end, value, last := lex.Next(), lex.Next(), lex.Next(), lex.Next(), lex.Next()
	if open.Kind != '(' || name.Kind != TokenIdent || end.Kind != ')' || last.Kind != TokenEOF {
		return "", "", false
	}
	if literalKind(value.Kind) == NoTerm && wordTerm(part, value) == TermOther {
		return "", "", false
	}
	return string(bytes.ToLower(name.Of(part))), string(value.Of(part)), true
}

// mostCalls is how many functions Call reads in each other: more than any constant takes, and so few
// that its time grows with no text.
const mostCalls = 4

// Call returns a term that calls functions, the innermost without arguments, in lower case and
// without blanks: uuid(), totimestamp(now()). It returns "" for any other term, also one that only
// begins like that.
func Call(text []byte, t Term) (call string) {
	part := t.Of(text)
	lex := NewLexer(part)
	depth, next := 0, lex.Next()
	for ; depth < mostCalls && next.Kind == TokenIdent && lex.Next().Kind == '('; next = lex.Next() {
		call += string(bytes.ToLower(next.Of(part))) + "("
		depth++
	}
	for ; next.Kind == ')'; next = lex.Next() {
		call += ")"
		depth--
	}
	if depth != 0 || next.Kind != TokenEOF {
		return ""
	}
	return call
}
