package musiccore

import (
	"cmp"
	"time"
)

// tableFacts are what a Core must know of a table.
type tableFacts struct {
	closed  Stamp // docs/protocol.md 2.3, D
	altered Stamp // when Altered was called last: lower stamps may be hidden by a column that was added again
	hidden  Stamp // as Altered was told
	tableMode
	first        LockRef       // no reference of the table lies below
	lease        time.Duration // the client lease of its locks; 0: Options.ClientLease
	aheadTold    time.Duration // when it was last told that an epoch is far ahead of the clock; 0: never
	putsFirst    bool          // at its last new key here
	notOnce      uint8         // for how many keys locks of one statement are ordinary
	newKeys      uint16        // how many keys in a row were new here, as far as that matters
	wrongGuesses uint8         // how often a key was taken for a new one that was none, as far as that matters
}

// tableMode says whether operations are checked by the clock or by the lock row (docs/design.md 4,
// strict). A proxy that checks by the clock must be sure that no other one ends the term of a living
// session; so while the mode changes all proxies check the row, and none forces.
type tableMode struct {
	strict      bool      // operations are checked against the lock row
	forceLiving bool      // the head of a living session may be ended by Force
	strictBelow Stamp     // terms on a lower epoch stay checked: a Force sent before may end them
	read        bool      // Strict was called …
	session     SessionID // … last with this session
}

// known reports whether the mode is known to hold for a session of this proxy: while there was no
// living one, others did not wait for this proxy when they changed it.
func (m tableMode) known(self SessionID) bool { return !m.read || m.session == self }

// Closed says that a table was closed to plain writes at that stamp: every term of it that began
// before is dirty, and none is synchronised any more (docs/protocol.md 2.3, D). It must be called
// for every critical table before its first operation: an operation with a reference of another
// proxy may come here before any LOCK does.
func (c *Core) Closed(now Now, table [16]byte, closed Stamp) Effects {
	c.checkSession(now)
	c.raiseClosed(table, closed)
	c.closeLoans(table)
	c.each(table, func(k *key) {
		k.raiseClosed(closed)
		k.step(now)
	})
	return c.takeEffects()
}

// raiseClosed keeps the highest closed of a table.
func (c *Core) raiseClosed(table [16]byte, closed Stamp) {
	f := c.tables[table]
	f.closed = max(f.closed, closed)
	c.tables[table] = f
}

// raiseClosed takes a later closed. The epoch of an LWT under way was chosen without knowing it,
// and counts as older (C17).
func (k *key) raiseClosed(closed Stamp) {
	k.table.closed = max(k.table.closed, closed)
	if k.lwt.changesTerm() {
		k.table.closed = max(k.table.closed, k.lwt.swap.Set.Row.Epoch+1)
	}
	k.endUnfenced()
	t := k.term
	if t == nil {
		return
	}
	t.synced, t.synch.stale = false, true
	t.dirty = t.dirty || t.window.far || t.window.epoch < closed
}

// FirstReference sets the lowest reference of the table's generation: lower ones belong to earlier
// generations, and clients may still have them. Like Closed, it must be called before a table's
// first operation. A changed number means another generation: everything that is known of the last
// one is dropped.
func (c *Core) FirstReference(now Now, table [16]byte, first LockRef) Effects {
	c.checkSession(now)
	f := c.tables[table]
	if f.first != first {
		c.lose(now, table)
	}
	f.first = first
	c.tables[table] = f
	return c.takeEffects()
}

// ClientLease sets the client lease of a table's new locks, and of references that are taken over
// here, unless their LOCK gives another; 0 is Options.ClientLease.
func (c *Core) ClientLease(now Now, table [16]byte, lease time.Duration) Effects {
	return c.setFacts(now, table, func(f *tableFacts) { f.lease = lease })
}

// clientLease returns the client lease of a lock whose LOCK gives none.
func (k *key) clientLease() time.Duration { return cmp.Or(k.table.lease, k.c.opts.ClientLease) }

// Altered says that the schema of a table has changed: its open terms are renewed and puts wait for
// that, since stamps must not lie below a column that was dropped and added again (docs/protocol.md
// 3.10, Renew). The same is done with terms that open later on an epoch from before: a slow LWT may
// have chosen it earlier. hidden is the highest stamp that such a column hides, by the clock of the
// node that dropped it, which may be ahead of clk(); 0 if there is no such column.
func (c *Core) Altered(now Now, table [16]byte, hidden Stamp) Effects {
	c.checkSession(now)
	f := c.tables[table]
	f.altered, f.hidden = max(f.altered, now.Clk), hidden
	if now.Clk == 0 {
		f.altered = max(f.altered, now.Wall)
	}
	c.tables[table] = f
	c.closeLoans(table)
	c.each(table, func(k *key) {
		k.table.altered, k.table.hidden = f.altered, f.hidden
		k.endUnfenced()
		if k.term != nil {
			k.term.renewal.require(0)
			k.term.synch.stale = true
		}
		k.step(now)
	})
	return c.takeEffects()
}

