package musiccore

import "time"

// Core runs the lock protocol for a shard of keys. Its caller serialises the
// calls and hands every call the time; see the package comment for the loop.
type Core struct {
	self     *Session
	opts     Options
	keys     map[Key]*key
	ops      map[OpID]waiter
	running  map[CommandID]replied
	watches  map[SessionID]*watch
	facts    map[[16]byte]facts // of each table that was told of
	fallen   []SessionID
	idle     idle
	timers   timers
	out      Effects
	at       time.Duration // BOOTTIME of the event under way
	last     counters
	draining bool
	ended    bool // the session died, and everything with it
}

// facts are what a Core must know of a table.
type facts struct {
	closed Stamp // docs/protocol.md 2.3, D
	mode
	first LockRef // no reference of the table lies below
}

// counters are the numbers given last; none is given twice.
type counters struct {
	command CommandID
	request int64
	term    uint64
}

// waiter is where an operation waits: at a place, or elsewhere at the key.
type waiter struct {
	k *key
	p *place
}

// replied is who started a command.
type replied interface {
	reply(now Now, id CommandID, r Result)
}

// New makes a Core of the session's proxy.
func New(self *Session, o Options) *Core {
	return &Core{
		self: self, opts: o,
		keys:    map[Key]*key{},
		ops:     map[OpID]waiter{},
		running: map[CommandID]replied{},
		watches: map[SessionID]*watch{},
		facts:   map[[16]byte]facts{},
		idle:    newIdle(o.Idle),
	}
}

// Lock asks for a reference, or after one: the operation is answered with a Grant, now or within its Wait.
// "Not granted" is a Grant, never an error (docs/design.md 5).
func (c *Core) Lock(now Now, op OpID, id Key, q Request) Effects {
	k := c.admit(now, op, id, q)
	if k == nil {
		return c.leave()
	}
	if q.Closed > k.closed {
		c.close(id.Table, q.Closed)
		k.raise(q.Closed)
	}
	if q.Ref != 0 {
		k.resume(now, op, q)
	} else {
		k.newPlace(now, op, q)
	}
	k.step(now)
	return c.leave()
}

// admit answers a LOCK that cannot be served, or gives its key.
func (c *Core) admit(now Now, op OpID, id Key, q Request) *key {
	var err error
	switch {
	case !c.up(now):
		err = ErrNoSession
	case q.Ref < 0:
		err = ErrNotHeld
	case c.draining && q.Ref == 0:
		err = ErrDraining
	case now.Clk == 0 && q.Ref == 0:
		err = ErrClock
	default:
		return c.key(id)
	}
	c.answer(Answer{Op: op, Err: err})
	return nil
}

// Unlock gives a reference back; answered with a Grant. Applied is false
// where the reference had ended otherwise, or nobody here knows how.
func (c *Core) Unlock(now Now, op OpID, id Key, r LockRef) Effects {
	switch {
	case !c.up(now):
		c.answer(Answer{Op: op, Err: ErrNoSession})
	case r < 1:
		c.answer(Answer{Op: op, Err: ErrNotHeld})
	default:
		k := c.key(id)
		k.unlock(now, op, r)
		k.step(now)
	}
	return c.leave()
}

// Begin asks for the right to one operation. A ticket that is OK is the
// answer; else the operation is answered through Effects.Answers, at once
// with an error or after a synchronise with a ticket.
func (c *Core) Begin(now Now, op OpID, id Key, r LockRef, kind Kind) (Ticket, Effects) {
	if !c.up(now) {
		c.answer(Answer{Op: op, Err: ErrNoSession})
		return Ticket{}, c.leave()
	}
	if r < 1 {
		c.answer(Answer{Op: op, Err: ErrNotHeld})
		return Ticket{}, c.leave()
	}
	b := begin{op: op, kind: kind, until: now.Boot + c.opts.OpTimeout}
	tk := c.key(id).begin(now, b, r)
	return tk, c.leave()
}

// End gives a ticket back with what the store answered and says what the
// client may be told. now is read after the store's answer came: the lease is
// checked after the operation, never before (docs/protocol.md 7.3). VerdictPending says that
// the verdict comes as an Answer to the ticket's operation, perhaps with these
// effects; in a strict table only.
func (c *Core) End(now Now, tk Ticket, o Outcome) (Verdict, Effects) {
	c.up(now)
	k := c.keys[tk.Key]
	if k == nil || k.term == nil || k.term.id != tk.Term {
		return c.missed(tk), c.leave()
	}
	v := k.end(now, tk, o)
	return v, c.leave()
}

