package musiccore

import (
	"slices"
	"time"
)

// One LWT that gives a key back enqueues all who ask for it: at its own proxy, and
// at others that have asked it to take them along. Where several proxies want a
// key nobody else changes the row then. Otherwise a far proxy, whose LWTs take
// longer, may lose against near ones again and again.

const (
	// returnFor is how soon a client that comes back at all asks again after it
	// has given its lock back.
	returnWithin = 5 * time.Millisecond
	// rideAfter is how many Enqueues in a row are refused before a proxy asks
	// others to take along who asks there.
	delegateAfter = 2
	// ridersMax bounds the sessions that a Release takes along.
	maxPiggybacked = 64
)

// piggyback is what a key knows of who comes back and who goes along.
type piggyback struct {
	releaseSent   time.Duration        // when a Release was sent last
	clientReturns bool                 // … and a client came back right behind it, or would have
	refusals      int                  // Enqueues in a row that were
	delegated     delegatedEnqueue     // of this session
	accepted      []piggybackedEnqueue // of other sessions, which the next Release here is to enqueue
}

// piggybackedEnqueue is a block that another session wants to have in the queue, by the Release
// of a tenure that ends at last or before. After until its session has found
// another way.
type piggybackedEnqueue struct {
	block Block
	last  LockRef
	until time.Duration
}

// piggybackEnqueues lets a Release enqueue all who ask: those elsewhere first. Its
// condition is that the queue is the one seen here, so no rider is in it twice.
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

// makesBlock reports that a Release is to make one block of the references of this
// session that come next: sections were short before the last one, and some wait
// with references of their own, which would cost an LWT each. asking are those
// whom the Release enqueues here, riders the blocks of others before them.
func (k *key) makesBlock(asking, riders int) bool {
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
	if asking == 0 && (riders > 0 || end < k.view.row.Guard) {
		return waits > 2 // what is reserved for it stands behind others, and costs an LWT, too
	}
	return waits > 0 && waits+asking > 1
}

// blockFor returns the block of those who ask, or a new one, as the end of what a
// Release makes one block.
func (k *key) blockFor(own Block) Block {
	if own.N == 0 {
		k.c.last.request++
		own = Block{N: 1, Session: k.c.self.id, Req: k.c.last.request}
	}
	own.N, own.Retained = max(own.N, min(k.blocks.nextSize, 8*own.N)), true
	return own
}

// blockMade takes the blocks that a Release has made.
func (k *key) blockMade(now Now, l *lwt, own Block) {
	queue := l.swap.Set.Row.Queue
	first := queue[slices.IndexFunc(queue, func(b Block) bool { return b.First == l.blockFrom })]
	if first != own {
		k.blockEnqueued(now, nil, first)
	}
	k.blockEnqueued(now, l.entries, own)
}

// awaitsReturn reports that a Release behind which others wait is to wait for the
// client that has just ended its section, since the last one here came back at
// once: it goes along then, and does not enqueue against those whose turn it is.
func (k *key) awaitsReturn(now Now) bool {
	t := k.term
	if !k.piggyback.clientReturns || k.c.draining || t.ops.unlock.op != 0 || len(k.queue.unnumbered) > 0 || !k.remoteBehind() {
		return false
	}
	k.piggyback.clientReturns = now.Boot < t.closedAt+returnWithin
	return k.piggyback.clientReturns
}

// remoteBehind reports that other sessions are known to want what comes behind the
// tenure.
func (k *key) remoteBehind() bool {
	return len(k.piggyback.accepted) > 0 || k.remoteFrom(k.term.lastRef+1)
}

// acceptPiggybacked takes a rider of another session, one of each. Hints may overtake each
// other.
func (k *key) acceptPiggybacked(now Now, h Hint) {
	b, last := h.Block, h.Last
	k.piggyback.accepted = slices.DeleteFunc(k.piggyback.accepted, func(old piggybackedEnqueue) bool {
		if old.block == b {
			last = max(last, old.last)
		}
		return old.block.Session == b.Session
	})
	if b.N > 0 && b.N <= maxBlock && len(k.piggyback.accepted) < maxPiggybacked {
		k.piggyback.accepted = append(k.piggyback.accepted, piggybackedEnqueue{b, last, now.Boot + k.delegationTimeout()})
	}
}

// expirePiggybacked forgets riders whose sessions have found another way.
func (k *key) expirePiggybacked(now Now) {
	k.piggyback.accepted = slices.DeleteFunc(k.piggyback.accepted, func(r piggybackedEnqueue) bool { return now.Boot >= r.until })
}
