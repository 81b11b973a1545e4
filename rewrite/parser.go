package rewrite

import (
	"fmt"
	"reflect"
)

// parser stands on one token. Every token goes through next, so that markers
// and brackets are counted whatever is read or skipped. After the first error it
// stands at the end of the text for ever: no method has to ask.
type parser struct {
	text    []byte
	lex     Lexer
	tok     Token
	last    Token     // the token before tok
	open    []bracket // that wait for their end
	closed  bracket   // the last one that found it
	markers int       // that stand before tok
	names   []Name    // of those markers, none for ?; nil until one has a name
	at      []int     // where those markers begin
	err     *SyntaxError

	outline bool                       // nothing is kept of what a text may have any number of
	child   func(keyspace, table Name) // see Outline
	memory  int                        // of what is kept, in bytes
}

// MaxMemory is how many bytes the parts of one statement may take. They take up to a
// hundred times as many as their text, which a client chooses. A value takes no more
// however long it is: this is as much as thousands of INSERTs take.
const MaxMemory = 8 << 20

// kept appends one of any number of parts to the others, unless p reads an outline.
func kept[E any](p *parser, all []E, one E) []E {
	if p.outline || p.err != nil {
		return all
	}
	if p.memory += int(reflect.TypeFor[E]().Size()); p.memory > MaxMemory {
		p.fail(p.last.Span, fmt.Sprintf("the statement has more names, values and statements than the proxy reads, which is as many as take %d bytes of memory", MaxMemory))
		p.err.TooLarge = true
		return all
	}
	return append(all, one)
}

// newParser returns a parser that stands on the first token of text.
func newParser(text []byte) *parser {
	p := &parser{text: text, lex: NewLexer(text)}
	p.next()
	return p
}

// next steps to the next token.
func (p *parser) next() {
	p.count()
	if p.err != nil {
		return
	}
	p.last = p.tok
	p.tok = p.lex.Next()
	if p.tok.Kind == TokenInvalid {
		p.fail(p.tok.Span, "not CQL, or without its end: "+p.quote(p.tok))
	}
}

// count counts the token that is left behind.
func (p *parser) count() {
	switch p.tok.Kind {
	case '?':
		p.mark()
	case ':':
		if p.isMarkerColon() {
			p.nameMarker()
			p.mark()
		}
	case '(':
		p.push(')')
	case '[':
		p.push(']')
	case '{':
		p.push('}')
	case ')', ']', '}':
		p.close()
	}
}

// mark records the bind marker that p stands on.
func (p *parser) mark() {
	p.at = kept(p, p.at, p.tok.Start)
	p.markers++
}

// nameMarker records the name behind the colon.
func (p *parser) nameMarker() {
	ahead := p.lex
	name, _ := nameOf(p.text, ahead.Next())
	for len(p.names) < p.markers && !p.outline && p.err == nil {
		p.names = kept(p, p.names, Name{})
	}
	p.names = kept(p, p.names, name)
}

// bracket is one that is open: its end, and whether a name stands before it, as
// in a function's call.
type bracket struct {
	end  TokenKind
	call bool
}

// push opens a bracket that ends with end.
func (p *parser) push(end TokenKind) {
	call := p.last.Kind == TokenIdent || p.last.Kind == TokenQuoted
	p.open = append(p.open, bracket{end, call})
}

// close closes the innermost bracket, which p stands on the end of.
func (p *parser) close() {
	top := len(p.open) - 1
	if top < 0 || p.open[top].end != p.tok.Kind {
		p.fail(p.tok.Span, "no bracket is open for "+p.quote(p.tok))
		return
	}
	p.closed = p.open[top]
	p.open = p.open[:top]
}

