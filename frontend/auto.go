package frontend

import (
	"sync/atomic"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/refusal"
	"music/frontend/statement"
	"music/frontend/wire"
	"music/musiccore"
)

// inOwnSection carries out a write that came without a reference in a section of its own: it takes
// the lock, sends what under makes of it, and gives the lock back when that calls release, which the
// end of every operation under a lock does.
func (c *conn) inOwnSection(h wire.Header, s *lockStatement, k musiccore.Key, inPlace bool, under func(ref musiccore.LockRef, release func()) (lockedOperation, musiccore.Kind)) *wire.Failure {
	a := lockExecution{conn: c, lock: *s}
	q, f := a.request(0)
	if f != nil {
		return f
	}
	q.By.OneWrite = true
	o, table := c.begin(h.Stream), s.Table
	o.lock(k, q, func(a musiccore.Answer, atOnce bool) {
		if f := o.ownSectionGranted(table, k, a, inPlace && atOnce, under); f != nil {
			c.reject(h, f)
		}
	})
	return nil
}

// ownSectionGranted goes on with the answer to the lock of a section of one write.
func (o operation) ownSectionGranted(t *catalog.Table, k musiccore.Key, a musiccore.Answer, inPlace bool, under func(musiccore.LockRef, func()) (lockedOperation, musiccore.Kind)) *wire.Failure {
	if a.Err != nil {
		return refusal.OfSection(a.Err, t)
	}
	section := &ownSection{conn: o.conn, key: k, ref: a.Grant.Ref}
	waits := !o.cancelled()
	if !waits || a.Grant.State != musiccore.StateHeld {
		section.end()
		if waits {
			return refusal.TryAgain(t, "others are writing this key")
		}
		return nil
	}
	first, kind := under(a.Grant.Ref, section.end)
	f := o.conn.sendUnderLock(&first, kind, inPlace)
	if f != nil {
		section.end()
	}
	return f
}

// ownSection is a lock that was taken for one write.
type ownSection struct {
	conn  *conn
	key   musiccore.Key
	ref   musiccore.LockRef // 0: none was given
	ended atomic.Bool
}

// end gives the lock back. It may be called again.
func (s *ownSection) end() {
	if s.ref != 0 && !s.ended.Swap(true) {
		s.conn.server.Locks.Unlock(s.key, s.ref, s.conn.auditClient(), func(musiccore.Answer) {})
	}
}

// writeInOwnSection carries out a write without a reference, of a table that gives it a section of
// its own.
func (a *lockExecution) writeInOwnSection(k musiccore.Key) *wire.Failure {
	put := a.conn.newLockedOperation(a.envelope.Header, &a.lock, lockedRequest{key: k, parameters: a.parameters})
	return a.conn.putInOwnSection(put.clone(), &a.lock, a.lock.Kind(), a.lock.writeType(), a.inPlace)
}

// putInOwnSection has one write make a whole section.
func (c *conn) putInOwnSection(k lockedOperation, s *lockStatement, kind musiccore.Kind, alone primitive.WriteType, inPlace bool) *wire.Failure {
	k.sent.alone = alone
	return c.inOwnSection(k.header, s, k.request.key, inPlace, func(ref musiccore.LockRef, release func()) (lockedOperation, musiccore.Kind) {
		k.request.ref, k.sent.endSection = ref, release
		return k, kind
	})
}

// currentPolicy returns what a statement that was prepared without a lock gets now: its table may
// have become another since. It is forwarded where the tables let it through, and needs a reading
// of its own where one gives it a section.
func (p *preparedStatement) currentPolicy() (catalog.Policy, *wire.Failure) {
	switch t, policy := catalog.Strictest(p.tables); {
	case t == nil:
		return catalog.Allow, nil
	case p.truncate && policy != catalog.Allow:
		return catalog.Reject, truncateRefused(t)
	case policy == catalog.Reject:
		return catalog.Reject, statement.WithoutLock(t)
	default:
		return policy, nil
	}
}

// truncateRefused returns the error for a TRUNCATE of a critical table that does not let everything
// through: no lock covers all of its keys.
func truncateRefused(t *catalog.Table) *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: %s is critical: TRUNCATE would take the fence away with the data: delete its keys, or let plain writes through for that time (unlocked=allow)", t)
}

// ordinary reports whether the statement writes no table but such as let it through now.
func (p *preparedStatement) ordinary() bool {
	policy, f := p.currentPolicy()
	return p.meaning == meaningWrites && f == nil && policy == catalog.Allow
}

// written returns the names of the tables that the statement writes.
func (p *preparedStatement) written() (names [][2]string) {
	for _, t := range p.tables {
		names = append(names, [2]string{t.Keyspace, t.Name})
	}
	return names
}

// plainWrite reports whether the statement is a write without a lock.
func (p *preparedLockStatement) plainWrite() bool {
	s := statement.Statement{Parsed: p.statement}
	return s.PlainWrite()
}

// decideUnfenced decides about the EXECUTE of a write without a lock.
func (c *conn) decideUnfenced(e *wire.Envelope, id []byte, p *preparedStatement) (d decision) {
	policy, f := p.currentPolicy()
	switch {
	case f != nil:
		d = refused(f)
	case policy == catalog.Allow:
		d = decision{}
	case p.lock != nil:
		d = decideExecuteLock(*e, p)
	default:
		d = refused(wire.Unprepared(id))
		if next := c.preparedAgain(id, p); next != nil {
			d = decideExecuteLock(*e, next)
		}
	}
	return d.on(unlistedOf(p.tables))
}

// preparedAgain returns what a statement is since it was prepared again, where that has read it as
// a lockStatement; else nil.
func (c *conn) preparedAgain(id []byte, old *preparedStatement) *preparedStatement {
	p, ok := c.server.prepared.Get(preparedID(id))
	if !ok || p == old || p.lock == nil {
		return nil
	}
	c.know(preparedID(id), p)
	return p
}
