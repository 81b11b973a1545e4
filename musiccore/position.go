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
			n += k.holdersInBlock(b.First) - int(last-first) - 1
		}
	}
	return max(n, 1)
}

// holdersInBlock returns how many hold or wait in a block. A block of another proxy counts as one:
// the number is not known here.
func (k *key) holdersInBlock(first LockRef) int {
	i := slices.IndexFunc(k.blocks.list, func(b *localBlock) bool { return b.first == first })
	if i < 0 {
		return 1
	}
	n := len(k.blocks.list[i].waiters)
	if t := k.term; t != nil && t.block == k.blocks.list[i] && t.open {
		n++
	}
	return n
}
