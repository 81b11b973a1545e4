package musiccore

import (
	"slices"
	"time"
)

// The LWT that releases a key also enqueues all clients of its proxy that wait for a reference.

// returnWithin is how soon after its UNLOCK a client that comes back sends the next LOCK.
const returnWithin = 5 * time.Millisecond

// piggyback is what a key knows about clients that come back.
type piggyback struct {
	releaseSent   time.Duration // when the last Release was sent
	clientReturns bool          // a client came back right after it, or would have
}

// piggybackEnqueues adds to a Release the Enqueue of all clients that wait for one here. Its condition
// names the queue as known here, so no block is enqueued twice.
func (k *key) piggybackEnqueues(now Now, l *lwt) {
	row := k.view.row
	entries, b := k.takeUnnumbered(now, row.Guard == k.term.lastRef)
	joins := k.makesBlock(len(entries))
	if joins {
		b, l.blockFrom = k.blockFor(b), k.term.lastRef+1
	}
	if !joins && len(entries) == 0 {
		return
	}
	l.entries, l.req = entries, b.Req
	queue := Enqueue(&row, b, k.table.closed, now.Clk)
	if joins {
		queue.Set.Row.Queue = queue.Set.Row.withOwnBlock(l.blockFrom, k.c.self.id)
	}
	l.swap = combine(queue, l.swap)
}

// makesBlock reports whether a Release makes one block of this session's references that come next:
// sections were short before the last one, and some entries wait with references of their own,
// which would cost an LWT each. asking is how many entries the Release enqueues.
func (k *key) makesBlock(asking int) bool {
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
	if asking == 0 && end < k.view.row.Guard {
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
	return k.view.row.remoteFrom(k.term.lastRef+1, k.c.self.id)
}
