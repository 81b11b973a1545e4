package musiccore

import (
	"cmp"
	"slices"
	"time"
)

// maxBlock bounds the references of one block.
const maxBlock = 1024

// localBlock is a retained block of the queue that this session hands out in memory
// (docs/protocol.md 3.17). All its references are one term on one epoch, in which the lock passes
// from holder to holder without an LWT. The row shows the block's first reference as the head
// until the term ends, and nothing durable says how far the block has been handed out: if this
// session dies, none of its references goes on elsewhere. So a client that is told its reference
// before the grant loses it with the session.
type localBlock struct {
	first, next, last LockRef       // next is handed out next
	entry             *entry        // stands for the block in the queue
	waiters           []*entry      // the block's line; those with a reference come first
	numbered          int           // how many of them have a reference
	closed            bool          // other sessions wait behind the block: it takes no more entries
	plain             bool          // nothing is handed over any more
	keepUntil         time.Duration // without a holder it is kept until then
	nextCheck         time.Duration // the next read that looks for remote waiters is not before that
}

// blocks are the blocks that a key hands out in memory, and what it has learnt of its sections.
type blocks struct {
	list         []*localBlock // in the order of their references
	nextSize     int32         // references of the next block; 0: sections are too long for one
	longSections int           // how many sections in a row were not short
	lastWait     time.Duration // from LOCK to grant, of the last grant here
}

// reservesBlock reports whether the Enqueue of these entries reserves a block: sections here are
// short, and no client has to be told its reference now, except one that is granted at once.
func (k *key) reservesBlock(now Now, vacant bool, entries []*entry) bool {
	if k.c.opts.Retain == 0 || k.blocks.nextSize == 0 {
		return false
	}
	waits := entries
	if vacant {
		waits = entries[1:]
	}
	return !anyMustBeNumbered(now, waits)
}

// blockEnqueued takes a block that was enqueued for these entries, which wait in it from now on.
func (k *key) blockEnqueued(now Now, entries []*entry, t Block) {
	b := &localBlock{first: t.First, next: t.First, last: t.Last()}
	k.takeQueuedIntoBlock(b)
	k.insertBlockEntry(now, b, t.First)
	k.blocks.list = append(k.blocks.list, b)
	for _, e := range entries {
		if !e.abandoned {
			b.add(e)
		}
	}
}

// idle reports whether the block's term is kept for the next reference: nobody holds it or waits in
// the block, and nothing is in flight.
func (t *term) idle(b *localBlock) bool {
	return t != nil && t.block == b && !t.open && t.ops.flight.ops == 0 && len(b.waiters) == 0
}

// add appends an entry to those that wait in the block.
func (b *localBlock) add(e *entry) {
	b.waiters = append(b.waiters, e)
	e.block = b
	e.setDeadline(e.deadline)
}

// insertBlockEntry puts the entry that stands for a block into the queue, at reference r.
func (k *key) insertBlockEntry(now Now, b *localBlock, r LockRef) {
	b.entry = &entry{k: k, ref: r, phase: phaseWaiting, block: b, since: now.Boot}
	b.entry.timer.who = b.entry
	k.queue.insert(b.entry)
}

// standsForBlock reports whether the entry is the one that a block has in the queue.
func (e *entry) standsForBlock() bool { return e.block != nil && e.block.entry == e }

// takeQueuedIntoBlock moves queued entries whose references are now part of the block into the
// block. Their references are not given to others, and neither are those that were given back.
func (k *key) takeQueuedIntoBlock(b *localBlock) {
	i, _ := k.queue.search(b.first)
	j, _ := k.queue.search(b.last + 1)
	for _, e := range k.queue.numbered[i:j] {
		b.next = e.ref + 1
		if !e.abandoned || k.endings.of(e.ref) == 0 {
			e.block = b
			b.waiters = append(b.waiters, e)
		}
	}
	b.numbered = len(b.waiters)
	k.queue.numbered = slices.Delete(k.queue.numbered, i, j)
}

// find returns the waiting entry that has the reference, or nil.
func (b *localBlock) find(r LockRef) *entry {
	i, ok := b.search(r)
	if !ok {
		return nil
	}
	return b.waiters[i]
}

// search returns how many waiting entries have a lower reference, and whether one has this one.
func (b *localBlock) search(r LockRef) (before int, found bool) {
	return slices.BinarySearchFunc(b.waiters[:b.numbered], r, func(e *entry, r LockRef) int { return cmp.Compare(e.ref, r) })
}

