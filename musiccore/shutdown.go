package musiccore

import (
	"errors"
	"maps"
	"slices"
)

// checkSession reports whether the session is valid. The first call that finds it dead ends every
// term and entry (C5).
func (c *Core) checkSession(now Now) bool {
	c.now = now.Boot
	if n := c.self.stood.Load(); n != c.lending.stood {
		c.lending.stood, c.lending.notBefore = n, now.Boot // what was asked for before counts from clocks that stood still
		for _, id := range c.sortedOut() {                 // and so does what was lent
			c.recallLent(id)
		}
	}
	if c.self.Valid(now) {
		return true
	}
	if c.self.Dead() && !c.sessionEnded {
		c.sessionEnded = true
		c.loseLoans()
		for _, k := range c.sorted() {
			k.dropKey(now, ErrNoSession)
		}
	}
	return false
}

// Drain stops new grants, and settles unknown outcomes (docs/design.md 6, SIGTERM). Waiting clients
// are told their state and may go on at another proxy. The caller then waits for Quiet, ends the
// session and writes EndedBeat.
func (c *Core) Drain(now Now) Effects {
	c.draining = true
	c.checkSession(now)
	for _, l := range c.sortedLoans() {
		c.closeLoan(l.held)
	}
	c.turnAway()
	for _, k := range c.sorted() {
		k.step(now)
	}
	return c.takeEffects()
}

// turnAway answers the LOCKs that wait at other proxies.
func (c *Core) turnAway() {
	for _, op := range slices.Sorted(maps.Values(c.lending.elsewhere)) {
		c.answer(Answer{Op: op, Err: ErrDraining})
	}
	clear(c.lending.elsewhere)
}

// Quiet reports whether no LWT is under way, nothing is in flight or unsettled, and nothing is borrowed.
func (c *Core) Quiet() bool {
	for _, k := range c.keys {
		if !k.quiet() {
			return false
		}
	}
	return len(c.lending.loans) == 0
}

// quiet is Quiet for one key.
func (k *key) quiet() bool {
	t := k.term
	if k.lwt != nil || t == nil {
		return k.lwt == nil
	}
	fixed := t.block == nil || (t.block.plain && !t.renewal.wanted)
	return t.open && fixed && t.ops.flight.ops == 0 && !t.unsettled && t.synch.cmd == 0
}

// turnAway answers all waiting clients: this proxy grants nothing any more.
func (k *key) turnAway(now Now) {
	for _, r := range k.blocks.list {
		k.queue.requeueWaiters(r, r.numbered)
		for _, e := range r.waiters {
			if !e.passed && !k.isLent(e) {
				e.answer(k.grantOf(now, e))
			}
		}
	}
	for _, e := range k.queue.numbered {
		e.answer(k.grantOf(now, e))
	}
	for _, e := range k.queue.unnumbered {
		e.answerError(Grant{}, ErrDraining)
		e.end(StateLost)
	}
	k.queue.unnumbered = nil
}

// anyNumbered reports whether a client was told a reference of a block and waits for it.
func (bs *blocks) anyNumbered() bool {
	return slices.ContainsFunc(bs.list, func(b *localBlock) bool { return b.numbered > 0 })
}

// dissolveBlocks makes the references of blocks that clients were told and wait for plain, so that
// they survive this session, which is about to end (docs/protocol.md 3.19, Shutdown). From here on
// nothing is handed over in these blocks, whatever the outcome of the LWT. Two views of a queue are
// told apart by the guard, so the guard must rise: a block for nobody is enqueued with the change,
// which is passed over as soon as the session has ended.
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

// blocksDissolved makes the entries that knew a reference of a block wait outside of it. The rest
// of the held block ends with its holder; other blocks have no clients any more.
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

// dropKey ends everything of a key without another command: the session is dead, or the table gone,
// and others clean up by the fences. References may go on elsewhere: nobody is told that one is
// lost.
func (k *key) dropKey(now Now, err error) {
	if k.term != nil {
		k.loseTerm(now)
	}
	for _, e := range k.queue.numbered {
		if errors.Is(err, ErrNoSession) && e.phase == phaseWaiting && !e.wait.noWait {
			// Its client may go on with the reference, here or elsewhere, by a Takeover.
			e.answer(k.grantOf(now, e))
		}
		e.answerError(Grant{}, err)
		e.lose()
	}
	pending := k.queue.unnumbered
	if k.lwt != nil {
		pending = append(pending[:len(pending):len(pending)], k.lwt.entries...)
		delete(k.c.commands, k.lwt.cmd)
	}
	for _, e := range pending {
		e.answerError(Grant{}, err)
		e.end(StateLost)
	}
	for _, q := range k.queries {
		k.c.answer(Answer{Op: q.op, Err: err})
	}
	k.leave(false)
}
