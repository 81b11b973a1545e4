package frontend

import (
	"bytes"
	"encoding/binary"
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

// lockedRequest says on which key and under which reference an operation is to be done, and with
// what parameters.
type lockedRequest struct {
	key        musiccore.Key
	ref        musiccore.LockRef
	local      bool // within the data centre: the table's scope
	parameters wire.Parameters
}

// sentOperation is an operation under a lock that Cassandra has been sent, or is about to be: what
// its answer is for.
type sentOperation struct {
	ticket musiccore.Ticket
	beside []musiccore.Ticket // of the other keys that it writes
	parts  bool               // it is several mutations, of which some may be done where it fails
	table  *catalog.Table
	id     *preparedID // the client's id of the statement, where it was prepared
	key    musiccore.Key
	update *forUpdateRead // of SELECT … FOR UPDATE

	generation [16]byte // of the table, for what the client is shown

	condition *conditionalWrite   // of a write with IF
	section   interface{ end() }  // that was made for this write alone, and ends with it
	alone     primitive.WriteType // of a section of one write, whose client knows of no lock; else empty
	warnings  []string            // for the client, beside its answer
}

// fence sends an operation under a lock: its clause cut, the stamp in the frame, at QUORUM. inPlace
// says that its request is being performed.
func (c *conn) fence(h wire.Header, s *lockStatement, q lockedRequest, inPlace bool) *wire.Failure {
	k := c.newLockedOperation(h, s, q)
	return c.sendUnderLock(&k, s.Kind(), inPlace)
}

// sendUnderLock gets the stamp of an operation and sends it: in the place of the request that is
// being performed, or between two others. Where the stamp is not there at once, the operation is
// kept in memory of its own and sent when the core has it.
func (c *conn) sendUnderLock(k *lockedOperation, kind musiccore.Kind, inPlace bool) *wire.Failure {
	return c.beginUnderLock(&begunOperation{sent: k.sent}, k, kind, inPlace)
}

// beginUnderLock is sendUnderLock with the memory for what the answer is for.
func (c *conn) beginUnderLock(b *begunOperation, k *lockedOperation, kind musiccore.Kind, inPlace bool) *wire.Failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, ok := c.server.Locks.Begin(k.request.key, k.request.ref, kind, b.answered)
	if !ok {
		b.resume = c.keep(k, b)
		return nil
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

// begunOperation is what the answer to an operation under a lock is for, from Begin on.
type begunOperation struct {
	sent  sentOperation
	watch watch // for the answer: one piece of memory with the rest

	mu     sync.Mutex // held until Begin has returned, and what that needs is done
	resume func(musiccore.Answer)
}

// answered takes an answer that did not come at once.
func (b *begunOperation) answered(a musiccore.Answer) {
	b.mu.Lock()
	resume := b.resume
	b.mu.Unlock()
	resume(a)
}

// keep keeps an operation that waits for its stamp, in memory of its own. What it returns is to be
// called with the stamp.
func (c *conn) keep(k *lockedOperation, b *begunOperation) func(musiccore.Answer) {
	kept, o := k.clone(), c.begin(k.header.Stream)
	n := kept.size()
	c.countKept(n)
	return func(a musiccore.Answer) {
		c.countKept(-n)
		o.finish(func() { o.sendStamped(&kept, b, a) })
	}
}

// sendStamped sends an operation that has waited for its stamp, unless its client has been told
// that the connection ends.
func (o operation) sendStamped(k *lockedOperation, b *begunOperation, a musiccore.Answer) {
	c := o.conn
	if !o.owed() {
		if a.Err == nil {
			c.server.Locks.End(a.Ticket, musiccore.OutcomeRefused) // it was not sent
		}
		k.sent.done()
		return
	}
	if f := c.stamp(k, b, a); f != nil {
		c.rejectUnsent(k, f)
		return
	}
	c.send(k.appendTo(nil, c.version))
}

// send sends Cassandra a request from whatever goroutine.
func (c *conn) send(raw []byte) { c.up.Post(raw) }

// sender returns what sends Cassandra a request: in the place of the one that is being performed,
// or from whatever goroutine.
func (c *conn) sender(inPlace bool) func(raw []byte) {
	if inPlace {
		return c.up.Emit
	}
	return c.send
}

// lockedOperation is an operation under a lock before it is sent. What it refers to may lie in the
// client's request.
type lockedOperation struct {
	header    wire.Header
	body      []byte             // up to the parameters: the text without its lock clause; nil where prepared
	prepared  executedID         // instead of a body
	statement *rewrite.Statement // whose own markers have values that Cassandra does not get; nil: none
	request   lockedRequest
	sent      sentOperation

	dated func(stamp int64) []byte // returns body where the stamp stands in it too; nil where it does not
}

// size returns how many bytes a request takes while it waits.
func (k *lockedOperation) size() int { return len(k.body) + k.request.parameters.Size() }

// countKept counts bytes of requests that wait for the core: where they are too many, the
// connection is not read on.
func (c *conn) countKept(n int) {
	c.waitingBytes.Add(int64(n))
	c.server.memory.Give(-n)
}

// newLockedOperation makes of a request what will be sent.
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
		sent: sentOperation{table: s.Table, key: q.key, generation: s.Critical.Generation},
	}
	if s.prepared != nil {
		k.prepared, k.sent.id = executedID{s.prepared.backendID, s.metadata}, &s.prepared.id
		return k
	}
	cut := rewrite.Apply(nil, s.Text, s.Parsed.Cut)
	k.body = append(binary.BigEndian.AppendUint32(nil, uint32(len(cut))), cut...)
	return k
}

