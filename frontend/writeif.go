package frontend

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/condition"
	"music/frontend/statement"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// conditionalWrite is a write with IF under a lock: the rows of its conditions are read, the
// conditions are evaluated, and the write is sent if all of them hold (ARCHITECTURE.md, Not obvious). The lock
// excludes other holders meanwhile; Server.turns excludes other conditional writes of the same
// holder.
type conditionalWrite struct {
	*statement.Conditional
	first *lockStatement // its first statement, or the BATCH text; in memory of its own

	read     lockedOperation
	again    lockedOperation // the read of the partition, if none of the rows exists but static columns may
	write    lockedOperation
	made     []*lockedOperation    // those that Cassandra is to prepare: they have the same text each time
	put      func([]statement.Sum) // has write use the sums
	warned   []string              // Cassandra's warnings about the reads
	leaves   message.Row           // what it leaves in the columns that are read, see statement.Conditional.Leaves
	columns  []*message.ColumnMetadata
	nextTurn func() // ends the turn; may be called more than once
	group    *group // that may wait for it; nil: none
	kept     int    // bytes that first and the statements of a batch take
	fails    bool   // of one in a group: its condition does not hold
	refused  []byte // … and this is its answer
}

// readConditional reads the conditions of a write's statements. first is the first of them, or the
// BATCH text.
func readConditional(first *lockStatement, parts []statement.Statement, batch bool) (*conditionalWrite, *wire.Failure) {
	asked, f := statement.ReadConditional(parts, batch)
	return &conditionalWrite{Conditional: asked, first: first}, f
}

// writeIf carries out a write with IF, or a BATCH text with one.
func (a *lockExecution) writeIf(k musiccore.Key, ref musiccore.LockRef) *wire.Failure {
	s := a.lock.clone()
	x, f := readConditional(&s, s.Parts(), s.Parsed.Verb == rewrite.Batch)
	if f != nil {
		return f
	}
	x.kept = s.size()
	q := lockedRequest{key: k, ref: ref, parameters: a.parameters}
	x.write = queryOperation(a.envelope.Header, s.Write(statement.RequestStamps), &s.Statement, q)
	x.write.sent.warnings = a.conn.timestampWarning(&s)
	x.put = func(sums []statement.Sum) {
		for _, sum := range sums {
			s.Put(sum)
		}
		q := s.Write(statement.RequestStamps)
		x.write.body, x.write.request.parameters.Values = longString(q.Text), q.Values
		x.write.request.parameters.Flags |= primitive.QueryFlagValues
	}
	if x.DeletesRange() {
		x.write.dated = func(stamp int64) []byte { return longString(s.WriteText(statement.BelowWrites(stamp))) }
	}
	var onEmpty *lockedOperation
	if ref == 0 && s.Parsed.Verb == rewrite.Insert { // IF NOT EXISTS holds on a key without rows
		onEmpty = x.fencedWrite(&s)
	}
	if onEmpty != nil {
		x.kept += onEmpty.size()
	}
	x.readsOf(a.envelope.Header, &s.Statement, q)
	c := a.conn
	start := func() *wire.Failure { return c.startConditional(x, onEmpty) }
	if s.prepared == nil {
		return start()
	}
	x.made = x.constant(onEmpty)
	return c.whenPrepared(askedFirst{a.envelope.Header, c.sender(a.inPlace), x.size()}, &s.prepared.made, x.made, start)
}

// readsOf makes the reads for the conditions. Nothing of the client's request is kept.
func (x *conditionalWrite) readsOf(h wire.Header, s *statement.Statement, q lockedRequest) {
	x.read = queryOperation(h, x.Read(), s, q)
	if len(x.Table.Static) > 0 {
		x.again = queryOperation(h, x.ReadPartition(true), s, q)
	}
}

// constant returns the operations whose text does not depend on the values or the stamp.
func (x *conditionalWrite) constant(onEmpty *lockedOperation) (all []*lockedOperation) {
	all = append(all, &x.read)
	if x.write.dated == nil && len(x.Conditions.Sums) == 0 {
		all = append(all, &x.write)
	}
	if onEmpty != nil {
		all = append(all, onEmpty)
	}
	return slices.DeleteFunc(all, func(k *lockedOperation) bool { return len(k.request.parameters.Values) == 0 })
}

// fencedWrite returns the write of one statement as it is sent if the key has no row: it also deletes
// everything of the key that is older, in the same mutation. It returns nil if the text does not fit
// for that.
func (x *conditionalWrite) fencedWrite(s *lockStatement) *lockedOperation {
	q, ok := s.Fenced(s.Write(statement.RequestStamps))
	if !ok {
		return nil
	}
	k := x.write
	k.body, k.request.parameters.Values = longString(q.Text), q.Values
	k.request.parameters.Flags |= primitive.QueryFlagValues
	k.fences = true
	return &k
}

