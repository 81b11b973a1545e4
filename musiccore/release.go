package musiccore

// expireLease ends a holder whose client was silent for a lease; the next holder is told so.
func (k *key) expireLease(now Now) {
	k.lastHolder.died = true
	k.closeTerm(now, StateLost)
}

// giveBack ends the term by an UNLOCK or a Force. The operation is answered at once if nothing is
// unsettled and no put is in flight that could become so.
func (k *key) giveBack(now Now, op OpID, how State) {
	t := k.term
	k.closeTerm(now, how)
	t.ops.unlock = waitingOp{op: op, until: now.Boot + k.c.opts.Wait}
	if t.ops.flight.puts == 0 && !t.unsettled {
		k.answerUnlock(StateReleased)
		return
	}
	k.c.addPending(op, k, nil)
}

// answerUnlock answers the UNLOCK that waits for the term to end, if any.
func (k *key) answerUnlock(how State) {
	t := k.term
	if t.ops.unlock.op == 0 {
		return
	}
	k.c.answer(Answer{Op: t.ops.unlock.op, Grant: Grant{Applied: how == StateReleased, Ref: t.holder.ref, State: how}})
	t.ops.unlock.op = 0
}

// closeTerm ends the holder's section: no more operations begin. Those in flight end; then the term
// is settled if necessary, and released or handed over.
func (k *key) closeTerm(now Now, how State) {
	t := k.term
	if !t.open {
		return
	}
	t.open, t.closedAt = false, now.Boot
	k.recall()
	t.synch.tries = 0
	if t.block != nil {
		t.block.keepUntil = now.Boot + k.c.opts.Retain
	}
	k.blocks.noteSectionLength(now.Boot-t.holder.since, t.holder.shortLimit(), how)
	t.holder.end(how)
	waiting := t.ops.waiting
	t.ops.waiting = nil
	for _, b := range waiting {
		k.queryEnding(b.query(t.holder.ref))
	}
}

// drained reports whether a closed term may be released: nothing is in flight, and it is settled or
// that was tried often enough (docs/protocol.md 3.11, Release).
func (t *term) drained(tries int) bool {
	if t.open || t.ops.flight.ops > 0 || t.synch.cmd != 0 {
		return false
	}
	return !t.unsettled || t.broken || t.synch.tries >= tries
}

// release sends the Release of the term. The row becomes clean only if no write can still surface,
// and unfenced only if none of a term can (I7, C6, C7, C17).
func (k *key) release(now Now) {
	t := k.term
	if len(k.queue.unnumbered) > 0 && !t.noPiggyback && k.waitsForLocalRead(now) {
		return
	}
	dirty := t.unsettled || (t.dirty && !t.synced) || t.broken
	unfenced := dirty && !t.broken && k.mayPutBlind()
	if (!dirty || unfenced) && (t.ops.flight.ops > 0 || t.synch.cmd != 0) {
		k.invariantBroken(now, "I7", "a clean release with operations in flight")
		return
	}
	k.noteNothingPut()
	used := t.window.seq
	if t.broken {
		used = k.c.opts.Window
	}
	k.answerUnlock(StateReleased)
	k.chooseBlockSize()
	next := k.headAfterRelease()
	if t.block != nil {
		t.block.plain = true
	}
	held := Row{Guard: k.view.row.Guard, Head: next - 1, Epoch: t.window.epoch}
	l := lwt{purpose: purposeRelease, swap: Release(held, used, dirty, now.Clk).withUnfenced(unfenced).dirtyIfFar(now)}
	if !t.noPiggyback && next > t.lastRef {
		k.piggybackEnqueues(now, &l)
	}
	if k.startLWT(now, l) {
		k.piggyback.releaseSent = now.Boot
		k.sendReleasing(l.swap)
	}
}

