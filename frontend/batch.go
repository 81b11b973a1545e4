package frontend

import (
	"github.com/datastax/go-cassandra-native-protocol/primitive"
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
	own := c.batchKeyspace(cur, n)
	for range n {
		if failure := c.judgeChild(&cur, own); failure != nil {
			return c.refuse(failure)
		}
	}
	if cur.bad {
		return c.unreadable(e, errShort)
	}
	return forward
}

// judgeChild reads one statement of a batch and says why it must not go on, or nil.
func (c *conn) judgeChild(cur *cursor, own string) *Failure {
	var failure *Failure
	switch cur.byte() {
	case 0:
		failure = c.judgeChildText(cur.longString(), own)
	case 1:
		id := cur.string()
		if p := c.statement(id); p == nil {
			failure = unprepared(id)
		} else {
			failure = judgeChildPrepared(p)
		}
	default:
		cur.bad = true
	}
	skipValues(cur)
	if cur.bad {
		return nil
	}
	return failure
}

// skipValues skips the values of a batch's statement.
func skipValues(cur *cursor) {
	for n := cur.short(); n > 0 && !cur.bad; n-- {
		cur.value()
	}
}

func (c *conn) judgeChildText(text []byte, own string) *Failure {
	r, _ := c.read(text, true, own)
	switch r.meaning {
	case refused:
		return r.failure
	case critical:
		return lockedBatch(r.table)
	}
	return nil
}

func judgeChildPrepared(p *prepared) *Failure {
	for _, t := range p.tables {
		if t.Critical() != nil {
			return unlocked(t)
		}
	}
	if p.meaning == critical {
		return lockedBatch(p.section.table)
	}
	return nil
}

// lockedBatch is the answer to a BATCH message on a critical table.
func lockedBatch(t *Table) *Failure {
	if t == nil {
		return invalid("MUSIC_REFUSED: LOCK and UNLOCK cannot stand in a batch")
	}
	return invalid("MUSIC_UNLOCKED: %s is critical: send the batch as text, BEGIN BATCH USING LOCK <ref> … APPLY BATCH", t)
}

// batchKeyspace is the keyspace that a batch of protocol 5 carries behind its statements, or "". It reads a copy of the cursor.
func (c *conn) batchKeyspace(cur cursor, n int) string {
	if c.version < byte(primitive.ProtocolVersion5) {
		return ""
	}
	for range n {
		if cur.byte() == 0 {
			cur.longString()
		} else {
			cur.string()
		}
		skipValues(&cur)
	}
	p := readParameters(&cur, c.version)
	if cur.bad {
		return ""
	}
	return p.keyspace()
}
