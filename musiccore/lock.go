package musiccore

import (
	"slices"
	"time"
)

// newEntry handles LOCK without a reference.
func (k *key) newEntry(now Now, op OpID, q Request) {
	c := k.c
	if e := k.queue.byToken[q.Token]; e != nil {
		e.attach(now, op, q)
		return
	}
	if q.NoWait && k.noWaitLost() {
		k.watchHead(now)
		c.answer(Answer{Op: op, Grant: k.busyGrant()})
		return
	}
	if q.Place == PlaceBlock && !k.takesRemote(now) {
		c.answer(Answer{Op: op, Err: ErrNoBlock})
		return
	}
	if k.waiterCount() >= c.opts.Waiters {
		c.answer(Answer{Op: op, Err: ErrTooManyWaiters})
		return
	}
	e := &entry{
		k: k, since: now.Boot, lease: k.clientLease(),
		identity: identity{name: q.Owner, token: q.Token}, wait: wait{noWait: q.NoWait}, origin: origin{once: q.Once, behind: q.Behind, place: q.Place},
	}
	e.timer.who = e
	if q.Token != ([16]byte{}) {
		if k.queue.byToken == nil {
			k.queue.byToken = map[[16]byte]*entry{}
		}
		k.queue.byToken[q.Token] = e
	}
	e.attach(now, op, q)
	k.queue.unnumbered = append(k.queue.unnumbered, e)
	if k.piggyback.releaseSent != 0 && now.Boot-k.piggyback.releaseSent < returnWithin {
		k.piggyback.clientReturns = true
	}
}

// waiterCount returns how many wait for the key here.
func (k *key) waiterCount() int {
	n := len(k.queue.unnumbered) + len(k.queue.numbered) + k.blocks.waiterCount()
	if k.lwt != nil {
		n += len(k.lwt.entries)
	}
	if k.term != nil {
		n--
	}
	return n
}

// noWaitLost reports whether a LOCK with NOWAIT has lost already, whatever the lock row says.
func (k *key) noWaitLost() bool {
	return len(k.queue.unnumbered) > 0 || (k.lwt != nil && len(k.lwt.entries) > 0) || k.claimedByOthers()
}

// resume handles LOCK … USING LOCK r: it goes on waiting, returns the state of r, or renews its
// lease.
func (k *key) resume(now Now, op OpID, q Request) {
	lookup := query{op: op, kind: queryLock, ref: q.Ref, request: q, until: now.Boot + k.c.opts.Wait}
	if e := k.reviveEntry(q.Ref); e != nil {
		e.attach(now, op, q)
		return
	}
	k.queryEnding(lookup)
}

// unlock handles UNLOCK (paper §IV, releaseLock). It may be answered before its LWT: that only
// affects liveness.
func (k *key) unlock(now Now, op OpID, r LockRef) {
	q := query{op: op, kind: queryUnlock, ref: r, until: now.Boot + k.c.opts.Wait}
	switch e := k.reviveEntry(r); {
	case e == nil:
		k.queryEnding(q)
	case e.mayHoldElsewhere():
		k.addQuery(q)
	case k.isLent(e): // answered when what was done under the loan is known
		k.recall()
		k.addQuery(q)
	default:
		k.unlockEntry(now, op, e)
	}
}

// unlockEntry handles UNLOCK of a reference that holds or waits here.
func (k *key) unlockEntry(now Now, op OpID, e *entry) {
	if e.phase == phaseHolding {
		k.giveBack(now, op, StateReleased)
		return
	}
	e.answer(Grant{Ref: e.ref, State: StateReleased})
	e.abandon(StateReleased)
	k.c.answer(Answer{Op: op, Grant: Grant{Applied: true, Ref: e.ref, State: StateReleased}})
}

// cancel removes a waiting operation whose client is gone: from its entry, or from the key if it
// waits there.
func (k *key) cancel(op OpID, e *entry) {
	if e != nil {
		e.wait.op = 0
		if !e.passed { // else its client was told that it holds the lock, whoever asked here
			e.abandon(0)
		}
		return
	}
	for i, q := range k.queries {
		if q.op == op {
			k.queries = append(k.queries[:i], k.queries[i+1:]...)
			return
		}
	}
	if k.term != nil {
		k.term.cancel(op)
	}
	for _, e := range append([]*entry{k.queue.first()}, k.awaited()...) {
		if e != nil {
			e.takeover.ops = slices.DeleteFunc(e.takeover.ops, func(b waitingOp) bool { return b.op == op })
		}
	}
}

// answerWithin returns how long a LOCK waits for its answer.
func (c *Core) answerWithin(q Request) time.Duration {
	if q.NoWait || q.Wait <= 0 {
		return c.opts.Wait
	}
	return q.Wait
}
