package frontend

import "music/rewrite"

// ordinary tells whether a verb of the lock is for a table that is not critical.
func (r reading) ordinary() bool {
	return (r.verb == rewrite.Lock || r.verb == rewrite.Unlock) && (r.table == nil || r.table.Critical() == nil)
}

// decideOrdinary answers LOCK and UNLOCK of a table that is not critical.
func (c *conn) decideOrdinary() verdict {
	name := c.lookedUp()
	c.plan.table = name
	c.plan.failure = invalid("MUSIC_REFUSED: %s is not critical: make it so with ALTER TABLE %[1]s WITH comment = '@critical'", c.tableName())
	return c.holdFor((*conn).askTable)
}

// askTable has Cassandra say whether there is such a table at all, by a statement that it prepares and that nobody executes: where it
// cannot, the client hears so in Cassandra's words.
func (c *conn) askTable(e envelope) error {
	ks, table := c.plan.table[0], c.plan.table[1]
	text := "SELECT * FROM " + rewrite.Quote(table)
	if ks != "" {
		text = "SELECT * FROM " + rewrite.Quote(ks) + "." + rewrite.Quote(table)
	}
	if !c.streams.begin(e.stream, true) {
		return c.answer(e, inUse(e.stream))
	}
	h, f := e.header, c.plan.failure
	c.watches.add(e.stream, watch{kind: watchRights, allowed: func() { c.reject(h, f) }})
	c.up.emit(c.prepareRequest(h, []byte(text)))
	return nil
}
