package musiccore

import (
	"slices"
	"time"
)

// delegatedEnqueue is a block that other sessions were asked to enqueue for this one; the zero
// value is none. It is kept until it is certain that it was enqueued or never will be (H3), since
// nobody else knows of its references.
type delegatedEnqueue struct {
	block Block
	last  LockRef       // the terms up to it are of sessions that were asked
	until time.Duration // unnumbered entries wait for it so long
	after CommandID     // not 0: those terms have ended; a QUORUM read after it decides
}

// pending reports whether there is one.
func (r delegatedEnqueue) pending() bool { return r.block.Req != 0 }

// mayDelegate reports whether the next Enqueue is to be left to the holders: own ones were refused
// again and again, because the row changes all the time, a session that lives has the head, and no
// other block is delegated.
func (k *key) mayDelegate(now Now) bool {
	s, foreign := k.remoteHead()
	return k.piggyback.refusals >= delegateAfter && foreign && k.c.opts.Retain > 0 &&
		!k.piggyback.delegated.pending() && !k.c.dead(s) && !k.anyoneMustBeNumbered(now)
}

// delegationTimeout is how long a delegated enqueue is waited for: some terms of short sections.
func (k *key) delegationTimeout() time.Duration { return 4 * k.c.opts.Retain }

// delegateEnqueue asks other sessions to enqueue a block, and waits for that.
func (k *key) delegateEnqueue(now Now, b Block) {
	k.piggyback.delegated.until = now.Boot + k.delegationTimeout()
	k.sendDelegation(b)
}

// sendDelegation asks all sessions in the queue to enqueue a block, and not only the first: that
// one may have sent its Release before the hint arrives.
func (k *key) sendDelegation(b Block) {
	row := k.view.row
	var asked []SessionID
	for _, t := range row.Queue {
		if t.Last() >= row.Head && t.First > k.piggyback.delegated.last && t.Session != k.c.self.id && !k.c.dead(t.Session) && !slices.Contains(asked, t.Session) {
			asked = append(asked, t.Session)
			k.c.out.Hints = append(k.c.out.Hints, Hint{Key: k.id, To: t.Session, Kind: HintPiggyback, Block: b, Last: row.Guard})
		}
	}
	k.piggyback.delegated.block, k.piggyback.delegated.last, k.piggyback.delegated.after = b, row.Guard, 0
}

// awaitsDelegated reports whether unnumbered entries still wait for the delegated block, instead
// of an own Enqueue.
func (k *key) awaitsDelegated(now Now) bool {
	return k.piggyback.delegated.pending() && now.Boot < k.piggyback.delegated.until
}

// collectDelegated takes the delegated block if the row shows it. Else, while an entry waits for
// it, it asks the sessions that have come into the queue since; and once the terms have ended
// whose Releases could have enqueued it, it has a QUORUM read decide.
func (k *key) collectDelegated(now Now) {
	if !k.piggyback.delegated.pending() || k.view.state != rowPresent {
		return
	}
	row := k.view.row
	b, ok := row.Find(k.c.self.id, k.piggyback.delegated.block.Req)
	switch {
	case ok && b.First >= row.Head:
		k.piggyback.delegated = delegatedEnqueue{}
		k.takeDelegatedBlock(now, b)
	case ok:
		k.piggyback.delegated = delegatedEnqueue{}
		k.watchHead(now) // what is left of it is an orphan
	case k.awaitsDelegated(now) && row.Guard > k.piggyback.delegated.last && len(k.queue.unnumbered) > 0:
		k.sendDelegation(k.piggyback.delegated.block)
	case k.piggyback.delegated.after == 0 && row.Head > k.piggyback.delegated.last:
		k.piggyback.delegated.after = k.c.last.command
		k.view.read.next = 0
	}
}

// takeDelegatedBlock gives the references of a block that others enqueued to the unnumbered
// entries; those left over are abandoned.
func (k *key) takeDelegatedBlock(now Now, b Block) {
	n := min(len(k.queue.unnumbered), int(b.N))
	if i := slices.IndexFunc(k.queue.unnumbered[:n], func(e *entry) bool { return e.mustBeNumbered(now) }); b.Retained && i >= 0 {
		n = i
	}
	entries := slices.Clone(k.queue.unnumbered[:n])
	k.queue.unnumbered = k.queue.unnumbered[n:]
	for !b.Retained && len(entries) < int(b.N) {
		e := &entry{k: k, abandoned: true}
		e.timer.who = e
		entries = append(entries, e)
	}
	k.assignRefs(now, entries, b)
}

// dropDelegated gives a delegated block up that a QUORUM read does not show though the terms have
// ended whose Releases could have enqueued it: none of them can be applied any more.
func (k *key) dropDelegated(id CommandID, r *Row) {
	if k.piggyback.delegated.after == 0 || id <= k.piggyback.delegated.after || r == nil || r.Head <= k.piggyback.delegated.last {
		return
	}
	if _, ok := r.Find(k.c.self.id, k.piggyback.delegated.block.Req); !ok {
		k.piggyback.delegated = delegatedEnqueue{}
	}
}
