package frontend

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/grant"
	"music/frontend/refusal"
	"music/frontend/statement"
	"music/frontend/traffic"
	"music/frontend/wire"
	"music/musiccore"
)

// forUpdateRead is the additional state of a SELECT … FOR UPDATE.
type forUpdateRead struct {
	fresh bool // the lock was taken for this read: it is released if the read fails
	told  bool // an earlier page has had a row

	warnings []string // about clauses whose values were reduced to a limit
}

// forUpdate carries out SELECT … FOR UPDATE: it takes the lock and reads. A later page is only
// read, under the reference in its paging state.
func (a *lockExecution) forUpdate(k musiccore.Key) *wire.Failure {
	c, p := a.conn, &a.parameters
	p.Flags &^= primitive.QueryFlagSkipMetadata
	if p.Flags.Contains(primitive.QueryFlagPagingState) {
		return a.nextPage(k)
	}
	q, f := a.request(0)
	if f != nil {
		return f
	}
	read := c.newLockedOperation(a.envelope.Header, &a.lock, lockedRequest{key: k, parameters: *p})
	kept := read.clone()
	kept.sent.update = &forUpdateRead{fresh: true, warnings: a.warnings}
	ask := a.columnsOf(k)
	o := c.begin(kept.header.Stream)
	o.keeps(kept.size() + len(a.lock.Text))
	inPlace := a.inPlace
	o.lock(k, q, func(answer musiccore.Answer, atOnce bool) { o.readUnderLock(kept, answer, ask, inPlace && atOnce) })
	return nil
}

// readUnderLock continues a SELECT … FOR UPDATE with the core's answer for its lock. ask answers
// the client if the lock is not held.
func (o operation) readUnderLock(k lockedOperation, a musiccore.Answer, ask func(grant musiccore.Grant), inPlace bool) {
	c := o.conn
	k.request.ref = a.Grant.Ref
	switch {
	case o.cancelled():
		c.release(k.request.key, a.Grant.Ref)
	case a.Err != nil:
		c.reject(k.header, refusal.OfOperation(a.Err, k.sent.table, 0))
	case a.Grant.State != musiccore.StateHeld:
		ask(a.Grant)
	default:
		if f := c.sendUnderLock(&k, musiccore.Get, inPlace); f != nil {
			c.rejectUnsent(&k, f)
		}
	}
}

// release releases a reference that its client was never told; 0 is none. It does not wait for the answer.
func (c *conn) release(k musiccore.Key, ref musiccore.LockRef) {
	if ref != 0 {
		c.server.Locks.Unlock(k, ref, c.auditClient(), func(musiccore.Answer) {})
	}
}

// rejectUnsent answers an operation that was not sent with an error. A lock that was taken only for
// it is released first.
func (c *conn) rejectUnsent(k *lockedOperation, f *wire.Failure) {
	k.dropUnsent()
	if !k.sent.fresh() {
		c.reject(k.header, f)
		return
	}
	c.server.Stats.Count(c.id, k.header.OpCode, traffic.Refused)
	c.releaseThenAnswer(k.header.Stream, k.request.key, k.request.ref, c.failureEnvelope(k.header.Stream, f))
}

// releaseThenAnswer releases a reference and then sends an answer.
func (c *conn) releaseThenAnswer(stream int16, k musiccore.Key, ref musiccore.LockRef, answer []byte) {
	o := c.begin(stream)
	o.unlock(k, ref, func(musiccore.Answer, bool) { o.answer(answer) })
}

// updateColumns returns the columns of the lock that come before the selected columns in the answer
// to SELECT … FOR UPDATE (docs/cql.md).
func updateColumns(t *catalog.Table) []*message.ColumnMetadata {
	return slices.Clip(grant.Columns(t)[:3])
}

// updateRow returns the values of updateColumns.
func updateRow(g musiccore.Grant, ref int64) message.Row { return slices.Clip(grant.Row(g, ref)[:3]) }

