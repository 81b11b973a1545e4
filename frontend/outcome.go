package frontend

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/refusal"
	"music/frontend/wire"
	"music/musiccore"
)

// performFenced tells the core what became of an operation, and the client what it may be told: at
// once, or when the core knows.
func (c *conn) performFenced(e wire.Envelope, f *sentOperation) error {
	o, err := c.outcome(e)
	if err != nil {
		c.abandonSent(f)
		return err
	}
	if f.parts && o.what == musiccore.OutcomeRefused && !o.early {
		o.what = musiccore.OutcomeUnknown // of one mutation, maybe: others may be done
	}
	c.noteRight(f, o)
	verdict, wait := c.endTickets(f, o.what)
	if wait != nil || f.condition != nil {
		c.concludeLater(e, f, o, verdict, wait)
		return nil
	}
	e, err = c.conclude(e, f, o, verdict)
	c.streams.End(e.Stream)
	f.done()
	if err == nil && !c.releaseSpoilt(e, f) {
		c.down.Emit(e.Raw)
	}
	return err
}

// endTickets tells the core what became of an operation, of each key that it is of. The verdict is
// the worst of theirs; it is still to come where wait is not nil.
func (c *conn) endTickets(f *sentOperation, what musiccore.Outcome) (v musiccore.Verdict, wait func() musiccore.Verdict) {
	if v, wait = c.server.Locks.End(f.ticket, what); len(f.beside) == 0 {
		return v, wait
	}
	verdicts, waits := []musiccore.Verdict{v}, []func() musiccore.Verdict{wait}
	for _, t := range f.beside {
		v, wait := c.server.Locks.End(t, what)
		verdicts, waits = append(verdicts, v), append(waits, wait)
	}
	waits = slices.DeleteFunc(waits, func(wait func() musiccore.Verdict) bool { return wait == nil })
	if len(waits) == 0 {
		return worst(verdicts), nil
	}
	return musiccore.VerdictPending, func() musiccore.Verdict {
		for _, wait := range waits {
			verdicts = append(verdicts, wait())
		}
		return worst(verdicts)
	}
}

// worst returns the verdict on an operation of several keys; one that was still to come is none.
func worst(verdicts []musiccore.Verdict) musiccore.Verdict {
	for _, v := range []musiccore.Verdict{musiccore.VerdictLost, musiccore.VerdictUncertain} {
		if slices.Contains(verdicts, v) {
			return v
		}
	}
	return musiccore.VerdictTell
}

// concludeLater tells the client what it may be told of an operation when the verdict is there, or
// goes on with the conditional write that it is of.
func (c *conn) concludeLater(e wire.Envelope, f *sentOperation, o outcome, verdict musiccore.Verdict, wait func() musiccore.Verdict) {
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
	if f.alone != "" {
		if fate := c.concludeAlone(f, o, v, e.OpCode == primitive.OpCodeError); fate != nil {
			return c.errorInstead(e, fate), nil
		}
		v = musiccore.VerdictTell
	}
	switch {
	case v == musiccore.VerdictLost && get:
		return c.errorInstead(e, refusal.OfOperation(musiccore.ErrLost, f.table, c.shownReference(f, f.ticket.Ref))), nil
	case v == musiccore.VerdictLost:
		return c.errorInstead(e, wire.Invalid("MUSIC_LOST: lock_ref %d on %s was lost meanwhile; whether this write was carried out is unknown, and no later holder will be overwritten by it: LOCK again and read", c.shownReference(f, f.ticket.Ref), f.table)), nil
	case v == musiccore.VerdictUncertain && o.what == musiccore.OutcomeUnknown && e.OpCode == primitive.OpCodeError:
	case v == musiccore.VerdictUncertain && get:
		return c.errorInstead(e, wire.Invalid("MUSIC_UNAVAILABLE: whether this is the latest state of %s could not be told in time: read again under the same lock_ref", f.table)), nil
	case v == musiccore.VerdictUncertain:
		return c.errorInstead(e, refusal.WriteTimeout(c.version, primitive.WriteTypeSimple,
			"MUSIC_UNCERTAIN: whether this write was carried out is unknown: read USING LOCK the same lock_ref to see, or LOCK again and read where that is lost")), nil
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
	return c.warn(e, append(f.warnings, c.lateWarning(f)...)), nil
}

// done lets the next conditional write of the key have its turn, where this is one, and ends a
// section of one write. It may be called again.
func (f *sentOperation) done() {
	if f.section != nil {
		f.section.end()
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
	if f.alone != "" || t.Left >= t.Lease/lateShare {
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
	early     bool // refused before anything was carried out
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
		return outcome{what: musiccore.OutcomeRefused, early: true, forgotten: true}, nil
	case primitive.ErrorCodeUnauthorized, primitive.ErrorCodeSyntaxError:
		return outcome{what: musiccore.OutcomeRefused, early: true}, nil
	case primitive.ErrorCodeInvalid, primitive.ErrorCodeUnavailable, primitive.ErrorCodeIsBootstrapping:
		return outcome{what: musiccore.OutcomeRefused}, nil
	}
	return outcome{}, nil
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
		return refusal.Uncertain(c.version, f.table, f.alone)
	case v == musiccore.VerdictLost:
		return refusal.OfSection(musiccore.ErrLost, f.table)
	}
	return refusal.TryAgain(f.table, "whether what was read is the latest state could not be told in time")
}
