package musiccore

// takeEffects ends a call: it returns the effects of the call, and when Tick is wanted.
func (c *Core) takeEffects() Effects {
	out := c.out
	c.out = Effects{}
	out.Wake = c.timers.first()
	return out
}

// Reuse takes back the memory of effects that have been carried out, for the next call. The caller
// must not use them any more.
func (c *Core) Reuse(e Effects) {
	const kept = 8
	if cap(e.Answers) <= kept {
		clear(e.Answers)
		c.out.Answers = e.Answers[:0]
	}
	if cap(e.Notes) <= kept {
		clear(e.Notes)
		c.out.Notes = e.Notes[:0]
	}
}

// do emits a command for a key and returns its id.
func (c *Core) do(k Key, a Action) CommandID {
	c.last.command++
	c.out.Commands = append(c.out.Commands, Command{ID: c.last.command, Key: k, Action: a})
	return c.last.command
}

// addPending records where an operation waits, so that ClientGone finds it. e may be nil.
func (c *Core) addPending(op OpID, k *key, e *entry) { c.ops[op] = pendingOp{k, e} }

// answer emits an answer. One to operation 0 is for nobody.
func (c *Core) answer(a Answer) {
	if a.Op == 0 {
		return
	}
	delete(c.ops, a.Op)
	c.out.Answers = append(c.out.Answers, a)
}

// alarm emits an alarm.
func (c *Core) alarm(k Key, rule, text string) {
	c.out.Alarms = append(c.out.Alarms, Alarm{Key: k, Rule: rule, Text: text})
}

// note emits a note of what happened to an entry since it was made, or granted.
func (k *key) note(what NoteKind, e *entry, how State) {
	n := Note{
		Key: k.id, Kind: what, Ref: e.ref, Owner: e.identity.name, Client: e.identity.client, State: how, Duration: k.c.now - e.since,
		InBlock: e.inBlock,
	}
	if n.HandedOver = what == NoteGranted && k.lastHolder.ended != 0 && e.since <= k.lastHolder.ended; n.HandedOver {
		n.HandOver = k.c.now - k.lastHolder.ended
	}
	k.c.out.Notes = append(k.c.out.Notes, n)
}
