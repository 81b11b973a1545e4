package musiccore

import (
	"cmp"
	"slices"
	"time"
)

// queue holds the entries of one key that wait for the lock, and that of the holder.
type queue struct {
	unnumbered []*entry  // no reference yet, in order of arrival
	numbered   []*entry  // references that live in the lock row, ascending
	room       [1]*entry // the first array of numbered: most keys need no other
	byToken    map[[16]byte]*entry
	once       once
	enqueueAt  time.Duration // no Enqueue before that, unless a client must be told a reference
}

// first returns the entry with the lowest reference here that is live in the lock row, or nil.
func (q *queue) first() *entry {
	if len(q.numbered) == 0 {
		return nil
	}
	return q.numbered[0]
}

// pop removes the first of the numbered entries.
func (q *queue) pop() {
	q.numbered = withoutFirst(q.numbered)
}

// search returns the index of a reference among the numbered entries, or the index where it would
// be inserted, and whether it is there.
func (q *queue) search(r LockRef) (int, bool) {
	return slices.BinarySearchFunc(q.numbered, r, func(e *entry, r LockRef) int { return cmp.Compare(e.ref, r) })
}

// insert inserts an entry among the numbered ones, sorted by reference: an adopted reference may be
// known before an own one ahead of it.
func (q *queue) insert(e *entry) {
	i, _ := q.search(e.ref)
	q.numbered = slices.Insert(q.numbered, i, e)
}

// dropToken forgets the token of an entry, so that another LOCK may use it.
func (q *queue) dropToken(e *entry) {
	if q.byToken[e.identity.token] == e {
		delete(q.byToken, e.identity.token)
	}
}

// withoutFirst removes the first entry from a slice in place and returns the slice, which must not
// be shared. One that has become empty keeps room for the next entry.
func withoutFirst(entries []*entry) []*entry {
	entries[0] = nil
	if len(entries) == 1 {
		return entries[:0]
	}
	return entries[1:]
}

// without removes an entry from a slice in place and returns the slice, which must not be shared.
// Copying instead would be too costly when thousands time out together.
func without(entries []*entry, gone *entry) []*entry {
	switch i := slices.Index(entries, gone); i {
	case -1:
		return entries
	case 0: // the first is the commonest
		return withoutFirst(entries)
	default:
		return slices.Delete(entries, i, i+1)
	}
}

// liveEntry returns the entry of a reference that its client can still use, or nil.
func (k *key) liveEntry(r LockRef) *entry {
	if e := k.findEntry(r); e != nil && !e.abandoned && e.phase != phaseEnded && !e.standsForBlock() {
		return e
	}
	return nil
}

// findEntry returns the entry that has the reference, or nil.
func (k *key) findEntry(r LockRef) *entry {
	for _, b := range k.blocks.list {
		if e := b.find(r); e != nil {
			return e
		}
	}
	if i, ok := k.queue.search(r); ok {
		return k.queue.numbered[i]
	}
	return nil
}
