package frontend

import (
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/relay"
	"music/frontend/wire"
)

// decideQuery decides about a statement's text. What is not ours goes on as it is; only the head of it has been looked at.
func (c *conn) decideQuery(e wire.Envelope) relay.Decision {
	body, err := c.plainBody(e)
	if err != nil {
		return c.unreadable(e, err)
	}
	text, whole, err := textAt(body)
	if err != nil {
		return c.unreadable(e, err)
	}
	own, err := c.keyspaceOfQuery(body[4+len(text):], whole && e.Whole())
	if err != nil {
		return c.unreadable(e, err)
	}
	r, ok := c.read(text, whole, own)
	if !ok {
		return c.unreadable(e, wire.ErrShort)
	}
	return c.decideMeaning(e, r, text, own)
}

// decideMeaning decides about a QUERY, or an EXECUTE, whose text has been read.
func (c *conn) decideMeaning(e wire.Envelope, r reading, text []byte, own string) relay.Decision {
	switch r.meaning {
	case meaningLocal, meaningPeers:
		if !e.Whole() {
			return relay.NeedWhole
		}
		t, failure := readTopology(text, c.lookedUp()[1])
		if failure != nil {
			return c.refuse(failure)
		}
		return c.holdTopology(t)
	case meaningUse:
		return c.watch(watch{kind: watchKeyspace})
	case meaningSchema:
		if !e.Whole() {
			return relay.NeedWhole
		}
		if f := c.checkSchema(text, r); f != nil {
			return c.refuse(f)
		}
		return c.watch(watch{kind: watchSchema, change: c.changeOf(text)})
	case meaningRefused:
		return c.refuse(r.failure)
	case meaningCritical:
		if !e.Whole() {
			return relay.NeedWhole
		}
		return c.decideSection(e, r, text, own)
	}
	if f := c.unserved(text); f != nil {
		return c.watch(watch{kind: watchUnserved, unserved: f})
	}
	return relay.Forward
}

// keyspaceOfQuery is the keyspace that a QUERY carries behind its text, or "" (v5 spec section 4.1.4; Cassandra 5.0.8 obeys it in every
// version). rest is what follows the text. Mostly the flags say at once that there is none; else wire.ErrShort asks for the whole.
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

// textAt reads the [long string] at the start of a body, as far as it has arrived.
func textAt(body []byte) (text []byte, whole bool, err error) {
	cur := wire.Cursor{Body: body}
	n := cur.Int()
	if cur.Bad || n < 0 {
		return nil, false, wire.ErrShort
	}
	return body[4:min(4+n, len(body))], 4+n <= len(body), nil
}