// columnsOf returns a function that tells the client of a SELECT … FOR UPDATE that it does not hold
// the lock: by one row with the columns that the read would have had. For a statement that was prepared in the client's
// version of the protocol these are known; else the function asks Cassandra, by a PREPARE.
func (a *lockExecution) columnsOf(k musiccore.Key) func(musiccore.Grant) {
	c, table, generation, h, shortened := a.conn, a.lock.Table, a.lock.Critical.Generation, a.envelope.Header, a.warnings
	row := func(g musiccore.Grant) message.Row { return updateRow(g, c.server.shown(generation, k, g.Ref)) }
	if p := a.lock.prepared; p != nil && p.version == c.version {
		columns := p.columns
		return func(g musiccore.Grant) {
			c.server.Stats.Count(c.id, h.OpCode, traffic.Answered)
			c.post(c.warned(c.rows(h.Stream, columns, padded(row(g), columns)), shortened))
		}
	}
	text := a.lock.WriteText(statement.RequestStamps) // names the keyspace, which a PREPARE of older protocols cannot carry
	return func(g musiccore.Grant) {
		c.server.Stats.Count(c.id, h.OpCode, traffic.Answered)
		if !c.streams.Begin(h.Stream, true) {
			c.post(c.failureEnvelope(h.Stream, inUse(h.Stream)))
			return
		}
		c.watch(h.Stream, &watch{kind: watchColumns, columns: func(e wire.Envelope) (wire.Envelope, error) {
			e, err := c.notHeld(e, table, row(g))
			return c.warn(e, shortened), err
		}})
		c.send(c.prepareRequest(h, text))
	}
}

// notHeld returns the row for a lock that is not held, with the columns in the answer to a PREPARE.
func (c *conn) notHeld(e wire.Envelope, t *catalog.Table, row message.Row) (wire.Envelope, error) {
	result, _, err := c.decodePrepared(e)
	if err != nil || result == nil {
		return e, err
	}
	columns := append(updateColumns(t), result.ResultMetadata.Columns...)
	raw := c.rows(e.Stream, columns, padded(row, columns))
	return wire.EnvelopeOf(raw), nil
}

// padded returns a row with nulls in the columns that it has no value for.
func padded(row message.Row, columns []*message.ColumnMetadata) message.Row {
	return append(row, make(message.Row, len(columns)-len(row))...)
}

// addLockColumns adds the columns of the lock to the answer to a SELECT … FOR UPDATE.
func (c *conn) addLockColumns(e wire.Envelope, f *sentOperation) (wire.Envelope, error) {
	decoded, err := c.decode(e)
	if err != nil {
		return e, err
	}
	result, ok := decoded.Body.Message.(*message.RowsResult)
	if !ok {
		return e, nil
	}
	m := result.Metadata
	m.Columns = append(updateColumns(f.table), m.Columns...)
	m.ColumnCount = int32(len(m.Columns))
	ref := c.shownReference(f, f.ticket.Ref)
	held := musiccore.Grant{Applied: true, Ref: f.ticket.Ref, State: musiccore.StateHeld}
	for i, row := range result.Data {
		result.Data[i] = append(updateRow(held, ref), row...)
	}
	told := f.update.told || len(result.Data) > 0
	if !told && m.PagingState == nil {
		result.Data = message.RowSet{padded(updateRow(held, ref), m.Columns)}
	}
	if m.PagingState != nil {
		m.PagingState = pagingState{ref: ref, told: told, inner: m.PagingState}.bytes()
	}
	return wire.Encode(decoded)
}

// pagingState is the paging state of a SELECT … FOR UPDATE: Cassandra's own, and the reference
// under which the next page is read. A forged one allows no more than USING LOCK with that
// reference does.
type pagingState struct {
	ref   int64  // as the client sees it
	told  bool   // a page has had a row
	inner []byte // Cassandra's own
}

// pagingMark begins every pagingState, and no state of Cassandra.
const pagingMark = "MUSIC FOR UPDATE 1:"

// bytes returns the wire form.
func (p pagingState) bytes() []byte {
	b := binary.BigEndian.AppendUint64([]byte(pagingMark), uint64(p.ref))
	return append(append(b, boolean(p.told)...), p.inner...)
}

// readPagingState reads the wire form.
func readPagingState(b []byte) (p pagingState, ok bool) {
	rest, ok := bytes.CutPrefix(b, []byte(pagingMark))
	if !ok || len(rest) < 9 {
		return p, false
	}
	return pagingState{ref: int64(binary.BigEndian.Uint64(rest)), told: rest[8] == 1, inner: rest[9:]}, true
}

// nextPage reads a further page under the lock that the first one took.
func (a *lockExecution) nextPage(k musiccore.Key) *wire.Failure {
	state, ok := readPagingState(a.parameters.PagingState)
	if !ok || state.ref < 1 {
		return wire.Invalid("MUSIC_SYNTAX: this paging state does not come from a SELECT … FOR UPDATE: begin at the first page")
	}
	ref, f := a.conn.readReference(a.lock.Critical, a.lock.Table, k, state.ref)
	if f != nil {
		return f
	}
	a.parameters.PagingState = state.inner
	read := a.conn.newLockedOperation(a.envelope.Header, &a.lock, lockedRequest{key: k, ref: ref, parameters: a.parameters})
	read.sent.update = &forUpdateRead{told: state.told}
	return a.conn.sendUnderLock(&read, musiccore.Get, a.inPlace)
}
