package frontend

import (
	"encoding/binary"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// decideQuery decides about a statement's text. What is not ours goes on as it is; only the head of it has been looked at.
func (c *conn) decideQuery(e envelope) verdict {
	body, err := c.plainBody(e)
	if err != nil {
		return c.unreadable(e, err)
	}
	text, whole, err := textAt(body)
	if err != nil {
		return c.unreadable(e, err)
	}
	own := ""
	if c.mayNameKeyspace(body[4+len(text):], whole) {
		if !e.whole() {
			return more
		}
		cur := cursor{b: body, at: 4 + len(text)}
		p := readParameters(&cur, c.version)
		own = p.keyspace()
	}
	r, ok := c.read(text, whole, own)
	if !ok {
		return c.unreadable(e, errShort)
	}
	return c.decideMeaning(e, r, text, own)
}

// decideMeaning decides about a QUERY whose text has been read.
func (c *conn) decideMeaning(e envelope, r reading, text []byte, own string) verdict {
	switch r.meaning {
	case local, peers:
		if !e.whole() {
			return more
		}
		t, failure := readTopology(text, c.lookedUp()[1])
		if failure != nil {
			return c.refuse(failure)
		}
		return c.holdTopology(t)
	case keyspace:
		return c.watch(watch{kind: watchKeyspace})
	case schema:
		if !e.whole() {
			return more
		}
		born, f := c.checkSchema(text, r)
		if f != nil {
			return c.refuse(f)
		}
		return c.watch(watch{kind: watchSchema, born: born})
	case refused:
		return c.refuse(r.failure)
	case critical:
		if !e.whole() {
			return more
		}
		return c.decideSection(e, r, text, own)
	}
	return forward
}

// mayNameKeyspace tells whether a request of protocol 5 carries a keyspace of its own (v5 spec section 4.1.4), or whether that
// cannot be seen yet. rest is what follows the text: the consistency, then the flags.
func (c *conn) mayNameKeyspace(rest []byte, textWhole bool) bool {
	if c.version < byte(primitive.ProtocolVersion5) {
		return false
	}
	if !textWhole || len(rest) < 2+4 {
		return true
	}
	flags := primitive.QueryFlag(binary.BigEndian.Uint32(rest[2:]))
	return flags.Contains(primitive.QueryFlagWithKeyspace)
}

// textAt reads the [long string] at the start of a body, as far as it has arrived.
func textAt(body []byte) (text []byte, whole bool, err error) {
	cur := cursor{b: body}
	n := cur.int()
	if cur.bad || n < 0 {
		return nil, false, errShort
	}
	return body[4:min(4+n, len(body))], 4+n <= len(body), nil
}
