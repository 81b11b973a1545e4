package musiccore

import (
	"fmt"
	"slices"
	"time"
)

// purpose is why an LWT is sent; the names are those of docs/protocol.md 3.
type purpose uint8

const (
	purposeEnqueue purpose = iota + 1
	purposeRelease
	purposeRenew
	purposePreempt
	purposeReap             // Release of an orphaned head
	purposeReleaseAbandoned // Release of an abandoned head that never had a term
	purposeTakeover
	purposeDissolve // at shutdown: references of blocks that clients were told become plain
)

// lwt is the one LWT under way for a key (docs/protocol.md 3.1, lwt). It is sent, and after an
// unknown outcome sent again with the same literals, until it is applied or refused; after a
// refusal a QUORUM read of the row reports whether an earlier sending was applied. If it were given up
// before that, it could be applied later and leave a reference that nobody removes (H3).
type lwt struct {
	purpose   purpose
	swap      Swap
	cmd       CommandID     // under way; 0: it waits
	refused   CommandID     // not 0: it was refused, and a read after this command decides
	firstSent time.Duration // when it was sent first
	tries     int           // how often it was sent
	sendAfter time.Duration // it is not sent again before that
	req       int64
	entries   []*entry // the entries that it enqueues, in order
	blockFrom LockRef  // not 0: references of this session from here on become one block
	once      bool     // an EnqueueReleased
}

// mayBeUnderWay reports whether the LWT may still be applied: it has not been refused since it was sent last.
func (l *lwt) mayBeUnderWay() bool { return l != nil && l.refused == 0 }

// changesTerm reports whether an LWT that writes register T is under way: until its outcome is
// definite, nothing here is concluded from T.
func (l *lwt) changesTerm() bool { return l != nil && l.swap.Set.T }

// startLWT sends a new LWT and reports whether it did. One that would break I1 is not sent, and
// the entries it was to enqueue are unnumbered again.
func (k *key) startLWT(now Now, l lwt) bool {
	if !l.swap.sound(k.view.pointer()) {
		k.invariantBroken(now, "I1", fmt.Sprintf("an LWT would move the lock row backwards: %+v", l.swap))
		k.queue.requeue(l.entries)
		return false
	}
	l.firstSent = now.Boot
	k.lwt = &l
	k.sendLWT(now)
	return true
}

// requeue makes entries that an LWT did not enqueue unnumbered again, ahead of later ones.
// Abandoned ones are dropped.
func (q *queue) requeue(entries []*entry) {
	entries = slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool { return e.abandoned })
	q.unnumbered = append(entries, q.unnumbered...)
}

// sendLWT sends the LWT, for the first time or again, if it is not under way and its time has come.
func (k *key) sendLWT(now Now) {
	l := k.lwt
	if l == nil || l.cmd != 0 || l.refused != 0 || now.Boot < l.sendAfter {
		return
	}
	l.tries++
	l.cmd = k.c.do(k.id, Apply{Swap: l.swap, Near: l.mayBeNear() && !k.isChecked()})
	k.c.commands[l.cmd] = k
}

// mayBeNear reports whether the LWT may be committed in one data centre. An Enqueue may: nothing
// depends on its being on a quorum, except what view.committed takes care of. A repetition may not,
// since the first may have failed because of the nodes in that data centre.
func (l *lwt) mayBeNear() bool { return l.purpose == purposeEnqueue && l.tries == 1 }

// lwtReplied takes the result of an Apply.
func (k *key) lwtReplied(now Now, r Result) {
	l := k.lwt
	l.cmd = 0
	switch r.Status {
	case StatusDone:
		k.view.applied(l.swap)
		if l.swap.If.What == IfAbsent {
			k.stampRead.epoch = l.termEpoch()
			k.noteNewKey(true)
		}
		if l.swap.Set.Q {
			k.view.seenAt = now.Boot
		}
		k.view.committed(now, k.c.last.command, r.Near)
		k.lwtApplied(now)
	case StatusRefused:
		l.refused = k.c.last.command
		k.view.read.next = 0
	default:
		l.sendAfter = now.Boot + backoff(l.tries-1)
	}
}