// startConditional sends the read for the conditions when it is the write's turn. onEmpty is the
// write to send instead if the lock is taken for it alone and the key has no row; or nil.
func (c *conn) startConditional(x *conditionalWrite, onEmpty *lockedOperation) *wire.Failure {
	x.leaves = x.Leaves()
	all := []*lockedOperation{&x.read, &x.again, &x.write}
	if onEmpty != nil {
		all = append(all, onEmpty)
	}
	for _, k := range all {
		k.sent.condition = x
	}
	if x.read.request.ref == 0 {
		if onEmpty == nil && c.join(x) {
			return nil
		}
		w := &ownSection{first: x.read, kind: musiccore.Get, onEmpty: onEmpty, group: x.group}
		w.granted = func() {
			x.nextTurn = func() {
				w.end()
				x.group.over()
			}
			for _, k := range append(all, &w.first) {
				k.request.ref, k.sent.ownSectionType = w.ref, primitive.WriteTypeCas
			}
		}
		f := c.inOwnSection(w, x.first)
		if f != nil {
			x.group.withoutFirst()
		}
		return f
	}
	o := c.begin(x.read.header.Stream)
	o.keeps(x.size())
	c.server.turns.take(holder{x.read.request.key, x.read.request.ref}, func(next func()) {
		x.nextTurn = next
		o.finish(func() { o.readFirst(x.read) })
	})
	return nil
}

// readFirst sends the read of a conditional write whose turn has come, unless the client no longer
// waits.
func (o operation) readFirst(read lockedOperation) {
	c := o.conn
	begun := false
	defer func() {
		if !begun {
			read.sent.done()
		}
	}()
	if o.cancelled() {
		return
	}
	if f := c.sendUnderLock(&read, musiccore.Get, false); f != nil {
		c.rejectUnsent(&read, f)
		return
	}
	begun = true
}

// queryOperation returns a QUERY that the proxy makes, to send in the place of the client's
// request.
func queryOperation(h wire.Header, w statement.Query, s *statement.Statement, q lockedRequest) lockedOperation {
	h = h.Rewritten()
	h.OpCode = primitive.OpCodeQuery
	p := wire.Parameters{Consistency: q.parameters.Consistency, Values: w.Values, Rest: bytes.Clone(q.parameters.Rest)}
	p.Flags = q.parameters.Flags & primitive.QueryFlagWithKeyspace
	if len(w.Values) > 0 {
		p.Flags |= primitive.QueryFlagValues
	}
	q.parameters, q.local = p, s.Critical.Local
	return lockedOperation{
		header: h, body: longString(w.Text),
		request: q, sent: sentOperation{table: s.Table, key: q.key, critical: s.Critical},
	}
}

// continueConditional processes the answer to a read, or to the write, of a conditional write. e is
// the answer as conclude has returned it. It returns the client's answer, or nil if another request
// has been sent to Cassandra.
func (c *conn) continueConditional(e wire.Envelope, f *sentOperation) []byte {
	x, goesOn := f.condition, false
	defer func() {
		if !goesOn {
			x.nextTurn()
		}
	}()
	if f.ticket.Kind == musiccore.Put || e.OpCode != primitive.OpCodeResult {
		return c.endConditional(e, f)
	}
	decoded, err := c.decode(e)
	if err != nil {
		c.loseBackend(e.Stream, err)
		return nil
	}
	rows, ok := decoded.Body.Message.(*message.RowsResult)
	if !ok {
		return e.Raw
	}
	goesOn = true
	return c.decideConditional(decoded, rows.Metadata.Columns, rows.Data, f, false)
}

// endConditional answers the others of a write's group, and returns the answer to its own client: the write has
// been done, or e is an error.
func (c *conn) endConditional(e wire.Envelope, f *sentOperation) []byte {
	x := f.condition
	c.answerGroup(x.group, e)
	switch {
	case e.OpCode != primitive.OpCodeResult:
		return e.Raw
	case x.fails:
		return x.refused
	}
	return c.applied(e, f)
}

// decideConditional evaluates the conditions on the rows that were read, and sends the write, or the next
// read: in the place of the request that is being performed (inPlace), or between two others. It returns
// the client's answer, or nil if another request has been sent to Cassandra. last is the answer to the
// read.
func (c *conn) decideConditional(last *frame.Frame, columns []*message.ColumnMetadata, rows message.RowSet, f *sentOperation, inPlace bool) []byte {
	x, goesOn := f.condition, false
	defer func() {
		if !goesOn {
			x.nextTurn()
		}
	}()
	x.warned = append(x.warned, last.Body.Warnings...)
	if len(rows) > 0 && rowSize(rows[0]) > maxKnownRow {
		x.group.withoutFirst() // each would be answered with it
	}
	if others := x.group.decide(); len(others) > 0 {
		goesOn = true
		return c.decideGroup(last, rowSeen{columns, rows}, f, others, inPlace)
	}
	evaluation, size := x.Evaluate(columns, rows), x.size()
	for _, row := range rows {
		size += rowSize(row)
	}
	var step condition.Step
	var failure *wire.Failure
	c.server.evaluate(size, func() { step, failure = evaluation.Next() })
	if step == condition.Write && failure == nil {
		failure = x.putSums(evaluation, c.version >= byte(primitive.ProtocolVersion4))
	}
	next, kind := x.write, musiccore.Put
	switch {
	case failure != nil:
		return c.failureEnvelope(last.Header.StreamId, failure)
	case step == condition.Refuse:
		last.Body.Warnings = x.warned
		return c.refuseCondition(last.Header.StreamId, x, c.refusedRows(last, f.table, evaluation.Refusal()))
	case step == condition.ReadPartition:
		next, kind = x.again, musiccore.Get
	default:
		x.columns = columns
	}
	goesOn = true
	if f := c.sendUnderLock(&next, kind, inPlace); f != nil {
		c.rejectUnsent(&next, f)
	}
	return nil
}

