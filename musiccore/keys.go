package musiccore

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
)

// key returns the state machine of a key. If there is none it makes one, from what is kept of an
// idle key.
func (c *Core) key(id Key) *key {
	if k := c.keys[id]; k != nil {
		return k
	}
	f := c.tables[id.Table]
	k := &key{c: c, id: id, table: f, keyRow: new(keyRow)}
	k.timer.who, k.queue.numbered = k, k.queue.room[:0]
	if r, ok := c.idle.get(id); ok {
		k.lastHolder.died, k.blocks.nextSize = r.lastDied, r.nextBlockSize
		k.table.first, k.table.closed = max(f.first, r.first), max(f.closed, r.closed)
		if r.row.Guard != 0 {
			k.view.row, k.view.state, k.view.firmAfter, k.view.settled, k.endings = r.row, rowPresent, c.last.command, r.settled, r.endings
		}
	}
	c.keys[id] = k
	return k
}

// forget drops a key that nobody needs. Its row is kept if the queue is empty, as far as that is
// certain: another row could change without this proxy.
func (c *Core) forget(k *key) {
	k.leave(k.view.firmAfter != 0 && k.view.state == rowPresent && k.view.row.Empty())
}

// leave ends a key in memory. Its row is kept if the caller says so, and what a row has lost in any case.
func (k *key) leave(keepRow bool) {
	c, kept := k.c, idleKey{first: k.table.first, closed: k.table.closed, lastDied: k.lastHolder.died, nextBlockSize: k.blocks.nextSize}
	if keepRow {
		kept.row, kept.settled, kept.endings = k.view.row, k.view.settled, k.endings
	}
	if kept.row.Guard != 0 || kept.first > c.tables[k.id.Table].first {
		c.idle.put(k.id, kept)
	}
	delete(c.commands, k.view.read.cmd)
	k.endUnfenced()
	c.timers.stop(&k.timer)
	delete(c.keys, k.id)
}

// each calls do for the keys of a table, in the order of sorted.
func (c *Core) each(table [16]byte, do func(*key)) {
	var all []*key
	for id, k := range c.keys {
		if id.Table == table {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, (*key).compare)
	for _, k := range all {
		do(k)
	}
}

// sorted returns the keys in one order, so that equal histories have equal effects (docs/design.md
// 8, seeds).
func (c *Core) sorted() []*key {
	return slices.SortedFunc(maps.Values(c.keys), (*key).compare)
}

// compare orders keys by table and primary key.
func (k *key) compare(other *key) int {
	if order := bytes.Compare(k.id.Table[:], other.id.Table[:]); order != 0 {
		return order
	}
	return cmp.Compare(k.id.PK, other.id.PK)
}

// reply hands the result of a command to the part that waits for it. None does if the command was
// given up, or was sent before the key was dropped and made again.
func (k *key) reply(now Now, id CommandID, r Result) {
	switch {
	case k.c.keys[k.id] != k:
		return
	case r.Gone: // an operation came after Dropped
		k.dropKey(now, ErrUnavailable)
		return
	case id == k.view.read.cmd:
		k.rowRead(now, id, r)
	case k.lwt != nil && id == k.lwt.cmd:
		k.lwtReplied(now, r)
	case k.term != nil && id == k.term.synch.cmd:
		k.synchEnded(now, r)
	case id == k.stampRead.cmd:
		k.stampRead.ended(r)
	}
	k.step(now)
}
