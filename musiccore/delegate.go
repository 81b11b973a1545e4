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
// again and again, because the row changes all the time.
func (k *key) mayDelegate(now Now) bool {
	return k.piggyback.refusals >= delegateAfter && k.canDelegate() && !k.queue.anyoneMustBeNumbered(now)
}

// canDelegate reports whether other sessions can be asked to enqueue a block: one that lives has
// the head, and no other block is delegated.
func (k *key) canDelegate() bool {
	s, foreign := k.remoteHead()
	return foreign && k.c.opts.Retain > 0 && !k.piggyback.delegated.pending() && !k.c.dead(s)
}

// delegateSlowEnqueue also asks other sessions for the block of an own Enqueue that takes long:
// Paxos tries again and again where others change the row. Only one of the two can be applied,
// since both need the queue without the block.
func (k *key) delegateSlowEnqueue(now Now) {
	l := k.lwt
	if l == nil || l.purpose != purposeEnqueue || l.swap.If.What != IfGuard || now.Boot < l.firstSent+k.c.opts.Retain || !k.canDelegate() {
		return
	}
	if b, ok := k.view.row.Find(k.c.self.id, l.req); ok {
		k.takeDelegatedBlock(now, b)
		return
	}
	b := l.swap.Set.Row.newestBlock()
	b.First = 0
	k.delegateEnqueue(now, b)
}

// delegationTimeout is how long a delegated enqueue is waited for: some terms of short sections.
func (o Options) delegationTimeout() time.Duration { return 4 * o.Retain }

// delegateEnqueue asks other sessions to enqueue a block, and waits for that.
func (k *key) delegateEnqueue(now Now, b Block) {
	k.piggyback.delegated.until = now.Boot + k.c.opts.delegationTimeout()
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

// delegationAwaited reports whether an entry here waits for the delegated block.
func (k *key) delegationAwaited() bool {
	return len(k.queue.unnumbered) > 0 || (k.lwt != nil && k.lwt.req == k.piggyback.delegated.block.Req)
}

// awaitsDelegated reports whether unnumbered entries still wait for the delegated block, instead
// of an own Enqueue.
func (p *piggyback) awaitsDelegated(now Now) bool {
	return p.delegated.pending() && now.Boot < p.delegated.until
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
	case k.piggyback.awaitsDelegated(now) && row.Guard > k.piggyback.delegated.last && k.delegationAwaited():
		k.sendDelegation(k.piggyback.delegated.block)
	case k.piggyback.delegated.after == 0 && row.Head > k.piggyback.delegated.last:
		k.piggyback.delegated.after = k.c.last.command
		k.view.read.next = 0
	}
}

// takeDelegatedBlock gives the references of a block that others enqueued to the unnumbered
// entries; those left over are abandoned. An own Enqueue of the same block is definite with it: it
// needs a guard that is no more.
func (k *key) takeDelegatedBlock(now Now, b Block) {
	if l := k.lwt; l != nil && l.req == b.Req {
		delete(k.c.commands, l.cmd)
		k.lwtApplied(now)
		return
	}
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
func (p *piggyback) dropDelegated(id CommandID, r *Row, self SessionID) {
	if p.delegated.after == 0 || id <= p.delegated.after || r == nil || r.Head <= p.delegated.last {
		return
	}
	if _, ok := r.Find(self, p.delegated.block.Req); !ok {
		p.delegated = delegatedEnqueue{}
	}
}
