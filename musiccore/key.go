package musiccore

import (
	"cmp"
	"slices"
	"time"
)

// key is the state machine of one key: who waits, who holds, and the one LWT under way. It is made
// by the first operation, and dropped when nobody holds, waits or is owed an answer.
type key struct {
	c         *Core
	id        Key
	table     tableFacts
	view      view // of the lock row
	lwt       *lwt // under way, or nil
	queue     queue
	blocks    blocks
	term      *term // of the head, if it is here
	queries   []query
	endings   endings
	lastDied  bool // the last holder did not give the lock back
	headWatch headWatch
	piggyback piggyback
	timer     timer
}

// headWatch is how a key follows a head that is not here.
type headWatch struct {
	until time.Duration // the head is followed even if no reference waits here
	told  SessionID     // to whom HintWaiting was sent
}

// queue is the entries of one key that have no term yet, and the holder's.
type queue struct {
	unnumbered []*entry // no reference yet, in order of arrival
	numbered   []*entry // references that live in the lock row, ascending
	byToken    map[[16]byte]*entry
}

// first returns the lowest reference here that lives in the lock row, or nil.
func (q *queue) first() *entry {
	if len(q.numbered) == 0 {
		return nil
	}
	return q.numbered[0]
}

func (q *queue) pop() {
	q.numbered[0] = nil
	q.numbered = q.numbered[1:]
}

func (q *queue) search(r LockRef) (int, bool) {
	return slices.BinarySearchFunc(q.numbered, r, func(e *entry, r LockRef) int { return cmp.Compare(e.ref, r) })
}

// insert puts an entry among the numbered ones, where its reference belongs: an adopted one may be
// known before an own one ahead of it.
func (q *queue) insert(e *entry) {
	i, _ := q.search(e.ref)
	q.numbered = slices.Insert(q.numbered, i, e)
}

func (q *queue) dropToken(e *entry) {
	if q.byToken[e.identity.token] == e {
		delete(q.byToken, e.identity.token)
	}
}

// due is the key's timer.
func (k *key) due(now Now) { k.step(now) }

// step does everything that the key's state asks for. It is called after
// every event, and whatever it does not do waits for another.
func (k *key) step(now Now) {
	if k.c.draining {
		k.turnAway(now)
	}
	k.dropPassed(now)
	k.expirePiggybacked(now)
	k.delegateSlowEnqueue(now)
	k.collectDelegated(now)
	k.enterTerm(now)
	k.joinBlock()
	k.handOver(now)
	k.makePlain(now)
	k.serveOps(now)
	k.sendLWT(now)
	if k.lwt == nil {
		k.chooseLWT(now)
	}
	k.answerFinalQueries()
	k.startRead(now)
	k.sendWaiting()
	k.finishStep(now)
}

// chooseLWT starts the LWT that matters most.
func (k *key) chooseLWT(now Now) {
	if k.view.state == rowUnread {
		return
	}
	switch t := k.term; {
	case k.c.draining && k.anyNumberedInBlock() && k.c.self.Valid(now):
		k.dissolveBlocks(now)
	case t != nil && t.drained(k.c.opts.SettleTries) && !t.keptForNext(now):
		if !k.awaitsReturn(now) {
			k.release(now)
		}
	case t != nil && t.renewal.wanted:
		k.renew(now)
	case t == nil && k.orphanedHead() && k.view.quorumEpoch == k.view.row.Epoch:
		k.reapOrphan(now)
	case t == nil && k.abandonedHead():
		k.releaseAbandoned(now)
	case t == nil && k.adoptedHead():
		k.takeOver(now)
	}
	if k.lwt == nil {
		k.enqueue(now)
	}
	if k.lwt == nil {
		k.preempt(now)
	}
}

// isHead reports that p is the head of the queue as known.
func (k *key) isHead(e *entry) bool {
	return e != nil && k.view.state == rowPresent && !k.view.row.Empty() && e.ref == k.view.row.Head
}

func (k *key) abandonedHead() bool {
	e := k.queue.first()
	return k.isHead(e) && e.abandoned
}

// orphanedHead: the head is of this session, and memory does not know it.
func (k *key) orphanedHead() bool {
	if k.view.state != rowPresent || k.term != nil {
		return false
	}
	_, s, ok := k.view.row.Holder()
	return ok && s == k.c.self.id && !k.isHead(k.queue.first())
}

// remoteHead answers the head's session if it is not this one.
func (k *key) remoteHead() (SessionID, bool) {
	if k.view.state != rowPresent || k.term != nil {
		return SessionID{}, false
	}
	_, s, ok := k.view.row.Holder()
	return s, ok && s != k.c.self.id
}

// headAwaited reports that somebody here wants the head to move on. An
// abandoned reference counts: only this proxy can release it in its turn.
func (k *key) headAwaited(now Now) bool {
	return len(k.queue.numbered) > 0 || now.Boot < k.headWatch.until || k.piggyback.delegated.pending()
}

