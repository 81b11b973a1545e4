package musiccore

import "slices"

// retainedBlocks are the blocks of a queue that sessions hand out in memory, and the guard of that queue: with it they change.
type retainedBlocks struct {
	guard  LockRef
	blocks []Block
}

// retained are the blocks of the row's queue that sessions keep for themselves.
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

// position is how many are ahead of a place that waits: the holder, and who waits; for a place without a reference an estimate. References
// of a block that nobody has been given are nobody's. It is asked for every waiter, so it takes no time for each of the others.
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

// holdersInBlock is how many hold or wait in a block. Of one that another proxy hands out nobody here knows: it counts as one.
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
