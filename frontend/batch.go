package frontend

import (
	"music/frontend/catalog"
	"music/frontend/relay"
	"music/frontend/wire"
)

// decideBatch looks at each statement of a BATCH message, by text or by id (v4 spec section 4.1.7). One of them on a critical
// table, or one that cannot be read, and none goes on.
func (c *conn) decideBatch(e wire.Envelope) relay.Decision {
	if c.server.Tables == nil {
		return relay.Forward
	}
	if !e.Whole() {
		return relay.NeedWhole
	}
	body, err := c.plainBody(e)
	if err != nil {
		return c.unreadable(e, err)
	}
	cur := wire.Cursor{Body: body}
	cur.Byte()
	n := cur.Short()
	own, err := c.batchKeyspace(cur, n)
	if err != nil {
		return c.unreadable(e, err)
	}
	locked, unserved := false, (*wire.Failure)(nil)
	for i := 0; i < n && !cur.Bad; i++ {
		critical, failure := c.judgeChild(&cur, own, &unserved)
		if failure != nil {
			return c.refuse(failure)
		}
		locked = locked || critical
	}
	if cur.Bad {
		return c.unreadable(e, wire.ErrShort)
	}
	if locked {
		return c.holdFor((*conn).batchSection)
	}
	if unserved != nil {
		return c.watch(watch{kind: watchUnserved, unserved: unserved})
	}
	return relay.Forward
}

// judgeChild reads one statement of a batch: whether it has to do with a critical table, or why it must not go on. A clause of ours on
// another table is left in unserved.
func (c *conn) judgeChild(cur *wire.Cursor, own string, unserved **wire.Failure) (locked bool, f *wire.Failure) {
	switch cur.Byte() {
	case 0:
		text := cur.LongString()
		r, _ := c.read(text, true, own)
		locked, f = r.meaning == meaningCritical && !r.allowed(text), r.failure
		if r.meaning == meaningWrites && *unserved == nil {
			*unserved = c.unserved(text)
		}
	case 1:
		id := cur.ShortBytes()
		locked, f = c.judgeChildPrepared(id)
	default:
		cur.Bad = true
	}
	skipValues(cur)
	if cur.Bad {
		return false, nil
	}
	return locked, f
}

func (c *conn) judgeChildPrepared(id []byte) (locked bool, f *wire.Failure) {
	p := c.statement(id)
	if p == nil {
		return false, wire.Unprepared(id)
	}
	switch p.meaning {
	case meaningUnclear:
		r, _ := c.read(p.reread.text, true, p.reread.keyspace)
		return false, r.failure
	case meaningWrites:
		c.noteUnread(p.tables)
		policy, f := p.stands()
		if policy == catalog.Auto && f == nil && p.lock == nil && c.newer(id, p) == nil {
			f = wire.Unprepared(id)
		}
		return policy == catalog.Auto, f
	}
	return p.meaning == meaningCritical, nil
}

// skipValues skips the values of a batch's statement.
func skipValues(cur *wire.Cursor) {
	for n := cur.Short(); n > 0 && !cur.Bad; n-- {
		cur.Value()
	}
}

// batchKeyspace is the keyspace that a batch carries behind its statements, or "" (v5 spec section 4.1.7). It reads a copy of the cursor.
func (c *conn) batchKeyspace(cur wire.Cursor, n int) (string, error) {
	for i := 0; i < n && !cur.Bad; i++ {
		if cur.Byte() == 0 {
			cur.LongString()
		} else {
			cur.ShortBytes()
		}
		skipValues(&cur)
	}
	p := wire.ReadParameters(&cur, c.version)
	if cur.Bad {
		return "", wire.ErrShort
	}
	return p.Keyspace, nil
}
