package frontend

import (
	"encoding/binary"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
)

// maxKnown bounds the statements that one connection remembers by itself.
const maxKnown = 4096

// decideExecute decides by the prepared id alone, which stands first in the body.
func (c *conn) decideExecute(e *wire.Envelope) decision {
	id, err := c.executed(e)
	if err != nil {
		return c.unreadable(*e, err)
	}
	p := c.statement(id)
	if p == nil {
		return refused(wire.Unprepared(id))
	}
	if p.meaning == meaningPlain {
		return decision{}
	}
	return c.decidePrepared(e, id, p)
}

// executed is the id that EXECUTE names. It is as good as random, so that most compressed bodies begin with it as it is.
func (c *conn) executed(e *wire.Envelope) ([]byte, error) {
	if c.framing.Compressed(e.Header) && !e.Flags.Contains(primitive.HeaderFlagCustomPayload) {
		if id, ok := shortBytes(wire.UncompressedPrefix(c.framing.Compression, e.Body())); ok {
			return id, nil
		}
	}
	body, err := c.plainBody(e)
	if err != nil {
		return nil, err
	}
	id, ok := shortBytes(body)
	if !ok {
		return nil, wire.ErrShort
	}
	return id, nil
}

// shortBytes is the [short bytes] that b begins with, if all of it is there.
func shortBytes(b []byte) ([]byte, bool) {
	if len(b) < 2 {
		return nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if len(b) < 2+n {
		return nil, false
	}
	return b[2 : 2+n], true
}

// decidePrepared decides about a statement that is more than plain.
func (c *conn) decidePrepared(e *wire.Envelope, id []byte, p *preparedStatement) decision {
	switch p.meaning {
	case meaningWrites:
		return c.decideUnfenced(e, id, p)
	case meaningLocal, meaningPeers:
		return c.decideTopology(p.topology)
	case meaningUse:
		return watched(&watch{kind: watchKeyspace})
	case meaningSchema, meaningUnclear:
		var r reading
		c.read(&r, p.reread.text, true, p.reread.keyspace)
		return c.decideMeaning(e, &r, p.reread.text, nil)
	case meaningCritical:
		return decideExecuteLock(*e, p)
	}
	return decision{}
}

// statement finds a prepared statement by its id: in the connection's own map first, which no other connection touches.
// nil means that nobody has prepared it through this proxy: it must not be forwarded, for it may write anything.
func (c *conn) statement(id []byte) *preparedStatement {
	if len(id) != len(preparedID{}) {
		return nil
	}
	if p := c.known[preparedID(id)]; p != nil {
		return p
	}
	p, ok := c.server.prepared.Get(preparedID(id))
	if !ok {
		return nil
	}
	c.know(preparedID(id), p)
	return p
}

// know remembers a statement on the connection: those that others have forgotten are still held by it.
func (c *conn) know(id preparedID, p *preparedStatement) {
	n := p.memory()
	if c.known == nil || len(c.known) >= maxKnown || c.knownSize+n > c.server.Limits().PreparedEach {
		c.known, c.knownSize = map[preparedID]*preparedStatement{}, 0
	}
	c.known[id] = p
	c.knownSize += n
}

// skipIDs skips the ids that stand before the parameters of an EXECUTE, and returns that of the result columns, from protocol 5 on.
func (c *conn) skipIDs(cur *wire.Cursor) (metadata []byte) {
	cur.ShortBytes()
	if c.version >= byte(primitive.ProtocolVersion5) {
		metadata = cur.ShortBytes()
	}
	return metadata
}