// newestBlock returns the last block of the queue: the one that an Enqueue adds.
func (r Row) newestBlock() Block { return r.Queue[len(r.Queue)-1] }

// resolveRefused decides a refused LWT by a row read at QUORUM after the refusal.
func (k *key) resolveRefused(now Now, id CommandID, r *Row) {
	l := k.lwt
	if l == nil || l.refused == 0 || id <= l.refused {
		return
	}
	if l.mayStillApply(r) {
		// The read saw the row before the one that refused (a commit level
		// below QUORUM): nothing is decided.
		l.refused, l.sendAfter = 0, now.Boot+backoff(l.tries)
		return
	}
	if r == nil {
		k.dropLWT()
		return
	}
	_, mine := r.Find(k.c.self.id, l.req)
	switch {
	case mine || (l.purpose != purposeEnqueue && r.sameTerm(l.swap.Set.Row)):
		k.lwtApplied(now)
	case l.purpose == purposeEnqueue, l.purpose == purposeDissolve:
		k.dropLWT()
	case r.Epoch == l.swap.If.Epoch:
		// Somebody else has enqueued; the term is as it was.
		k.dropLWT()
		if k.term != nil {
			k.term.noPiggyback = true
		}
	default:
		k.superseded(now)
	}
}

// mayStillApply reports whether the condition of the LWT is true of the row, or can be true of a
// later one.
func (l *lwt) mayStillApply(r *Row) bool {
	i := l.swap.If
	switch {
	case r == nil || i.What == IfAbsent:
		return r == nil && i.What == IfAbsent
	case i.What == IfGuard:
		return r.Guard <= i.Guard
	case i.What == IfEpoch:
		return r.Epoch <= i.Epoch
	}
	return r.Guard <= i.Guard && r.Epoch <= i.Epoch
}

// superseded ends a refused LWT on T, because another session has changed the term: a Release is no
// longer needed, a Renew came too late.
func (k *key) superseded(now Now) {
	why := k.lwt.purpose
	k.dropLWT()
	switch {
	case k.term == nil:
	case why == purposeRelease:
		k.endTerm()
	case why == purposeRenew:
		k.loseTerm(now)
	}
}

// dropLWT ends an LWT that was refused and never applied. The entries it was to enqueue are
// unnumbered again.
func (k *key) dropLWT() {
	if k.lwt.swap.If.What == IfAbsent {
		k.insertRefused()
	}
	k.queue.requeue(k.lwt.entries)
	k.lwt = nil
	k.blocks.nextSize = min(k.blocks.nextSize, 1)
}

// lwtApplied ends an LWT that was applied.
func (k *key) lwtApplied(now Now) {
	l := k.lwt
	k.lwt = nil
	k.view.read.empty, k.view.read.next = 0, 0
	switch l.purpose {
	case purposeRelease:
		if k.term != nil {
			k.termReleased(now, l.swap.Set.Row.Head)
		}
	case purposeRenew:
		k.term.renewed(now, l.swap.Set.Row.Epoch)
	case purposeTakeover:
		k.noteTakeover(l.swap.Set.Row.Epoch)
	case purposeDissolve:
		k.blocksDissolved()
	case purposePreempt:
		k.lastHolder.died = true
		k.c.out.Notes = append(k.c.out.Notes, Note{Key: k.id, Kind: NotePreempted, Ref: l.swap.Set.Row.Head - 1})
	case purposeReap: // its session is this one
		k.lastHolder.died = true
	}
	switch queue := l.swap.Set.Row; {
	case l.blockFrom != 0:
		k.blockMade(now, l, queue.newestBlock())
	case l.once:
		k.onceEnqueued(l, queue.newestBlock())
	case len(l.entries) > 0:
		k.assignRefs(now, l.entries, queue.newestBlock())
	}
	if l.swap.Set.T {
		k.sendYourTurn()
	}
	if l.purpose == purposeReap && k.orphanedHead() {
		k.watchHead(now) // the next one may be an orphan, too
	}
}
