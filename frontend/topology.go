package frontend

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
	"music/rewrite"
)

// topology is a SELECT on system.local, system.peers or peers_v2. Cassandra carries it out, restricted to the nodes that have a
// proxy and with the proxies' addresses in it made the nodes'; in its rows they are made the proxies' again (docs/design.md 3). So any
// selection, count or limit is Cassandra's own. It is never changed once made.
type topology struct {
	table     string // local, peers or peers_v2
	text      []byte // nil: it could not be read, and no row of it is shown
	statement rewrite.Statement
	sources   []string // the column that each result column shows, "" for none; nil: its own name says it
	metadata  []byte   // of a prepared one: the id of its result columns, from protocol 5 on
}

// readTopology reads such a SELECT. What shows or compares an address in a form that is not translated is refused.
func readTopology(text []byte, table string) (*topology, *wire.Failure) {
	t := &topology{table: table}
	statement, err := rewrite.Parse(text)
	if err != nil {
		return t, nil //nolint:nilerr // Cassandra will not read it either, and says so better
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

// readSelectors finds out which column of the table each result column shows.
func (t *topology) readSelectors() *wire.Failure {
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

// checkWhere refuses restrictions of addresses that are not translated: of peers all but = and IN, of local all.
func (t *topology) checkWhere() *wire.Failure {
	translated := 0
	for _, r := range t.statement.Where {
		if t.restricts(r) {
			translated++
		}
	}
	if t.places(t.where()) > translated {
		return wire.Invalid("MUSIC_REFUSED: of a node's address only = and IN on system.peers and peers_v2 are translated")
	}
	return nil
}

// restricts tells whether a relation is one of an address or port that is translated.
func (t *topology) restricts(r rewrite.Relation) bool {
	if t.table == "local" || !showsPlace(t.name(r.Column)) {
		return false
	}
	evaluated := func(v rewrite.Term) bool { return v.Kind == rewrite.TermOther }
	return (r.Op == rewrite.OpEq || r.Op == rewrite.OpIn) && !evaluated(r.Value) && !slices.ContainsFunc(r.Values, evaluated)
}

// where is the text from behind the table to ORDER or GROUP BY, which put addresses into an order and compare them with nothing.
func (t *topology) where() rewrite.Span {
	lex := rewrite.NewLexer(t.text[t.statement.Table.End:])
	for token := lex.Next(); token.Kind != rewrite.TokenEOF; token = lex.Next() {
		token.Start += t.statement.Table.End
		token.End += t.statement.Table.End
		if token.Kind == rewrite.TokenIdent && (isWord(t.text, token, "order") || isWord(t.text, token, "group")) {
			return rewrite.Span{Start: t.statement.Table.End, End: token.Start}
		}
	}
	return rewrite.Span{Start: t.statement.Table.End, End: len(t.text)}
}

// places counts the names of address columns in a part of the text; names of bind markers are none.
func (t *topology) places(part rewrite.Span) (n int) {
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

// name is a column as Cassandra knows it.
func (t *topology) name(n rewrite.Name) string { return string(n.AppendTo(nil, t.text)) }

// decideTopology has such a SELECT asked in the client's place, with the nodes that there are now.
func (c *conn) decideTopology(t *topology) decision {
	q := &question{topology: t, proxy: c.server.Advertise}
	if c.server.Nodes != nil {
		q.nodes = c.server.Nodes()
	}
	return held(q)
}

// String implements action.
func (q *question) String() string { return "ask for the topology in system." + q.table }

// perform implements action: it sends the translated SELECT as a QUERY, whatever it came as: the text of a prepared one holds the nodes of the time
// when it is executed, and Cassandra's columns for it are those of the client's own.
func (q *question) perform(c *conn, e wire.Envelope) error {
	w := &watch{kind: watchTopology, question: q}
	if q.text == nil {
		return c.forwardHeld(e, w)
	}
	body, err := c.plainBody(e)
	if err != nil {
		return c.answerUnreadable(e, err)
	}
	cur := wire.Cursor{Body: body}
	var metadata []byte
	if e.OpCode == primitive.OpCodeExecute {
		metadata = c.skipIDs(&cur)
	} else {
		cur.LongString()
	}
	p := wire.ReadParameters(&cur, c.version)
	if cur.Bad {
		return c.answerUnreadable(e, wire.ErrShort)
	}
	q.bare = p.Flags.Contains(primitive.QueryFlagSkipMetadata) && (metadata == nil || bytes.Equal(metadata, q.metadata))
	p.Flags &^= primitive.QueryFlagSkipMetadata
	p.Unpage()
	text := q.ask(&p)
	edited := append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	return c.forwardAs(e, primitive.OpCodeQuery, w, p.AppendTo(edited, c.version))
}

// skipIDs skips the ids that stand before the parameters of an EXECUTE, and returns that of the result columns, from protocol 5 on.
func (c *conn) skipIDs(cur *wire.Cursor) (metadata []byte) {
	cur.ShortBytes()
	if c.version >= byte(primitive.ProtocolVersion5) {
		metadata = cur.ShortBytes()
	}
	return metadata
}
