package musiccore

import "time"

// Core runs the lock protocol for a shard of keys. Its methods are not safe for concurrent use,
// and none of them blocks; each is handed the time and returns what the caller has to do. The
// package comment shows the loop.
type Core struct {
	self     *Session
	opts     Options
	keys     map[Key]*key
	ops      map[OpID]pendingOp
	commands map[CommandID]replier
	observed
	tables       map[[16]byte]tableFacts // what the caller has said of each table, and what its last keys have shown
	idle         idleKeys
	lending      lending
	timers       timers
	out          Effects
	now          time.Duration // BOOTTIME of the event under way
	last         counters
	draining     bool
	sessionEnded bool // the session died, and everything with it
}

// observed is what this session knows of others.
type observed struct {
	watches      map[SessionID]*watch
	deadSessions []SessionID
}

// counters are the last numbers that were given; none is given twice.
type counters struct {
	command CommandID
	request int64
	term    uint64
	loan    uint64
}

// pendingOp is where an operation waits: at an entry, or, if p is nil, elsewhere at the key.
type pendingOp struct {
	k *key
	p *entry
}

// replier takes the result of a command that it has sent.
type replier interface {
	reply(now Now, id CommandID, r Result)
}

// New returns a Core for the session of this proxy.
func New(self *Session, o Options) *Core {
	return &Core{
		self: self, opts: o,
		keys:     map[Key]*key{},
		ops:      map[OpID]pendingOp{},
		commands: map[CommandID]replier{},
		observed: observed{watches: map[SessionID]*watch{}},
		tables:   map[[16]byte]tableFacts{},
		lending:  lending{out: map[lentID]lentOut{}, borrowed: map[held]*loan{}, loans: map[uint64]*loan{}, elsewhere: map[lockToken]OpID{}, silent: map[SessionID]time.Duration{}},
		idle:     newIdle(o.Idle),
	}
}

// Lock asks for a reference, or (with Request.Ref) goes on waiting for one. The operation is
// answered with a Grant, now or within its Wait. "Not granted" is a Grant, not an error
// (docs/design.md 5).
func (c *Core) Lock(now Now, op OpID, id Key, q Request) Effects {
	k := c.keyForLock(now, op, id, q)
	if k == nil {
		return c.takeEffects()
	}
	if q.Closed > k.table.closed {
		c.raiseClosed(id.Table, q.Closed)
		k.raiseClosed(q.Closed)
	}
	if q.Ref != 0 {
		k.resume(now, op, q)
	} else {
		k.newEntry(now, op, q)
	}
	k.step(now)
	return c.takeEffects()
}

// keyForLock returns the key of a LOCK, or answers a LOCK that cannot be served and returns nil.
func (c *Core) keyForLock(now Now, op OpID, id Key, q Request) *key {
	var err error
	switch {
	case !c.checkSession(now):
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

// Unlock releases a reference. It is answered with a Grant, whose Applied is false if the reference
// had ended in another way, or if this proxy does not know how.
func (c *Core) Unlock(now Now, op OpID, id Key, r LockRef) Effects {
	switch {
	case !c.checkSession(now):
		c.answer(Answer{Op: op, Err: ErrNoSession})
	case r < 1:
		c.answer(Answer{Op: op, Err: ErrNotHeld})
	default:
		k := c.key(id)
		k.unlock(now, op, r)
		k.step(now)
	}
	return c.takeEffects()
}

// Begin asks for the right to do one operation. The ticket it returns, if OK, is the answer; else
// the operation is answered through Effects.Answers: at once with an error, or later, after a
// synchronise, with a ticket.
func (c *Core) Begin(now Now, op OpID, id Key, r LockRef, kind Kind) (Ticket, Effects) {
	return c.beginOp(now, waitingOp{op: op, kind: kind}, id, r)
}

// beginOp is Begin and Lend.
func (c *Core) beginOp(now Now, b waitingOp, id Key, r LockRef) (Ticket, Effects) {
	if !c.checkSession(now) {
		c.answer(Answer{Op: b.op, Err: ErrNoSession})
		return Ticket{}, c.takeEffects()
	}
	if r < 1 {
		c.answer(Answer{Op: b.op, Err: ErrNotHeld})
		return Ticket{}, c.takeEffects()
	}
	b.until = now.Boot + c.opts.OpTimeout
	tk := c.key(id).begin(now, b, r)
	return tk, c.takeEffects()
}

// End returns a ticket, with the store's answer, and says what the client may be told. The caller
// reads now after the store's answer came: the lease is checked after the operation, never before
// (docs/protocol.md 7.3). VerdictPending, in strict tables only, means that the verdict comes as an
// Answer to the ticket's operation, perhaps with these effects.
func (c *Core) End(now Now, tk Ticket, o Outcome) (Verdict, Effects) {
	c.checkSession(now)
	if tk.Loan != 0 {
		return c.endBorrowed(now, tk, o), c.takeEffects()
	}
	if tk.Lent != nil {
		delete(c.lending.out, lentID{tk.Term, tk.Number})
	}
	k := c.keys[tk.Key]
	if k == nil || k.term == nil || k.term.id != tk.Term {
		return c.lateVerdict(tk), c.takeEffects()
	}
	v := k.end(now, tk, o)
	return v, c.takeEffects()
}

// ClientGone says that the client of a waiting operation went away: the operation gets no answer, and its
// entry in the queue is abandoned. Locks that the client holds stay, since they belong to no
// connection.
func (c *Core) ClientGone(now Now, op OpID) Effects {
	w, waits := c.ops[op]
	if waits {
		delete(c.ops, op)
		w.k.cancel(op, w.p)
	}
	c.checkSession(now)
	if waits && c.keys[w.k.id] == w.k {
		w.k.step(now)
	}
	return c.takeEffects()
}

// Reply hands over the result of a command.
func (c *Core) Reply(now Now, id CommandID, r Result) Effects {
	c.checkSession(now)
	if who, ok := c.commands[id]; ok {
		delete(c.commands, id)
		who.reply(now, id, r)
	}
	return c.takeEffects()
}

// Tick must be called at Effects.Wake. A late call costs time, never safety.
func (c *Core) Tick(now Now) Effects {
	c.checkSession(now)
	for t := c.timers.ring(now.Boot); t != nil; t = c.timers.ring(now.Boot) {
		t.who.due(now)
	}
	return c.takeEffects()
}

// Rejoin goes on with a new session. Every term and entry of the old one has ended, and the old one
// is known to be dead, unless something that it has lent may be in use: if clients come back with its
// references, these are taken over here.
func (c *Core) Rejoin(now Now, s *Session) Effects {
	old := c.self
	old.End()
	c.checkSession(now)
	if !c.HasLoansOut(now) { // else it is observed like any other: what it lent is good until it would be dead for others
		w := &watch{c: c, id: old.id}
		w.timer.who = w
		c.watches[old.id] = w
		w.declareDead(now)
	}
	c.self, c.sessionEnded = s, false
	return c.takeEffects()
}
