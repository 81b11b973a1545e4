package musiccore

import (
	"slices"
	"time"
)

// The LWT that releases a key also enqueues all clients that wait for a reference of it: those of
// its own proxy, and those of others that have asked for it (delegate.go). So when several proxies
// want a key, only Releases change the row. Otherwise a distant proxy, whose LWTs take longer, could
// lose against near ones again and again.

const (
	// returnWithin is how soon after its UNLOCK a client that comes back sends the next LOCK.
	returnWithin = 5 * time.Millisecond
	// delegateAfter is how many Enqueues in a row are refused before other sessions are asked to
	// enqueue.
	delegateAfter = 2
	// maxPiggybacked bounds the sessions whose blocks a Release enqueues.
	maxPiggybacked = 64
)

// piggyback is what a key knows about clients that come back, and about enqueues that Releases carry.
type piggyback struct {
	releaseSent   time.Duration        // when the last Release was sent
	clientReturns bool                 // a client came back right after it, or would have
	refusals      int                  // how many Enqueues in a row were refused
	delegated     delegatedEnqueue     // of this session
	accepted      []piggybackedEnqueue // of other sessions, for the next Release here to enqueue
}

// piggybackedEnqueue is a block that another session asks this one to enqueue, with the Release of
// a term that ends at reference last or before. After until, that session enqueues in another way.
type piggybackedEnqueue struct {
	block Block
	last  LockRef
	until time.Duration
}

// piggybackEnqueues adds to a Release the Enqueue of all clients that wait for one: other sessions'
// blocks first, then the unnumbered entries here. Its condition names the queue as known here, so
// no block is enqueued twice. A block that was delegated only to an earlier Release is left out:
// its session may have given it up, and nobody would know its references (H3).
func (k *key) piggybackEnqueues(now Now, l *lwt) {
	row := k.view.row
	var all []Block
	for _, r := range k.piggyback.accepted {
		if _, there := row.Find(r.block.Session, r.block.Req); !there && k.term.lastRef <= r.last {
			all = append(all, r.block)
		}
	}
	entries, own := k.takeUnnumbered(now, row.Guard == k.term.lastRef && len(all) == 0)
	k.piggyback.accepted = nil
	joins := k.makesBlock(len(entries), len(all))
	if joins {
		own, l.blockFrom = k.blockFor(own), k.term.lastRef+1
	}
	if joins || len(entries) > 0 {
		l.entries, l.req = entries, own.Req
		all = append(all, own)
	}
	if len(all) == 0 {
		return
	}
	queue := Enqueue(&row, all[0], k.table.closed, now.Clk)
	for _, b := range all[1:] {
		queue = queue.append(b)
	}
	if joins {
		queue.Set.Row.Queue = queue.Set.Row.withOwnBlock(l.blockFrom, k.c.self.id)
	}
	l.swap = combine(queue, l.swap)
}

// makesBlock reports whether a Release makes one block of this session's references that come next:
// sections were short before the last one, and some entries wait with references of their own,
// which would cost an LWT each. asking is how many entries the Release enqueues here, others how
// many blocks of other sessions are ahead of them.
func (k *key) makesBlock(asking, others int) bool {
	if k.c.opts.Retain == 0 || k.blocks.longSections > 1 || k.term.broken || k.c.draining {
		return false
	}
	end := k.term.lastRef
	for _, b := range k.view.row.Queue {
		if b.First <= end+1 && end < b.Last() && b.Session == k.c.self.id && !b.Retained {
			end = b.Last()
		}
	}
	waits := 0
	for _, e := range k.queue.numbered {
		if e.ref > k.term.lastRef && e.ref <= end && !e.abandoned {
			waits++
		}
	}
	if asking == 0 && (others > 0 || end < k.view.row.Guard) {
		return waits > 2 // the new references are behind other sessions, and cost an LWT, too
	}
	return waits > 0 && waits+asking > 1
}

// blockFor returns the last block of the queue that a Release makes: that of the unnumbered
// entries, or a new one.
func (k *key) blockFor(own Block) Block {
	if own.N == 0 {
		k.c.last.request++
		own = Block{N: 1, Session: k.c.self.id, Req: k.c.last.request}
	}
	own.N, own.Retained = max(own.N, min(k.blocks.nextSize, 8*own.N)), true
	return own
}

// blockMade takes over the blocks that a Release has made.
func (k *key) blockMade(now Now, l *lwt, own Block) {
	queue := l.swap.Set.Row.Queue
	first := queue[slices.IndexFunc(queue, func(b Block) bool { return b.First == l.blockFrom })]
	if first != own {
		k.blockEnqueued(now, nil, first)
	}
	k.blockEnqueued(now, l.entries, own)
}

// awaitsReturn reports whether a Release waits a moment for the client that has just ended its
// section, because the last client here came back at once and other sessions wait: its new
// reference can then be piggybacked, and needs no Enqueue that competes with those of other
// sessions.
func (k *key) awaitsReturn(now Now) bool {
	t := k.term
	if !k.piggyback.clientReturns || k.c.draining || t.ops.unlock.op != 0 || len(k.queue.unnumbered) > 0 || !k.remoteBehind() {
		return false
	}
	k.piggyback.clientReturns = now.Boot < t.closedAt+returnWithin
	return k.piggyback.clientReturns
}

// remoteBehind reports whether other sessions are known to wait behind the term.
func (k *key) remoteBehind() bool {
	return len(k.piggyback.accepted) > 0 || k.view.row.remoteFrom(k.term.lastRef+1, k.c.self.id)
}

// accept takes a block that another session asks to have enqueued, at most one of each session.
// Hints may overtake each other.
func (p *piggyback) accept(hint Hint, until time.Duration) {
	b, last := hint.Block, hint.Last
	p.accepted = slices.DeleteFunc(p.accepted, func(old piggybackedEnqueue) bool {
		if old.block == b {
			last = max(last, old.last)
		}
		return old.block.Session == b.Session
	})
	if b.N > 0 && b.N <= maxBlock && len(p.accepted) < maxPiggybacked {
		p.accepted = append(p.accepted, piggybackedEnqueue{b, last, until})
	}
}

// expire drops accepted blocks whose sessions have enqueued them in another way by now.
func (p *piggyback) expire(now Now) {
	p.accepted = slices.DeleteFunc(p.accepted, func(r piggybackedEnqueue) bool { return now.Boot >= r.until })
}
