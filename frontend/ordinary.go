package frontend

import (
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/relay"
	"music/frontend/wire"
	"music/rewrite"
)

// ordinary tells whether a verb of the lock is for a table that is not critical.
func (r reading) ordinary() bool {
	return (r.verb == rewrite.Lock || r.verb == rewrite.Unlock) && (r.table == nil || r.table.Critical() == nil)
}

// decideOrdinary answers LOCK and UNLOCK of a table that is not critical.
func (c *conn) decideOrdinary() relay.Decision {
	name := c.lookedUp()
	c.plan.table = name
	c.plan.failure = c.notCritical()
	return c.holdFor((*conn).askTable)
}

// decideUnread decides about a request that concerns a table which the schema did not have when it was read last: it has just been made,
// and may be critical, or there is none. It is judged again when the schema has been read; where there still is none, nothing is
// written, and Cassandra says that there is none.
func (c *conn) decideUnread(e wire.Envelope, v relay.Decision) relay.Decision {
	if !c.caughtUp {
		c.behind = true
		return relay.Alone
	}
	if v != relay.Forward || e.OpCode == primitive.OpCodePrepare {
		return v
	}
	c.plan.table = *c.plan.unread
	c.plan.failure = &wire.Failure{
		Code: primitive.ErrorCodeOverloaded,
		Text: "MUSIC_UNAVAILABLE: " + strings.Join(c.plan.table[:], ".") + " has just been made: nothing was done, try again",
	}
	return c.holdFor((*conn).askTable)
}

// noteLookedUp notes whether the table last looked up, which a statement writes or locks, was not in the schema. A name without any keyspace
// is no table's.
func (c *conn) noteLookedUp() {
	if c.name[0] != 0 && !c.server.Tables.InSchema(c.name) {
		name := c.lookedUp()
		c.plan.unread = &name
	}
}

// noteUnread notes whether one of the tables that a prepared statement writes was not in the schema.
func (c *conn) noteUnread(tables []*catalog.Table) {
	for _, t := range tables {
		if !t.InSchema() {
			c.plan.unread = &[2]string{t.Keyspace, t.Name}
		}
	}
}

// askTable has Cassandra say whether there is such a table at all, by a statement that it prepares and that nobody executes: where it
// cannot, the client hears so in Cassandra's words.
func (c *conn) askTable(e wire.Envelope) error {
	ks, table := c.plan.table[0], c.plan.table[1]
	text := "SELECT * FROM " + rewrite.Quote(table)
	if ks != "" {
		text = "SELECT * FROM " + rewrite.Quote(ks) + "." + rewrite.Quote(table)
	}
	if !c.streams.Begin(e.Stream, true) {
		return c.answer(e, inUse(e.Stream))
	}
	h, f := e.Header, c.plan.failure
	c.watches.add(e.Stream, watch{kind: watchRights, allowed: func() { c.refuseOrdinary(h, f) }})
	c.up.Emit(c.prepareRequest(h, []byte(text)))
	return nil
}
