package frontend

import (
	"bytes"
	"errors"
	"sync"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/refusal"
	"music/frontend/statement"
	"music/frontend/traffic"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// lockedRequest is the key, the reference and the parameters of an operation under a lock.
type lockedRequest struct {
	key        musiccore.Key
	ref        musiccore.LockRef
	local      bool // the table has scope=local: LOCAL_QUORUM instead of QUORUM
	parameters wire.Parameters
}

// sentOperation is an operation under a lock that has been sent to Cassandra, or is about to be:
// what is needed to process its answer.
type sentOperation struct {
	ticket           musiccore.Ticket
	otherTickets     []musiccore.Ticket // the tickets of the other keys that it writes
	severalMutations bool               // it is several mutations: some may be applied if it fails
	table            *catalog.Table
	id               *preparedID // the id by which the client knows the statement; nil if it was not prepared
	ids              []idPair    // of a batch: those of its prepared statements
	key              musiccore.Key
	update           *forUpdateRead // for SELECT … FOR UPDATE

	critical *catalog.Critical // the state of the table by which the statement was read

	condition      *conditionalWrite   // for a write with IF
	section        interface{ end() }  // the section made for this write alone, which ends with it; or nil
	ownSectionType primitive.WriteType // for a plain write in a section of its own, whose client knows of no lock; else empty
	warnings       []string            // to add to the answer
}

// idPair is the id of a prepared statement at Cassandra, and that by which the client knows it.
type idPair struct {
	backend []byte
	client  preparedID
}

// clientID returns the id by which the client knows the statement whose id Cassandra does not know;
// nil if that is Cassandra's own.
func (f *sentOperation) clientID(backend []byte) []byte {
	if f.id != nil {
		return f.id[:]
	}
	for i := range f.ids {
		if bytes.Equal(f.ids[i].backend, backend) {
			return f.ids[i].client[:]
		}
	}
	return nil
}

// executeUnderLock sends a statement under a lock to Cassandra: without the lock clause, with its
// stamp as timestamp, at QUORUM. inPlace means that its request is being performed.
func (c *conn) executeUnderLock(h wire.Header, s *lockStatement, q lockedRequest, inPlace bool) *wire.Failure {
	k := c.newLockedOperation(h, s, q)
	return c.sendUnderLock(&k, s.Kind(), inPlace)
}

// sendUnderLock gets a stamp for an operation and sends it: in the place of the request being
// performed (inPlace), or between two others. If the core has no stamp yet, the operation is copied
// and sent later, by the goroutine that brings the stamp.
func (c *conn) sendUnderLock(k *lockedOperation, kind musiccore.Kind, inPlace bool) *wire.Failure {
	return c.beginUnderLock(&begunOperation{sent: k.sent}, k, kind, inPlace)
}

// beginUnderLock is sendUnderLock with b as memory for the sent operation.
func (c *conn) beginUnderLock(b *begunOperation, k *lockedOperation, kind musiccore.Kind, inPlace bool) (f *wire.Failure) {
	c.leaveNothing(&k.sent, func() { f = c.tryBegin(b, k, kind, inPlace) })
	return f
}

// tryBegin is beginUnderLock, but after a panic the operation is still to be ended.
func (c *conn) tryBegin(b *begunOperation, k *lockedOperation, kind musiccore.Kind, inPlace bool) *wire.Failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, ok := c.server.Locks.Begin(k.request.key, k.request.ref, kind, b.answered)
	if !ok {
		b.resume = c.keep(k, b)
		return nil
	}
	if x := k.sent.condition; x != nil && a.Err == nil {
		if r := x.known(c, k, a.Ticket); r != nil {
			b.sent.ticket = a.Ticket
			c.readKnown(&b.sent, k.header.Stream, r, inPlace)
			return nil
		}
	}
	f := c.stamp(k, b, a)
	switch {
	case f != nil:
	case inPlace:
		c.up.EmitMade(func(dst []byte) []byte { return k.appendTo(dst, c.version) })
	default:
		c.send(k.appendTo(nil, c.version))
	}
	return f
}

// begunOperation is an operation under a lock from Locks.Begin until its answer.
type begunOperation struct {
	sent  sentOperation
	watch watch // here to save an allocation

	mu     sync.Mutex // held until Begin has returned and resume is set
	resume func(musiccore.Answer)
}

