package musiccore

import (
	"fmt"
	"slices"
	"time"
)

// queryKind is which operation an ask belongs to.
type queryKind uint8

const (
	queryLock queryKind = iota + 1
	queryUnlock
	queryBegin
	queryForce
	queryWaiters // of no operation: who waits elsewhere (Hints)
)

// query is an operation with a reference that memory does not know: a QUORUM
// read of the lock row begun after it says what to answer.
type query struct {
	op      OpID
	kind    queryKind
	ref     LockRef
	after   CommandID
	until   time.Duration
	opKind  Kind    // of a Begin
	request Request // of a Lock
	reason  string  // of a Force
	ended   State   // not 0: its reference has ended so, as memory knows, and it waits until that is final
}

// newEntry is LOCK without a reference.
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
	if k.waiterCount() >= c.opts.Waiters {
		c.answer(Answer{Op: op, Err: ErrTooManyWaiters})
		return
	}
	e := &entry{
		k: k, since: now.Boot, lease: c.opts.ClientLease,
		identity: identity{name: q.Owner, token: q.Token}, wait: wait{noWait: q.NoWait},
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

// noWaitLost: NOWAIT has lost already.
func (k *key) noWaitLost() bool {
	return len(k.queue.unnumbered) > 0 || (k.lwt != nil && len(k.lwt.entries) > 0) || k.claimedByOthers()
}

// resume is LOCK … USING LOCK r: go on waiting, ask, renew.
func (k *key) resume(now Now, op OpID, q Request) {
	a := query{op: op, kind: queryLock, ref: q.Ref, request: q, until: now.Boot + k.c.opts.Wait}
	if e := k.reviveEntry(q.Ref); e != nil {
		e.attach(now, op, q)
		return
	}
	k.queryEnding(a)
}

// unlock is UNLOCK (paper §IV, releaseLock). It may be answered before its
// LWT: that only affects liveness.
func (k *key) unlock(now Now, op OpID, r LockRef) {
	switch e := k.reviveEntry(r); {
	case e == nil:
		k.queryEnding(query{op: op, kind: queryUnlock, ref: r, until: now.Boot + k.c.opts.Wait})
	case e.phase == phaseHolding:
		k.giveBack(now, op, StateReleased)
	default:
		k.answerEntry(e, Grant{Ref: r, State: StateReleased})
		k.abandon(e, StateReleased)
		k.c.answer(Answer{Op: op, Grant: Grant{Applied: true, Ref: r, State: StateReleased}})
	}
}

func (k *key) addQuery(a query) {
	a.after = k.c.last.command
	k.queries = append(k.queries, a)
	if a.needsRow() {
		k.view.read.next = 0
	}
	if a.op != 0 {
		k.c.addPending(a.op, k, nil)
	}
}

// needsRow reports that the lock row tells what to answer, and not the end of what this proxy has begun.
func (a query) needsRow() bool { return a.ended == 0 }

// answerQueries answers what a QUORUM read of the row tells.
func (k *key) answerQueries(now Now, id CommandID) {
	asks := k.queries
	k.queries = nil
	for _, a := range asks {
		if !a.needsRow() || a.after >= id || !k.answerFromRow(now, a) {
			k.queries = append(k.queries, a)
		}
	}
}

// lostAnswer is what it is told where the row alone says that the reference has ended: LOCK hears LOST, UNLOCK that it is given back
// (paper §IV: forcibly released counts as released), an operation ErrLost.
func (a query) lostAnswer() Answer {
	switch a.kind {
	case queryLock:
		return Answer{Op: a.op, Grant: Grant{Ref: a.ref, State: StateLost}}
	case queryUnlock:
		return Answer{Op: a.op, Grant: Grant{Ref: a.ref, State: StateReleased}}
	}
	return Answer{Op: a.op, Err: ErrLost}
}

// expireQueries answers those for whom the row could not be read.
func (k *key) expireQueries(now Now) {
	left := k.queries[:0]
	for _, a := range k.queries {
		if now.Boot < a.until {
			left = append(left, a)
			continue
		}
		k.c.answer(Answer{Op: a.op, Err: unavailable(k.view.read.err)})
	}
	k.queries = left
}

// unavailable is ErrUnavailable with what the store said.
func unavailable(cause error) error {
	if cause == nil {
		return ErrUnavailable
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, cause)
}

// cancel takes a waiting operation away: its client is gone.
func (k *key) cancel(op OpID, e *entry) {
	if e != nil {
		e.wait.op = 0
		k.abandon(e, 0)
		return
	}
	for i, a := range k.queries {
		if a.op == op {
			k.queries = append(k.queries[:i], k.queries[i+1:]...)
			return
		}
	}
	if k.term != nil {
		k.term.cancel(op)
	}
	if e := k.queue.first(); e != nil {
		e.takeover.ops = slices.DeleteFunc(e.takeover.ops, func(b waitingOp) bool { return b.op == op })
	}
}
