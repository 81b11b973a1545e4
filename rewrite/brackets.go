package rewrite

// Entry is one of the values in brackets: of a map with its key, of a user-defined type with the
// name of its field.
type Entry struct {
	Field Name
	Key   Term
	Value Term
}

// Entries reads a value in brackets: [a, b], (a, b), {a, b}, {a: b} or
// {field: a}. ok is false for any other term, and for more entries than MaxMemory has room for.
func Entries(text []byte, t Term) (open byte, entries []Entry, ok bool) {
	if t.Kind != TermOther || t.Start == t.End {
		return 0, nil, false
	}
	ends := map[TokenKind]TokenKind{'[': ']', '(': ')', '{': '}'}
	p := &parser{text: text[:t.End], lex: NewLexer(text[:t.End])}
	p.lex.pos, p.markers = t.Start, t.Next
	p.next()
	begin := p.tok.Kind
	end, ok := ends[begin]
	if !ok {
		return 0, nil, false
	}
	p.next()
	for p.err == nil && p.tok.Kind != end {
		entries = kept(p, entries, p.entry(begin == '{'))
		if p.tok.Kind != ',' {
			break
		}
		p.next()
	}
	p.needKind(end)
	return byte(begin), entries, p.err == nil && p.tok.Kind == TokenEOF
}

// entry reads one entry; in braces it may have a key or a field.
func (p *parser) entry(braces bool) (e Entry) {
	if name, named := nameOf(p.text, p.tok); braces && named && p.peek().Kind == ':' && wordTerm(p.text, p.tok) == TermOther {
		p.next()
		p.next()
		return Entry{Field: name, Value: p.term()}
	}
	e.Value = p.term()
	if braces && p.tok.Kind == ':' {
		p.next()
		e.Key, e.Value = e.Value, p.term()
	}
	return e
}

// maxDepth is how deep values in brackets may be nested: deeper than any type.
const maxDepth = 16

// Written reports whether a term is a literal or a bind marker, or such terms in brackets that are
// neither nested too deep nor too many for Entries. Nothing in it is called or computed.
func Written(text []byte, t Term) bool { return written(text, t, maxDepth) }

// written is Written with a limit for the nesting.
func written(text []byte, t Term, depth int) bool {
	switch {
	case t.Kind == NoTerm, depth == 0:
		return false
	case t.Kind != TermOther:
		return true
	}
	_, entries, ok := Entries(text, t)
	for _, e := range entries {
		ok = ok && written(text, e.Value, depth-1) && (e.Key.Kind == NoTerm || written(text, e.Key, depth-1))
	}
	return ok
}
