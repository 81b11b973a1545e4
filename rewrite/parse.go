package rewrite

import "bytes"

// Parse reads text, one statement with any number of semicolons after it. Of a
// verb that the proxy does not look into it tells only verb, keyspace and table.
// An error is a *SyntaxError; it never panics. A statement that would take more
// than MaxMemory is such an error.
func Parse(text []byte) (Statement, error) { return newParser(text).whole() }

// Outline is Parse without its lists: it accepts the same texts, of any size, and
// keeps so little that its memory does not grow with them. What follows from the
// statements of a batch is not told either. It calls child, if that
// is not nil, with the keyspace and the table of each statement of a batch.
func Outline(text []byte, child func(keyspace, table Name)) (Statement, error) {
	p := &parser{text: text, lex: NewLexer(text), outline: true, child: child}
	p.next()
	return p.whole()
}

// whole reads the whole text.
func (p *parser) whole() (Statement, error) {
	text := p.text
	head := ReadHead(text, true)
	s := Statement{Verb: head.Verb, AfterSelect: head.AfterSelect, Keyspace: head.Keyspace, Table: head.Table}
	switch {
	case p.err != nil:
	case !head.Complete && head.Verb != Unknown:
		end := len(text)
		p.fail(Span{end, end}, head.Verb.String()+": the text ends before the statement does")
	case head.Verb == Unknown:
		p.unknown()
	case looksInto(head.Verb):
		p.statement(&s)
		p.finish()
		s.BindMarkers = BindMarkers{p.markers, p.names, p.at}
		s.Memory = p.memory
	}
	if p.err != nil {
		return Statement{}, p.err
	}
	return s, nil
}

// unknown fails with what is wrong with a text that has no head.
func (p *parser) unknown() {
	first := headReader{lex: p.lex, tok: p.tok}
	if verb := first.verb(); verb != Unknown {
		p.fail(p.tok.Span, verb.String()+": what it is about is missing or no name")
		return
	}
	p.wants("a CQL statement")
}

// looksInto reports whether Parse reads such a statement whole.
func looksInto(v Verb) bool {
	switch v {
	case Select, Insert, Update, Delete, Batch, Lock, Unlock, ListLocks:
		return true
	}
	return false
}

// statement reads what s.Verb says that the text is.
func (p *parser) statement(s *Statement) {
	switch s.Verb {
	case Select:
		p.selection(s)
	case Batch:
		p.batch(s)
	case Lock, Unlock, ListLocks:
		p.locking(s)
	default:
		p.modification(s)
	}
}

// modification reads INSERT, UPDATE or DELETE.
func (p *parser) modification(s *Statement) {
	switch s.Verb {
	case Insert:
		p.insert(s)
	case Update:
		p.update(s)
	case Delete:
		p.delete(s)
	}
}

// insert reads
//
//	INSERT INTO table (columns) VALUES (terms)            [IF NOT EXISTS] [USING …]
//	INSERT INTO table JSON string|marker [DEFAULT NULL|UNSET] [IF NOT EXISTS] [USING …]
func (p *parser) insert(s *Statement) {
	p.need("INSERT")
	p.need("INTO")
	p.table(s)
	if p.is("JSON") {
		p.json(s)
	} else {
		p.values(s)
	}
	for p.err == nil {
		switch {
		case p.is("IF"):
			s.Conditional, s.Exists = true, true
			start := p.tok.Start
			p.next()
			p.need("NOT")
			p.need("EXISTS")
			s.If = Span{start, p.last.End}
		case p.is("USING"):
			p.using(s)
		default:
			if s.UsingClause.Empty() {
				s.UsingClause = Span{p.last.End, p.last.End}
			}
			return
		}
	}
}

// json reads JSON string|marker [DEFAULT NULL|UNSET].
func (p *parser) json(s *Statement) {
	start := p.tok.Start
	p.next()
	s.JSON, s.JSONText = true, p.term()
	if p.take("DEFAULT") {
		s.Unset = p.is("UNSET")
		p.next()
	}
	s.JSONClause = Span{start, p.last.End}
}

// values reads (columns) VALUES (terms).
func (p *parser) values(s *Statement) {
	open := p.tok
	p.needKind('(')
	columns := 0
	for p.err == nil {
		s.Where = kept(p, s.Where, Relation{Column: p.name("a column"), Op: OpEq})
		columns++
		if p.tok.Kind != ',' {
			break
		}
		p.next()
	}
	p.needKind(')')
	p.need("VALUES")
	terms, values := p.terms()
	if values != columns {
		p.fail(open.Span, "INSERT does not have as many values as columns")
	}
	if p.err != nil {
		return
	}
	for i, t := range terms {
		s.Where[i].Value = t
	}
}

// update reads
//
//	UPDATE table [USING …] SET … WHERE … [IF …]
func (p *parser) update(s *Statement) {
	p.need("UPDATE")
	p.table(s)
	p.optionalUsing(s)
	p.need("SET")
	p.sets(s, "WHERE")
	p.refuseUsing()
	p.where(s)
	p.conditions(s)
}

