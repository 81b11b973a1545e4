package musiccore

import (
	"fmt"
	"slices"
	"time"
)

// askKind is which operation an ask belongs to.
type askKind uint8

const (
	askLock askKind = iota + 1
	askUnlock
	askBegin
	askForce
	askNext // of no operation: who waits elsewhere (Hints)
)

// ask is an operation with a reference that memory does not know: a QUORUM
// read of the lock row begun after it says what to answer.
type ask struct {
	op      OpID
	what    askKind
	ref     LockRef
	after   CommandID
	until   time.Duration
	kind    Kind    // of a Begin
	request Request // of a Lock
	reason  string  // of a Force
	how     State   // not 0: its reference has ended so, as memory knows, and it waits until that is final
}

// newPlace is LOCK without a reference.
func (k *key) newPlace(now Now, op OpID, q Request) {
	c := k.c
	if p := k.tokens[q.Token]; p != nil {
		p.attach(now, op, q)
		return
	}
	if q.NoWait && k.crowded() {
		k.want(now)
		c.answer(Answer{Op: op, Grant: k.occupied()})
		return
	}
	if k.waiters() >= c.opts.Waiters {
		c.answer(Answer{Op: op, Err: ErrTooManyWaiters})
		return
	}
	p := &place{k: k, lease: c.opts.ClientLease, owner: q.Owner, token: q.Token, nowait: q.NoWait, since: now.Boot}
	p.timer.who = p
	if q.Token != ([16]byte{}) {
		if k.tokens == nil {
			k.tokens = map[[16]byte]*place{}
		}
		k.tokens[q.Token] = p
	}
	p.attach(now, op, q)
	k.asking = append(k.asking, p)
	if k.left != 0 && now.Boot-k.left < returnFor {
		k.returns = true
	}
}

func (k *key) waiters() int {
	n := len(k.asking) + len(k.queued) + k.lined()
	if k.lwt != nil {
		n += len(k.lwt.places)
	}
	if k.term != nil {
		n--
	}
	return n
}

// crowded: NOWAIT has lost already.
func (k *key) crowded() bool {
	return len(k.asking) > 0 || (k.lwt != nil && len(k.lwt.places) > 0) || k.busy()
}

// resume is LOCK … USING LOCK r: go on waiting, ask, renew.
func (k *key) resume(now Now, op OpID, q Request) {
	a := ask{op: op, what: askLock, ref: q.Ref, request: q, until: now.Boot + k.c.opts.Wait}
	if p := k.claimed(q.Ref); p != nil {
		p.attach(now, op, q)
		return
	}
	k.askEnded(a)
}

// unlock is UNLOCK (paper §IV, releaseLock). It may be answered before its
// LWT: that only affects liveness.
func (k *key) unlock(now Now, op OpID, r LockRef) {
	switch p := k.claimed(r); {
	case p == nil:
		k.askEnded(ask{op: op, what: askUnlock, ref: r, until: now.Boot + k.c.opts.Wait})
	case p.phase == holding:
		k.giveBack(now, op, StateReleased)
	default:
		k.answer(p, Grant{Ref: r, State: StateReleased})
		k.abandon(p, StateReleased)
		k.c.answer(Answer{Op: op, Grant: Grant{Applied: true, Ref: r, State: StateReleased}})
	}
}

func (k *key) ask(a ask) {
	a.after = k.c.last.command
	k.asks = append(k.asks, a)
	if a.ofRow() {
		k.view.next = 0
	}
	if a.op != 0 {
		k.c.waits(a.op, k, nil)
	}
}

// ofRow reports that the lock row tells what to answer, and not the end of what this proxy has begun.
func (a ask) ofRow() bool { return a.how == 0 }

// answerAsks answers what a QUORUM read of the row tells.
func (k *key) answerAsks(now Now, id CommandID) {
	asks := k.asks
	k.asks = nil
	for _, a := range asks {
		if !a.ofRow() || a.after >= id || !k.told(now, a) {
			k.asks = append(k.asks, a)
		}
	}
}

// lost is what it is told where the row alone says that the reference has ended: LOCK hears LOST, UNLOCK that it is given back
// (paper §IV: forcibly released counts as released), an operation ErrLost.
func (a ask) lost() Answer {
	switch a.what {
	case askLock:
		return Answer{Op: a.op, Grant: Grant{Ref: a.ref, State: StateLost}}
	case askUnlock:
		return Answer{Op: a.op, Grant: Grant{Ref: a.ref, State: StateReleased}}
	}
	return Answer{Op: a.op, Err: ErrLost}
}

// overdueAsks answers those for whom the row could not be read.
func (k *key) overdueAsks(now Now) {
	left := k.asks[:0]
	for _, a := range k.asks {
		if now.Boot < a.until {
			left = append(left, a)
			continue
		}
		k.c.answer(Answer{Op: a.op, Err: unavailable(k.view.cause)})
	}
	k.asks = left
}

// unavailable is ErrUnavailable with what the store said.
func unavailable(cause error) error {
	if cause == nil {
		return ErrUnavailable
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, cause)
}

// leave takes a waiting operation away: its client is gone.
func (k *key) leave(op OpID, p *place) {
	if p != nil {
		p.op = 0
		k.abandon(p, 0)
		return
	}
	for i, a := range k.asks {
		if a.op == op {
			k.asks = append(k.asks[:i], k.asks[i+1:]...)
			return
		}
	}
	if k.term != nil {
		k.term.leave(op)
	}
	if p := k.front(); p != nil {
		p.begins = slices.DeleteFunc(p.begins, func(b begin) bool { return b.op == op })
	}
}