// answered is called with the core's answer if that did not come at once.
func (b *begunOperation) answered(a musiccore.Answer) {
	b.mu.Lock()
	resume := b.resume
	b.resume = nil // it has the whole request
	b.mu.Unlock()
	resume(a)
}

// keep copies an operation that must wait for its stamp. The returned function must be called with
// the core's answer.
func (c *conn) keep(k *lockedOperation, b *begunOperation) func(musiccore.Answer) {
	kept, o := k.clone(), c.begin(k.header.Stream)
	n := kept.size()
	if x := k.sent.condition; x != nil {
		n += x.size()
	}
	o.keeps(n)
	return func(a musiccore.Answer) {
		o.finish(func() { o.sendStamped(&kept, b, a) })
	}
}

// sendStamped sends an operation that has waited for its stamp, unless its client has already been
// answered because the connection ends.
func (o operation) sendStamped(k *lockedOperation, b *begunOperation, a musiccore.Answer) {
	o.conn.leaveNothing(&k.sent, func() { o.trySend(k, b, a) })
}

// trySend is sendStamped, but after a panic the operation is still to be ended.
func (o operation) trySend(k *lockedOperation, b *begunOperation, a musiccore.Answer) {
	c := o.conn
	if !o.owed() {
		if a.Err == nil {
			c.server.Locks.End(a.Ticket, musiccore.OutcomeRefused) // it was not sent
		}
		k.dropUnsent()
		if k.sent.fresh() {
			c.release(k.request.key, k.request.ref)
		}
		return
	}
	if f := c.stamp(k, b, a); f != nil {
		c.rejectUnsent(k, f)
		return
	}
	c.send(k.appendTo(nil, c.version))
}

// dropUnsent ends an operation that was not sent: nothing of it was done.
func (k *lockedOperation) dropUnsent() {
	if x := k.sent.condition; x != nil {
		x.group.withoutFirst()
	}
	k.sent.done()
}

// send sends a request to Cassandra. Any goroutine may call it.
func (c *conn) send(raw []byte) { c.up.Post(raw) }

// sender returns the function that sends a request to Cassandra: Emit if a request is being
// performed (inPlace), else send.
func (c *conn) sender(inPlace bool) func(raw []byte) {
	if inPlace {
		return c.up.Emit
	}
	return c.send
}

// lockedOperation is an operation under a lock before it is sent. It may refer to the client's
// request, which lies in the read buffer.
type lockedOperation struct {
	header    wire.Header
	body      []byte             // the body before the parameters, without the lock clause
	prepared  executedID         // the ids to send instead of a body; none: the body is sent
	statement *rewrite.Statement // the values of this statement's lock clause are not sent; nil if there are none
	request   lockedRequest
	sent      sentOperation

	dated  func(stamp int64) []byte // returns the body if the stamp is part of its text; else nil
	fences bool                     // its first value is that of the ticket's fence, one below the stamp
}

// size returns how many bytes the operation takes while it waits. The syntax tree of a prepared statement is not its own.
func (k *lockedOperation) size() int {
	n := len(k.body) + k.request.parameters.Size() + len(k.header.Payload)
	if k.statement != nil && k.prepared.statement == nil {
		n += k.statement.Memory
	}
	return n
}

// newLockedOperation returns the operation to send for a request.
func (c *conn) newLockedOperation(h wire.Header, s *lockStatement, q lockedRequest) lockedOperation {
	if s.Timed() || s.Fixed {
		own := s.clone()
		k := queryOperation(h, own.Write(statement.RequestStamps), &own.Statement, q)
		k.sent.warnings = c.timestampWarning(&own)
		return k
	}
	q.local = s.Critical.Local
	k := lockedOperation{
		header: h.Rewritten(), statement: s.Parsed, request: q,
		sent: sentOperation{table: s.Table, key: q.key, critical: s.Critical},
	}
	if s.prepared != nil {
		k.prepared, k.sent.id = executedID{s.prepared.backendID, s.metadata}, &s.prepared.id
		return k
	}
	k.body = longString(rewrite.Apply(nil, s.Text, s.Parsed.Cut))
	return k
}

// clone returns the operation in memory of its own.
func (k *lockedOperation) clone() lockedOperation {
	kept := *k
	kept.body, kept.prepared.metadata = bytes.Clone(k.body), bytes.Clone(k.prepared.metadata)
	kept.request.parameters = k.request.parameters.Clone()
	return kept
}

