package frontend

import (
	"encoding/binary"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
	"music/rewrite"
)

// notCritical is the answer to a statement that has to do with a lock, on a table without locks.
func notCritical(table tableKey) *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: %s is not critical: make it so with ALTER TABLE %[1]s WITH comment = '@critical'", table)
}

// unserved returns what is told for a text on a table that is not critical, where Cassandra cannot read it: it may hold USING LOCK or FOR
// UPDATE. It is nil for nearly every text.
func (c *conn) unserved(text []byte, r reading) *wire.Failure {
	if c.server.Tables == nil || len(r.name) == 0 || !rewrite.MayHoldLockClause(text) {
		return nil
	}
	return notCritical(r.name)
}

// explain tells a client whose text Cassandra could not read what is wrong with it. It reports whether it has answered.
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

// isSyntaxError tells whether an answer is that of Cassandra's parser.
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

// refuseOrdinary answers a statement of ours on a table that is not critical. Where the schema has changed meanwhile the table may be by
// now: that is looked up beside the connection.
func (c *conn) refuseOrdinary(h wire.Header, f *wire.Failure) {
	c.later(func() {
		if current := c.server.SchemaIsCurrent; current != nil && !current() {
			f = wire.Invalid("MUSIC_UNAVAILABLE: the schema has just changed and is not known here yet: try again; nothing was done")
		}
		c.reject(h, f)
	})
}
