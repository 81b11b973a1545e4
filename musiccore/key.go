package musiccore

import "time"

// key is the state machine of one key: its waiters, its holder, and the one LWT under way. It is
// made by the first operation, and dropped when unneeded.
type key struct {
	c          *Core
	id         Key
	table      tableFacts
	lwt        *lwt // under way, or nil
	queue      queue
	blocks     blocks
	term       *term // of the head, if this proxy has it
	queries    []query
	endings    endings
	lastHolder lastHolder
	headWatch  headWatch
	stampRead  stampRead // instead of the first Synch
	timer      timer
	*keyRow
}

// keyRow is what a key knows of its lock row, and what it does for the Enqueues of other proxies.
// It is in memory of its own because Go's garbage collector takes three times as long for objects
// of more than maxScanned bytes, and there may be a million keys.
type keyRow struct {
	view      view
	piggyback piggyback
}

// maxScanned is the size in bytes up to which Go's garbage collector scans the objects of a page
// together.
const maxScanned = 512

// lastHolder is what is known of the holder before.
type lastHolder struct {
	died  bool          // it did not release the lock
	ended time.Duration // when, as far as this proxy saw it; only for notes
}

// due is called when the timer of the key rings.
func (k *key) due(now Now) { k.step(now) }

// step does everything that the state of the key requires. It is called after every event; what it
// leaves waits for another event or for the timer. Each part depends on those before it: what is
// known, then who may hold, then what the holder's operations need, and only then what is sent to
// Cassandra and to other proxies.
func (k *key) step(now Now) {
	if k.c.draining {
		k.turnAway(now)
	}

	// What is known by now: references that the head has passed.
	k.dropOvertaken(now)

	// Who may hold: the head, and then one reference of its block after another.
	k.enterTerm(now)
	k.enterOnce(now)
	k.joinBlock()
	k.handOver(now)
	k.makePlain(now)

	// What the operations of the holder need: tickets, or a Synch.
	k.serveOps(now)
	k.endReleased(now)

	// The LWT under way, or a new one; then a read of the row, if one is still needed.
	k.sendLWT(now)
	k.presumeAbsent()
	if k.lwt == nil {
		k.chooseLWT(now)
	}
	k.answerFinalQueries()
	k.startRead(now)

	// Messages to other proxies, and the timer.
	k.sendWaiting()
	k.finishStep(now)
}

// chooseLWT starts the most urgent LWT, if any: first one that moves the head on, since every
// waiter needs it; then an Enqueue for the unnumbered entries; then the end of another session's
// term.
func (k *key) chooseLWT(now Now) {
	if k.view.state == rowUnread {
		return
	}
	switch t := k.term; {
	case t.released():
	case k.c.draining && k.blocks.anyNumbered() && k.c.self.Valid(now):
		if !k.awaitsRun() {
			k.dissolveBlocks(now)
		}
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

// invariantBroken ends the term: an invariant does not hold, so no client may be told anything that
// rests on what this proxy knows of the key.
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

// finishStep ends a step: it drops the key if nobody needs it, else sets its timer.
func (k *key) finishStep(now Now) {
	if k.unneeded(now) {
		k.c.forget(k)
		return
	}
	if at := k.nextWake(now); at != 0 {
		k.c.timers.set(&k.timer, at)
	}
}

// unneeded reports whether the key can be dropped: nobody holds, waits or is owed an answer, and
// the own LWTs are on a quorum.
func (k *key) unneeded(now Now) bool {
	return k.view.confirmAt == 0 && k.term == nil && k.lwt == nil && len(k.queue.unnumbered) == 0 && len(k.queries) == 0 && !k.headAwaited(now)
}

// nextWake returns when the key has something to do without an event; 0 is never.
func (k *key) nextWake(now Now) time.Duration {
	at := sooner(now.Boot, 0, k.headWatch.until)
	at = sooner(now.Boot, at, k.view.read.next)
	at = sooner(now.Boot, at, k.view.confirmAt)
	at = sooner(now.Boot, at, k.queue.enqueueAt)
	if k.view.read.cmd != 0 {
		at = sooner(now.Boot, at, k.view.read.began+localReadTimeout)
	}
	if k.stampRead.cmd != 0 {
		at = sooner(now.Boot, at, k.stampRead.until(k.c.opts))
	}
	if k.lwt != nil {
		at = sooner(now.Boot, at, k.lwt.sendAfter)
	}
	for _, q := range k.queries {
		at = sooner(now.Boot, at, q.until)
	}
	if w := k.c.watches[k.remoteHeadID()]; w != nil && w.dead {
		at = sooner(now.Boot, at, w.deadAt+k.c.opts.Grace)
	}
	if e := k.queue.first(); e != nil && len(e.takeover.ops) > 0 {
		at = sooner(now.Boot, at, e.takeover.ops[0].until)
	}
	if e := k.queue.first(); k.term == nil && k.view.isHead(e) || k.orphanedHead() {
		// It may be held back by clocks that differ, or by a loan: no event tells their end.
		at = sooner(now.Boot, at, now.Boot+time.Second)
	}
	if k.term != nil && len(k.queue.unnumbered) > 0 {
		at = sooner(now.Boot, at, k.term.holder.plainAt())
	}
	if k.term != nil {
		at = sooner(now.Boot, at, k.term.nextWake(now.Boot, k.c.opts))
	}
	return at
}

// nextWake returns when the term has something to do without an event; 0 is never.
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
		at = sooner(now, at, t.holder.plainAt())
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
