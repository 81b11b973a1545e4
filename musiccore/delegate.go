package musiccore

import (
	"slices"
	"time"
)

// delegatedEnqueue is a block that other sessions were asked to enqueue for this one; the zero
// value is none. It is kept until it is certain whether it was enqueued (H3), since only this proxy
// knows its references.
type delegatedEnqueue struct {
	block Block
	last  LockRef       // sessions of the terms up to this reference were asked
	until time.Duration // unnumbered entries wait for it until then
	after CommandID     // not 0: those terms have ended; a QUORUM read after it decides
}

// pending reports whether a block is delegated.
func (r delegatedEnqueue) pending() bool { return r.block.Req != 0 }

// mayDelegate reports whether the next Enqueue is left to the sessions in the queue: own ones were
// refused again and again, because the row changes all the time.
func (k *key) mayDelegate(now Now) bool {
	return k.piggyback.refusals >= delegateAfter && k.canDelegate() && !k.queue.anyoneMustBeNumbered(now)
}

// canDelegate reports whether other sessions can be asked to enqueue a block: a living one has the
// head, and no other block is delegated.
func (k *key) canDelegate() bool {
	s, foreign := k.remoteHead()
	return foreign && k.c.opts.Retain > 0 && !k.piggyback.delegated.pending() && !k.c.dead(s)
}

// delegateSlowEnqueue also delegates the block of an own Enqueue that takes long, because Paxos
// must try again and again while others change the row. Only one of the two can be applied, since
// both require a queue without the block.
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

// delegationTimeout returns how long a delegated enqueue is waited for: a few terms of short
// sections.
func (o Options) delegationTimeout() time.Duration { return 4 * o.Retain }

// delegateEnqueue asks other sessions to enqueue a block, and waits for that.
func (k *key) delegateEnqueue(now Now, b Block) {
	k.piggyback.delegated.until = now.Boot + k.c.opts.delegationTimeout()
	k.sendDelegation(b)
}

// sendDelegation asks all sessions in the queue to enqueue a block, not only the first one, which
// may have sent its Release before the hint arrives.
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
// it, it asks sessions that have joined the queue since. Once the terms have ended whose Releases
// could have enqueued it, it has a QUORUM read decide.
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
// entries; references left over are abandoned. If an own Enqueue of the same block is under way, it
// has its outcome now: it needs a guard that no longer exists.
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

// dropDelegated gives up a delegated block that a QUORUM read does not show although the terms have
// ended whose Releases could have enqueued it: none of these can be applied any more.
func (p *piggyback) dropDelegated(id CommandID, r *Row, self SessionID) {
	if p.delegated.after == 0 || id <= p.delegated.after || r == nil || r.Head <= p.delegated.last {
		return
	}
	if _, ok := r.Find(self, p.delegated.block.Req); !ok {
		p.delegated = delegatedEnqueue{}
	}
}
