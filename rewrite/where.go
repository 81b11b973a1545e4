package rewrite

// where reads
//
//	WHERE relation (AND relation)*
func (p *parser) where(s *Statement) {
	p.need("WHERE")
	for p.err == nil {
		s.Where = kept(p, s.Where, p.relation())
		if !p.take("AND") {
			return
		}
	}
}

// relation reads
//
//	column = term | column comparison term | column IN (terms) | column IN marker
//	TOKEN ( columns ) comparison term
//	( columns ) comparison term | ( columns ) IN …
//
// and whatever else stands there as OpOther.
func (p *parser) relation() Relation {
	switch {
	case p.tok.Kind == '(':
		p.skip()
		return p.comparison(OpTuple, OpTuple)
	case p.is("TOKEN") && p.peek().Kind == '(':
		p.next()
		p.skip()
		return p.comparison(OpToken, OpOther)
	case p.ended():
		p.wants("a restriction (column = value)")
		return Relation{}
	}
	column, ok := nameOf(p.text, p.tok)
	p.next()
	if !ok || p.tok.Kind == '(' {
		return p.rest(Relation{})
	}
	return p.restriction(Relation{Column: column})
}

// restriction reads what follows a column, or a part of one.
func (p *parser) restriction(r Relation) Relation {
	switch {
	case p.tok.Kind == '=':
		p.next()
		r.Op, r.Value = OpEq, p.term()
		return r
	case p.is("IN"):
		start := p.tok.Start
		p.next()
		r = p.in(r, OpIn)
		r.Behind = Span{start, p.last.End}
		return r
	case p.atComparison():
		r.Sign = p.tok.Span
		p.next()
		r.Op, r.Value = OpCompare, p.term()
		return r
	}
	return p.rest(r)
}

// condition reads one of IF: a restriction like those of WHERE, or
//
//	column [ term ] restriction | column . field restriction
//	column CONTAINS [KEY] term
func (p *parser) condition() Relation {
	column, ok := nameOf(p.text, p.tok)
	behind := p.peek()
	if !ok || behind.Kind != '[' && behind.Kind != '.' && !isWord(p.text, behind, "CONTAINS") {
		return p.relation()
	}
	p.next()
	r := Relation{Column: column}
	switch {
	case p.take("CONTAINS"):
		r.Op = OpContains
		if p.take("KEY") {
			r.Op = OpContainsKey
		}
		r.Value = p.term()
		return r
	case p.tok.Kind == '.':
		p.next()
		r.Field = p.name("a field")
	default:
		p.next()
		r.Element = p.term()
		p.needKind(']')
	}
	return p.restriction(r)
}

// comparison reads what follows columns in brackets.
func (p *parser) comparison(op, in Op) Relation {
	switch {
	case p.tok.Kind == '=' || p.atComparison():
		p.next()
		return Relation{Op: op, Value: p.term()}
	case p.take("IN"):
		return p.in(Relation{}, in)
	}
	return p.rest(Relation{})
}

// in reads (terms) or a marker after IN.
func (p *parser) in(r Relation, op Op) Relation {
	r.Op = op
	if p.tok.Kind == '(' {
		r.Values, _ = p.terms()
	} else {
		r.Value = p.term()
	}
	return r
}

// atComparison reports whether the current token is < <= > >= or !=.
func (p *parser) atComparison() bool {
	switch p.tok.Kind {
	case '<', '>':
		return true
	case TokenOperator:
		c := p.text[p.tok.Start]
		return c == '<' || c == '>' || c == '!'
	}
	return false
}

// rest skips a relation that is not examined: CONTAINS, LIKE, BETWEEN, IS NOT NULL, NOT IN, m[key]
// = value, expr(…), brackets around a relation. It ends before the next AND (except that of
// BETWEEN) and before any reserved word that can follow WHERE.
func (p *parser) rest(r Relation) Relation {
	between := false
	for !p.ended() {
		switch {
		case p.is("BETWEEN"):
			between = true
		case p.is("AND") && between:
			between = false
		case p.is("AND") || p.isAny("IF", "USING", "ORDER", "LIMIT", "ALLOW") || p.atChild() || p.atForUpdate():
			return r
		}
		p.skip()
	}
	return r
}

// atChild reports whether the next child of a batch begins, or the batch ends, at the current
// token. These words are reserved.
func (p *parser) atChild() bool { return p.isAny("INSERT", "UPDATE", "DELETE", "APPLY") }

// atForUpdate reports whether FOR UPDATE follows. It relies on UPDATE being reserved; FOR may be a
// name.
func (p *parser) atForUpdate() bool {
	return p.is("FOR") && isWord(p.text, p.peek(), "UPDATE")
}
