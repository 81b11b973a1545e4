package frontend

import (
	"sync"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/musiccore"
)

// auto tells whether a write without a lock has a section of its own (DESIGN.md 4, unlocked=auto).
func (s *section) auto() bool { return s.unfenced() && s.critical.Unlocked == Auto }

// alone carries out a write that came without a reference in a section of its own: it takes the lock, has do begin under it, and gives it
// back when what do began calls leave. Where do fails it has begun nothing, and leave has been called.
func (c *conn) alone(h header, t *Table, k musiccore.Key, q musiccore.Request, do func(ref musiccore.LockRef, leave func()) *Failure) {
	id := c.ops.add(h.stream)
	c.ops.set(id, c.server.Locks.Lock(k, q, func(a musiccore.Answer) {
		c.guard(func() {
			if f := c.granted(id, t, k, a, do); f != nil {
				c.reject(h, f)
			}
			c.ops.remove(id)
			c.endIfDrained()
		})
	}))
}

// granted goes on with the answer to the lock of a section of one write.
func (c *conn) granted(id uint64, t *Table, k musiccore.Key, a musiccore.Answer, do func(musiccore.LockRef, func()) *Failure) *Failure {
	if a.Err != nil {
		return lockFailure(a.Err, t, 0)
	}
	leave := sync.OnceFunc(func() { c.server.Locks.Unlock(k, a.Grant.Ref, func(musiccore.Answer) {}) })
	switch {
	case a.Grant.State == musiccore.Held && c.ops.owes(id) && !c.over():
		return do(a.Grant.Ref, leave)
	case a.Grant.Ref != 0:
		leave()
	}
	if !c.ops.owes(id) || c.over() {
		return nil
	}
	return occupied(t)
}

// occupied is the answer to a write whose section did not begin in time.
func occupied(t *Table) *Failure {
	return &Failure{Code: primitive.ErrorCodeOverloaded, Text: "MUSIC_UNAVAILABLE: another section holds this key of " + t.String() + ": nothing was written, try again"}
}

// writeAlone carries out a write without a reference, of a table that gives it a section of its own.
func (a *admission) writeAlone(k musiccore.Key) *Failure {
	q, f := a.request(0)
	if f != nil {
		return f
	}
	c := a.conn
	kept := c.keepFor(a.envelope.header, a.section, request{key: k, parameters: a.parameters})
	c.alone(kept.header, a.section.table, k, q, func(ref musiccore.LockRef, leave func()) *Failure { return c.putAlone(kept, ref, leave) })
	return nil
}

// putAlone sends the one write of a section.
func (c *conn) putAlone(k kept, ref musiccore.LockRef, leave func()) *Failure {
	k.request.ref, k.fenced.done = ref, leave
	f := c.begin(k, musiccore.Put, c.send)
	if f != nil {
		k.fenced.leave()
	}
	return f
}

// stands is what a statement that was prepared without a lock is now: its table may have become another since. It is forwarded where the
// table lets it through, and needs a reading of its own where that gives it a section.
func (p *prepared) stands() (Policy, *Table) {
	tables := p.tables
	if p.section != nil {
		tables = []*Table{p.section.table}
	}
	found, which := Allow, (*Table)(nil)
	for _, t := range tables {
		if now := t.Critical(); now != nil && now.Unlocked != Allow && found != Reject {
			found, which = now.Unlocked, t
		}
	}
	return found, which
}

// unfenced tells whether the statement was prepared without a lock.
func (p *preparedSection) unfenced() bool {
	s := section{statement: p.statement}
	return s.unfenced()
}

// decideUnfenced decides about the EXECUTE of a write without a lock.
func (c *conn) decideUnfenced(e envelope, id []byte, p *prepared) verdict {
	policy, t := p.stands()
	switch {
	case policy == Allow:
		return forward
	case policy == Reject:
		return c.refuse(unlocked(t))
	case p.section != nil:
		return c.decideExecuteSection(e, p)
	}
	if p = c.newer(id, p); p != nil {
		return c.decideExecuteSection(e, p)
	}
	return c.refuse(unprepared(id))
}

// newer is what a statement is since it was prepared again, where that has read it as a section; else nil.
func (c *conn) newer(id []byte, old *prepared) *prepared {
	p, ok := c.server.prepared.Get(preparedID(id))
	if !ok || p == old || p.section == nil {
		return nil
	}
	c.known[preparedID(id)] = p
	return p
}
