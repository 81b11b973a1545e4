package rewrite

// term reads one value:
//
//	operand ( (+|-|*|/|%) operand )*
//
// Anything but a single literal or marker is TermOther.
func (p *parser) term() Term {
	next := p.markers
	t := p.operand()
	for p.err == nil && p.atArithmetic() {
		p.next()
		p.operand()
		t = Term{Kind: TermOther, Span: Span{t.Start, p.last.End}, Marker: -1}
	}
	if t.Kind == TermOther {
		t.Next = next
	}
	return t
}

// atArithmetic reports whether the current token is an operator of arithmetic.
func (p *parser) atArithmetic() bool {
	switch p.tok.Kind {
	case '+', '-', '*', '/', '%':
		return true
	}
	return false
}

// operand reads
//
//	literal | marker | - operand | [ … ] | { … } | function ( … )
//	( … ) | ( type ) operand
func (p *parser) operand() Term {
	start := p.tok.Start
	for prefix := true; prefix; {
		switch p.tok.Kind {
		case '-':
			p.next()
		case '(':
			p.skip()
			if !p.castFollows() {
				return p.other(start)
			}
		default:
			prefix = false
		}
	}
	t := p.simple()
	if t.Start != start {
		return p.other(start)
	}
	return t
}

// other returns the TermOther from start up to the current token.
func (p *parser) other(start int) Term {
	return Term{Kind: TermOther, Span: Span{start, p.last.End}, Marker: -1}
}

// castFollows reports whether the tokens after a pair of brackets make it a cast. A word does if it
// is called as a function.
func (p *parser) castFollows() bool {
	switch p.tok.Kind {
	case TokenString, TokenInteger, TokenFloat, TokenBlob, TokenUUID, TokenDuration, '?', ':', '(', '[', '{':
		return true
	case TokenIdent, TokenQuoted:
		after := p.peek().Kind
		return wordTerm(p.text, p.tok) != TermOther || after == '.' || after == '(' && !p.is("AND")
	}
	return false
}

// simple reads an operand without prefix.
func (p *parser) simple() Term {
	switch p.tok.Kind {
	case '?', ':':
		return p.marker()
	case '[', '{':
		start := p.tok.Start
		p.skip()
		return p.other(start)
	case TokenIdent, TokenQuoted:
		return p.word()
	}
	t := Term{Kind: literalKind(p.tok.Kind), Span: p.tok.Span, Marker: -1}
	if t.Kind == NoTerm {
		p.wants("a value")
		return t
	}
	p.next()
	return t
}

// literalKind returns the kind of a term of one token; NoTerm if it is not a literal.
func literalKind(kind TokenKind) TermKind {
	switch kind {
	case TokenString:
		return TermString
	case TokenInteger:
		return TermInteger
	case TokenFloat:
		return TermFloat
	case TokenBlob:
		return TermBlob
	case TokenUUID:
		return TermUUID
	case TokenDuration:
		return TermDuration
	}
	return NoTerm
}

// wordTerm returns TermOther for a word that is no literal.
func wordTerm(text []byte, t Token) TermKind {
	switch {
	case isWord(text, t, "TRUE"), isWord(text, t, "FALSE"):
		return TermBoolean
	case isWord(text, t, "NULL"):
		return TermNull
	case isWord(text, t, "NAN"), isWord(text, t, "INFINITY"):
		return TermFloat
	}
	return TermOther
}

// word reads a literal that is a word, or [keyspace .] function ( … ).
func (p *parser) word() Term {
	t := Term{Kind: wordTerm(p.text, p.tok), Span: p.tok.Span, Marker: -1}
	p.next()
	if t.Kind != TermOther {
		return t
	}
	if p.tok.Kind == '.' {
		p.next()
		p.name("a function")
	}
	if p.tok.Kind == '(' {
		p.skip()
	}
	t.End = p.last.End
	return t
}

// marker reads ? or :name.
func (p *parser) marker() Term {
	t := Term{Kind: TermMarker, Span: p.tok.Span, Marker: p.markers}
	named := p.tok.Kind == ':'
	p.next()
	if named {
		t.Name = p.name("the name of the bind marker")
		t.End = t.Name.End
	}
	return t
}

// terms reads ( [term (, term)*] ), and returns the terms and how many there are.
func (p *parser) terms() (list []Term, n int) {
	p.needKind('(')
	for p.err == nil && p.tok.Kind != ')' {
		list = kept(p, list, p.term())
		n++
		if p.tok.Kind != ',' {
			break
		}
		p.next()
	}
	p.needKind(')')
	return list, n
}
