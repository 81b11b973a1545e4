package frontend

import (
	"cmp"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/frontend/relay"
	"music/frontend/wire"
)

// decideBatch looks at each statement of a BATCH message, text or id (v4 spec section 4.1.7). The
// batch is forwarded only if every statement could be forwarded by itself.
func (c *conn) decideBatch(e wire.Envelope) decision {
	if c.server.Tables == nil {
		return decision{}
	}
	if !e.Whole() {
		return decision{route: relay.NeedWhole}
	}
	body, err := c.requestBody(&e)
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
	var all childDecision
	unclear := map[*preparedStatement]childDecision{}
	for i := 0; i < n && !cur.Bad && all.failure == nil; i++ {
		child := c.decideChild(&cur, own, unclear)
		all.locked, all.failure = all.locked || child.locked, child.failure
		all.lockClauseError, all.unlisted = cmp.Or(all.lockClauseError, child.lockClauseError), cmp.Or(child.unlisted, all.unlisted)
	}
	d := decision{}
	switch {
	case all.failure != nil:
		d = refused(all.failure)
	case cur.Bad:
		d = c.unreadable(e, wire.ErrShort)
	case all.locked:
		d = intercepted(executeBatch{})
	case all.lockClauseError != nil:
		d = watched(&watch{kind: watchLockClause, lockClauseError: all.lockClauseError})
	}
	return d.on(all.unlisted)
}

// childDecision is the decision about one statement of a batch, or about all of them together.
type childDecision struct {
	locked          bool          // it is to be carried out under a lock
	failure         *wire.Failure // why it is refused
	lockClauseError *wire.Failure // see conn.lockClauseError
	unlisted        *[2]string    // see classify.Result
}

// decideChild decides about one statement of a batch. unclear is as for decidePreparedChild.
func (c *conn) decideChild(cur *wire.Cursor, own string, unclear map[*preparedStatement]childDecision) (child childDecision) {
	switch cur.Byte() {
	case 0:
		text := cur.LongString()
		r := c.classify(text, own)
		child = childDecision{locked: r.Kind == classify.Critical && !allowed(r, text), failure: r.Failure, unlisted: r.Unlisted}
		if r.Kind == classify.Writes {
			child.lockClauseError = c.lockClauseError(text, r.Name)
		}
	case 1:
		child = c.decidePreparedChild(cur.ShortBytes(), unclear)
	default:
		cur.Bad = true
	}
	if skipValues(cur); cur.Bad {
		return childDecision{}
	}
	return child
}

// decidePreparedChild decides about one that was prepared. unclear holds what is known of those
// that the proxy cannot read: a batch may name one, whose text is long, with each of its statements.
func (c *conn) decidePreparedChild(id []byte, unclear map[*preparedStatement]childDecision) childDecision {
	p := c.statement(id)
	if p == nil {
		return childDecision{failure: wire.Unprepared(id)}
	}
	switch p.kind {
	case classify.Unclear:
		child, known := unclear[p]
		if !known {
			r := c.classify(p.reread.text, p.reread.keyspace)
			child = childDecision{failure: r.Failure, unlisted: r.Unlisted}
			unclear[p] = child
		}
		return child
	case classify.Writes:
		policy, f := p.currentPolicy()
		if policy == catalog.Auto && f == nil && p.lock == nil {
			f = wire.Unprepared(id)
		}
		return childDecision{locked: policy == catalog.Auto, failure: f, unlisted: unlistedOf(p.tables)}
	}
	return childDecision{locked: p.kind == classify.Critical}
}

// skipValues skips the values of a batch's statement.
func skipValues(cur *wire.Cursor) {
	for n := cur.Short(); n > 0 && !cur.Bad; n-- {
		cur.Value()
	}
}

// batchKeyspace returns the keyspace in the parameters of a batch with n statements, or "" (v5 spec
// section 4.1.7). It does not move the caller's cursor.
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