// delete reads
//
//	DELETE [columns] FROM table [USING …] WHERE … [IF …]
func (p *parser) delete(s *Statement) {
	p.need("DELETE")
	if !p.is("FROM") {
		p.sets(s, "FROM")
	}
	p.need("FROM")
	p.table(s)
	p.optionalUsing(s)
	p.where(s)
	p.conditions(s)
}

// sets reads what stands before the reserved word end: columns separated by
// commas, each followed by what is done to it.
func (p *parser) sets(s *Statement, end string) {
	p.assigned(s)
	for !p.ended() && !p.is(end) && !p.is("USING") {
		comma := p.tok.Kind == ','
		switch p.tok.Kind {
		case '[', '+', '-', TokenOperator:
			s.ReadsOld = true
		}
		p.skip()
		if comma {
			p.assigned(s)
		}
	}
}

// assigned reads a column that is assigned, and what is added to it at its end:
//
//	column | column = ? | column = column + term | column = column -1 | column += term
func (p *parser) assigned(s *Statement) {
	start := p.tok.Start
	column := p.name("a column")
	s.Sets = kept(p, s.Sets, column)
	ahead := p.lex
	again, sign := ahead.Next(), ahead.Next()
	name, named := nameOf(p.text, again)
	named = named && p.tok.Kind == '=' && bytes.Equal(name.AppendTo(nil, p.text), column.AppendTo(nil, p.text))
	switch {
	case p.tok.Kind == '=' && again.Kind == '?' && (sign.Kind == ',' || isWord(p.text, sign, "WHERE")):
		s.Bindings = kept(p, s.Bindings, Binding{column, p.markers})
		return
	case p.tok.Kind == TokenOperator && p.text[p.tok.Start] == '+':
		p.next()
	case named && sign.Kind == '+':
		p.next()
		p.next()
		p.next()
	case named && sign.Kind == TokenInteger:
		p.next()
		p.next()
	default:
		return
	}
	s.ReadsOld = true
	value := p.term()
	s.Additions = kept(p, s.Additions, Addition{column, Span{start, p.last.End}, value})
}

// conditions reads
//
//	[IF EXISTS | IF condition (AND condition)*]
//
// and whatever else stands there up to the end of the statement. A condition is
// written like a restriction of WHERE.
func (p *parser) conditions(s *Statement) {
	if p.is("IF") {
		s.Conditional = true
		start := p.tok.Start
		p.next()
		s.Exists = p.is("EXISTS") && p.peekEnds()
		if s.Exists {
			p.next()
		} else {
			p.compared(s)
		}
		for !p.ended() && !p.atChild() && !p.is("USING") {
			s.Conditions = kept(p, s.Conditions, Relation{})
			p.skip()
		}
		s.If = Span{start, p.last.End}
	}
	p.refuseUsing()
}

// compared reads condition (AND condition)*.
func (p *parser) compared(s *Statement) {
	for p.err == nil && !p.ended() {
		s.Conditions = kept(p, s.Conditions, p.condition())
		if !p.take("AND") {
			return
		}
	}
}

// peekEnds reports whether the statement ends behind the token that p stands on:
// exists may be a column.
func (p *parser) peekEnds() bool {
	next := p.peek()
	return next.Kind == TokenEOF || next.Kind == ';' ||
		isWord(p.text, next, "INSERT") || isWord(p.text, next, "UPDATE") || isWord(p.text, next, "DELETE") || isWord(p.text, next, "APPLY")
}

// refuseUsing fails with where USING belongs if p stands on one.
func (p *parser) refuseUsing() {
	if p.is("USING") {
		p.fail(p.tok.Span, "USING stands elsewhere: UPDATE table USING LOCK 42 SET …, DELETE … FROM table USING LOCK 42 WHERE …")
	}
}

// batch reads
//
//	BEGIN [UNLOGGED|COUNTER] BATCH [USING …] (modification [;])* APPLY BATCH
func (p *parser) batch(s *Statement) {
	p.need("BEGIN")
	switch {
	case p.take("UNLOGGED"):
		s.Kind = UnloggedBatch
	case p.take("COUNTER"):
		s.Kind = CounterBatch
	}
	p.need("BATCH")
	p.optionalUsing(s)
	p.semicolons()
	for p.err == nil && !p.is("APPLY") {
		c := p.batched()
		if p.child != nil && p.err == nil {
			p.child(c.Keyspace, c.Table)
		}
		s.Children = kept(p, s.Children, c)
		p.semicolons()
	}
	for _, c := range s.Children {
		s.Cut = append(s.Cut, c.Cut...)
		s.ReadsOld = s.ReadsOld || c.ReadsOld
	}
	p.need("APPLY")
	p.need("BATCH")
}

// batched reads one statement of a batch.
func (p *parser) batched() Statement {
	var c Statement
	switch {
	case p.is("INSERT"):
		c.Verb = Insert
	case p.is("UPDATE"):
		c.Verb = Update
	case p.is("DELETE"):
		c.Verb = Delete
	default:
		p.wants("INSERT, UPDATE, DELETE or APPLY BATCH")
	}
	before, start := p.markers, p.tok.Start
	p.modification(&c)
	c.Markers, c.Whole = p.markers-before, Span{start, p.last.End}
	return c
}
