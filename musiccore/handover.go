package musiccore

// canHandOver reports whether the term, once drained, may go on with another reference of its
// block. A term that could not be settled may not: it is released dirty.
func (t *term) canHandOver() bool {
	b := t.block
	return b != nil && !b.plain && (b.numbered > 0 || b.next <= b.last) && !t.unsettled && !t.broken
}

// keptForNext reports whether a drained term is kept: an entry waits in its block, or may come
// within Options.Retain.
func (t *term) keptForNext(now Now) bool {
	return t.canHandOver() && (len(t.block.waiters) > 0 || (!t.block.closed && now.Boot < t.block.keepUntil))
}

// handOver gives a drained term to the next entry of its block without an LWT: nothing of the
// reference before is in flight, and the rest of the term's state is inherited (docs/protocol.md
// 3.17, Blocks).
func (k *key) handOver(now Now) {
	t := k.term
	if t == nil || t.block == nil {
		return
	}
	b := t.block
	b.closed = b.closed || k.view.row.Guard > b.last
	if !t.drained(k.c.opts.SettleTries) || !t.canHandOver() {
		return
	}
	k.answerUnlock(StateReleased)
	b.dropSilent(&k.endings)
	if len(b.waiters) == 0 || !k.c.self.Valid(now) {
		return
	}
	e := b.waiters[0]
	e.assignRef()
	b.waiters, b.numbered, e.block = withoutFirst(b.waiters), b.numbered-1, nil
	if k.queue.first() == t.holder {
		k.queue.pop()
	}
	k.queue.insert(e)
	k.grant(now, e)
}

// dropSilent drops the entries at the front of a block whose clients were silent for too long when
// their turn came.
func (b *localBlock) dropSilent(es *endings) {
	for b.numbered > 0 && b.waiters[0].abandoned {
		e := b.waiters[0]
		b.waiters, b.numbered = withoutFirst(b.waiters), b.numbered-1
		es.record(e.ref, StateLost)
		e.phase = phaseEnded
	}
}

// makePlain makes the holder of a block plain, so that its reference survives this session: a
// client that holds for longer than a block is kept may be waiting for something, and one that
// holds at shutdown goes on elsewhere (docs/protocol.md 3.19, Shutdown). Nothing is handed over
// once the Renew is sent.
func (k *key) makePlain(now Now) {
	t := k.term
	if t == nil || !t.open || t.block == nil || t.block.plain {
		return
	}
	if now.Boot < t.holder.plainAt() && !k.c.draining || k.awaitsRun() {
		return
	}
	t.block.plain = true
	t.renewal.wanted = true
	k.blocks.nextSize = 0
	k.queue.requeueWaiters(t.block, t.block.numbered)
}
