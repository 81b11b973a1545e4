package musiccore

// A reference is adopted when its session is dead and its client comes here. It waits like any
// other; when it is the head, it gets its term by a Takeover (docs/protocol.md 3.13, Takeover).

// ownerOf returns the session that owns a live reference: for the head T.Owner if set, else the
// queue's.
func (r Row) ownerOf(ref LockRef) (SessionID, bool) {
	if ref == r.Head {
		_, s, ok := r.Holder()
		return s, ok
	}
	return r.Session(ref)
}

// adopt makes an entry for a dead session's reference.
func (k *key) adopt(now Now, r LockRef) *entry {
	e := &entry{k: k, ref: r, phase: phaseWaiting, adopted: true, lease: k.clientLease(), since: now.Boot}
	e.timer.who = e
	k.queue.insert(e)
	e.setDeadline(now.Boot + k.c.opts.QueuedLease)
	return e
}

// mayHoldElsewhere reports whether the reference is adopted and waits here: its client may have
// gone to another proxy and hold the lock there, which only the row shows.
func (e *entry) mayHoldElsewhere() bool { return e.adopted && e.phase == phaseWaiting }

// awaitTerm makes an operation wait for the term of an adopted head. If the reference is not the
// head, the operation is answered.
func (k *key) awaitTerm(b waitingOp, e *entry) {
	if k.term != nil && k.term.holder == e {
		k.term.ops.waiting = append(k.term.ops.waiting, b)
		k.c.addPending(b.op, k, nil)
		return
	}
	if e.passed || k.isLent(e) {
		k.recall()
	} else if !e.adopted || e.abandoned || !k.view.isHead(e) {
		k.c.answer(Answer{Op: b.op, Err: ErrNotHeld})
		return
	}
	e.takeover.ops = append(e.takeover.ops, b)
	k.c.addPending(b.op, k, nil)
}

// adoptedHead reports whether the head is an adopted reference that waits for its Takeover. A
// reference that its session made part of a block after it was adopted may have been handed on, and
// does not count.
func (k *key) adoptedHead() bool {
	e := k.queue.first()
	return k.view.isHead(e) && e.adopted && e.phase == phaseWaiting && !e.abandoned && !k.view.row.retained(e.ref)
}

// remoteHeadDead reports whether the head's session is dead, by a row read at QUORUM: then any
// proxy may end its term, on that epoch.
func (k *key) remoteHeadDead(now Now) bool {
	x, foreign := k.remoteHead()
	return foreign && k.c.watch(now, x).dead && k.view.quorumEpoch == k.view.row.Epoch
}

// takeOver moves the term of the head here: its session is dead, and its client has come. Epoch,
// head and owner are of one read (C2), and the LWT is IF base (C3).
func (k *key) takeOver(now Now) {
	if now.Clk == 0 || k.c.draining || !k.mayTakeTerms(now) || !k.remoteHeadDead(now) {
		return
	}
	s := Takeover(k.view.row, k.c.self.id, k.c.opts.Window, now.Clk)
	k.startLWT(now, lwt{purpose: purposeTakeover, swap: s})
}

// noteTakeover records an applied Takeover: the term on its epoch is that of the adopted entry.
func (k *key) noteTakeover(epoch Stamp) {
	k.view.quorumEpoch = max(k.view.quorumEpoch, epoch)
	if e := k.queue.first(); k.view.isHead(e) && e.adopted {
		e.takeover.epoch = epoch
	}
}

// displaced reports whether another session has the head's term, which an entry here waits for.
func (k *key) displaced(e *entry) bool {
	owner := k.view.row.Owner
	if !k.view.isHead(e) || owner == (SessionID{}) {
		return false
	}
	if !e.adopted {
		return true
	}
	return !k.lwt.changesTerm() && e.takeover.epoch != k.view.row.Epoch && !k.c.dead(owner)
}

// redirect sends the client of a displaced entry to the session that was faster.
func (k *key) redirect(e *entry) {
	err := ErrUnavailable
	if owner := k.view.row.Owner; owner != k.c.self.id {
		err = &ElsewhereError{Session: owner}
	}
	for _, b := range e.takeover.ops {
		k.c.answer(Answer{Op: b.op, Err: err})
	}
	e.takeover.ops = nil
	e.answerError(Grant{}, err)
	e.end(0)
	if e.block != nil {
		k.dropBlock(e.block)
	}
}

// awaited are the entries for whose term operations may wait: those of a run, which come first in their
// block. The head is another one.
func (k *key) awaited() []*entry {
	if len(k.blocks.list) == 0 {
		return nil
	}
	b := k.blocks.list[0]
	return b.waiters[:min(b.numbered, runLength)]
}

// expireAwaiting answers the operations that have waited for a term too long.
func (k *key) expireAwaiting(now Now) {
	k.expireAwaitingOf(now, k.queue.first())
	for _, e := range k.awaited() {
		k.expireAwaitingOf(now, e)
	}
}

// expireAwaitingOf answers those operations on an entry that have waited for too long.
func (k *key) expireAwaitingOf(now Now, e *entry) {
	for e != nil && len(e.takeover.ops) > 0 && e.takeover.ops[0].until <= now.Boot {
		k.c.answer(Answer{Op: e.takeover.ops[0].op, Err: ErrSynchronising})
		e.takeover.ops = e.takeover.ops[1:]
	}
}
