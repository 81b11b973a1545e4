package frontend

import (
	"bytes"
	"encoding/binary"

	"music/musiccore"
	"music/rewrite"
)

// lockedBatch is a BATCH message whose statements are all under one lock: what Cassandra will be sent of it.
type lockedBatch struct {
	conn    *conn
	own     string // keyspace of the request
	literal func(cqlType, literal string) ([]byte, *Failure)

	before []byte // of the body: type, number, and the statements without our clauses
	table  *Table
	key    musiccore.Key
	ref    musiccore.LockRef
}

// batchSection carries out a BATCH message that names a critical table.
func (c *conn) batchSection(e envelope) error {
	switch f := c.enterBatch(e, c.server.literals.known, c.up.emit); f {
	case nil:
		return nil
	case errAskCassandra:
		e.raw = bytes.Clone(e.raw)
		c.later(func() {
			emit := func(raw []byte) { c.up.out.post(c.appendFramed(nil, raw)) }
			if f := c.enterBatch(e, c.server.literals.ask, emit); f != nil {
				c.reject(e.header, f)
			}
		})
		return nil
	default:
		return c.answer(e, f)
	}
}

// enterBatch reads all statements and asks the core for one stamp: a batch in one partition is one mutation.
func (c *conn) enterBatch(e envelope, literal func(string, string) ([]byte, *Failure), emit func([]byte)) *Failure {
	body, err := c.plainBody(e)
	if err != nil {
		return unreadable(e.opcode, err)
	}
	cur := cursor{b: body, at: 3}
	n := int(binary.BigEndian.Uint16(body[1:]))
	b := lockedBatch{conn: c, own: c.batchKeyspace(cur, n), literal: literal, before: bytes.Clone(body[:3])}
	for i := range n {
		if f := b.child(&cur, i == 0); f != nil {
			return f
		}
	}
	p := readParameters(&cur, c.version)
	if cur.bad {
		return unreadable(e.opcode, errShort)
	}
	h := e.header
	h.flags &^= droppedFlags
	return c.begin(kept{
		header: h, before: b.before,
		request: request{key: b.key, ref: b.ref, parameters: p.clone()},
		fenced:  fenced{table: b.table},
	}, musiccore.Put, emit)
}

// child reads one statement and appends what Cassandra is sent of it. It must be under the same lock as the first.
func (b *lockedBatch) child(cur *cursor, first bool) *Failure {
	s, f := b.readChild(cur)
	if f != nil {
		return f
	}
	for n := cur.short(); n > 0 && !cur.bad; n-- {
		start := cur.at
		cur.value()
		s.values = append(s.values, cur.b[start:cur.at])
	}
	if len(s.values) != s.statement.Markers {
		return invalid("MUSIC_SYNTAX: %d bind markers, %d values in a statement of the batch", s.statement.Markers, len(s.values))
	}
	k, f := s.key()
	if f != nil {
		return f
	}
	ref, f := s.ref()
	switch {
	case f != nil:
		return f
	case first:
		b.table, b.key, b.ref = s.table, k, ref
	case k != b.key || ref != b.ref:
		return invalid("MUSIC_REFUSED: a batch under a lock stays in one partition of one table, %s, under one lock_ref", b.table)
	}
	b.append(&s)
	return nil
}

// readChild reads the kind and the text or id of a statement.
func (b *lockedBatch) readChild(cur *cursor) (s section, f *Failure) {
	if cur.byte() == 1 {
		p := b.conn.statement(cur.string())
		if p == nil || p.section == nil {
			return s, mixed()
		}
		s, f = p.section.now()
	} else {
		text := cur.longString()
		r, _ := b.conn.read(text, true, b.own)
		if r.meaning != critical {
			return s, mixed()
		}
		var pass bool
		if s, pass, f = readSection(r, text); pass {
			f = mixed()
		}
	}
	if f == nil && !s.writes() {
		f = invalid("MUSIC_REFUSED: only INSERT, UPDATE and DELETE stand in a batch")
	}
	s.literal = b.literal
	return s, f
}

// mixed is the answer to a batch of which a part is under a lock.
func mixed() *Failure {
	return invalid("MUSIC_REFUSED: every statement of a batch under a lock carries USING LOCK, on one partition of one table")
}

// append appends a statement in the form that Cassandra reads.
func (b *lockedBatch) append(s *section) {
	if s.prepared != nil {
		b.before = append(b.before, 1)
		b.before = binary.BigEndian.AppendUint16(b.before, uint16(len(s.prepared.backend)))
		b.before = append(b.before, s.prepared.backend...)
	} else {
		cut := rewrite.Apply(nil, s.text, s.statement.Cut)
		b.before = append(b.before, 0)
		b.before = binary.BigEndian.AppendUint32(b.before, uint32(len(cut)))
		b.before = append(b.before, cut...)
	}
	p := parameters{values: s.values}
	if t := s.statement.Lock; t.Kind == rewrite.TermMarker {
		p.drop(t.Marker)
	}
	b.before = binary.BigEndian.AppendUint16(b.before, uint16(len(p.values)))
	for _, v := range p.values {
		b.before = append(b.before, v...)
	}
}

// writes tells whether the statement is one write.
func (s *section) writes() bool {
	switch s.statement.Verb {
	case rewrite.Insert, rewrite.Update, rewrite.Delete:
		return true
	}
	return false
}
