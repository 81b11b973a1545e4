// Package topology makes drivers see a cluster of proxies instead of one of nodes. It reads a
// SELECT on system.local, system.peers or system.peers_v2, rewrites it for Cassandra, and
// translates the rows of the answer.
package topology

import (
	"bytes"
	"slices"
	"strings"

	"music/frontend/wire"
	"music/rewrite"
)

// Select is a SELECT on system.local, system.peers or peers_v2. Cassandra carries it out,
// restricted to the nodes that have a proxy, with addresses of proxies replaced by those of nodes.
// In the rows of the answer the addresses of nodes are replaced by those of proxies (docs/design.md
// 3). So selection, count and limit are Cassandra's own. A Select must not be modified once it is
// shared.
type Select struct {
	Table     string // local, peers or peers_v2
	text      []byte // nil if it could not be parsed: then no row may be shown
	statement rewrite.Statement
	sources   []string // the column that each result column shows, "" for none; nil if result columns have the columns' names
	metadata  []byte   // of a prepared statement, from protocol 5 on: its result metadata id
}

// Read reads the text of a SELECT on a table of keyspace system. It refuses a text that selects or
// compares an address in a form that cannot be translated.
func Read(text []byte, table string) (*Select, *wire.Failure) {
	t := &Select{Table: table}
	statement, err := rewrite.Parse(text)
	if err != nil {
		return t, nil //nolint:nilerr // Cassandra cannot parse it either, and its error is the better one
	}
	t.text, t.statement = bytes.Clone(text), statement
	if statement.JSON {
		return nil, wire.Invalid("MUSIC_REFUSED: SELECT JSON on system.local and system.peers is not translated: select columns")
	}
	if f := t.readSelectors(); f != nil {
		return nil, f
	}
	return t, t.checkWhere()
}

// readSelectors sets sources.
func (t *Select) readSelectors() *wire.Failure {
	for _, s := range t.statement.Selectors {
		source := ""
		switch {
		case s.Kind == rewrite.StarSelector:
			t.sources = nil
			return nil
		case s.Kind == rewrite.ColumnSelector:
			source = t.name(s.Column)
		case t.places(s.Span) > 0:
			return wire.Invalid("MUSIC_REFUSED: functions of a node's address are not translated: select the column")
		}
		t.sources = append(t.sources, source)
	}
	return nil
}

// checkWhere refuses restrictions of addresses that cannot be translated: on peers all but = and
// IN, on local all.
func (t *Select) checkWhere() *wire.Failure {
	translated := 0
	for _, r := range t.statement.Where {
		if t.restricts(r) {
			translated++
		}
	}
	if t.places(t.where()) > translated {
		return wire.Invalid("MUSIC_REFUSED: a node's address can be restricted only by = and IN, and only on system.peers and peers_v2")
	}
	return nil
}

// restricts reports whether a relation restricts an address or a port and can be translated.
func (t *Select) restricts(r rewrite.Relation) bool {
	if t.Table == "local" || !showsPlace(t.name(r.Column)) {
		return false
	}
	evaluated := func(v rewrite.Term) bool { return v.Kind == rewrite.TermOther }
	return (r.Op == rewrite.OpEq || r.Op == rewrite.OpIn) && !evaluated(r.Value) && !slices.ContainsFunc(r.Values, evaluated)
}

// where returns the span of the text between the table and ORDER BY or GROUP BY, which name
// addresses but do not compare them.
func (t *Select) where() rewrite.Span {
	lex := rewrite.NewLexer(t.text[t.statement.Table.End:])
	for token := lex.Next(); token.Kind != rewrite.TokenEOF; token = lex.Next() {
		token.Start += t.statement.Table.End
		token.End += t.statement.Table.End
		if token.Kind == rewrite.TokenIdent && endsWhere(string(token.Of(t.text))) {
			return rewrite.Span{Start: t.statement.Table.End, End: token.Start}
		}
	}
	return rewrite.Span{Start: t.statement.Table.End, End: len(t.text)}
}

// endsWhere reports whether a word begins a clause after WHERE that names columns but does not
// compare them.
func endsWhere(word string) bool {
	return strings.EqualFold(word, "order") || strings.EqualFold(word, "group")
}

// places counts the names of address columns in a part of the text. The names of bind markers are
// not counted.
func (t *Select) places(part rewrite.Span) (n int) {
	text := part.Of(t.text)
	lex := rewrite.NewLexer(text)
	var last rewrite.TokenKind
	for token := lex.Next(); token.Kind != rewrite.TokenEOF && token.Kind != rewrite.TokenInvalid; token = lex.Next() {
		word := token.Kind == rewrite.TokenIdent || token.Kind == rewrite.TokenQuoted
		name := rewrite.Name{Span: token.Span, Quoted: token.Kind == rewrite.TokenQuoted}
		if word && last != ':' && showsPlace(string(name.AppendTo(nil, text))) {
			n++
		}
		last = token.Kind
	}
	return n
}

// Readable reports whether the text could be parsed. If not, no row may be shown.
func (t *Select) Readable() bool { return t.text != nil }

// SetMetadata sets the result metadata id of a prepared statement, from protocol 5 on.
func (t *Select) SetMetadata(id []byte) { t.metadata = id }

// Size returns the length of the stored text in bytes.
func (t *Select) Size() int { return len(t.text) }

// name returns the name of a column as Cassandra knows it.
func (t *Select) name(n rewrite.Name) string { return string(n.AppendTo(nil, t.text)) }
