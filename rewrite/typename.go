package rewrite

import "bytes"

// Native reports whether a CQL type is made of native types alone: it names no user-defined type
// and no class of Cassandra.
func Native(cqlType string) bool {
	text := []byte(cqlType)
	lex := NewLexer(text)
	for t := lex.Next(); t.Kind != TokenEOF; t = lex.Next() {
		switch t.Kind {
		case TokenIdent:
			if !nativeWord(t.Of(text)) {
				return false
			}
		case '<', '>', ',', TokenInteger:
		default:
			return false
		}
	}
	return cqlType != ""
}

// nativeWord reports whether a word is the name of a native type, or one that makes types of
// others.
func nativeWord(word []byte) bool {
	switch string(bytes.ToLower(word)) {
	case "ascii", "bigint", "blob", "boolean", "date", "decimal", "double", "duration", "float", "inet", "int", "smallint", "text", "time",
		"timestamp", "timeuuid", "tinyint", "uuid", "varchar", "varint", "frozen", "list", "map", "set", "tuple", "vector":
		return true
	}
	return false
}

// TypeParameters returns a CQL type without frozen, the name that stands before its parameters, and
// these: "map" and "text", "int" of frozen<map<text, int>>.
func TypeParameters(cqlType string) (name string, parameters []string) {
	text := []byte(cqlType)
	lex := NewLexer(text)
	first := lex.Next()
	depth, begin := 0, 0
	for t := lex.Next(); t.Kind != TokenEOF; t = lex.Next() {
		if t.Kind == '<' {
			if depth++; depth == 1 {
				begin = t.End
			}
		}
		if t.Kind == '>' {
			depth--
		}
		if depth == 0 || depth == 1 && t.Kind == ',' {
			parameters = append(parameters, string(bytes.TrimSpace(text[begin:t.Start])))
			begin = t.End
		}
	}
	name = string(bytes.ToLower(first.Of(text)))
	if name == "frozen" && len(parameters) == 1 {
		return TypeParameters(parameters[0])
	}
	return name, parameters
}

// Selectable reports whether a term means the same in the selection of a SELECT on any table: it has
// no names but those of functions, native types and bind markers, and calls neither token(), which
// depends on the table, nor fromJson(), which depends on the column.
func Selectable(text []byte, t Term) bool {
	p := &parser{text: text[:t.End], lex: NewLexer(text[:t.End])}
	p.lex.pos = t.Start
	for p.next(); p.tok.Kind != TokenEOF && !p.namesColumn(); {
		markers := p.markers
		if p.next(); p.markers > markers && p.last.Kind == ':' {
			p.next() // the name of a bind marker
		}
	}
	return p.tok.Kind == TokenEOF && p.err == nil
}

// namesColumn reports whether p stands on a name that may be that of a column, or of a function that
// depends on one.
func (p *parser) namesColumn() bool {
	switch after := p.peek().Kind; {
	case p.tok.Kind != TokenIdent && p.tok.Kind != TokenQuoted:
		return false
	case p.isAny("TOKEN", "FROMJSON", "FROM_JSON"):
		return true
	case after == '(', after == '.':
		return false
	}
	return p.tok.Kind == TokenQuoted || wordTerm(p.text, p.tok) == TermOther && !nativeWord(p.tok.Of(p.text))
}

// Operands returns where the operands of a term's arithmetic begin that are literals or bind markers
// without a cast, those of calls and of values in other brackets left out.
func Operands(text []byte, t Term) (at []int) {
	p := &parser{text: text[:t.End], lex: NewLexer(text[:t.End])}
	p.lex.pos = t.Start
	outside := -1 // how many brackets stand around the outermost call or value in brackets that p is in; -1: in none
	for p.next(); p.tok.Kind != TokenEOF; p.next() {
		top := len(p.open) - 1
		if top < outside {
			outside = -1
		}
		if outside < 0 && top >= 0 && (p.open[top].call || p.open[top].end != ')') {
			outside = top
		}
		literal := literalKind(p.tok.Kind)
		operand := literal != NoTerm && literal != TermDuration || p.tok.Kind == '?' || p.tok.Kind == ':'
		if operand && p.last.Kind != ')' && outside < 0 {
			at = append(at, p.tok.Start)
		}
	}
	return at
}
