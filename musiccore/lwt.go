package musiccore

import (
	"fmt"
	"slices"
	"time"
)

// purpose is why an LWT is sent; the names are those of docs/protocol.md 3.
type purpose uint8

const (
	enqueueing purpose = iota + 1
	releasing
	renewing
	preempting
	expelling // Release of an own head that memory does not know
	skipping  // Release of an abandoned reference that never entered
	takingOver
)

// lwt is the one LWT under way for a key (docs/protocol.md 3.1, lwt): sent, and on
// an unknown outcome sent again with the same literals, until it is applied
// or refused; after a refusal a row read at QUORUM tells whether it was me.
// What is forgotten before it is definite could be applied later and leave a
// reference that nobody removes (H3).
type lwt struct {
	why     purpose
	swap    Swap
	cmd     CommandID     // under way; 0: waits
	refused CommandID     // not 0: only a read after this command decides
	began   time.Duration // when it was sent first
	tries   int           // sent so often
	at      time.Duration // not sent again before
	req     int64
	places  []*place // whom it enqueues, in order
	joined  LockRef  // not 0: where a block begins that references of this session are made, which were not one before
}

// changing reports that an LWT on the T register is under way: until it is
// definite nobody here concludes anything from T.
func (k *key) changing() bool { return k.lwt != nil && k.lwt.swap.Set.T }

// start sends a new LWT. One that would break I1 is never sent: whom it was to
// enqueue ask again.
func (k *key) start(now Now, l lwt) bool {
	if !l.swap.sound(k.view.pointer()) {
		k.broken(now, "I1", fmt.Sprintf("an LWT would move the lock row backwards: %+v", l.swap))
		k.again(l.places)
		return false
	}
	l.began = now.Boot
	k.lwt = &l
	k.push(now)
	return true
}

// again lets those whom an LWT has not enqueued ask anew, before who came later.
// A client that has gone away meanwhile wants nothing any more.
func (k *key) again(ps []*place) {
	ps = slices.DeleteFunc(slices.Clone(ps), func(p *place) bool { return p.gone })
	k.asking = append(ps, k.asking...)
}

// push sends the LWT, or sends it again when its time has come.
func (k *key) push(now Now) {
	l := k.lwt
	if l == nil || l.cmd != 0 || l.refused != 0 || now.Boot < l.at {
		return
	}
	l.tries++
	l.cmd = k.c.do(k.id, Apply{Swap: l.swap})
	k.c.running[l.cmd] = k
}

// swapped takes what an Apply met.
func (k *key) swapped(now Now, r Result) {
	l := k.lwt
	l.cmd = 0
	switch r.Status {
	case StatusDone:
		k.view.applied(l.swap)
		if l.swap.Set.Q {
			k.view.at = now.Boot
		}
		k.view.firm = k.c.last.command
		k.done(now)
	case StatusRefused:
		l.refused = k.c.last.command
		k.view.next = 0
	default:
		l.at = now.Boot + backoff(l.tries-1)
	}
}

// enqueuedBlock is the block of an LWT that was applied, or of another session's
// that was applied in its place.
func (k *key) enqueuedBlock(l *lwt) Block {
	if !l.swap.Set.Q {
		return Block{}
	}
	if b, ok := k.view.row.Find(k.c.self.id, l.req); ok {
		return b
	}
	return l.swap.Set.Row.newest()
}

// newest is the block at the end of the queue: what an Enqueue reserves.
func (r Row) newest() Block { return r.Queue[len(r.Queue)-1] }

// resolve decides a refused LWT by a row read at QUORUM after the refusal.
func (k *key) resolve(now Now, id CommandID, r *Row) {
	l := k.lwt
	if l == nil || l.refused == 0 || id <= l.refused {
		return
	}
	if l.stands(r) {
		// The read saw the row before the one that refused (a commit level
		// below QUORUM): nothing is decided.
		l.refused, l.at = 0, now.Boot+backoff(l.tries)
		return
	}
	if r == nil {
		k.dropLWT()
		return
	}
	_, mine := r.Find(k.c.self.id, l.req)
	switch {
	case mine || (l.why != enqueueing && r.sameTerm(l.swap.Set.Row)):
		k.done(now)
	case l.why == enqueueing:
		k.dropLWT()
		k.refusals++
	case r.Epoch == l.swap.If.Epoch:
		// Somebody else has enqueued; the term is as it was.
		k.dropLWT()
		if k.term != nil {
			k.term.alone = true
		}
	default:
		k.moot(now)
	}
}

// stands reports that the condition of the LWT is still true of the row, or
// that the row is an older one.
func (l *lwt) stands(r *Row) bool {
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

// moot ends a refused LWT on T where somebody else has changed the term: a
// Release is not needed any more, a Renew came too late.
func (k *key) moot(now Now) {
	why := k.lwt.why
	k.dropLWT()
	switch {
	case k.term == nil:
	case why == releasing:
		k.endTerm()
	case why == renewing:
		k.loseTerm(now)
	}
}

// dropLWT ends an LWT that was refused and never applied: who asked through
// it asks again.
func (k *key) dropLWT() {
	k.again(k.lwt.places)
	k.lwt = nil
	k.spare = min(k.spare, 1)
}

// done ends an LWT that was applied.
func (k *key) done(now Now) {
	l := k.lwt
	k.lwt = nil
	k.view.tries, k.view.next = 0, 0
	switch l.why {
	case enqueueing:
		k.refusals = 0
		if k.ride.block.Req == l.req {
			k.ride = ride{}
		}
	case releasing:
		if k.term != nil {
			k.released(now, l.swap.Set.Row.Head)
		}
	case renewing:
		k.renewed(now, l.swap.Set.Row.Epoch)
	case takingOver:
		k.taken(l.swap.Set.Row.Epoch)
	case preempting, expelling:
		k.died = true
		k.c.out.Notes = append(k.c.out.Notes, Note{Key: k.id, Kind: NotePreempted, Ref: l.swap.Set.Row.Head - 1})
	}
	switch b := k.enqueuedBlock(l); {
	case l.joined != 0:
		k.regrouped(now, l, b)
	case len(l.places) > 0:
		k.enqueued(now, l.places, b)
	}
	if l.swap.Set.T {
		k.yourTurn()
	}
	if l.why == expelling && k.stray() {
		k.want(now) // the next one may be a stray, too
	}
}
