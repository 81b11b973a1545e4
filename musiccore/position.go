package musiccore

import "slices"

// retainedBlocks are the retained blocks of a queue, valid for one guard: the queue changes only
// with it.
type retainedBlocks struct {
	guard  LockRef
	blocks []Block
}

// retained returns the retained blocks of the row's queue.
func (v *view) retained() []Block {
	if v.retainedCache.guard != v.row.Guard {
		v.retainedCache = retainedBlocks{guard: v.row.Guard}
		for _, b := range v.row.Queue {
			if b.Retained {
				v.retainedCache.blocks = append(v.retainedCache.blocks, b)
			}
		}
	}
	return v.retainedCache.blocks
}

// position returns how many are ahead of a waiting entry: the holder and waiters; for an entry
// without a reference it is an estimate. References of a block that were not given to a client do
// not count. It is called for every waiter, so its cost does not depend on their number.
func (k *key) position(e *entry) int {
	row, end := k.view.row, e.ref
	if end == 0 {
		end = row.Guard + 1
	}
	n := int(end - row.Head)
	for _, b := range k.view.retained() {
		if first, last := max(b.First, row.Head), min(b.Last(), end-1); first <= last {
			n += k.aheadInBlock(b.First, e) - int(last-first) - 1
		}
	}
	return max(n, 1)
}

// aheadInBlock returns how many hold or wait in a block, before an entry. A block of another proxy
// counts as one: the number is not known here.
func (k *key) aheadInBlock(first LockRef, e *entry) int {
	i := slices.IndexFunc(k.blocks.list, func(b *localBlock) bool { return b.first == first })
	if i < 0 {
		return 1
	}
	b := k.blocks.list[i]
	n := b.waitingBefore(e)
	if t := k.term; t != nil && t.block == b && t.open {
		n++
	}
	return n
}

// waitingBefore returns how many wait in the block before an entry: all if it waits behind the block,
// all others if it waits in the block and has no reference yet.
func (b *localBlock) waitingBefore(e *entry) int {
	switch {
	case e.block != b:
		return len(b.waiters)
	case e.ref == 0:
		return len(b.waiters) - 1
	}
	i, _ := b.search(e.ref)
	return i
}
