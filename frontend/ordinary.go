package frontend

import (
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/relay"
	"music/frontend/wire"
	"music/rewrite"
)

// ordinary reports whether LOCK or UNLOCK is for a table that is not critical.
func (r reading) ordinary() bool {
	return (r.verb == rewrite.Lock || r.verb == rewrite.Unlock) && (r.table == nil || r.table.Critical() == nil)
}

// decideOrdinary answers LOCK and UNLOCK of a table that is not critical.
func decideOrdinary(r reading) decision {
	return held(&askTable{name: r.name.names(), failure: notCritical(r.name)})
}

// decideUnlisted decides about a request that concerns a table which the schema did not have when it was read last: it has just been made,
// and may be critical, or there is none. It is judged again when the schema has been read; where there still is none, nothing is
// written, and Cassandra says that there is none. d is what would become of the request otherwise.
func (c *conn) decideUnlisted(e wire.Envelope, d decision) decision {
	if !c.caughtUp {
		c.catchUp = true
		return decision{verdict: relay.Alone}
	}
	if d.verdict != relay.Forward || e.OpCode == primitive.OpCodePrepare {
		return d
	}
	return held(&askTable{name: *d.unlisted, failure: &wire.Failure{
		Code: primitive.ErrorCodeOverloaded,
		Text: "MUSIC_UNAVAILABLE: " + strings.Join(d.unlisted[:], ".") + " has just been made: nothing was done, try again",
	}})
}

// unlistedOf returns keyspace and name of one of the tables that is not in the schema as it was read last, else nil.
func unlistedOf(tables []*catalog.Table) (name *[2]string) {
	for _, t := range tables {
		if !t.InSchema() {
			name = &[2]string{t.Keyspace, t.Name}
		}
	}
	return name
}

// askTable has Cassandra say whether there is a table at all, by a statement that it prepares and that nobody executes: where it
// cannot, the client hears so in Cassandra's words.
type askTable struct {
	name    [2]string     // keyspace, which may be empty, and name
	failure *wire.Failure // what the client is told where there is the table
}

// String implements action.
func (a *askTable) String() string {
	return "ask whether there is " + strings.Join(a.name[:], ".") + ", else " + a.failure.Error()
}

// perform implements action.
func (a *askTable) perform(c *conn, e wire.Envelope) error {
	text := "SELECT * FROM " + rewrite.Quote(a.name[1])
	if a.name[0] != "" {
		text = "SELECT * FROM " + rewrite.Quote(a.name[0]) + "." + rewrite.Quote(a.name[1])
	}
	if !c.streams.Begin(e.Stream, true) {
		return c.answer(e, inUse(e.Stream))
	}
	h := e.Header
	c.watches.add(e.Stream, &watch{kind: watchRights, allowed: func() { c.refuseOrdinary(h, a.failure) }})
	c.up.Emit(c.prepareRequest(h, []byte(text)))
	return nil
}
