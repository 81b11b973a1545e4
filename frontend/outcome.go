package frontend

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/refusal"
	"music/frontend/wire"
	"music/musiccore"
)

// performUnderLock processes Cassandra's answer to an operation under a lock: it reports the outcome
// to the core, and answers the client with what the core's verdict allows, at once or when the
// verdict is known.
func (c *conn) performUnderLock(e wire.Envelope, f *sentOperation) (err error) {
	c.leaveNothing(f, func() { err = c.judge(e, f) })
	return err
}

// leaveNothing calls do, a step of an operation. If it panics, which ends the connection, the operation is over: others
// wait for its turn, and nobody was told of the lock that was taken for it.
func (c *conn) leaveNothing(f *sentOperation, do func()) {
	returns := false
	defer func() {
		if !returns {
			f.done()
			c.releaseFresh(f)
		}
	}()
	do()
	returns = true
}

// judge is performUnderLock, but after a panic the operation is still to be ended.
func (c *conn) judge(e wire.Envelope, f *sentOperation) error {
	o, err := c.outcome(e)
	if err != nil {
		c.abandonSent(f)
		return err
	}
	if f.severalMutations && o.what == musiccore.OutcomeRefused && !o.early {
		o.what = musiccore.OutcomeUnknown // one mutation was refused, but others may have been applied
	}
	c.noteRight(f, o)
	verdict, wait := c.endTickets(f, o.what)
	if wait != nil || f.goesOn(o) {
		return c.concludeLater(e, f, o, verdict, wait)
	}
	if f.condition != nil {
		c.streams.End(e.Stream)
		if raw := c.answerUnderLock(e, f, o, verdict); raw != nil {
			c.down.Emit(raw)
		}
		return nil
	}
	stream := e.Stream
	e, err = c.conclude(e, f, o, verdict)
	f.done()
	if (err != nil || c.over()) && c.releaseFresh(f) {
		return err // the end of the connection answers the client
	}
	c.streams.End(stream)
	if err == nil && !c.releaseSpoilt(e, f) {
		c.down.Emit(e.Raw)
	}
	return err
}

// goesOn reports whether something may have to be sent to Cassandra before the client can be
// answered, or for another client that waits for its turn.
func (f *sentOperation) goesOn(o outcome) bool {
	last := f.ticket.Kind == musiccore.Put && o.forgotten == nil
	return f.condition != nil && (!last || f.ownSectionType == "")
}

