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

// Call returns the name of the function that a term calls without arguments, in
// lower case: uuid().
func Call(text []byte, t Term) (function string, ok bool) {
	part := t.Of(text)
	lex := NewLexer(part)
	name, open, end, last := lex.Next(), lex.Next(), lex.Next(), lex.Next()
	if name.Kind != TokenIdent || open.Kind != '(' || end.Kind != ')' || last.Kind != TokenEOF {
		return "", false
	}
	return string(bytes.ToLower(name.Of(part))), true
}
