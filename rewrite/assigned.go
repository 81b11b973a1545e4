package rewrite

// AssignedValue returns the literal that is assigned to a column of SET, whose name is given as
// Parse has read it: column = literal. It returns no term and false if anything else stands there.
func AssignedValue(text []byte, column Name) (literal Term, ok bool) {
	lex := Lexer{text: text, pos: column.End}
	equals, value, after := lex.Next(), lex.Next(), lex.Next()
	literal = Term{Kind: literalKind(value.Kind), Span: value.Span, Marker: -1}
	if literal.Kind == NoTerm && value.Kind == TokenIdent {
		literal.Kind = wordTerm(text, value)
	}
	ends := after.Kind == ',' || isWord(text, after, "WHERE")
	if equals.Kind != '=' || !ends || literal.Kind == NoTerm || literal.Kind == TermOther {
		return Term{}, false
	}
	return literal, true
}