// stamp gives an operation the stamp of its ticket, and has its answer watched. If it returns an
// error the operation must not be sent.
func (c *conn) stamp(k *lockedOperation, b *begunOperation, a musiccore.Answer) *wire.Failure {
	if a.Err != nil {
		if errors.Is(a.Err, musiccore.ErrLost) && !errors.Is(a.Err, musiccore.ErrReleased) {
			c.auditFencedOff(&b.sent, k.request.ref)
		}
		if b.sent.ownSectionType != "" {
			return refusal.OfSection(a.Err, b.sent.table)
		}
		return refusal.OfOperation(a.Err, b.sent.table, c.shownReference(&b.sent, k.request.ref))
	}
	b.sent.ticket = a.Ticket
	if x := b.sent.condition; x != nil {
		x.note(c, &b.sent.ticket)
	}
	fenceParameters(&k.request.parameters, int64(a.Ticket.Stamp), k.request.local)
	if k.dated != nil {
		k.body = k.dated(int64(a.Ticket.Stamp))
	}
	if k.fences {
		k.request.parameters.Values[0] = wire.Value(bigint(int64(a.Ticket.Stamp) - 1))
	}
	if f := c.expectUnderLock(k.header.Stream, b); f != nil {
		c.server.Locks.End(a.Ticket, musiccore.OutcomeRefused) // it was not sent
		return f
	}
	if f := b.sent.altered(); f != nil {
		if c.takeBack(k.header.Stream) {
			c.server.Locks.End(a.Ticket, musiccore.OutcomeRefused)
		}
		return f
	}
	c.server.Stats.Count(c.id, k.header.OpCode, traffic.Fenced)
	return nil
}

// altered returns an error if the columns of the table have changed so that the statement, which has waited, may
// name another key now than the one that is locked. It is called when the stream is open, so that either
// Server.Outstanding sees the operation or the operation sees the change.
func (f *sentOperation) altered() *wire.Failure {
	switch {
	case readAlike(f.table, f.critical):
		return nil
	case f.ownSectionType != "":
		return refusal.TryAgain(f.table, refusal.JustAltered)
	}
	return wire.Invalid("MUSIC_UNAVAILABLE: %s: %s: nothing was done, try again", f.table, refusal.JustAltered)
}

// readAlike reports whether a statement that was read by a state of its table is read alike by the present one.
func readAlike(t *catalog.Table, was *catalog.Critical) bool {
	now := t.Critical()
	return now == was || now != nil && now.SameKeys(was)
}

// expectUnderLock opens the stream of an operation that is to be sent next, and has its answer
// watched. If it returns an error the operation must not be sent.
func (c *conn) expectUnderLock(stream int16, b *begunOperation) *wire.Failure {
	if !c.streams.Begin(stream, true) {
		return inUse(stream)
	}
	b.watch = watch{kind: watchUnderLock, sent: &b.sent}
	if x := b.sent.condition; x != nil {
		b.watch.kept = x.size()
	}
	c.watch(stream, &b.watch)
	if c.over() && c.unwatch(stream).sent != nil {
		return &wire.Failure{Code: primitive.ErrorCodeServerError, Text: "MUSIC_BACKEND: the connection has ended; nothing was done"} // no goroutine would see the answer
	}
	return nil
}

// takeBack closes the stream of an operation that is not sent after all. It reports whether its tickets are still to be
// ended: the end of the connection may have ended them.
func (c *conn) takeBack(stream int16) bool {
	watched := c.unwatch(stream).sent != nil
	c.streams.End(stream)
	return watched
}

// appendTo appends the request in wire form.
func (k *lockedOperation) appendTo(dst []byte, version byte) []byte {
	at := len(dst)
	dst = append(k.header.AppendTo(dst), k.header.Payload...)
	if k.prepared.statement != nil {
		dst = k.prepared.appendTo(dst, version)
	} else {
		dst = append(dst, k.body...)
	}
	dst = k.request.parameters.AppendWithout(dst, version, func(value int) bool {
		return k.statement != nil && k.statement.OwnMarker(value)
	})
	k.header.Length = uint32(len(dst) - at - wire.HeaderSize)
	k.header.AppendTo(dst[:at])
	return dst
}
