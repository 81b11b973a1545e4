package frontend

import (
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/classify"
	"music/frontend/relay"
	"music/frontend/topology"
	"music/frontend/wire"
)

// decideQuery decides about a QUERY by its text. If the statement is not on a critical table, only
// the head of its text is read, and it is forwarded.
func (c *conn) decideQuery(e *wire.Envelope) decision {
	body, err := c.requestBody(e)
	if err != nil {
		return c.unreadable(*e, err)
	}
	text, whole, err := textAt(body)
	if err != nil {
		return c.unreadable(*e, err)
	}
	rest := body[4+len(text):]
	own, err := c.keyspaceOfQuery(rest, whole && e.Whole())
	if err != nil {
		return c.unreadable(*e, err)
	}
	keyspace := c.keyspaceHere(own)
	if whole && c.classifier.Forwards(text, keyspace) {
		return decision{}
	}
	return c.decideText(e, text, rest, whole, keyspace)
}

// decideText decides about a QUERY by its text, as far as that has arrived. rest is the body after
// the text.
func (c *conn) decideText(e *wire.Envelope, text, rest []byte, whole bool, keyspace string) decision {
	var r classify.Result
	if ok := c.classifier.Classify(&r, text, whole, keyspace); !ok {
		return c.unreadable(*e, wire.ErrShort)
	}
	d := c.decideKind(e, &r, text, rest).on(r.Unlisted)
	if whole && d == (decision{}) {
		c.classifier.Keep(&r, text, keyspace)
	}
	return d
}

// decideKind decides about a QUERY, or an EXECUTE of a reread statement, whose text has been
// read. rest is the body of a QUERY after the text.
func (c *conn) decideKind(e *wire.Envelope, r *classify.Result, text, rest []byte) decision {
	switch r.Kind {
	case classify.Local, classify.Peers:
		if !e.Whole() {
			return decision{route: relay.NeedWhole}
		}
		t, failure := topology.Read(text, r.Name.Names()[1])
		if failure != nil {
			return refused(failure)
		}
		return c.decideTopology(t)
	case classify.Use:
		return watched(&watch{kind: watchKeyspace})
	case classify.Schema:
		if !e.Whole() {
			return decision{route: relay.NeedWhole}
		}
		if f := c.checkSchema(text, *r); f != nil {
			return refused(f)
		}
		w := &watch{kind: watchSchema, change: changeOf(text, *r)}
		if change, ok := c.makesCritical(text, *r); ok {
			return intercepted(&makeCritical{change, w})
		}
		return watched(w)
	case classify.Refused:
		return refused(r.Failure)
	case classify.Critical:
		if !e.Whole() {
			return decision{route: relay.NeedWhole}
		}
		return c.decideLock(*e, *r, text, rest)
	}
	if f := c.lockClauseError(text, r.Name); f != nil {
		return watched(&watch{kind: watchLockClause, lockClauseError: f})
	}
	return decision{}
}

// keyspaceOfQuery returns the keyspace in the parameters of a QUERY, or "" (v5 spec section 4.1.4;
// Cassandra 5.0.8 obeys it in every version). rest is the body after the text. Usually the flags
// show that there is none; else it returns wire.ErrShort unless rest is whole.
func (c *conn) keyspaceOfQuery(rest []byte, whole bool) (string, error) {
	cur := wire.Cursor{Body: rest}
	cur.Short() // the consistency
	if flags := wire.ReadFlags(&cur, c.version); !cur.Bad && !flags.Contains(primitive.QueryFlagWithKeyspace) {
		return "", nil
	}
	if !whole {
		return "", wire.ErrShort
	}
	cur = wire.Cursor{Body: rest}
	p := wire.ReadParameters(&cur, c.version)
	if cur.Bad {
		return "", wire.ErrShort
	}
	return p.Keyspace, nil
}

// textAt returns the [long string] at the start of a body, as far as it has arrived; whole reports
// whether all of it has.
func textAt(body []byte) (text []byte, whole bool, err error) {
	cur := wire.Cursor{Body: body}
	n := cur.Int()
	if cur.Bad || n < 0 {
		return nil, false, wire.ErrShort
	}
	return body[4:min(4+n, len(body))], 4+n <= len(body), nil
}