// headAfterRelease returns the reference that the Release makes the head: the one behind the term,
// or, if entries wait in a block that cannot be handed over, the next of them: the block then goes
// on as another term.
func (k *key) headAfterRelease() LockRef {
	t := k.term
	b := t.block
	if b != nil {
		b.dropSilent(&k.endings)
	}
	switch {
	case b == nil || len(b.waiters) == 0 || t.broken || k.c.draining:
		return t.lastRef + 1
	case b.numbered > 0:
		return b.waiters[0].ref
	}
	return b.next
}

// termReleased ends the term whose Release was applied. If the new head is in the term's block, the
// block waits for its next term.
func (k *key) termReleased(now Now, head LockRef) {
	b := k.term.block
	if b == nil || head > b.last {
		k.endTerm()
		return
	}
	k.term.block = nil
	k.endTerm()
	b.plain = false
	k.insertBlockEntry(now, b, head)
}

// releaseAbandoned releases an abandoned head that never had a term: two stamps are left free, and
// dirty does not change (docs/protocol.md 3.11, Release; C6). If the head is of a dead session, it
// is unknown what was sent under it, so it is released dirty and with a whole window.
func (k *key) releaseAbandoned(now Now) {
	r := k.view.row
	if _, foreign := k.remoteHead(); foreign {
		if k.remoteHeadDead(now) || (k.queue.first().takeover.forced && k.mayForceLiving() && k.view.quorumEpoch == r.Epoch) {
			k.startLWT(now, lwt{purpose: purposeReleaseAbandoned, swap: Release(r, k.c.opts.Window, true, now.Clk)})
		}
		return
	}
	r.Head = k.queue.abandonedRun(r)
	k.startLWT(now, lwt{purpose: purposeReleaseAbandoned, swap: Release(r, 2, r.DirtySince(k.table.closed), now.Clk).withUnfenced(r.UnfencedSince(k.table.closed))})
}

// abandonedRun returns the last of the consecutive abandoned references from the head on: one LWT
// does what a Release of each would do. A client that goes away may leave thousands. Blocks, and
// references of dead sessions, have Releases of their own.
func (q *queue) abandonedRun(r Row) LockRef {
	last := r.endOfBlock(r.Head)
	for _, e := range q.numbered {
		switch {
		case e.ref <= last:
		case e.ref != last+1 || !e.abandoned || e.adopted || e.phase != phaseWaiting || e.standsForBlock():
			return last
		default:
			last = e.ref
		}
	}
	return last
}

// reapOrphan releases an orphaned head. It is unknown what was sent under it, so it is released
// dirty and with a whole window.
func (k *key) reapOrphan(now Now) {
	if k.c.anyOut(now, func(l lentOut) bool { return l.key == k.id }) {
		return // its borrower goes on, although this proxy has forgotten
	}
	k.startLWT(now, lwt{purpose: purposeReap, swap: Release(k.view.row, k.c.opts.Window, true, now.Clk)})
}

// endTerm drops a term whose Release is definite.
func (k *key) endTerm() {
	e, b := k.term.holder, k.term.block
	k.answerUnlock(StateReleased)
	k.term = nil
	if b != nil {
		k.dropBlock(b)
	}
	if k.queue.first() == e {
		k.queue.pop()
	}
}

// loseTerm drops a term that this proxy no longer has. If another session may have taken the
// reference over, its client is not told that it is lost: the lock row decides that.
func (k *key) loseTerm(now Now) {
	t, how := k.term, State(0)
	if k.isFinal(t.holder.ref) {
		how = StateLost
	}
	k.closeTerm(now, how)
	if t.ops.unlock.op != 0 && how == 0 {
		k.addQuery(query{op: t.ops.unlock.op, kind: queryUnlock, ref: t.holder.ref, until: t.ops.unlock.until})
		t.ops.unlock.op = 0
	}
	k.answerUnlock(StateLost)
	k.loseChecks()
	k.leaveRun()
	delete(k.c.commands, k.term.synch.cmd)
	k.endTerm()
}
