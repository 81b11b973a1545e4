package musiccore

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"
)

// checkSession reports that the session is valid; the first call that finds it dead
// ends everything that hung on it (C5).
func (c *Core) checkSession(now Now) bool {
	c.now = now.Boot
	if c.self.Valid(now) {
		return true
	}
	if c.self.Dead() && !c.sessionEnded {
		c.sessionEnded = true
		for _, k := range c.sorted() {
			k.bury(now, ErrNoSession)
		}
	}
	return false
}

// takeEffects ends a call: what it caused, and when Tick is wanted.
func (c *Core) takeEffects() Effects {
	out := c.out
	c.out = Effects{}
	out.Wake = c.timers.first()
	return out
}

// key gives the state machine of a key, made anew where nobody needed it.
func (c *Core) key(id Key) *key {
	if k := c.keys[id]; k != nil {
		return k
	}
	f := c.tables[id.Table]
	k := &key{c: c, id: id, table: f}
	k.timer.who = k
	if r, ok := c.idle.get(id); ok {
		k.view.row, k.view.state, k.view.firmAfter, k.lastDied, k.blocks.nextSize, k.endings = r.row, rowPresent, c.last.command, r.lastDied, r.nextBlockSize, r.endings
	}
	c.keys[id] = k
	return k
}

// forget drops a key that nobody needs, but for its row where the queue is
// empty and certain: a queue that is not could change without us.
func (c *Core) forget(k *key) {
	if k.view.firmAfter != 0 && k.view.state == rowPresent && k.view.row.Empty() {
		c.idle.put(k.id, idleKey{k.view.row, k.lastDied, k.blocks.nextSize, k.endings})
	}
	delete(c.commands, k.view.read.cmd)
	c.timers.stop(&k.timer)
	delete(c.keys, k.id)
}

func (c *Core) do(k Key, a Action) CommandID {
	c.last.command++
	c.out.Commands = append(c.out.Commands, Command{ID: c.last.command, Key: k, Action: a})
	return c.last.command
}

func (c *Core) addPending(op OpID, k *key, e *entry) { c.ops[op] = pendingOp{k, e} }

// answer answers an operation; what is asked for none is answered to nobody.
func (c *Core) answer(a Answer) {
	if a.Op == 0 {
		return
	}
	delete(c.ops, a.Op)
	c.out.Answers = append(c.out.Answers, a)
}

func (c *Core) alarm(k Key, rule, text string) {
	c.out.Alarms = append(c.out.Alarms, Alarm{Key: k, Rule: rule, Text: text})
}

// patience is how long a LOCK waits for its answer.
func (c *Core) patience(q Request) time.Duration {
	if q.NoWait || q.Wait <= 0 {
		return c.opts.Wait
	}
	return q.Wait
}

// note tells what happened at a place; it is the place's second event or later.
func (k *key) note(what NoteKind, e *entry, how State) {
	k.c.out.Notes = append(k.c.out.Notes, Note{
		Key: k.id, Kind: what, Ref: e.ref, Owner: e.identity.name, Client: e.identity.client, State: how, Duration: k.c.now - e.since,
	})
}

func (c *Core) each(table [16]byte, do func(*key)) {
	for _, k := range c.sorted() {
		if k.id.Table == table {
			do(k)
		}
	}
}

// sorted lists the keys in one order, so that equal histories have equal
// effects (docs/design.md 8, seeds).
func (c *Core) sorted() []*key {
	return slices.SortedFunc(maps.Values(c.keys), func(a, b *key) int {
		return cmp.Or(bytes.Compare(a.id.Table[:], b.id.Table[:]), cmp.Compare(a.id.PK, b.id.PK))
	})
}

// reply hands the key what its command met; a command that it no longer
// waits for, or that an earlier life of the key sent, is nobody's.
func (k *key) reply(now Now, id CommandID, r Result) {
	switch {
	case k.c.keys[k.id] != k:
		return
	case id == k.view.read.cmd:
		k.rowRead(now, id, r)
	case k.lwt != nil && id == k.lwt.cmd:
		k.lwtReplied(now, r)
	case k.term != nil && id == k.term.synch.cmd:
		k.synchEnded(now, r)
	}
	k.step(now)
}

// raiseClosed keeps the highest closed of a table.
func (c *Core) raiseClosed(table [16]byte, closed Stamp) {
	f := c.tables[table]
	f.closed = max(f.closed, closed)
	c.tables[table] = f
}

// raiseClosed notes a later closed. A base that an LWT under way is about to write
// was chosen without knowing it, and counts as older (C17).
func (k *key) raiseClosed(closed Stamp) {
	k.table.closed = max(k.table.closed, closed)
	if k.changesTerm() {
		k.table.closed = max(k.table.closed, k.lwt.swap.Set.Row.Epoch+1)
	}
	t := k.term
	if t == nil {
		return
	}
	t.synced, t.synch.stale = false, true
	t.dirty = t.dirty || t.window.epoch < closed
}

// turnAway tells all who wait that nothing is granted here any more.
func (k *key) turnAway(now Now) {
	for _, r := range k.blocks.list {
		k.requeueWaiters(r, r.numbered)
		for _, e := range r.waiters {
			k.answerEntry(e, k.grantOf(now, e))
		}
	}
	for _, e := range k.queue.numbered {
		k.answerEntry(e, k.grantOf(now, e))
	}
	for _, e := range k.queue.unnumbered {
		k.answerEntryError(e, Grant{}, ErrDraining)
		k.endEntry(e, StateLost)
	}
	k.queue.unnumbered = nil
}

func (k *key) quiet() bool {
	t := k.term
	if k.lwt != nil || t == nil {
		return k.lwt == nil
	}
	fixed := t.block == nil || (t.block.plain && !t.renewal.wanted)
	return t.open && fixed && t.ops.flight.ops == 0 && !t.unsettled && t.synch.cmd == 0
}

// bury ends everything of a key without another word to the store: the
// session is dead or the table gone, and others clean up by the fences. A
// reference may go on: nobody is told that one is lost.
func (k *key) bury(now Now, err error) {
	if k.term != nil {
		k.loseTerm(now)
	}
	for _, e := range k.queue.numbered {
		if errors.Is(err, ErrNoSession) && e.phase == phaseWaiting && !e.wait.noWait {
			// Its client may go on with the reference, here or elsewhere: a Takeover when its turn comes.
			k.answerEntry(e, k.grantOf(now, e))
		}
		k.answerEntryError(e, Grant{}, err)
		k.loseEntry(e)
	}
	k.piggyback.delegated = delegatedEnqueue{}
	pending := k.queue.unnumbered
	if k.lwt != nil {
		pending = append(pending[:len(pending):len(pending)], k.lwt.entries...)
		delete(k.c.commands, k.lwt.cmd)
	}
	for _, e := range pending {
		k.answerEntryError(e, Grant{}, err)
		k.endEntry(e, StateLost)
	}
	for _, a := range k.queries {
		k.c.answer(Answer{Op: a.op, Err: err})
	}
	delete(k.c.commands, k.view.read.cmd)
	k.c.timers.stop(&k.timer)
	delete(k.c.keys, k.id)
}
