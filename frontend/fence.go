package frontend

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
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
	table  *catalog.Table
	id     *preparedID // the client's id of the statement, where it was prepared
	key    musiccore.Key
	update *forUpdateRead // of SELECT … FOR UPDATE

	generation [16]byte // of the table, for what the client is shown

	condition  *conditionalWrite // of a write with IF
	endSection func()            // ends the section that was made for this write alone
}

// fence asks the core for the stamp of an operation, then sends it: the clause cut, the stamp in
// the frame, at QUORUM. emit sends it where the stamp is there at once.
func (c *conn) fence(h wire.Header, s lockStatement, q lockedRequest, emit func([]byte)) *wire.Failure {
	kind := musiccore.Put
	if s.statement.Verb == rewrite.Select {
		kind = musiccore.Get
	}
	return c.sendUnderLock(c.newLockedOperation(h, s, q), kind, emit)
}

// sendUnderLock gets the stamp of an operation and sends it with emit. Where the stamp is not there
// at once, the operation is sent when the core has it.
func (c *conn) sendUnderLock(k lockedOperation, kind musiccore.Kind, emit func([]byte)) *wire.Failure {
	o := c.begin(k.header.Stream)
	n := k.size()
	a, ok := c.server.Locks.Begin(k.request.key, k.request.ref, kind, func(a musiccore.Answer) {
		c.countKept(-n)
		o.finish(func() { o.sendStamped(k, a) })
	})
	if !ok {
		c.countKept(n)
		return nil
	}
	o.end()
	raw, f := c.stamp(k, a)
	if f == nil {
		emit(raw)
	}
	return f
}

// sendStamped sends an operation that has waited for its stamp, unless its client has been told
// that the connection ends.
func (o operation) sendStamped(k lockedOperation, a musiccore.Answer) {
	c := o.conn
	if !o.owed() {
		if a.Err == nil {
			c.server.Locks.End(a.Ticket, musiccore.OutcomeRefused) // it was not sent
		}
		k.sent.done()
		return
	}
	raw, f := c.stamp(k, a)
	if f != nil {
		c.rejectUnsent(k, f)
		return
	}
	c.send(raw)
}

// send sends Cassandra a request from whatever goroutine.
func (c *conn) send(raw []byte) { c.up.Post(raw) }

// lockedOperation is an operation under a lock before it is sent: everything of the request but its
// stamp.
type lockedOperation struct {
	header  wire.Header
	body    []byte // of the body: the text without its lock clause, or Cassandra's id
	request lockedRequest
	sent    sentOperation
}

// size returns how many bytes a request takes while it waits.
func (k *lockedOperation) size() int { return len(k.body) + k.request.parameters.Size() }

// countKept counts bytes of requests that wait for the core: where they are too many, the
// connection is not read on.
func (c *conn) countKept(n int) {
	c.waitingBytes.Add(int64(n))
	c.server.memory.Give(-n)
}

// newLockedOperation makes of a request what will be sent, in memory of its own.
func (c *conn) newLockedOperation(h wire.Header, s lockStatement, q lockedRequest) lockedOperation {
	q.local = s.critical.Local
	k := lockedOperation{header: h.Rewritten(), request: q, sent: sentOperation{table: s.table, key: q.key, generation: s.critical.Generation}}
	for _, m := range slices.Backward(s.statement.OwnMarkers()) {
		k.request.parameters.DropValue(m.Marker)
	}
	k.request.parameters = k.request.parameters.Clone()
	if s.prepared != nil {
		k.sent.id = &s.prepared.id
		k.body = s.appendIDs(make([]byte, 0, 4+len(s.prepared.backendID)+len(s.metadata)), c.version) // each has its length before it
		return k
	}
	cut := cutText(s)
	k.body = append(binary.BigEndian.AppendUint32(nil, uint32(len(cut))), cut...)
	return k
}

// cutText returns the text of a statement without what Cassandra does not understand.
func cutText(s lockStatement) []byte { return rewrite.Apply(nil, s.text, s.statement.Cut) }