// refuseCondition returns the answer to a conditional write whose conditions do not hold. If
// Cassandra may refuse the write for what it writes, which it does before it looks at a condition,
// the result is nil, and the client is answered when Cassandra has been asked. A prepared statement
// has been checked.
func (c *conn) refuseCondition(stream int16, x *conditionalWrite, answer []byte) []byte {
	message := x.Batch && x.first.Parsed.Verb != rewrite.Batch
	if x.first.prepared != nil && !message {
		return answer
	}
	texts, kept := x.Doubtful(), len(answer)
	for _, text := range texts {
		kept += len(text)
	}
	return c.answerIfValid(stream, texts, kept, answer)
}

// answerIfValid returns the answer for the client if texts is empty. Otherwise it has Cassandra prepare
// them one after another, and returns nil: the client gets Cassandra's error, or answer if there is
// none. kept is how many bytes wait for that.
func (c *conn) answerIfValid(stream int16, texts [][]byte, kept int, answer []byte) []byte {
	switch {
	case len(texts) == 0:
		return answer
	case !c.streams.Begin(stream, true):
		return c.failureEnvelope(stream, inUse(stream))
	}
	c.watch(stream, &watch{kind: watchProbe, kept: kept, accepted: func() {
		if now := c.answerIfValid(stream, texts[1:], kept, answer); now != nil {
			c.post(now)
		}
	}})
	c.send(c.prepareRequest(wire.Header{Version: c.version, Stream: stream}, texts[0]))
	return nil
}

// putSums has the write use the sums of its additions.
func (x *conditionalWrite) putSums(y *condition.Evaluation, unset bool) *wire.Failure {
	sums, f := x.Sums(y, unset)
	if len(sums) > 0 {
		x.put(sums)
	}
	return f
}

// applied returns the answer to a conditional write that was done, in Cassandra's form: a row with
// [applied], which is true (v4 spec section 4.2.5.2). e is the answer to the write, whose preamble it gets.
func (c *conn) applied(e wire.Envelope, f *sentOperation) []byte {
	body, flags, err := c.responseBody(e)
	cur := wire.Cursor{Body: body}
	preamble := wire.ReadPreamble(&cur, flags)
	if err != nil || cur.Bad {
		c.loseBackend(e.Stream, cmp.Or(err, wire.ErrShort))
		return nil
	}
	if len(f.condition.warned) > 0 {
		preamble.AddWarnings(f.condition.warned)
	}
	return preamble.PutBefore(wire.ResponseEnvelope(c.version, e.Stream, primitive.OpCodeResult, appliedRow(f.table)))
}

// appliedRow returns the body of the answer to a conditional write that was done.
func appliedRow(t *catalog.Table) []byte {
	b := wire.AppendRows(make([]byte, 0, 64+len(t.Keyspace)+len(t.Name)), t.Keyspace, t.Name, 1)
	b = wire.AppendColumn(b, "[applied]", primitive.DataTypeCodeBoolean)
	b = binary.BigEndian.AppendUint32(b, 1) // row
	return append(b, wire.Value(boolean(true))...)
}

// refusedRows returns the answer to a conditional write that was not done, in Cassandra's form:
// [applied] is false, with the columns of refused after it. last is the answer to the read, whose
// preamble it gets.
func (c *conn) refusedRows(last *frame.Frame, t *catalog.Table, refused *message.RowsResult) []byte {
	columns := []*message.ColumnMetadata{{Keyspace: t.Keyspace, Table: t.Name, Name: "[applied]", Type: datatype.Boolean}}
	all := message.RowSet{{boolean(false)}}
	if len(refused.Data) > 0 {
		columns, all = append(columns, refused.Metadata.Columns...), nil
		for _, row := range refused.Data {
			all = append(all, append(message.Row{boolean(false)}, row...))
		}
	}
	last.Body.Message = &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: int32(len(columns)), Columns: columns}, Data: all}
	e, err := wire.Encode(last)
	if err != nil {
		c.end(err)
		return nil
	}
	return e.Raw
}
