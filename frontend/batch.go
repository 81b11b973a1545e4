package frontend

import (
	"music/frontend/catalog"
)

// decideBatch looks at each statement of a BATCH message, by text or by id (v4 spec section 4.1.7). One of them on a critical
// table, or one that cannot be read, and none goes on.
func (c *conn) decideBatch(e envelope) verdict {
	if c.server.Tables == nil {
		return forward
	}
	if !e.whole() {
		return more
	}
	body, err := c.plainBody(e)
	if err != nil {
		return c.unreadable(e, err)
	}
	cur := cursor{b: body}
	cur.byte()
	n := cur.short()
	own, err := c.batchKeyspace(cur, n)
	if err != nil {
		return c.unreadable(e, err)
	}
	locked, unserved := false, (*Failure)(nil)
	for i := 0; i < n && !cur.bad; i++ {
		critical, failure := c.judgeChild(&cur, own, &unserved)
		if failure != nil {
			return c.refuse(failure)
		}
		locked = locked || critical
	}
	if cur.bad {
		return c.unreadable(e, errShort)
	}
	if locked {
		return c.holdFor((*conn).batchSection)
	}
	if unserved != nil {
		return c.watch(watch{kind: watchUnserved, unserved: unserved})
	}
	return forward
}

// judgeChild reads one statement of a batch: whether it has to do with a critical table, or why it must not go on. A clause of ours on
// another table is left in unserved.
func (c *conn) judgeChild(cur *cursor, own string, unserved **Failure) (locked bool, f *Failure) {
	switch cur.byte() {
	case 0:
		text := cur.longString()
		r, _ := c.read(text, true, own)
		locked, f = r.meaning == critical && !r.allowed(text), r.failure
		if r.meaning == writes && *unserved == nil {
			*unserved = c.unserved(text)
		}
	case 1:
		id := cur.string()
		locked, f = c.judgeChildPrepared(id)
	default:
		cur.bad = true
	}
	skipValues(cur)
	if cur.bad {
		return false, nil
	}
	return locked, f
}

func (c *conn) judgeChildPrepared(id []byte) (locked bool, f *Failure) {
	p := c.statement(id)
	if p == nil {
		return false, unprepared(id)
	}
	switch p.meaning {
	case unclear:
		r, _ := c.read(p.reread.text, true, p.reread.keyspace)
		return false, r.failure
	case writes:
		c.noteUnread(p.tables)
		policy, f := p.stands()
		if policy == catalog.Auto && f == nil && p.section == nil && c.newer(id, p) == nil {
			f = unprepared(id)
		}
		return policy == catalog.Auto, f
	}
	return p.meaning == critical, nil
}

// skipValues skips the values of a batch's statement.
func skipValues(cur *cursor) {
	for n := cur.short(); n > 0 && !cur.bad; n-- {
		cur.value()
	}
}

// batchKeyspace is the keyspace that a batch carries behind its statements, or "" (v5 spec section 4.1.7). It reads a copy of the cursor.
func (c *conn) batchKeyspace(cur cursor, n int) (string, error) {
	for i := 0; i < n && !cur.bad; i++ {
		if cur.byte() == 0 {
			cur.longString()
		} else {
			cur.string()
		}
		skipValues(&cur)
	}
	p := readParameters(&cur, c.version)
	if cur.bad {
		return "", errShort
	}
	return p.keyspace, nil
}