// Gone says that the client of a waiting operation went away. Its place in the queue
// is given up; locks that it holds stay, they are bound to no connection. The
// operation gets no answer from now on.
func (c *Core) Gone(now Now, op OpID) Effects {
	w, waits := c.ops[op]
	if waits {
		delete(c.ops, op)
		w.k.leave(op, w.p)
	}
	c.up(now)
	if waits && c.keys[w.k.id] == w.k {
		w.k.step(now)
	}
	return c.leave()
}

// Reply is the store's answer to a command.
func (c *Core) Reply(now Now, id CommandID, r Result) Effects {
	c.up(now)
	if who, ok := c.running[id]; ok {
		delete(c.running, id)
		who.reply(now, id, r)
	}
	return c.leave()
}

// Tick is to be called at Wake; being late costs time, never safety.
func (c *Core) Tick(now Now) Effects {
	c.up(now)
	for t := c.timers.ring(now.Boot); t != nil; t = c.timers.ring(now.Boot) {
		t.who.due(now)
	}
	return c.leave()
}

// Drain allows no new grants and settles what is unsettled (docs/design.md 6, SIGTERM). Who
// waits is told where he stands and may go on at another proxy. Then wait for
// Quiet, end the session, and write EndedBeat.
func (c *Core) Drain(now Now) Effects {
	c.draining = true
	c.up(now)
	for _, k := range c.sorted() {
		k.step(now)
	}
	return c.leave()
}

// Quiet reports that no LWT is under way and nothing in flight or unsettled.
func (c *Core) Quiet() bool {
	for _, k := range c.keys {
		if !k.quiet() {
			return false
		}
	}
	return true
}

// Closed tells that a table was closed to plain writes at that stamp: every
// term of it that began before is dirty, and none is synchronised any more
// (docs/protocol.md 2.3, D). It is to be called for every critical table before its
// first operation: an operation with a reference of another proxy may come
// here before any LOCK does.
func (c *Core) Closed(now Now, table [16]byte, closed Stamp) Effects {
	c.up(now)
	c.close(table, closed)
	c.each(table, func(k *key) {
		k.raise(closed)
		k.step(now)
	})
	return c.leave()
}

// FirstReference tells the lowest reference of a table's generation: those below were
// of its generations before, and may still be in somebody's hands. It is to be
// called, like Closed, before a table's first operation. Another number than
// before is another generation: whatever is known of the last one is lost.
func (c *Core) FirstReference(now Now, table [16]byte, first LockRef) Effects {
	c.up(now)
	f := c.facts[table]
	if f.first != first {
		c.lose(now, table)
	}
	f.first = first
	c.facts[table] = f
	return c.leave()
}

// Altered tells of a schema event on a table: its open terms are renewed and
// its puts wait for that, since stamps must not lag behind a column that was
// added again (docs/protocol.md 3.10, Renew).
func (c *Core) Altered(now Now, table [16]byte) Effects {
	c.up(now)
	c.each(table, func(k *key) {
		if k.term != nil {
			k.term.window.move(0)
			k.term.synch.stale = true
		}
		k.step(now)
	})
	return c.leave()
}

// Dropped tells that a table or its companion is no more: its terms end.
func (c *Core) Dropped(now Now, table [16]byte) Effects {
	c.up(now)
	c.lose(now, table)
	return c.leave()
}

// lose ends all that is known of a table's locks.
func (c *Core) lose(now Now, table [16]byte) {
	c.idle.forget(table)
	c.each(table, func(k *key) { k.bury(now, ErrUnavailable) })
}

// Rejoin continues with a new session. Every term and place of the old one has
// ended, and the old one is known to be dead: its references go on here for
// clients that come back.
func (c *Core) Rejoin(now Now, s *Session) Effects {
	old := c.self
	old.End()
	c.up(now)
	w := &watch{c: c, id: old.id}
	w.timer.who = w
	c.watches[old.id] = w
	w.fall(now)
	c.self, c.ended = s, false
	return c.leave()
}
