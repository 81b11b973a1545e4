package frontend

import (
	"encoding/binary"
	"errors"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// writeType returns what Cassandra would call the write in an error of its own, were there no lock.
func (s *lockStatement) writeType() primitive.WriteType {
	switch {
	case s.Conditional():
		return primitive.WriteTypeCas
	case s.Parsed.Verb == rewrite.Batch:
		return primitive.WriteTypeBatch
	}
	return primitive.WriteTypeSimple
}

// unservedSection returns the error for a write without a lock whose section could not begin or
// came to nothing: nothing was written, and what a driver makes of it needs no word of locks.
func unservedSection(err error, t *catalog.Table) *wire.Failure {
	if short := (*ShortError)(nil); errors.Is(err, musiccore.ErrTooLarge) || errors.Is(err, musiccore.ErrPoisoned) || errors.As(err, &short) {
		return lockFailure(err, t, 0)
	}
	return tryAgain(t, whyUnserved(err))
}

// tryAgain returns the error for a write that was not done, and may be done a moment later.
func tryAgain(t *catalog.Table, why string) *wire.Failure {
	return &wire.Failure{Code: primitive.ErrorCodeOverloaded, Text: "MUSIC_UNAVAILABLE: " + t.String() + ": " + why + ": nothing was written, try again"}
}

// stillBecoming says of a table that it does not give sections yet.
const stillBecoming = "it is not ready yet: its comment has just been changed, and some proxy has not followed"

// whyUnserved returns in words why a section of one write could not be served.
func whyUnserved(err error) string {
	switch {
	case errors.Is(err, musiccore.ErrSynchronising):
		return "what the last writer of this key left behind could not be settled in time"
	case errors.Is(err, musiccore.ErrNoSession):
		return "this proxy has lost touch with the cluster"
	case errors.Is(err, musiccore.ErrClock):
		return "the clocks of this proxy and of Cassandra differ by more than 10 s"
	case errors.Is(err, musiccore.ErrDraining):
		return "this proxy is shutting down"
	case errors.Is(err, musiccore.ErrTooManyWaiters):
		return "too many wait for this key already (max-waiters-per-key)"
	case errors.Is(err, musiccore.ErrLost), errors.Is(err, musiccore.ErrNotHeld):
		return "the write came too late for its turn"
	}
	return "this key cannot be read or written at QUORUM now (music check says which nodes do not answer)"
}

// unknownFate returns the error for a write without a lock of unknown outcome, in the form that
// drivers know (v4 spec section 9, 0x1100): nobody has answered for it yet.
func (c *conn) unknownFate(t *catalog.Table, kind primitive.WriteType) *wire.Failure {
	return c.writeTimeout(kind, "MUSIC_UNCERTAIN: whether this write to "+t.String()+" was carried out is unknown: read it to see")
}

// writeTimeout returns a WRITE_TIMEOUT. Protocol 5 has the number of contentions behind those of
// type CAS.
func (c *conn) writeTimeout(kind primitive.WriteType, text string) *wire.Failure {
	consistency := primitive.ConsistencyLevelQuorum
	if kind == primitive.WriteTypeCas {
		consistency = primitive.ConsistencyLevelSerial
	}
	extra := binary.BigEndian.AppendUint16(nil, uint16(consistency))
	extra = binary.BigEndian.AppendUint32(extra, 0)
	extra = binary.BigEndian.AppendUint32(extra, 1)
	extra = binary.BigEndian.AppendUint16(extra, uint16(len(kind)))
	extra = append(extra, kind...)
	if kind == primitive.WriteTypeCas && c.version >= byte(primitive.ProtocolVersion5) {
		extra = binary.BigEndian.AppendUint16(extra, 0)
	}
	return &wire.Failure{Code: primitive.ErrorCodeWriteTimeout, Text: text, Extra: extra}
}

// concludeAlone returns what the client is told of an operation of a section of one write in the
// place of Cassandra's answer e; nil is nothing. Where the write was conditional, every error that
// leaves its outcome open is that of a lightweight transaction.
func (c *conn) concludeAlone(f *sentOperation, o outcome, v musiccore.Verdict, failed bool) *wire.Failure {
	get := f.ticket.Kind == musiccore.Get
	switch {
	case v == musiccore.VerdictTell, o.what == musiccore.OutcomeRefused:
		return nil
	case v == musiccore.VerdictUncertain && o.what == musiccore.OutcomeUnknown && failed && (get || f.alone != primitive.WriteTypeCas):
		return nil
	case !get:
		return c.unknownFate(f.table, f.alone)
	case v == musiccore.VerdictLost:
		return unservedSection(musiccore.ErrLost, f.table)
	}
	return tryAgain(f.table, "whether what was read is the latest state could not be told in time")
}
