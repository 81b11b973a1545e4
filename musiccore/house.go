package musiccore

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"
)

// up reports that the session is valid; the first call that finds it dead
// ends everything that hung on it (C5).
func (c *Core) up(now Now) bool {
	c.at = now.Boot
	if c.self.Valid(now) {
		return true
	}
	if c.self.Dead() && !c.ended {
		c.ended = true
		for _, k := range c.sorted() {
			k.bury(now, ErrNoSession)
		}
	}
	return false
}

// leave ends a call: what it caused, and when Tick is wanted.
func (c *Core) leave() Effects {
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
	f := c.facts[id.Table]
	k := &key{c: c, id: id, closed: f.closed, mode: f.mode}
	k.timer.who = k
	if r, ok := c.idle.get(id); ok {
		k.view.row, k.view.known, k.view.firm, k.died, k.spare, k.ended = r.row, present, c.last.command, r.died, r.spare, r.ended
	}
	c.keys[id] = k
	return k
}

// forget drops a key that nobody needs, but for its row where the queue is
// empty and certain: a queue that is not could change without us.
func (c *Core) forget(k *key) {
	if k.view.firm != 0 && k.view.known == present && k.view.row.Empty() {
		c.idle.put(k.id, rest{k.view.row, k.died, k.spare, k.ended})
	}
	delete(c.running, k.view.cmd)
	c.timers.stop(&k.timer)
	delete(c.keys, k.id)
}

func (c *Core) do(k Key, a Action) CommandID {
	c.last.command++
	c.out.Commands = append(c.out.Commands, Command{ID: c.last.command, Key: k, Action: a})
	return c.last.command
}

func (c *Core) waits(op OpID, k *key, p *place) { c.ops[op] = waiter{k, p} }

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
func (k *key) note(what NoteKind, p *place, how State) {
	k.c.out.Notes = append(k.c.out.Notes, Note{
		Key: k.id, Kind: what, Ref: p.ref, Owner: p.owner, Client: p.by, State: how, Duration: k.c.at - p.since,
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
	case id == k.view.cmd:
		k.rowRead(now, id, r)
	case k.lwt != nil && id == k.lwt.cmd:
		k.swapped(now, r)
	case k.term != nil && id == k.term.synch.cmd:
		k.copied(now, r)
	}
	k.step(now)
}

// close keeps the highest closed of a table.
func (c *Core) close(table [16]byte, closed Stamp) {
	f := c.facts[table]
	f.closed = max(f.closed, closed)
	c.facts[table] = f
}

// raise notes a later closed. A base that an LWT under way is about to write
// was chosen without knowing it, and counts as older (C17).
func (k *key) raise(closed Stamp) {
	k.closed = max(k.closed, closed)
	if k.changing() {
		k.closed = max(k.closed, k.lwt.swap.Set.Row.Epoch+1)
	}
	t := k.term
	if t == nil {
		return
	}
	t.synced, t.synch.stale = false, true
	t.dirty = t.dirty || t.base < closed
}

// sendAway tells all who wait that nothing is granted here any more.
func (k *key) sendAway(now Now) {
	for _, r := range k.reserves {
		k.disband(r, r.named)
		for _, p := range r.line {
			k.answer(p, k.standing(now, p))
		}
	}
	for _, p := range k.queued {
		k.answer(p, k.standing(now, p))
	}
	for _, p := range k.asking {
		k.refuse(p, Grant{}, ErrDraining)
		k.finish(p, StateLost)
	}
	k.asking = nil
}

func (k *key) quiet() bool {
	t := k.term
	if k.lwt != nil || t == nil {
		return k.lwt == nil
	}
	fixed := t.reserve == nil || (t.reserve.plain && !t.window.wanted)
	return t.open && fixed && t.flight.ops == 0 && !t.unsettled && t.synch.cmd == 0
}

// bury ends everything of a key without another word to the store: the
// session is dead or the table gone, and others clean up by the fences. A
// reference may go on: nobody is told that one is lost.
func (k *key) bury(now Now, err error) {
	if k.term != nil {
		k.loseTerm(now)
	}
	for _, p := range k.queued {
		if errors.Is(err, ErrNoSession) && p.phase == waiting && !p.nowait {
			// Its client may go on with the reference, here or elsewhere: a Takeover when its turn comes.
			k.answer(p, k.standing(now, p))
		}
		k.refuse(p, Grant{}, err)
		k.losePlace(p)
	}
	k.ride = ride{}
	pending := k.asking
	if k.lwt != nil {
		pending = append(pending[:len(pending):len(pending)], k.lwt.places...)
		delete(k.c.running, k.lwt.cmd)
	}
	for _, p := range pending {
		k.refuse(p, Grant{}, err)
		k.finish(p, StateLost)
	}
	for _, a := range k.asks {
		k.c.answer(Answer{Op: a.op, Err: err})
	}
	delete(k.c.running, k.view.cmd)
	k.c.timers.stop(&k.timer)
	delete(k.c.keys, k.id)
}
