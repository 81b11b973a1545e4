package frontend

import (
	"encoding/binary"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/frontend/statement"
	"music/frontend/wire"
)

// maxPrepared bounds the number of statements in a connection's own map.
const maxPrepared = 4096

// decideExecute decides about an EXECUTE by the prepared id, which is first in the body.
func (c *conn) decideExecute(e *wire.Envelope) decision {
	id, err := c.executed(e)
	if err != nil {
		return c.unreadable(*e, err)
	}
	p := c.statement(id)
	if p == nil {
		return refused(wire.Unprepared(id))
	}
	if p.kind == classify.Plain {
		return decision{}
	}
	return c.decidePrepared(e, id, p)
}

// executed returns the prepared id of an EXECUTE. The id is a hash, which does not compress, so
// most compressed bodies begin with it unchanged and need not be decompressed.
func (c *conn) executed(e *wire.Envelope) ([]byte, error) {
	if c.framing.Compressed(&e.Header) && !e.Flags.Contains(primitive.HeaderFlagCustomPayload) {
		if id, ok := shortBytes(wire.UncompressedPrefix(c.framing.Compression, e.Body())); ok {
			return id, nil
		}
	}
	body, err := c.requestBody(e)
	if err != nil {
		return nil, err
	}
	id, ok := shortBytes(body)
	if !ok {
		return nil, wire.ErrShort
	}
	return id, nil
}

// shortBytes returns the [short bytes] that b begins with; ok is false if b is too short.
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

// decidePrepared decides about the EXECUTE of a statement that is not always forwarded.
func (c *conn) decidePrepared(e *wire.Envelope, id []byte, p *preparedStatement) decision {
	switch p.kind {
	case classify.Writes:
		return decidePlainWrite(e, id, p)
	case classify.Local, classify.Peers:
		return c.decideTopology(p.topology)
	case classify.Use:
		return watched(&watch{kind: watchKeyspace})
	case classify.Schema, classify.Unclear:
		r := c.classify(p.reread.text, p.reread.keyspace)
		return c.decideKind(e, &r, p.reread.text, nil).on(r.Unlisted)
	case classify.Critical:
		return decideExecuteLock(*e, p)
	}
	return decision{}
}

// statement returns the prepared statement of an id. It looks first in the connection's own map,
// which no other connection uses. nil means that no client has prepared it through this proxy: it
// must not be forwarded, since it may write anything.
func (c *conn) statement(id []byte) *preparedStatement {
	if len(id) != len(preparedID{}) {
		return nil
	}
	if p := c.prepared[preparedID(id)].get(); p != nil {
		return p
	}
	shared := c.server.prepared.shared(preparedID(id))
	p := shared.get()
	if p == nil {
		return nil
	}
	if c.prepared == nil || len(c.prepared) >= maxPrepared {
		c.prepared = map[preparedID]*sharedStatement{}
	}
	c.prepared[preparedID(id)] = shared
	return p
}

// skipIDs skips the ids before the parameters of an EXECUTE. It returns the result metadata id,
// which exists from protocol 5 on.
func (c *conn) skipIDs(cur *wire.Cursor) (metadata []byte) {
	cur.ShortBytes()
	if c.version >= byte(primitive.ProtocolVersion5) {
		metadata = cur.ShortBytes()
	}
	return metadata
}

// decidePlainWrite decides about the EXECUTE of a plain write.
func decidePlainWrite(e *wire.Envelope, id []byte, p *preparedStatement) (d decision) {
	policy, f := p.currentPolicy()
	switch {
	case f != nil:
		d = refused(f)
	case policy == catalog.Allow:
		d = decision{}
	case p.lock != nil:
		d = decideExecuteLock(*e, p)
	default: // no client has prepared it since its table is critical
		d = refused(wire.Unprepared(id))
	}
	return d.on(unlistedOf(p.tables))
}

// currentPolicy returns the policy for a prepared plain write as its tables are now: Allow if it
// can be forwarded, Auto if a table gives it a section of its own, Reject with the error if it is
// refused.
func (p *preparedStatement) currentPolicy() (catalog.Policy, *wire.Failure) {
	switch t, policy := catalog.Strictest(p.tables); {
	case t == nil:
		return catalog.Allow, nil
	case p.truncate && policy != catalog.Allow:
		return catalog.Reject, truncateRefused(t)
	case policy == catalog.Reject:
		return catalog.Reject, statement.WithoutLock(t)
	default:
		return policy, nil
	}
}

// truncateRefused returns the error for a TRUNCATE of a critical table, unless its policy is Allow:
// no lock covers all of its keys.
func truncateRefused(t *catalog.Table) *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: %s is critical: TRUNCATE would remove the fences with the data: delete its keys, or let plain writes through for that time (unlocked=allow)", t)
}

// ordinary reports whether the statement is a write that can be forwarded as its tables are now.
func (p *preparedStatement) ordinary() bool {
	policy, f := p.currentPolicy()
	return p.kind == classify.Writes && f == nil && policy == catalog.Allow
}

// written returns the names of the tables that the statement writes.
func (p *preparedStatement) written() (names [][2]string) {
	for _, t := range p.tables {
		names = append(names, [2]string{t.Keyspace, t.Name})
	}
	return names
}