// stamp gives an operation the stamp of its ticket and returns the envelope to send; its answer is
// expected from then on.
func (c *conn) stamp(k lockedOperation, a musiccore.Answer) ([]byte, *wire.Failure) {
	if a.Err != nil {
		if errors.Is(a.Err, musiccore.ErrLost) && !errors.Is(a.Err, musiccore.ErrReleased) {
			c.auditFencedOff(&k.sent, k.request.ref)
		}
		return nil, lockFailure(a.Err, k.sent.table, c.shownReference(&k.sent, k.request.ref))
	}
	k.sent.ticket = a.Ticket
	fenceParameters(&k.request.parameters, int64(a.Ticket.Stamp), k.request.local)
	raw := k.envelope(c.version)
	if !c.streams.Begin(k.header.Stream, true) {
		c.server.Locks.End(a.Ticket, musiccore.OutcomeRefused) // it was not sent
		return nil, inUse(k.header.Stream)
	}
	c.watches.add(k.header.Stream, &watch{kind: watchFenced, sent: &k.sent})
	if c.over() && c.watches.remove(k.header.Stream).sent != nil {
		c.server.Locks.End(a.Ticket, musiccore.OutcomeRefused) // nobody would see its answer any more: it is not sent
		return nil, &wire.Failure{Code: primitive.ErrorCodeServerError, Text: "MUSIC_BACKEND: the connection has ended; nothing was done"}
	}
	c.server.Stats.count(c, k.header.OpCode, FateFenced)
	return raw, nil
}

// envelope returns the request as it goes out.
func (k *lockedOperation) envelope(version byte) []byte {
	const others = 32 // bytes of consistency, flags, numbers of values and the stamp, at most
	p := &k.request.parameters
	raw := make([]byte, wire.HeaderSize, wire.HeaderSize+len(k.header.Payload)+len(k.body)+p.Size()+others)
	raw = append(raw, k.header.Payload...)
	raw = p.AppendTo(append(raw, k.body...), version)
	k.header.Length = uint32(len(raw) - wire.HeaderSize)
	k.header.AppendTo(raw[:0])
	return raw
}

// performFenced tells the core what became of an operation, and the client what it may be told: at
// once, or when the core knows.
func (c *conn) performFenced(e wire.Envelope, f *sentOperation) error {
	o, err := c.outcome(e)
	if err != nil {
		c.abandonSent(f)
		return err
	}
	c.noteRight(f, o)
	verdict, wait := c.server.Locks.End(f.ticket, o.what)
	if wait == nil && f.condition == nil {
		e, err = c.conclude(e, f, o, verdict)
		c.streams.End(e.Stream)
		f.done()
		if err == nil && !c.releaseSpoilt(e, f) {
			c.down.Emit(e.Raw)
		}
		return err
	}
	n := len(e.Raw)
	c.down.Out.Room(c.done)
	if !c.server.memory.Acquire(n, c.done) {
		c.server.memory.Take(n) // given back all the same
	}
	e.Raw = bytes.Clone(e.Raw)
	c.streams.End(e.Stream) // Cassandra owes nothing more
	c.answerLater(e.Stream, func() []byte {
		defer c.server.memory.Give(n)
		if wait != nil {
			verdict = wait()
		}
		return c.answerFenced(e, f, o, verdict)
	})
	return nil
}

// noteRight notes what Cassandra has just let the client do.
func (c *conn) noteRight(f *sentOperation, o outcome) {
	if o.what != musiccore.OutcomeAcked || !c.authenticated.Load() {
		return
	}
	what := permissionModify
	if f.ticket.Kind == musiccore.Get {
		what = permissionSelect
	}
	c.rights.note(right{f.table, what})
}

// answerFenced returns what the client is told when the verdict is there; nil where it is told
// otherwise, or later.
func (c *conn) answerFenced(e wire.Envelope, f *sentOperation, o outcome, v musiccore.Verdict) []byte {
	e, err := c.conclude(e, f, o, v)
	switch {
	case err != nil:
		f.done()
		c.end(err)
		return nil
	case f.condition != nil:
		return c.continueConditional(e, f)
	}
	f.done()
	if c.releaseSpoilt(e, f) {
		return nil
	}
	return e.Raw
}

// releaseSpoilt answers a read that has failed once the lock that was taken for it alone is given
// back; it reports whether there is such a lock.
func (c *conn) releaseSpoilt(e wire.Envelope, f *sentOperation) bool {
	spoilt := f.update != nil && f.update.fresh && e.OpCode == primitive.OpCodeError
	if spoilt {
		c.releaseThenAnswer(e.Stream, f.key, f.ticket.Ref, bytes.Clone(e.Raw))
	}
	return spoilt
}