// Dropped says that the lock rows of a table are gone, while it stays critical: its terms end.
func (c *Core) Dropped(now Now, table [16]byte) Effects {
	c.checkSession(now)
	c.lose(now, table)
	return c.takeEffects()
}

// Ordinary says that a table is no longer critical, or no more at all: its terms end, and what was said of it is
// forgotten. If it becomes critical again, that is like the first time.
func (c *Core) Ordinary(now Now, table [16]byte) Effects {
	c.checkSession(now)
	c.lose(now, table)
	delete(c.tables, table)
	return c.takeEffects()
}

// lose ends and forgets all locks of a table.
func (c *Core) lose(now Now, table [16]byte) {
	c.closeLoans(table)
	c.each(table, func(k *key) { k.dropKey(now, ErrUnavailable) })
	c.idle.forget(table)
}

// Strict sets whether operations of a table are checked against the lock row instead of the clock
// (docs/design.md 4, strict). Like Closed, it must be called before a table's first operation; to
// change the mode, it may be called only after ModeChanging was called at every other living proxy.
// read is the session of this proxy that other proxies knew before the mode was read, zero if they
// knew none. After a Rejoin the mode counts as changing, and nobody gets a reference, until it has been
// read for the new session.
func (c *Core) Strict(now Now, table [16]byte, strict bool, read SessionID) Effects {
	m := c.tables[table].tableMode
	m.read, m.session = true, read
	switch {
	case read != c.self.id:
		m.strict, m.forceLiving = true, false // as by ModeChanging
	case strict:
		m.strict, m.forceLiving = true, true
	case m.strict && now.Clk == 0:
		m.forceLiving = false // no stamp is known to lie above all epochs: until Strict is called again
	case m.strict:
		m.strict, m.forceLiving, m.strictBelow = false, false, max(m.strictBelow, Closing(now, 0))
	}
	awaited := !c.tables[table].known(read)
	c.changeFacts(now, table, func(f *tableFacts) { f.tableMode = m })
	if awaited {
		c.each(table, func(k *key) { k.step(now) })
	}
	return c.takeEffects()
}

// ModeChanging says that the mode of a table is about to change, or may have changed unseen: until
// Strict is called, operations are checked against the lock row, and this proxy ends no living
// holder's term.
func (c *Core) ModeChanging(now Now, table [16]byte) Effects {
	m := c.tables[table].tableMode
	m.strict, m.forceLiving = true, false
	return c.setFacts(now, table, func(f *tableFacts) { f.tableMode = m })
}

// setFacts changes what is known of a table, also at its keys. The caller says again and again what
// has not changed, and there may be many keys.
func (c *Core) setFacts(now Now, table [16]byte, set func(*tableFacts)) Effects {
	c.changeFacts(now, table, set)
	return c.takeEffects()
}

// changeFacts is setFacts without the effects.
func (c *Core) changeFacts(now Now, table [16]byte, set func(*tableFacts)) {
	c.checkSession(now)
	f := c.tables[table]
	if set(&f); f == c.tables[table] {
		return
	}
	c.tables[table] = f
	c.closeLoans(table)
	for id, k := range c.keys {
		if id.Table == table {
			set(&k.table)
		}
	}
}

// learn changes what is remembered of a table's keys for the next ones.
func (k *key) learn(set func(*tableFacts)) {
	f := k.c.tables[k.id.Table]
	set(&f)
	k.c.tables[k.id.Table] = f
}

// isChecked reports whether operations of the term that is here are checked against the lock row:
// the table is strict, or anybody may begin the next term. A term that began while others could end
// it remains so.
func (k *key) isChecked() bool {
	if k.term != nil && k.term.window.far && k.table.strictBelow != 0 {
		return true // its epoch does not tell when it began
	}
	return k.table.strict || k.term.released() || !k.table.known(k.c.self.id) || (k.term != nil && k.term.window.epoch < k.table.strictBelow)
}

// mayForceLiving reports whether the head of a living session may be ended by Force.
func (k *key) mayForceLiving() bool { return k.table.forceLiving && k.table.known(k.c.self.id) }
