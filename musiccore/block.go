package musiccore

import (
	"cmp"
	"slices"
	"time"
)

// blockMax bounds the references of one block.
const maxBlock = 1024

// localBlock is what this proxy keeps of references that it reserved for itself: a
// retained tuple of the queue (docs/protocol.md 3.17). All of them are one tenure on one
// base, in which the lock goes from hand to hand in memory. The row shows the
// tuple's first one as the head until the tenure ends, and nothing durable tells
// how far it has come: where this session dies, none of them goes on elsewhere.
// So who is told a reference of a block before it is granted loses it with the
// session.
type localBlock struct {
	first, next, last LockRef       // next is handed out next
	entry             *entry        // stands for the block among the references that live in the lock row
	waiters           []*entry      // first those who know their reference, in its order
	numbered          int           // so many of them
	closed            bool          // others wait behind the block: the line takes nobody any more
	plain             bool          // nothing is handed over any more
	keepUntil         time.Duration // in nobody's hands it is kept so long
	nextLook          time.Duration // no look before then who waits elsewhere
}

// blocks are what a key hands out in memory, and what it has learnt of its sections.
type blocks struct {
	list         []*localBlock // in the order of their references
	nextSize     int32         // references that the next block reserves; 0: sections are too long for one
	longSections int           // sections in a row that were not short
	lastWait     time.Duration // from LOCK to grant, as the last one here had to wait
}

// reservesBlock reports whether an Enqueue is to reserve a block: sections here are
// short, and nobody who asks, but for one who is granted at once, is to be told a
// reference now.
func (k *key) reservesBlock(now Now, vacant bool, entries []*entry) bool {
	if k.c.opts.Retain == 0 || k.blocks.nextSize == 0 {
		return false
	}
	waits := entries
	if vacant {
		waits = entries[1:]
	}
	return (len(entries) > 1 || k.blocks.nextSize > 1) && !anyMustBeNumbered(now, waits)
}

// blockEnqueued puts a block's own place where its references live, and those who
// asked for it in its line.
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

// blockIdle reports that a block is in nobody's hands, and nobody is in its line.
func (k *key) blockIdle(b *localBlock) bool {
	t := k.term
	return t != nil && t.block == b && !t.open && t.ops.flight.ops == 0 && len(b.waiters) == 0
}

// add puts a place at the end of the line.
func (b *localBlock) add(e *entry) {
	b.waiters = append(b.waiters, e)
	e.block = b
	e.setDeadline(e.deadline)
}

// insertBlockEntry puts a block's own place where the block begins.
func (k *key) insertBlockEntry(now Now, b *localBlock, r LockRef) {
	b.entry = &entry{k: k, ref: r, phase: phaseWaiting, block: b, since: now.Boot}
	b.entry.timer.who = b.entry
	k.queue.insert(b.entry)
}

// standsForBlock reports that the place stands for a block.
func (e *entry) standsForBlock() bool { return e.block != nil && e.block.entry == e }

// takeQueuedIntoBlock puts those who wait for references that are a block's now into its line.
// Their numbers, and those of who has given his back, are not given again.
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

// find returns who waits in the line for a reference.
func (b *localBlock) find(r LockRef) *entry {
	i, ok := slices.BinarySearchFunc(b.waiters[:b.numbered], r, func(e *entry, r LockRef) int { return cmp.Compare(e.ref, r) })
	if !ok {
		return nil
	}
	return b.waiters[i]
}

// remove takes a place out of the line.
func (b *localBlock) remove(e *entry) {
	if e.ref != 0 {
		b.numbered--
	}
	b.waiters = without(b.waiters, e)
}

// assignRef gives a place in a line its reference, and those before it theirs: it is
// told before it is granted.
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

// joinBlock lets who asks wait for a block's next reference instead of for one of
// their own, in their order.
func (k *key) joinBlock() {
	if len(k.blocks.list) == 0 {
		return
	}
	b := k.blocks.list[len(k.blocks.list)-1]
	for len(k.queue.unnumbered) > 0 && k.blockAccepts(b, k.queue.unnumbered[0]) {
		b.add(k.queue.unnumbered[0])
		k.queue.unnumbered = k.queue.unnumbered[1:]
	}
}

// blockAccepts reports that a block has a reference for one more. Who is known to wait
// behind the block comes first.
func (k *key) blockAccepts(b *localBlock, e *entry) bool {
	if b.closed || b.plain || b.next+LockRef(len(b.waiters)-b.numbered) > b.last {
		return false
	}
	return k.blockIdle(b) || !e.wait.noWait && !e.wait.atOnce && k.view.row.Guard <= b.last && len(k.piggyback.accepted) == 0
}

// requeueWaiters sends the line away, from its i-th place on, behind those who know their
// reference: who stands there asks for one of its own.
func (k *key) requeueWaiters(b *localBlock, i int) {
	away := slices.Clone(b.waiters[i:])
	for _, e := range away {
		e.block = nil
	}
	k.queue.unnumbered = append(away, k.queue.unnumbered...)
	b.waiters, b.closed = b.waiters[:i:i], true
}

// requeueFrom has a place, and those behind it, ask for references of their own: its
// client is to be told one soon.
func (k *key) requeueFrom(e *entry) {
	k.requeueWaiters(e.block, slices.Index(e.block.waiters, e))
	e.setDeadline(e.deadline)
}

// blockMoves reports that a block's references go from hand to hand now: its line can
// be told them. What stands still may outlive this session only in references of
// their own.
func (k *key) blockMoves(b *localBlock) bool {
	t := k.term
	return t != nil && t.block != nil && !t.block.plain && (t.block == b || !k.remoteBehind())
}

// waiterCount returns how many wait in the blocks.
func (bs *blocks) waiterCount() int {
	n := 0
	for _, b := range bs.list {
		n += len(b.waiters)
	}
	return n
}

// dropBlock forgets a block that has ended: who knew a reference of it has lost that,
// the others ask anew.
func (k *key) dropBlock(b *localBlock) {
	k.requeueWaiters(b, b.numbered)
	for _, e := range b.waiters {
		k.loseEntry(e)
	}
	b.waiters, b.numbered = nil, 0
	k.blocks.list = slices.DeleteFunc(k.blocks.list, func(r *localBlock) bool { return r == b })
}

// noteSectionLength notes, when a reference ends, whether sections are short here: only then
// is the key worth keeping.
func (k *key) noteSectionLength(now Now, e *entry, how State) {
	if how == StateReleased && now.Boot-e.since < k.c.opts.Retain {
		k.blocks.nextSize, k.blocks.longSections = max(k.blocks.nextSize, 1), 0
	} else {
		k.blocks.nextSize, k.blocks.longSections = 0, k.blocks.longSections+1
	}
}

// chooseBlockSize chooses, when a tenure ends, how many references the next one here
// reserves: more than were used, so that who comes before it is its turn has one.
// Where others want the key a single one is not worth a block.
func (k *key) chooseBlockSize() {
	used := int64(1)
	if b := k.term.block; b != nil {
		used = int64(b.next - b.first)
	}
	if k.remoteBehind() {
		used += int64(len(k.queue.numbered)) - 1 // who waits here may come again
	} else {
		used *= 8
	}
	if k.blocks.nextSize > 0 {
		k.blocks.nextSize = int32(min(max(used, 1), maxBlock))
	}
}
