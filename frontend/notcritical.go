package frontend

import (
	"encoding/binary"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/relay"
	"music/frontend/wire"
	"music/rewrite"
)

// withoutLocks reports whether LOCK or UNLOCK is for a table that is not critical.
func (r reading) withoutLocks() bool {
	return (r.verb == rewrite.Lock || r.verb == rewrite.Unlock) && (r.table == nil || r.table.Critical() == nil)
}

// decideOrdinary answers LOCK and UNLOCK of a table that is not critical.
func decideOrdinary(r reading) decision {
	return held(&askTable{name: r.name.names(), failure: notCritical(r.name)})
}

// unlistedTable is decided about a request that writes or locks a table which the schema did not
// have when it was read last: it has just been made, and may be critical, or there is none.
type unlistedTable struct {
	askTable
	otherwise decision // what would become of the request
}

// on returns the decision about a request that writes or locks a table; unlisted is its keyspace
// and name where the schema did not have it when it was read last, else nil.
func (d decision) on(unlisted *[2]string) decision {
	if unlisted == nil || d.verdict == relay.NeedWhole {
		return d
	}
	return held(&unlistedTable{otherwise: d, askTable: askTable{name: *unlisted, failure: &wire.Failure{
		Code: primitive.ErrorCodeOverloaded,
		Text: "MUSIC_UNAVAILABLE: " + strings.Join(unlisted[:], ".") + " has just been made: nothing was done, try again",
	}}})
}

// decideUnlisted decides about a request on such a table. It is judged again when the schema has
// been read; where there still is none, nothing is written, and Cassandra says that there is none.
func (c *conn) decideUnlisted(opcode primitive.OpCode, u *unlistedTable) decision {
	if !c.caughtUp {
		c.catchUp = true
		return decision{verdict: relay.Alone}
	}
	if u.otherwise.verdict != relay.Forward || opcode == primitive.OpCodePrepare {
		return u.otherwise
	}
	return held(&u.askTable)
}

// unlistedOf returns keyspace and name of one of the tables that is not in the schema as it was
// read last, else nil.
func unlistedOf(tables []*catalog.Table) (name *[2]string) {
	for _, t := range tables {
		if !t.InSchema() {
			name = &[2]string{t.Keyspace, t.Name}
		}
	}
	return name
}

// askTable has Cassandra say whether there is a table at all, by a statement that it prepares and
// that nobody executes: where it cannot, the client hears so in Cassandra's words.
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

// notCritical returns the error for a statement that has to do with a lock, on a table without
// locks.
func notCritical(table tableKey) *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: %s is not critical: make it so with ALTER TABLE %[1]s WITH comment = '@critical'", table)
}

// unserved returns what is told for a text on a table that is not critical, where Cassandra cannot
// read it: it may hold USING LOCK or FOR UPDATE. It is nil for nearly every text.
func (c *conn) unserved(text []byte, name tableKey) *wire.Failure {
	if c.server.Tables == nil || len(name) == 0 || !rewrite.MayHoldLockClause(text) {
		return nil
	}
	return notCritical(name)
}

// explain tells a client whose text Cassandra could not read what is wrong with it. It reports
// whether it has answered.
func (c *conn) explain(e wire.Envelope, w watch) bool {
	f, opcode := w.unserved, primitive.OpCodeQuery
	if w.kind == watchPrepare {
		f, opcode = w.preparing.unserved, primitive.OpCodePrepare
	}
	if f == nil || !c.isSyntaxError(e) {
		return false
	}
	c.streams.End(e.Stream)
	c.refuseOrdinary(wire.Header{Version: c.version, Stream: e.Stream, OpCode: opcode}, f)
	return true
}

// isSyntaxError reports whether an answer is that of Cassandra's parser.
func (c *conn) isSyntaxError(e wire.Envelope) bool {
	if e.OpCode != primitive.OpCodeError {
		return false
	}
	body, flags, err := c.plainAnswer(e)
	if err != nil {
		return false
	}
	cur := wire.Cursor{Body: body}
	wire.ReadPreamble(&cur, flags)
	code := cur.Take(4)
	return !cur.Bad && primitive.ErrorCode(binary.BigEndian.Uint32(code)) == primitive.ErrorCodeSyntaxError
}

// refuseOrdinary answers a statement with a lock clause on a table that is not critical. Where the
// schema has changed meanwhile the table may be by now: that is looked up beside the connection.
func (c *conn) refuseOrdinary(h wire.Header, f *wire.Failure) {
	c.later(func() {
		if current := c.server.SchemaIsCurrent; current != nil && !current() {
			f = wire.Invalid("MUSIC_UNAVAILABLE: the schema has just changed and is not known here yet: try again; nothing was done")
		}
		c.reject(h, f)
	})
}