// isMarkerColon reports whether a colon begins a bind marker: it tells :name from the colon of a map, {key : value}, which
// stands behind a value. Behind brackets both are possible, {(type) :name} and
// {(1, 2) : 3}: a name that is not called is a bind marker there.
func (p *parser) isMarkerColon() bool {
	if len(p.open) == 0 || p.open[len(p.open)-1].end != '}' {
		return true
	}
	switch p.last.Kind {
	case '{', ',', ':', '+', '-', '*', '/', '%':
		return true
	case ')':
		return !p.closed.call && p.nameFollows()
	}
	return false
}

// nameFollows reports whether the name of a bind marker stands behind the colon:
// one that is neither a literal nor called.
func (p *parser) nameFollows() bool {
	ahead := p.lex
	name := ahead.Next()
	if _, named := nameOf(p.text, name); !named || wordTerm(p.text, name) != TermOther {
		return false
	}
	after := ahead.Next().Kind
	return after != '(' && after != '.'
}

// skip steps over one token, or over a pair of brackets with all between them.
func (p *parser) skip() {
	depth := len(p.open)
	p.next()
	for len(p.open) > depth && p.tok.Kind != TokenEOF {
		p.next()
	}
}

// peek returns the token after the one that p stands on.
func (p *parser) peek() Token {
	ahead := p.lex
	return ahead.Next()
}

// is reports whether p stands on word, a keyword in capitals.
func (p *parser) is(word string) bool { return isWord(p.text, p.tok, word) }

// isAny reports whether p stands on one of words.
func (p *parser) isAny(words ...string) bool {
	for _, w := range words {
		if p.is(w) {
			return true
		}
	}
	return false
}

// take steps over word if p stands on it.
func (p *parser) take(word string) bool {
	if !p.is(word) {
		return false
	}
	p.next()
	return true
}

// need steps over word, or fails.
func (p *parser) need(word string) {
	if !p.take(word) {
		p.wants(word)
	}
}

// needKind steps over a token of a kind, or fails.
func (p *parser) needKind(kind TokenKind) {
	if p.tok.Kind != kind {
		p.wants(string(rune(kind)))
		return
	}
	p.next()
}

// ended reports whether p stands at the end of a statement.
func (p *parser) ended() bool { return p.tok.Kind == TokenEOF || p.tok.Kind == ';' }

// semicolons steps over any number of them.
func (p *parser) semicolons() {
	for p.tok.Kind == ';' {
		p.next()
	}
}

// finish fails unless the text ends here.
func (p *parser) finish() {
	p.semicolons()
	if p.tok.Kind != TokenEOF {
		p.wants("the end of the statement")
	}
	if len(p.open) > 0 {
		p.fail(p.tok.Span, fmt.Sprintf("a bracket is not closed: %q is missing", string(rune(p.open[len(p.open)-1].end))))
	}
}

// wants fails with what should stand where p stands.
func (p *parser) wants(what string) {
	p.fail(p.tok.Span, what+" is expected here, not "+p.quote(p.tok))
}

// fail ends the reading with an error, unless there is one already.
func (p *parser) fail(at Span, message string) {
	if p.err == nil {
		p.err = &SyntaxError{Span: at, Message: message}
	}
	end := len(p.text)
	p.tok = Token{Kind: TokenEOF, Span: Span{end, end}}
	p.lex.pos = end
	p.open = nil
}

// quote returns a token as it is shown in an error.
func (p *parser) quote(t Token) string {
	const longest = 40
	s := t.Of(p.text)
	switch {
	case t.Kind == TokenEOF:
		return "the end of the text"
	case len(s) > longest:
		return fmt.Sprintf("%q…", s[:longest])
	}
	return fmt.Sprintf("%q", s)
}

// name reads an identifier.
func (p *parser) name(what string) Name {
	n, ok := nameOf(p.text, p.tok)
	if !ok {
		p.wants(what)
		return Name{}
	}
	p.next()
	return n
}

// table reads [keyspace .] table.
func (p *parser) table(s *Statement) {
	s.Table = p.name("a table")
	if p.tok.Kind == '.' {
		p.next()
		s.Keyspace, s.Table = s.Table, p.name("a table")
	}
}
