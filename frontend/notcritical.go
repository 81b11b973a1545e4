package frontend

import (
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/frontend/relay"
	"music/frontend/traffic"
	"music/frontend/wire"
	"music/rewrite"
)

// locksOrdinary reports whether the text is LOCK, UNLOCK or LIST LOCKS of a table that is not critical.
func locksOrdinary(r classify.Result) bool {
	ours := r.Verb == rewrite.Lock || r.Verb == rewrite.Unlock || r.Verb == rewrite.ListLocks
	return ours && len(r.Name) > 0 && (r.Table == nil || r.Table.Critical() == nil)
}

// decideOrdinary decides about a text of locksOrdinary: it is refused. A text that is no such statement
// is told so, since what stands at the table's place may be none.
func decideOrdinary(r classify.Result, text []byte) decision {
	if _, err := rewrite.Outline(text, nil); err != nil {
		return refused(classify.NotParsed(err))
	}
	return intercepted(&askTable{name: r.Name.Names(), failure: notCritical(r.Name)})
}

// unlistedTable is the action for a request that writes or locks a table that is not in the schema
// as last read: the table has just been created and may be critical, or it does not exist.
type unlistedTable struct {
	askTable
	otherwise decision // the decision if the table were in the schema
}

// on returns the decision about a request that writes or locks a table. d is the decision if the
// table is in the schema as last read; unlisted is its keyspace and name if it is not, else nil.
func (d decision) on(unlisted *[2]string) decision {
	if unlisted == nil || d.route == relay.NeedWhole {
		return d
	}
	return intercepted(&unlistedTable{otherwise: d, askTable: askTable{name: *unlisted, failure: notRead(*unlisted)}})
}

// notRead returns the error for a write on a table that is not in the schema as last read, if it exists.
func notRead(name [2]string) *wire.Failure {
	return &wire.Failure{
		Code: primitive.ErrorCodeOverloaded,
		Text: "MUSIC_UNAVAILABLE: " + strings.Join(name[:], ".") + " has just been created: nothing was done, try again",
	}
}

// decideUnlisted decides about a request on an unlisted table. The schema is read and the request
// decided about again. If the table is still not in the schema nothing is written, also of a batch that
// writes a critical table besides, and Cassandra's error for a table that does not exist is returned.
func (c *conn) decideUnlisted(opcode primitive.OpCode, u *unlistedTable) decision {
	if !c.caughtUp {
		c.catchUp = &u.name
		return decision{route: relay.Defer}
	}
	switch u.otherwise.action.(type) {
	case refuse, *askTable:
		return u.otherwise
	}
	if t := c.classifier.Named(u.name); opcode == primitive.OpCodePrepare || t != nil && t.Critical() != nil {
		return u.otherwise
	}
	return intercepted(&u.askTable) // also where only another table of a batch is critical
}

// unlistedOf returns the keyspace and name of one of the tables that is not in the schema as last
// read; nil if all are. A name without a keyspace is that of no table.
func unlistedOf(tables []*catalog.Table) (name *[2]string) {
	for _, t := range tables {
		if t.Keyspace != "" && !t.InSchema() {
			name = &[2]string{t.Keyspace, t.Name}
		}
	}
	return name
}

// askTable is the action that answers a request with an error. It asks Cassandra whether the table
// exists, by a PREPARE: if not, the client gets Cassandra's error.
type askTable struct {
	name    [2]string     // keyspace, which may be empty, and name
	failure *wire.Failure // the error if the table exists
}

// String implements action.
func (a *askTable) String() string {
	return "ask whether there is a table " + strings.Join(a.name[:], ".") + ", and refuse: " + a.failure.Error()
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
	h.Payload = nil // it is not sent
	kept := len(text) + textOf(a.failure)
	c.watch(e.Stream, &watch{kind: watchProbe, kept: kept, accepted: func() { c.begin(h.Stream).refuseOrdinary(h, a.failure) }})
	c.up.Emit(c.prepareRequest(h, []byte(text)))
	return nil
}

// notCritical returns the error for a statement with a lock clause on a table that is not critical.
func notCritical(table classify.TableKey) *wire.Failure {
	if keyspace := table.Names()[0]; keyspace == "system" || strings.HasPrefix(keyspace, "system_") {
		return wire.Invalid("MUSIC_REFUSED: %s is a table of Cassandra's own: it cannot be locked", table)
	}
	return wire.Invalid("MUSIC_REFUSED: %s is not critical: make it so with ALTER TABLE %[1]s WITH comment = '@critical'", table)
}

// lockClauseError returns the error to use if Cassandra cannot parse a text on a table that is not
// critical, because the text may have USING LOCK or FOR UPDATE. It is nil for nearly every text.
func (c *conn) lockClauseError(text []byte, name classify.TableKey) *wire.Failure {
	if c.server.Tables == nil || len(name) == 0 || !rewrite.MayHoldLockClause(text) {
		return nil
	}
	return notCritical(name)
}

// explain answers a client with the error of lockClauseError if Cassandra could not parse its text. It
// reports whether it has answered.
func (c *conn) explain(e wire.Envelope, w watch) bool {
	f, opcode := w.lockClauseError, primitive.OpCodeQuery
	if w.kind == watchPrepare {
		f, opcode = w.preparing.lockClauseError, primitive.OpCodePrepare
	}
	if f == nil || !c.isSyntaxError(e) {
		return false
	}
	c.goOn(e.Stream, e.Stream).refuseOrdinary(wire.Header{Version: c.version, Stream: e.Stream, OpCode: opcode}, f)
	return true
}

// isSyntaxError reports whether an answer is Cassandra's SYNTAX_ERROR.
func (c *conn) isSyntaxError(e wire.Envelope) bool {
	if e.OpCode != primitive.OpCodeError {
		return false
	}
	code, _, err := c.errorOf(e)
	return err == nil && code == primitive.ErrorCodeSyntaxError
}

// refuseOrdinary answers a statement with a lock clause on a table that is not critical. The table
// may have become critical by a schema change that the proxy has not read yet, in which case the
// client is told to try again. That is checked in a goroutine of its own.
func (o operation) refuseOrdinary(h wire.Header, f *wire.Failure) {
	c := o.conn
	o.answerLater(func(operation) []byte {
		if current := c.server.SchemaIsCurrent; current != nil && !current() {
			f = wire.Invalid("MUSIC_UNAVAILABLE: the schema has just changed and is not known here yet: try again; nothing was done")
		}
		c.server.Stats.Count(c.id, h.OpCode, traffic.Refused)
		return c.failureEnvelope(h.Stream, f)
	})
}
