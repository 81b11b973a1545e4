package musiccore

import (
	"fmt"
	"time"
)

const (
	queryLock queryKind = iota + 1
	queryUnlock
	queryBegin
	queryForce
	queryWaiters // of no operation: which remote sessions wait (hints)
)

// queryKind is which operation a query belongs to.
type queryKind uint8

// query is an operation on a reference for which there is no entry here. A SERIAL read of the lock
// row that begins after it decides the answer.
type query struct {
	op      OpID
	kind    queryKind
	ref     LockRef
	after   CommandID
	until   time.Duration
	opKind  Kind    // of a Begin
	request Request // of a Lock
	reason  string  // of a Force
	ended   State   // not 0: how the reference has ended; the query is answered once that is final
}

// needsRow reports whether the lock row decides the answer. Otherwise it is the end of something that
// this proxy has begun.
func (q query) needsRow() bool { return q.ended == 0 }

// needsSerial reports whether the row must show every earlier LWT: the client may have a reference
// of another session whose Enqueue is on no quorum yet, and must not be told that it has none.
func (q query) needsSerial() bool { return q.needsRow() && q.kind != queryWaiters }

// addQuery adds a query, which the next QUORUM read answers.
func (k *key) addQuery(q query) {
	q.after = k.c.last.command
	k.queries = append(k.queries, q)
	if q.needsRow() {
		k.view.read.next = 0
	}
	if q.op != 0 {
		k.c.addPending(q.op, k, nil)
	}
}

// answerQueries answers the queries that a QUORUM read of the row, command id, can answer.
func (k *key) answerQueries(now Now, id CommandID) {
	asks := k.queries
	k.queries = nil
	for _, q := range asks {
		if !q.needsRow() || q.after >= id || (q.needsSerial() && !k.view.read.serial) || !k.answerFromRow(now, q) {
			k.queries = append(k.queries, q)
		}
	}
}

// answerFromRow answers a query from the row just read. It returns false while it is unknown
// whether the session of the reference lives. The row never grants: an own reference without an
// entry has had its term, or is from before the key was dropped from memory (C15).
func (k *key) answerFromRow(now Now, q query) bool {
	switch q.kind {
	case queryForce:
		return k.forceFromRow(now, q)
	case queryWaiters:
		k.tellNextHead()
		return true
	}
	r, e := k.view.row, k.findEntry(q.ref)
	if e != nil && k.mayBePassed(q.kind, e) {
		return false
	}
	s, known := k.view.row.ownerOf(q.ref)
	switch {
	case k.view.state != rowPresent || q.ref > r.Guard:
		k.c.answer(Answer{Op: q.op, Err: ErrNotHeld})
	case e != nil && k.displaced(e):
		return k.answerRemoteRef(now, q, s)
	case k.liveEntry(q.ref) != nil, k.silentEntry(q.ref) != nil:
		k.resumeAt(now, q, e)
	case k.endings.of(q.ref) != 0:
		k.queryEnding(q)
	case k.isFinal(q.ref):
		k.c.answer(q.lostAnswer())
	case known && s == k.c.self.id:
		return k.answerOwnRef(q, e)
	default:
		return known && k.answerRemoteRef(now, q, s)
	}
	return true
}

// answerOwnRef answers a query for a reference of this session that no client was told: it was
// never given, or its Release is under way.
func (k *key) answerOwnRef(q query, e *entry) bool {
	if e != nil && e.abandoned {
		return false // its Release is under way
	}
	k.c.answer(Answer{Op: q.op, Err: ErrNotHeld})
	return true
}

// answerRemoteRef answers a query for a reference of another session: its client has to go there,
// or the reference is adopted if that session is dead. References in a retained block of a dead
// session are not adopted, since nothing says which of them were handed out (docs/protocol.md
// 3.17). Such a reference is lost once it has been passed over, not before: a late Renew of the
// dead session that makes its holder plain may still be applied.
func (k *key) answerRemoteRef(now Now, q query, s SessionID) bool {
	known, dead := k.c.observe(now, s)
	switch {
	case !known:
		return false
	case !dead:
		k.c.answer(Answer{Op: q.op, Err: &ElsewhereError{Session: s}})
	case k.view.row.retained(q.ref):
		k.watchHead(now)
		return false
	case k.c.draining && q.kind != queryUnlock:
		k.c.answer(Answer{Op: q.op, Err: ErrDraining})
	default:
		k.resumeAt(now, q, k.adopt(now, q.ref))
	}
	return true
}

// resumeAt makes the operation of a query go on at an entry.
func (k *key) resumeAt(now Now, q query, e *entry) {
	switch q.kind {
	case queryLock:
		delete(k.c.ops, q.op)
		k.resume(now, q.op, q.request)
	case queryUnlock:
		delete(k.c.ops, q.op)
		k.unlockEntry(now, q.op, e)
	default:
		k.awaitTerm(waitingOp{op: q.op, kind: q.opKind, until: q.until}, e)
	}
}

// queryWaitingOps turns operations that wait for the term of an adopted entry into queries, because
// the entry gets no term any more.
func (k *key) queryWaitingOps(e *entry) {
	begins := e.takeover.ops
	e.takeover.ops = nil
	for _, b := range begins {
		k.queryEnding(b.query(e.ref))
	}
}

// expireQueries answers the queries for which the row could not be read in time.
func (k *key) expireQueries(now Now) {
	left := k.queries[:0]
	for _, q := range k.queries {
		if now.Boot < q.until {
			left = append(left, q)
			continue
		}
		k.c.answer(Answer{Op: q.op, Err: unavailable(k.view.read.err)})
	}
	k.queries = left
}

// lostAnswer returns the answer if the row alone shows that the reference has ended: LOST for LOCK,
// RELEASED for UNLOCK (paper §IV: forcibly released counts as released), ErrLost for an operation.
func (q query) lostAnswer() Answer {
	switch q.kind {
	case queryLock:
		return Answer{Op: q.op, Grant: Grant{Ref: q.ref, State: StateLost}}
	case queryUnlock:
		return Answer{Op: q.op, Grant: Grant{Ref: q.ref, State: StateReleased}}
	}
	return Answer{Op: q.op, Err: ErrLost}
}

// unavailable returns ErrUnavailable with the store's error.
func unavailable(cause error) error {
	if cause == nil {
		return ErrUnavailable
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, cause)
}
