package musiccore

import (
	"slices"
	"time"
)

// delegatedEnqueue is a block that others were asked to enqueue for this session; one without a
// Req is none. It is kept until it is certain that it has come or never will (H3):
// nobody else knows of its references.
type delegatedEnqueue struct {
	block Block
	last  LockRef       // up to which the tenures go whose sessions were asked
	until time.Duration // who asks here waits for it so long
	after CommandID     // not 0: those tenures have ended, and a read at QUORUM after this one tells
}

// pending reports that there is one.
func (r delegatedEnqueue) pending() bool { return r.block.Req != 0 }

// mayDelegate reports that who asks here is to ask others to enqueue it: Enqueues of
// its own were refused, so that the row is changed all the time.
func (k *key) mayDelegate(now Now) bool {
	return k.piggyback.refusals >= delegateAfter && k.canDelegate() && !k.anyoneMustBeNumbered(now)
}

// canDelegate reports that others can be asked to enqueue a block: one of them has
// the head and lives, and none was asked for another block.
func (k *key) canDelegate() bool {
	s, foreign := k.remoteHead()
	return foreign && k.c.opts.Retain > 0 && !k.piggyback.delegated.pending() && !k.c.dead(s)
}

// delegateSlowEnqueue asks others for the block of an Enqueue that takes long: Paxos tries again
// and again where others change the row. Either is applied, since both need the
// queue without it.
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

// delegationTimeout is how long a ride is worth waiting for: some tenures of short sections.
func (k *key) delegationTimeout() time.Duration { return 4 * k.c.opts.Retain }

// delegateEnqueue begins a ride.
func (k *key) delegateEnqueue(now Now, b Block) {
	k.piggyback.delegated.until = now.Boot + k.delegationTimeout()
	k.sendDelegation(b)
}

// sendDelegation asks all who are in the queue to enqueue a block: the first may have
// sent its Release by the time that the word is there.
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

// delegationAwaited reports that somebody waits for the ride.
func (k *key) delegationAwaited() bool {
	return len(k.queue.unnumbered) > 0 || (k.lwt != nil && k.lwt.req == k.piggyback.delegated.block.Req)
}

// awaitsDelegated reports that who asks waits for a block that others were asked for.
func (k *key) awaitsDelegated(now Now) bool {
	return k.piggyback.delegated.pending() && now.Boot < k.piggyback.delegated.until
}

// collectDelegated takes what others have enqueued for this session, or asks those who have
// come into the queue meanwhile, while somebody waits for it.
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
		k.watchHead(now) // the rest of it, if there is any, is a stray
	case k.awaitsDelegated(now) && row.Guard > k.piggyback.delegated.last && k.delegationAwaited():
		k.sendDelegation(k.piggyback.delegated.block)
	case k.piggyback.delegated.after == 0 && row.Head > k.piggyback.delegated.last:
		k.piggyback.delegated.after = k.c.last.command
		k.view.read.next = 0
	}
}

// takeDelegatedBlock gives the references of a block to those who ask. What they do not need is
// released in its turn. An Enqueue of the same block, whoever's was applied, needs a
// guard that is no more: it is definite.
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

// dropDelegated ends a ride that a row read at QUORUM does not show, though the tenures
// are over whose Releases could have enqueued it: none of them can be applied any
// more.
func (k *key) dropDelegated(id CommandID, r *Row) {
	if k.piggyback.delegated.after == 0 || id <= k.piggyback.delegated.after || r == nil || r.Head <= k.piggyback.delegated.last {
		return
	}
	if _, ok := r.Find(k.c.self.id, k.piggyback.delegated.block.Req); !ok {
		k.piggyback.delegated = delegatedEnqueue{}
	}
}