// conclude returns what the client may be told of an operation.
func (c *conn) conclude(e wire.Envelope, f *sentOperation, o outcome, v musiccore.Verdict) (wire.Envelope, error) {
	get := f.ticket.Kind == musiccore.Get
	if v == musiccore.VerdictLost {
		c.auditFencedOff(f, f.ticket.Ref)
	}
	switch {
	case v == musiccore.VerdictLost && get:
		return c.errorInstead(e, lockFailure(musiccore.ErrLost, f.table, c.shownReference(f, f.ticket.Ref))), nil
	case v == musiccore.VerdictLost:
		return c.errorInstead(e, wire.Invalid("MUSIC_LOST: lock_ref %d on %s was lost meanwhile; whether this write was carried out is unknown, and no later holder will be overwritten by it", c.shownReference(f, f.ticket.Ref), f.table)), nil
	case v == musiccore.VerdictUncertain && o.what == musiccore.OutcomeUnknown && e.OpCode == primitive.OpCodeError:
	case v == musiccore.VerdictUncertain && get:
		return c.errorInstead(e, wire.Invalid("MUSIC_UNAVAILABLE: whether this is the latest state of %s could not be told in time: read again under the same lock_ref", f.table)), nil
	case v == musiccore.VerdictUncertain:
		return c.errorInstead(e, uncertain()), nil
	}
	if o.forgotten && f.id != nil {
		return c.errorInstead(e, wire.Unprepared(f.id[:])), nil
	}
	if f.update != nil && e.OpCode == primitive.OpCodeResult {
		shown, err := c.addLockColumns(e, f)
		if err != nil {
			return e, err
		}
		e = c.warn(shown, f.update.warnings)
	}
	return c.warn(e, c.lateWarning(f)), nil
}

// done lets the next conditional write of the key have its turn, where this is one, and ends a
// section of one write. It may be called again.
func (f *sentOperation) done() {
	if f.endSection != nil {
		f.endSection()
	}
	if f.condition != nil {
		f.condition.nextTurn()
	}
}

// lateShare is the last part of a lease in which an operation is warned: a fifth
// (docs/design.md 5).
const lateShare = 5

// lateWarning returns a warning for a client that nearly lost its lock: its next pause may be
// longer.
func (c *conn) lateWarning(f *sentOperation) []string {
	t := f.ticket
	if t.Left >= t.Lease/lateShare {
		return nil
	}
	ref := c.shownReference(f, t.Ref)
	return []string{fmt.Sprintf("MUSIC: lock_ref %d on %s had %v of its %v lease left when this came: renew it earlier (LOCK %s WHERE … USING LOCK %d)",
		ref, f.table, t.Left.Round(100*time.Millisecond), t.Lease, f.table, ref)}
}

// shownReference returns an operation's reference as its client sees it; 0 is none.
func (c *conn) shownReference(f *sentOperation, ref musiccore.LockRef) int64 {
	return c.server.shown(f.generation, f.key, ref)
}

// uncertain returns the error for a write of unknown outcome, in the form that drivers know
// (v4 spec section 9, 0x1100).
func uncertain() *wire.Failure {
	extra := binary.BigEndian.AppendUint16(nil, uint16(primitive.ConsistencyLevelQuorum))
	extra = binary.BigEndian.AppendUint32(extra, 0)
	extra = binary.BigEndian.AppendUint32(extra, 1)
	extra = binary.BigEndian.AppendUint16(extra, uint16(len(primitive.WriteTypeSimple)))
	return &wire.Failure{
		Code: primitive.ErrorCodeWriteTimeout, Text: "MUSIC_UNCERTAIN: whether this write was carried out is unknown: read USING LOCK the same lock_ref to see, or LOCK again and read where that is lost",
		Extra: append(extra, primitive.WriteTypeSimple...),
	}
}

// errorInstead returns an error in the place of an answer, with the preamble of that answer.
func (c *conn) errorInstead(e wire.Envelope, f *wire.Failure) wire.Envelope {
	b := c.failureEnvelope(e.Stream, f)
	if body, flags, err := c.plainAnswer(e); err == nil {
		cur := wire.Cursor{Body: body}
		if preamble := wire.ReadPreamble(&cur, flags); !cur.Bad {
			b = preamble.PutBefore(b)
		}
	}
	return wire.EnvelopeOf(b)
}

// outcome is what an answer says of one mutation or read.
type outcome struct {
	what      musiccore.Outcome
	forgotten bool // Cassandra does not know the prepared id any more
}

// outcome reads an answer (docs/protocol.md 3.7, End): acknowledged, certainly refused, or unknown.
func (c *conn) outcome(e wire.Envelope) (outcome, error) {
	if e.OpCode == primitive.OpCodeResult {
		return outcome{what: musiccore.OutcomeAcked}, nil
	}
	f, err := c.decode(e)
	if err != nil {
		return outcome{}, err
	}
	failure, ok := f.Body.Message.(message.Error)
	if !ok {
		return outcome{}, nil
	}
	switch failure.GetErrorCode() {
	case primitive.ErrorCodeUnprepared:
		return outcome{what: musiccore.OutcomeRefused, forgotten: true}, nil
	case primitive.ErrorCodeInvalid, primitive.ErrorCodeUnauthorized, primitive.ErrorCodeUnavailable,
		primitive.ErrorCodeIsBootstrapping, primitive.ErrorCodeSyntaxError:
		return outcome{what: musiccore.OutcomeRefused}, nil
	}
	return outcome{}, nil
}
