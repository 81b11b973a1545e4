package musiccore

// tableFacts are what a Core has to know of a table.
type tableFacts struct {
	closed  Stamp // docs/protocol.md 2.3, D
	altered Stamp // when a schema change was told of last: stamps below may be hidden by a column that was added again
	tableMode
	first     LockRef // no reference of the table lies below
	putsFirst bool    // at its last new key here
}

// tableMode says what decides whether the outcome of an operation may be told: the clock, or the
// lock row (docs/design.md 4, strict). A proxy that goes by the clock must be sure that no other
// one ends the term of a living session; so between the two modes all proxies check the row, and
// none forces.
type tableMode struct {
	strict      bool  // operations are checked against the lock row
	forceLiving bool  // the head of a living session may be ended by Force
	strictBelow Stamp // terms on a lower epoch stay checked: a Force sent before may end them
}

// Closed tells that a table was closed to plain writes at that stamp: every term of it that began
// before is dirty, and none is synchronised any more (docs/protocol.md 2.3, D). It is to be called
// for every critical table before its first operation: one with a reference of another proxy may
// come here before any LOCK does.
func (c *Core) Closed(now Now, table [16]byte, closed Stamp) Effects {
	c.checkSession(now)
	c.raiseClosed(table, closed)
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

// raiseClosed takes a later closed. An epoch that an LWT under way is about to write was chosen
// without knowing it, and counts as older (C17).
func (k *key) raiseClosed(closed Stamp) {
	k.table.closed = max(k.table.closed, closed)
	if k.lwt.changesTerm() {
		k.table.closed = max(k.table.closed, k.lwt.swap.Set.Row.Epoch+1)
	}
	k.dropStampRead()
	t := k.term
	if t == nil {
		return
	}
	t.synced, t.synch.stale = false, true
	t.dirty = t.dirty || t.window.epoch < closed
}

// FirstReference tells the lowest reference of the table's generation: those below were of earlier
// ones, and clients may still have them. It is to be called, like Closed, before a table's first
// operation. Another number than before is another generation: whatever is known of the last one
// is lost.
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

// Altered tells of a schema change of a table: its open terms are renewed and puts wait for that,
// since stamps must not lie below a column that was dropped and added again (docs/protocol.md
// 3.10, Renew). So are terms that open later on an epoch from before: somebody may have chosen it
// and have been slow to write it.
func (c *Core) Altered(now Now, table [16]byte) Effects {
	c.checkSession(now)
	f := c.tables[table]
	f.altered = max(f.altered, now.Clk)
	if now.Clk == 0 {
		f.altered = max(f.altered, now.Wall)
	}
	c.tables[table] = f
	c.each(table, func(k *key) {
		k.table.altered = f.altered
		k.dropStampRead()
		if k.term != nil {
			k.term.renewal.require(0)
			k.term.synch.stale = true
		}
		k.step(now)
	})
	return c.takeEffects()
}

// Dropped tells that a table or its companion is no more: its terms end.
func (c *Core) Dropped(now Now, table [16]byte) Effects {
	c.checkSession(now)
	c.lose(now, table)
	return c.takeEffects()
}

// lose ends all that is known of the locks of a table.
func (c *Core) lose(now Now, table [16]byte) {
	c.idle.forget(table)
	c.each(table, func(k *key) { k.bury(now, ErrUnavailable) })
}

// Strict tells whether operations of a table are checked against the lock row instead of the clock
// (docs/design.md 4, strict). It is to be called, like Closed, before a table's first operation;
// for a change only once every other living proxy has been told ModeChanging.
func (c *Core) Strict(now Now, table [16]byte, strict bool) Effects {
	m := c.tables[table].tableMode
	switch {
	case strict:
		m.strict, m.forceLiving = true, true
	case m.strict && now.Clk == 0:
		m.forceLiving = false // no stamp is known to lie above all epochs: until Strict is called again
	case m.strict:
		m.strict, m.forceLiving, m.strictBelow = false, false, max(m.strictBelow, Closing(now, 0))
	}
	return c.setMode(now, table, m)
}

// ModeChanging tells that the mode of a table is about to change, or may have changed unseen:
// until Strict says what holds, operations are checked against the lock row, and no living holder
// is ended from here.
func (c *Core) ModeChanging(now Now, table [16]byte) Effects {
	m := c.tables[table].tableMode
	m.strict, m.forceLiving = true, false
	return c.setMode(now, table, m)
}

// setMode sets the mode of a table and of its keys.
func (c *Core) setMode(now Now, table [16]byte, m tableMode) Effects {
	c.checkSession(now)
	f := c.tables[table]
	f.tableMode = m
	c.tables[table] = f
	c.each(table, func(k *key) { k.table.tableMode = m })
	return c.takeEffects()
}

// isChecked reports whether operations of the term that is here are checked against the lock row.
// A term that began while others could end it stays so.
func (k *key) isChecked() bool {
	return k.table.strict || (k.term != nil && k.term.window.epoch < k.table.strictBelow)
}