// endTickets reports the outcome of an operation to the core, for each of its keys. The verdict is
// the worst of theirs. If wait is not nil the verdict is not known yet, and wait blocks until it
// is.
func (c *conn) endTickets(f *sentOperation, what musiccore.Outcome) (v musiccore.Verdict, wait func() musiccore.Verdict) {
	if f.condition != nil {
		f.condition.group.close()
	}
	if v, wait = c.server.Locks.End(f.ticket, what); len(f.otherTickets) == 0 {
		return v, wait
	}
	verdicts, waits := []musiccore.Verdict{v}, []func() musiccore.Verdict{wait}
	for _, t := range f.otherTickets {
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

// worst returns the verdict on an operation of several keys. VerdictPending in verdicts is ignored.
func worst(verdicts []musiccore.Verdict) musiccore.Verdict {
	for _, v := range []musiccore.Verdict{musiccore.VerdictLost, musiccore.VerdictUncertain} {
		if slices.Contains(verdicts, v) {
			return v
		}
	}
	return musiccore.VerdictTell
}

// concludeLater answers the client when the verdict is known, or continues the conditional write
// that the operation is part of. Flushed blocks while the answers that are kept take too much.
func (c *conn) concludeLater(e wire.Envelope, f *sentOperation, o outcome, verdict musiccore.Verdict, wait func() musiccore.Verdict) error {
	if c.down.Out.Full() { // what waits to be written may wait for the end of an envelope before this one
		if err := c.down.Flush(); err != nil {
			f.done()
			c.releaseFresh(f)
			return err
		}
		c.down.Out.Room(c.done)
	}
	n := len(e.Raw)
	c.countAnswer(n)
	e.Raw = bytes.Clone(e.Raw)
	c.goOn(e.Stream, e.Stream).answerLater(func(waiting operation) (raw []byte) {
		defer c.countAnswer(-n)
		c.leaveNothing(f, func() {
			if wait != nil {
				verdict = wait()
			}
			waiting.free()
			raw = c.answerUnderLock(e, f, o, verdict)
		})
		if raw != nil && waiting.cancelled() && c.releaseFresh(f) {
			return nil
		}
		return raw
	})
	return nil
}

// noteRight notes the permission that the client has, as the success of the operation shows.
func (c *conn) noteRight(f *sentOperation, o outcome) {
	if o.what != musiccore.OutcomeAcked || !c.hasRoles() {
		return
	}
	what := permissionModify
	if f.ticket.Kind == musiccore.Get {
		what = permissionSelect
	}
	c.rights.note(right{f.table, what})
}

// answerUnderLock returns the client's answer, given the verdict; nil if the client is answered
// otherwise, or later.
func (c *conn) answerUnderLock(e wire.Envelope, f *sentOperation, o outcome, v musiccore.Verdict) []byte {
	if f.condition != nil && o.forgotten != nil && c.sendAsText(f, o.forgotten) {
		return nil
	}
	e, err := c.conclude(e, f, o, v)
	switch {
	case err != nil:
		f.done()
		c.releaseFresh(f)
		c.loseBackend(e.Stream, err)
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

// releaseSpoilt handles a failed SELECT … FOR UPDATE whose lock was taken only for it: it releases
// the lock and then answers. It reports whether the operation is such a read.
func (c *conn) releaseSpoilt(e wire.Envelope, f *sentOperation) bool {
	spoilt := f.fresh() && e.OpCode == primitive.OpCodeError
	if spoilt {
		c.releaseThenAnswer(e.Stream, f.key, f.ticket.Ref, bytes.Clone(e.Raw))
	}
	return spoilt
}

// conclude returns the client's answer to an operation: Cassandra's answer e, or an error in its
// place, as the verdict v demands.
func (c *conn) conclude(e wire.Envelope, f *sentOperation, o outcome, v musiccore.Verdict) (wire.Envelope, error) {
	get := f.ticket.Kind == musiccore.Get
	if v == musiccore.VerdictLost {
		c.auditFencedOff(f, f.ticket.Ref)
	}
	if f.ownSectionType != "" {
		if fate := c.concludeAlone(f, o, v, e.OpCode == primitive.OpCodeError); fate != nil {
			return c.errorInstead(e, fate), nil
		}
		v = musiccore.VerdictTell
	}
	switch {
	case v == musiccore.VerdictLost && (get || o.what == musiccore.OutcomeRefused):
		return c.errorInstead(e, refusal.OfOperation(musiccore.ErrLost, f.table, c.shownReference(f, f.ticket.Ref))), nil
	case v == musiccore.VerdictLost:
		return c.errorInstead(e, wire.Invalid("MUSIC_LOST: lock_ref %d on %s was lost meanwhile; whether this write was carried out is unknown, but it cannot overwrite a write of a later holder: LOCK again and read", c.shownReference(f, f.ticket.Ref), f.table)), nil
	case v == musiccore.VerdictUncertain && e.OpCode == primitive.OpCodeError: // what Cassandra says is so, or as unknown
	case v == musiccore.VerdictUncertain && get:
		return c.errorInstead(e, wire.Invalid("MUSIC_UNAVAILABLE: the proxy could not find out in time whether this is the latest state of %s: read again with the same lock_ref", f.table)), nil
	case v == musiccore.VerdictUncertain:
		return c.errorInstead(e, refusal.WriteTimeout(c.version, primitive.WriteTypeSimple,
			"MUSIC_UNCERTAIN: whether this write was carried out is unknown: read USING LOCK the same lock_ref to see, or LOCK again and read where that is lost")), nil
	}
	if id := f.clientID(o.forgotten); o.forgotten != nil && id != nil {
		return c.errorInstead(e, wire.Unprepared(id)), nil
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

// done must be called when the operation is over. It ends a section that was made for this write
// alone, and gives the turn to the next conditional write on the key. It may be called more than
// once.
func (f *sentOperation) done() {
	if f.section != nil {
		f.section.end()
	}
	if f.condition != nil {
		f.condition.nextTurn()
	}
}

// lateShare is the divisor of the lease that gives its last part, in which operations get a warning.
const lateShare = 5

// lateWarning returns a warning for a client whose lease had nearly ended, if its protocol has warnings.
func (c *conn) lateWarning(f *sentOperation) []string {
	t := f.ticket
	if f.ownSectionType != "" || t.Left >= t.Lease/lateShare || c.version < byte(primitive.ProtocolVersion4) {
		return nil
	}
	ref := c.shownReference(f, t.Ref)
	return []string{fmt.Sprintf("MUSIC: lock_ref %d on %s had %v of its %v lease left when this came: renew it earlier (LOCK %s WHERE … USING LOCK %d)",
		ref, f.table, t.Left.Round(100*time.Millisecond), t.Lease, f.table, ref)}
}

// shownReference returns a reference of an operation as its client sees it; 0 for 0.
func (c *conn) shownReference(f *sentOperation, ref musiccore.LockRef) int64 {
	return c.server.shown(f.critical.Generation, f.key, ref)
}

// outcome is the outcome of an operation, as Cassandra's answer shows it.
type outcome struct {
	what      musiccore.Outcome
	early     bool   // refused before any mutation was applied
	forgotten []byte // the prepared id that Cassandra no longer knows; nil if that is not why
}

// outcome reads an answer (docs/protocol.md 3.7, End): acknowledged, certainly refused, or unknown.
func (c *conn) outcome(e wire.Envelope) (outcome, error) {
	if e.OpCode == primitive.OpCodeResult {
		return outcome{what: musiccore.OutcomeAcked}, nil
	}
	if e.OpCode != primitive.OpCodeError {
		return outcome{}, nil
	}
	code, id, err := c.errorOf(e)
	if err != nil {
		return outcome{}, err
	}
	switch code {
	case primitive.ErrorCodeUnprepared:
		return outcome{what: musiccore.OutcomeRefused, early: true, forgotten: id}, nil
	case primitive.ErrorCodeUnauthorized, primitive.ErrorCodeSyntaxError:
		return outcome{what: musiccore.OutcomeRefused, early: true}, nil
	case primitive.ErrorCodeInvalid, primitive.ErrorCodeFunctionFailure, primitive.ErrorCodeUnavailable, primitive.ErrorCodeIsBootstrapping:
		return outcome{what: musiccore.OutcomeRefused}, nil
	}
	return outcome{}, nil
}

// concludeAlone returns the error that the client of a plain write in a section of its own gets in
// the place of Cassandra's answer; nil if it gets the answer. For a conditional write, an error
// that leaves the outcome open has the form of one for a lightweight transaction. failed means that
// the answer is an error.
func (c *conn) concludeAlone(f *sentOperation, o outcome, v musiccore.Verdict, failed bool) *wire.Failure {
	get := f.ticket.Kind == musiccore.Get
	switch {
	case v == musiccore.VerdictTell, o.what == musiccore.OutcomeRefused:
		return nil
	case v == musiccore.VerdictUncertain && o.what == musiccore.OutcomeUnknown && failed && (get || f.ownSectionType != primitive.WriteTypeCas):
		return nil
	case !get:
		return refusal.Uncertain(c.version, f.table, f.ownSectionType)
	case v == musiccore.VerdictLost:
		return refusal.OfSection(musiccore.ErrLost, f.table)
	}
	return refusal.TryAgain(f.table, "the proxy could not find out in time whether it has read the latest state")
}
