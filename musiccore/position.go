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

// position returns how many are ahead of an entry that waits: the holder, and the waiters; for an
// entry without a reference it is an estimate. References of a block that nobody has been given
// count as nobody's. It is asked for every waiter, so its cost does not depend on how many there
// are.
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

// holdersInBlock returns how many hold or wait in a block. One that another proxy hands out counts
// as one: nobody here knows.
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
