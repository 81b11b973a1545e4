package rewrite

// selection reads
//
//	SELECT [JSON] [DISTINCT] selectors FROM table [WHERE …] tail
func (p *parser) selection(s *Statement) {
	p.need("SELECT")
	s.JSON = p.modifier("JSON")
	p.modifier("DISTINCT")
	for p.err == nil {
		s.Selectors = kept(p, s.Selectors, p.selector())
		if p.tok.Kind != ',' {
			break
		}
		p.next()
	}
	p.need("FROM")
	p.table(s)
	if p.is("WHERE") {
		p.where(s)
	}
	p.tail(s)
}

// tail reads what stands behind WHERE: ordinary clauses, which are skipped, and
//
//	USING LOCK reference | FOR UPDATE …
func (p *parser) tail(s *Statement) {
	for !p.ended() {
		switch {
		case p.is("USING"):
			p.using(s)
		case p.atForUpdate():
			p.forUpdate(s)
		case p.is("WHERE") && (s.ForUpdate || s.Lock.Kind != NoTerm):
			p.fail(p.tok.Span, "WHERE stands elsewhere: SELECT … FROM table WHERE … USING LOCK 42, SELECT … FROM table WHERE … FOR UPDATE")
		default:
			p.skip()
		}
	}
	if s.ForUpdate && s.Lock.Kind != NoTerm {
		p.fail(s.Lock.Span, "FOR UPDATE takes a lock, USING LOCK uses one: only one of them")
	}
}

// modifier reads JSON or DISTINCT if it is not a column. Like Cassandra, it takes the word as a
// modifier if a selection can follow.
func (p *parser) modifier(word string) bool {
	if !p.is(word) {
		return false
	}
	next := p.peek()
	switch next.Kind {
	case ',', '.', '+', '/', '%', TokenEOF:
		return false
	}
	if isWord(p.text, next, "FROM") || startsAlias(p.text, p.lex) {
		return false
	}
	p.next()
	return true
}

// startsAlias reports whether the next tokens of ahead are AS and an alias. AS alone may be a
// column: SELECT as, json.as FROM t.
func startsAlias(text []byte, ahead Lexer) bool {
	if !isWord(text, ahead.Next(), "AS") {
		return false
	}
	alias := ahead.Next()
	_, named := nameOf(text, alias)
	return named && !isWord(text, alias, "FROM")
}

// selector reads anything [AS alias].
func (p *parser) selector() Selector {
	first := p.tok
	if p.selectorEnds() {
		p.wants("what to select")
		return Selector{}
	}
	p.skip()
	pieces := 1
	for !p.selectorEnds() && !p.atAlias() {
		p.skip()
		pieces++
	}
	s := Selector{Span: Span{first.Start, p.last.End}}
	column, named := nameOf(p.text, first)
	switch {
	case pieces == 1 && first.Kind == '*':
		s.Kind = StarSelector
	case pieces == 1 && named:
		s.Kind, s.Column = ColumnSelector, column
	}
	if p.atAlias() {
		p.next()
		p.name("an alias")
	}
	return s
}

// atAlias reports whether AS and an alias follow, after a value.
func (p *parser) atAlias() bool {
	switch p.last.Kind {
	case '.', '+', '-', '*', '/', '%':
		return false
	}
	return startsAlias(p.text, Lexer{text: p.text, pos: p.tok.Start})
}

// selectorEnds reports whether the selector ends before the current token.
func (p *parser) selectorEnds() bool { return p.ended() || p.tok.Kind == ',' || p.is("FROM") }
