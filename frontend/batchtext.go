package frontend

import (
	"encoding/binary"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/frontend/statement"
	"music/frontend/wire"
	"music/rewrite"
)

// executeSeveral executes a BATCH text of plain writes on several tables, as the equivalent BATCH
// message.
func (c *conn) executeSeveral(e wire.Envelope, a lockExecution) error {
	b, f := a.message()
	switch {
	case f != nil:
	case b.served() && b.firstLocked() != nil:
		f = b.run(true)
	default:
		f = b.withoutLock(e).run()
	}
	if f != nil {
		return c.answer(e, f)
	}
	return nil
}

// message returns the BATCH message that means the same as a BATCH text, in memory of its own.
func (a *lockExecution) message() (*lockedBatch, *wire.Failure) {
	if p := a.lock.origin; p != nil && p.remade() { // the tables of its statements are looked up below
		return nil, wire.Unprepared(p.id[:])
	}
	s, b := a.lock.clone(), a.batch(a.lock.Parsed.Kind)
	own := s.Parsed.Timestamp
	if s.Parsed.TTL.Kind != rewrite.NoTerm { // a message has no place for it
		return nil, wire.Invalid("Global TTL on the BATCH statement is not supported.")
	}
	if f := s.CheckTimestampPlaces(); f != nil {
		return nil, f
	}
	if own.Kind != rewrite.NoTerm {
		stamp, f := s.Integer(own, "TIMESTAMP")
		if f != nil {
			return nil, f
		}
		b.parameters.Flags |= primitive.QueryFlagDefaultTimestamp // for the statements that need no lock
		b.parameters.Timestamp = stamp
	}
	at := len(s.Values)
	for _, child := range s.Parsed.Children {
		at -= child.Markers // the markers of the batch's own USING come first
	}
	for i, child := range s.Parsed.Children {
		part, f := a.conn.batchPart(child.Whole.Of(s.Text), s.Names[i], s.Values[at:at+child.Markers])
		if f == nil && own.Kind != rewrite.NoTerm && part.unlockedChild == nil && !part.Critical.Ignore {
			f = statement.TimestampRefused(part.Table)
		}
		if f != nil {
			return nil, f
		}
		at, part.until = at+child.Markers, s.until
		b.children = append(b.children, part)
	}
	b.count()
	return b, nil
}

// batch returns a BATCH message without statements, with the request's header and parameters.
func (a *lockExecution) batch(kind rewrite.BatchKind) *lockedBatch {
	b, p := &lockedBatch{conn: a.conn, header: a.envelope.Header.Rewritten(), before: []byte{byte(kind)}}, a.parameters.Clone()
	b.header.OpCode = primitive.OpCodeBatch
	const kept = primitive.QueryFlagSerialConsistency | primitive.QueryFlagDefaultTimestamp | primitive.QueryFlagWithKeyspace | primitive.QueryFlagNowInSeconds // the latter two are Rest
	b.parameters = wire.Parameters{Consistency: p.Consistency, Flags: p.Flags & kept, Serial: p.Serial, Timestamp: p.Timestamp, Keyspace: p.Keyspace, Rest: p.Rest}
	return b
}

// batchPart reads a statement of a BATCH text by itself. name is the name of its table.
func (c *conn) batchPart(text []byte, name [2]string, values [][]byte) (s lockStatement, f *wire.Failure) {
	parsed, err := rewrite.Parse(text)
	if err != nil {
		return s, classify.NotParsed(err)
	}
	s.Statement = statement.Statement{Parsed: &parsed, Text: text, Table: c.classifier.Named(name), Values: values}
	if s.Table != nil {
		s.Critical = s.Table.Critical()
	}
	switch {
	case s.Critical == nil, s.Critical.Unlocked == catalog.Allow:
		return lockStatement{Statement: statement.Statement{Values: values}, unlockedChild: plainChild(text, &parsed, name[0]), unlockedTables: [][2]string{name}}, nil
	case s.Critical.Refused != "" && !s.Critical.Passing:
		return s, cannotLock(s.Table, s.Critical)
	}
	s.fixTerms()
	return s, s.CheckUnderLock()
}

// plainChild returns a statement that needs no lock as a child of a BATCH message. Its table gets a
// keyspace, since the connection may be in another keyspace than the one that the statement was
// prepared in.
func plainChild(text []byte, st *rewrite.Statement, keyspace string) []byte {
	if st.Keyspace.Empty() && keyspace != "" {
		at := st.Table.Start
		text = rewrite.Replace(nil, text, []rewrite.Edit{{Span: rewrite.Span{Start: at, End: at}, Text: rewrite.Quote(keyspace) + "."}})
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}
