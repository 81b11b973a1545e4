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
	queryWaiters // of no operation: who waits elsewhere (Hints)
)

// queryKind is which operation an ask belongs to.
type queryKind uint8

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

// needsRow reports that the lock row tells what to answer, and not the end of what this proxy has begun.
func (a query) needsRow() bool { return a.ended == 0 }

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

// answerFromRow answers what the row says about a reference that memory did not know
// when it was asked for. It is false while nobody can tell yet whether the
// reference's session lives. The row never grants: an own reference that
// memory does not know has had its term, or is of an earlier life (C15).
func (k *key) answerFromRow(now Now, a query) bool {
	switch a.kind {
	case queryForce:
		return k.forceFromRow(now, a)
	case queryWaiters:
		k.tellNextHead()
		return true
	}
	r, e := k.view.row, k.findEntry(a.ref)
	s, known := k.ownerOf(a.ref)
	switch {
	case k.view.state != rowPresent || a.ref > r.Guard:
		k.c.answer(Answer{Op: a.op, Err: ErrNotHeld})
	case k.liveEntry(a.ref) != nil, k.silentEntry(a.ref) != nil:
		k.resumeAt(now, a, e)
	case k.endings.of(a.ref) != 0:
		k.queryEnding(a)
	case k.isFinal(a.ref):
		k.c.answer(a.lostAnswer())
	case known && s == k.c.self.id:
		return k.answerOwnRef(a, e)
	default:
		return known && k.answerRemoteRef(now, a, s)
	}
	return true
}

// answerOwnRef answers what asks for a reference of this session that nobody was
// told: it was never given, or waits to be released.
func (k *key) answerOwnRef(a query, e *entry) bool {
	if e != nil && e.abandoned {
		return false // its Release is under way
	}
	k.c.answer(Answer{Op: a.op, Err: ErrNotHeld})
	return true
}

// answerRemoteRef answers what asks for a reference of another session: it is
// there, or it goes on here if that session is dead. What a dead session kept
// for itself goes on nowhere: nothing tells which reference was handed out
// (docs/protocol.md 3.17). It is lost once it has been passed over: a Renew of the dead
// session may still be applied that makes its holder plain.
func (k *key) answerRemoteRef(now Now, a query, s SessionID) bool {
	known, dead := k.c.observe(now, s)
	switch {
	case !known:
		return false
	case !dead:
		k.c.answer(Answer{Op: a.op, Err: &ElsewhereError{Session: s}})
	case k.view.row.retained(a.ref):
		k.watchHead(now)
		return false
	case k.c.draining && a.kind != queryUnlock:
		k.c.answer(Answer{Op: a.op, Err: ErrDraining})
	case a.kind == queryUnlock:
		k.abandon(k.adopt(now, a.ref), StateReleased)
		k.c.answer(Answer{Op: a.op, Grant: Grant{Applied: true, Ref: a.ref, State: StateReleased}})
	default:
		k.resumeAt(now, a, k.adopt(now, a.ref))
	}
	return true
}

// resumeAt lets an operation that had to ask go on at the reference's place.
func (k *key) resumeAt(now Now, a query, e *entry) {
	switch a.kind {
	case queryLock:
		delete(k.c.ops, a.op)
		k.resume(now, a.op, a.request)
	case queryUnlock:
		delete(k.c.ops, a.op)
		k.unlock(now, a.op, a.ref)
	default:
		k.awaitTerm(waitingOp{op: a.op, kind: a.opKind, until: a.until}, e)
	}
}

// queryWaitingOps lets the operations that wait for a guest's term ask what has
// become of its reference.
func (k *key) queryWaitingOps(e *entry) {
	begins := e.takeover.ops
	e.takeover.ops = nil
	for _, b := range begins {
		k.queryEnding(b.query(e.ref))
	}
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

// unavailable is ErrUnavailable with what the store said.
func unavailable(cause error) error {
	if cause == nil {
		return ErrUnavailable
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, cause)
}
