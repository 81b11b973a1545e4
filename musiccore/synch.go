package musiccore

import (
	"fmt"
	"time"
)

// poison is the stamp above which no window can be put (docs/protocol.md 3.9, Synch).
const poison = Stamp(1) << 62

// synchState is the Synch of a term: which attempt is under way, and when the next one may start.
type synchState struct {
	cmd   CommandID
	tries int // failed in a row
	next  time.Duration
	stale bool // closed or the schema changed while the attempt ran
}

// wantsSynch reports whether a Synch is to start: an operation waits for it, or the term ends or
// the proxy shuts down with an unknown outcome. It is exclusive, because a put in flight could be
// acknowledged and fenced away, and a get could return a put without an answer, which the Synch
// then leaves out (C7).
func (k *key) wantsSynch(now Now) bool {
	t := k.term
	if t.clean() || t.broken || t.renewal.blocksPuts || t.synch.cmd != 0 || t.ops.flight.ops > 0 || now.Boot < t.synch.next {
		return false
	}
	if k.awaitsStamps(now) {
		return false
	}
	if t.open {
		return len(t.ops.waiting) > 0 || (k.c.draining && t.unsettled)
	}
	return t.unsettled && !t.released() && t.synch.tries < k.c.opts.SettleTries
}

// startSynch starts one attempt, with a fresh fence each (C10), two stamps wide. The fence is not
// below closed: a plain write that no quorum shows yet may be stamped up to there. Paper §IV,
// acquireLock: the value read at quorum is written back under the own reference.
func (k *key) startSynch(now Now) {
	t := k.term
	fence := t.window.next()
	if t.window.seq+2 > k.windowSize() || fence < k.table.closed {
		t.renewal.require(max(now.Clk, k.table.closed))
		return
	}
	k.noteNothingPut()
	k.endUnfenced() // the outcome of the Synch may be unknown
	t.window.seq += 2
	t.synch.stale = false
	t.synch.cmd = k.c.do(k.id, Synch{Fence: fence})
	k.c.commands[t.synch.cmd] = k
}

// synchEnded takes the result of a Synch.
func (k *key) synchEnded(now Now, r Result) {
	t := k.term
	s := &t.synch
	s.cmd = 0
	switch {
	case r.Status == StatusDone && !s.stale:
		t.synced, t.unsettled = true, false
		k.note(NoteSynchronised, t.holder, 0)
		*s = synchState{}
		return
	case r.Status == StatusDone:
		return
	case r.Status == StatusAbove && r.Stamp >= poison:
		k.refuseWaiting(ErrPoisoned)
		k.closeTerm(now, StateLost)
		s.tries = k.c.opts.SettleTries
		return
	case r.Status == StatusAbove:
		t.renewal.require(r.Stamp + 1)
	case r.Status == StatusTooLarge:
		k.refuseWaiting(tooLarge(r.Cause))
	case r.Status == StatusUnavailable:
		k.refuseWaiting(fmt.Errorf("%w: %w", ErrSynchronising, r.Cause))
		if t.open && !k.c.draining {
			return // the next operation starts another attempt, and is told at once if it fails, too
		}
	}
	s.next = now.Boot + backoff(s.tries)
	s.tries++
}

// refuseWaiting answers all operations that wait for a Synch that is not possible.
func (k *key) refuseWaiting(err error) {
	for _, b := range k.term.ops.waiting {
		k.c.answer(Answer{Op: b.op, Err: err})
	}
	k.term.ops.waiting = nil
}

// tooLarge returns ErrTooLarge with the store's reason.
func tooLarge(cause error) error {
	if cause == nil {
		return ErrTooLarge
	}
	return fmt.Errorf("%w: %w", ErrTooLarge, cause)
}