// clone returns the operation in memory of its own.
func (k *lockedOperation) clone() lockedOperation {
	kept := *k
	kept.body, kept.prepared.metadata = bytes.Clone(k.body), bytes.Clone(k.prepared.metadata)
	kept.request.parameters = k.request.parameters.Clone()
	return kept
}

// stamp gives an operation the stamp of its ticket; its answer is expected from then on.
func (c *conn) stamp(k *lockedOperation, b *begunOperation, a musiccore.Answer) *wire.Failure {
	if a.Err != nil {
		if errors.Is(a.Err, musiccore.ErrLost) && !errors.Is(a.Err, musiccore.ErrReleased) {
			c.auditFencedOff(&b.sent, k.request.ref)
		}
		if b.sent.alone != "" {
			return refusal.OfSection(a.Err, b.sent.table)
		}
		return refusal.OfOperation(a.Err, b.sent.table, c.shownReference(&b.sent, k.request.ref))
	}
	b.sent.ticket = a.Ticket
	fenceParameters(&k.request.parameters, int64(a.Ticket.Stamp), k.request.local)
	if k.dated != nil {
		k.body = k.dated(int64(a.Ticket.Stamp))
	}
	if f := c.expectFenced(k.header.Stream, b); f != nil {
		c.server.Locks.End(a.Ticket, musiccore.OutcomeRefused) // it was not sent
		return f
	}
	c.server.Stats.Count(c.id, k.header.OpCode, traffic.Fenced)
	return nil
}

// expectFenced has the answer to an operation expected that is to be sent next. Where it returns an
// error the operation must not be sent.
func (c *conn) expectFenced(stream int16, b *begunOperation) *wire.Failure {
	if !c.streams.Begin(stream, true) {
		return inUse(stream)
	}
	b.watch = watch{kind: watchFenced, sent: &b.sent}
	c.watches.add(stream, &b.watch)
	if c.over() && c.watches.remove(stream).sent != nil {
		return &wire.Failure{Code: primitive.ErrorCodeServerError, Text: "MUSIC_BACKEND: the connection has ended; nothing was done"} // nobody would see the answer any more
	}
	return nil
}

// appendTo appends the request as it goes out.
func (k *lockedOperation) appendTo(dst []byte, version byte) []byte {
	at := len(dst)
	dst = append(k.header.AppendTo(dst), k.header.Payload...)
	if dst = append(dst, k.body...); k.body == nil {
		dst = k.prepared.appendTo(dst, version)
	}
	dst = k.request.parameters.AppendWithout(dst, version, func(value int) bool {
		return k.statement != nil && k.statement.OwnMarker(value)
	})
	k.header.Length = uint32(len(dst) - at - wire.HeaderSize)
	k.header.AppendTo(dst[:at])
	return dst
}