// remove removes a waiting entry from the block.
func (b *localBlock) remove(e *entry) {
	if e.ref != 0 {
		b.numbered--
	}
	b.waiters = without(b.waiters, e)
}

// assignRef gives an entry that waits in a block its reference, so that its client can be told it
// before the grant. Entries ahead of it get theirs first.
func (e *entry) assignRef() {
	b := e.block
	if b == nil || e.ref != 0 {
		return
	}
	for b.numbered < len(b.waiters) && e.ref == 0 {
		b.waiters[b.numbered].ref = b.next
		b.next++
		b.numbered++
	}
}

// joinBlock lets unnumbered entries wait for the next references of the last block, instead of an
// Enqueue of their own.
func (k *key) joinBlock() {
	if len(k.blocks.list) == 0 {
		return
	}
	b := k.blocks.list[len(k.blocks.list)-1]
	for len(k.queue.unnumbered) > 0 && k.blockAccepts(b, k.queue.unnumbered[0]) {
		b.add(k.queue.unnumbered[0])
		k.queue.unnumbered = withoutFirst(k.queue.unnumbered)
	}
}

// blockAccepts reports whether a block has a reference for one more entry. If other sessions are
// known to wait behind the block, it takes no more.
func (k *key) blockAccepts(b *localBlock, e *entry) bool {
	if b.closed || b.plain || b.next+LockRef(len(b.waiters)-b.numbered) > b.last {
		return false
	}
	return k.term.idle(b) || !e.wait.noWait && !e.wait.atOnce && k.view.row.Guard <= b.last
}

// requeueWaiters removes the entries from the i-th on from a block, which takes no more entries:
// they need references outside of it. The caller chooses i behind the entries that have one.
func (q *queue) requeueWaiters(b *localBlock, i int) {
	away := slices.Clone(b.waiters[i:])
	for _, e := range away {
		e.block = nil
	}
	q.unnumbered = append(away, q.unnumbered...)
	b.waiters, b.closed = b.waiters[:i:i], true
}

// requeueFrom removes an entry, and those behind it, from its block: the entry's client has to be
// told a reference soon, and the block stands still.
func (q *queue) requeueFrom(e *entry) {
	q.requeueWaiters(e.block, slices.Index(e.block.waiters, e))
	e.setDeadline(e.deadline)
}

// blockMoves reports whether the references of a block are being handed out now, so that clients
// may be told them. References of a block that stands still could be lost with this session before
// their turn.
func (k *key) blockMoves(b *localBlock) bool {
	t := k.term
	return t != nil && t.block != nil && !t.block.plain && (t.block == b || !k.remoteBehind())
}

// waiterCount returns how many entries wait in the blocks.
func (bs *blocks) waiterCount() int {
	n := 0
	for _, b := range bs.list {
		n += len(b.waiters)
	}
	return n
}

// dropBlock drops a block that has ended. Entries with a reference have lost it; the others are
// enqueued again.
func (k *key) dropBlock(b *localBlock) {
	k.queue.requeueWaiters(b, b.numbered)
	for _, e := range b.waiters {
		e.lose()
	}
	b.waiters, b.numbered = nil, 0
	k.blocks.list = slices.DeleteFunc(k.blocks.list, func(r *localBlock) bool { return r == b })
}

// noteSectionLength records, at the end of a section, whether it was short: only then is it worth
// keeping the key here.
func (bs *blocks) noteSectionLength(took, retain time.Duration, how State) {
	if how == StateReleased && took < retain {
		bs.nextSize, bs.longSections = max(bs.nextSize, 1), 0
	} else {
		bs.nextSize, bs.longSections = 0, bs.longSections+1
	}
}

// chooseBlockSize chooses, at the end of a term, how many references the next block reserves: more
// than were used, so that a client that comes before the block's turn finds one. If other sessions
// want the key, a single reference is not worth a block.
func (k *key) chooseBlockSize() {
	used := int64(1)
	if b := k.term.block; b != nil {
		used = int64(b.next - b.first)
	}
	if k.remoteBehind() {
		used += int64(len(k.queue.numbered)) - 1 // the waiters here may come again
	} else {
		used *= 8
	}
	if k.blocks.nextSize > 0 {
		k.blocks.nextSize = int32(min(max(used, 1), maxBlock))
	}
}
