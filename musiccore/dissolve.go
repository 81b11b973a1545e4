package musiccore

import "slices"

// anyNumberedInBlock reports that a client was told a reference of a block and waits for it.
func (k *key) anyNumberedInBlock() bool {
	return slices.ContainsFunc(k.blocks.list, func(b *localBlock) bool { return b.numbered > 0 })
}

// dissolveBlocks makes the references of blocks plain that clients were told and wait for, so that
// they outlive this session, which is about to end (docs/protocol.md 3.19, Shutdown). From here on
// nothing is handed over in these blocks, whatever becomes of the LWT. The queue only changes
// together with the guard, by which two views of it are told apart: a block for nobody is enqueued
// with it, which is passed over as soon as the session has ended.
func (k *key) dissolveBlocks(now Now) {
	var refs []LockRef
	for _, b := range k.blocks.list {
		for _, e := range b.waiters[:b.numbered] {
			b.plain = true
			refs = append(refs, e.ref)
		}
	}
	k.c.last.request++
	nobody := Block{N: 1, Session: k.c.self.id, Req: k.c.last.request, Retained: true}
	s := Enqueue(k.view.pointer(), nobody, k.table.closed, now.Clk)
	s.Set.Row.Queue = s.Set.Row.withPlain(refs)
	k.startLWT(now, lwt{purpose: purposeDissolve, swap: s, req: nobody.Req})
}

// blocksDissolved has those wait for references of their own who were told one of a block. What is
// left of the block that is held ends with its holder; nobody is in the others any more.
func (k *key) blocksDissolved() {
	for _, b := range slices.Clone(k.blocks.list) {
		if b.numbered == 0 {
			continue
		}
		if t := k.term; t != nil && t.block == b {
			t.lastRef = k.view.row.endOfBlock(t.holder.ref)
			b.last = t.lastRef
		} else {
			k.queue.numbered = without(k.queue.numbered, b.entry)
			k.blocks.list = slices.DeleteFunc(k.blocks.list, func(other *localBlock) bool { return other == b })
		}
		for _, e := range b.waiters[:b.numbered] {
			e.block, e.phase = nil, phaseWaiting
			k.queue.insert(e)
		}
		b.waiters, b.numbered = nil, 0
	}
}