// dropPassed drops what the head has passed: lost, and final (docs/protocol.md 3.5, Poll).
func (k *key) dropPassed(now Now) {
	if k.view.state != rowPresent {
		return
	}
	if t := k.term; t != nil && !k.changesTerm() && k.view.row.Epoch != t.window.epoch {
		if !k.isChecked() {
			k.c.alarm(k.id, "I3", "a term was taken away while its session was valid")
		}
		k.loseTerm(now)
	}
	for e := k.queue.first(); e != nil && k.term == nil && e.ref < k.view.row.Head; e = k.queue.first() {
		k.queue.pop()
		k.loseEntry(e)
	}
	if e := k.queue.first(); k.term == nil && k.displaced(e) {
		k.queue.pop()
		k.redirect(e)
	}
}

// enterTerm is Poll (docs/protocol.md 3.5): the head gets its term if it waits here. A
// place gets at most one term, ever (C15); a dirty one only on a base that
// was read at QUORUM (M6). Paper §IV, acquireLock.
func (k *key) enterTerm(now Now) {
	e := k.queue.first()
	if k.term != nil || k.changesTerm() || !k.isHead(e) || e.phase != phaseWaiting || e.abandoned {
		return
	}
	if now.Clk == 0 || k.c.draining || !k.c.self.Valid(now) {
		return
	}
	r := k.view.row
	if !k.headGranted(e) {
		return
	}
	if r.DirtySince(k.table.closed) && k.view.quorumEpoch != r.Epoch {
		return
	}
	k.openTerm(now, e)
}

// headGranted reports that T gives the head to a place: by the queue, or a guest by
// its own Takeover.
func (k *key) headGranted(e *entry) bool {
	r := k.view.row
	if e.adopted {
		return r.Owner == k.c.self.id && r.Epoch == e.takeover.epoch
	}
	s, ok := r.Session(r.Head)
	return ok && s == k.c.self.id && r.Owner == (SessionID{})
}

// invariantBroken ends the term: an invariant does not hold, so nothing that this
// proxy believes of the key may be told or kept.
func (k *key) invariantBroken(now Now, rule, text string) {
	k.c.alarm(k.id, rule, text)
	t := k.term
	switch {
	case t == nil:
	case t.broken:
		k.loseTerm(now)
	default:
		t.broken = true
		k.closeTerm(now, StateLost)
	}
}

// finishStep ends a step: the key is forgotten if nobody needs it, else its timer
// is set.
func (k *key) finishStep(now Now) {
	if k.unneeded(now) {
		k.c.forget(k)
		return
	}
	if at := k.nextWake(now); at != 0 {
		k.c.timers.set(&k.timer, at)
	}
}

func (k *key) unneeded(now Now) bool {
	return k.term == nil && k.lwt == nil && len(k.queue.unnumbered) == 0 && len(k.queries) == 0 && !k.headAwaited(now)
}

// nextWake is when the key has something to do without an event.
func (k *key) nextWake(now Now) time.Duration {
	at := sooner(now.Boot, 0, k.headWatch.until)
	at = sooner(now.Boot, at, k.view.read.next)
	if k.view.read.cmd != 0 {
		at = sooner(now.Boot, at, k.view.read.began+lookTimeout)
	}
	at = sooner(now.Boot, at, k.piggyback.delegated.until)
	if k.lwt != nil {
		at = sooner(now.Boot, at, k.lwt.sendAfter)
		at = sooner(now.Boot, at, k.lwt.firstSent+k.c.opts.Retain)
	}
	for _, a := range k.queries {
		at = sooner(now.Boot, at, a.until)
	}
	if w := k.c.watches[k.remoteHeadID()]; w != nil && w.dead {
		at = sooner(now.Boot, at, w.deadAt+k.c.opts.Grace)
	}
	if e := k.queue.first(); e != nil && len(e.takeover.ops) > 0 {
		at = sooner(now.Boot, at, e.takeover.ops[0].until)
	}
	if e := k.queue.first(); k.term == nil && k.isHead(e) {
		// It may be held back by clocks that differ: no event tells their end.
		at = sooner(now.Boot, at, now.Boot+time.Second)
	}
	if k.term != nil && len(k.queue.unnumbered) > 0 {
		at = sooner(now.Boot, at, k.term.holder.since+k.c.opts.Retain)
	}
	if k.term != nil {
		at = sooner(now.Boot, at, k.term.nextWake(now.Boot, k.c.opts))
	}
	return at
}

// nextWake is when the term has something to do without an event.
func (t *term) nextWake(now time.Duration, o Options) time.Duration {
	at := sooner(now, 0, t.synch.next)
	at = sooner(now, at, t.ops.unlock.until)
	if oldest, ok := t.ops.flight.oldest(); ok {
		at = sooner(now, at, oldest+o.OpTimeout)
	}
	if len(t.ops.waiting) > 0 {
		at = sooner(now, at, t.ops.waiting[0].until)
	}
	if t.block != nil && t.open {
		at = sooner(now, at, t.holder.since+o.Retain)
	}
	if t.block != nil && !t.open {
		at = sooner(now, at, t.block.keepUntil)
	}
	if !t.open {
		at = sooner(now, at, t.closedAt+returnWithin)
	}
	if t.renewal.wanted {
		// It may be held back by clocks that differ: no event tells their end.
		at = sooner(now, at, now+time.Second)
	}
	return at
}

func (k *key) remoteHeadID() SessionID {
	s, _ := k.remoteHead()
	return s
}
