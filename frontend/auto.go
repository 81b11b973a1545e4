package frontend

import (
	"sync"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
)

// auto tells whether a write without a lock has a section of its own (docs/design.md 4, unlocked=auto).
func (s *lockStatement) auto() bool { return s.unfenced() && s.critical.Unlocked == catalog.Auto }

// alone carries out a write that came without a reference in a section of its own: it takes the lock, sends what under makes of it, and
// gives the lock back when that calls leave, which the end of every fenced operation does.
func (c *conn) alone(h wire.Header, s *lockStatement, k musiccore.Key, under func(ref musiccore.LockRef, leave func()) (lockedOperation, musiccore.Kind)) *wire.Failure {
	a := lockExecution{conn: c, section: *s}
	q, f := a.request(0)
	if f != nil {
		return f
	}
	o, table := c.begin(h.Stream), s.table
	o.lock(k, q, func(a musiccore.Answer) {
		if f := o.granted(table, k, a, under); f != nil {
			c.reject(h, f)
		}
	})
	return nil
}

// granted goes on with the answer to the lock of a section of one write.
func (o operation) granted(t *catalog.Table, k musiccore.Key, a musiccore.Answer, under func(musiccore.LockRef, func()) (lockedOperation, musiccore.Kind)) *wire.Failure {
	if a.Err != nil {
		return lockFailure(a.Err, t, 0)
	}
	leave := sync.OnceFunc(func() {
		if a.Grant.Ref != 0 {
			o.conn.server.Locks.Unlock(k, a.Grant.Ref, o.conn.who(), func(musiccore.Answer) {})
		}
	})
	waits := !o.cancelled()
	if !waits || a.Grant.State != musiccore.StateHeld {
		leave()
		if waits {
			return occupied(t)
		}
		return nil
	}
	first, kind := under(a.Grant.Ref, leave)
	f := o.conn.sendUnderLock(first, kind, o.conn.send)
	if f != nil {
		leave()
	}
	return f
}

// occupied is the answer to a write whose section did not begin in time.
func occupied(t *catalog.Table) *wire.Failure {
	return &wire.Failure{Code: primitive.ErrorCodeOverloaded, Text: "MUSIC_UNAVAILABLE: another section holds this key of " + t.String() + ": nothing was written, try again"}
}

// writeAlone carries out a write without a reference, of a table that gives it a section of its own.
func (a *lockExecution) writeAlone(k musiccore.Key) *wire.Failure {
	c := a.conn
	return c.putAlone(c.keepFor(a.envelope.Header, a.section, lockedRequest{key: k, parameters: a.parameters}), &a.section)
}

// putAlone has one write make a whole section.
func (c *conn) putAlone(k lockedOperation, s *lockStatement) *wire.Failure {
	return c.alone(k.header, s, k.request.key, func(ref musiccore.LockRef, leave func()) (lockedOperation, musiccore.Kind) {
		k.request.ref, k.sent.endSection = ref, leave
		return k, musiccore.Put
	})
}

// stands is what a statement that was prepared without a lock is now: its table may have become another since. It is forwarded where the
// tables let it through, and needs a reading of its own where one gives it a section.
func (p *preparedStatement) stands() (catalog.Policy, *wire.Failure) {
	switch t, policy := catalog.Strictest(p.tables); {
	case t == nil:
		return catalog.Allow, nil
	case p.truncate:
		return catalog.Reject, truncated(t)
	case policy == catalog.Reject:
		return catalog.Reject, unlocked(t)
	default:
		return policy, nil
	}
}

// truncated is the answer to a TRUNCATE of a critical table, whatever it lets through otherwise.
func truncated(t *catalog.Table) *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: %s is critical: TRUNCATE would take the fence away with the data", t)
}

// unfenced tells whether the statement was prepared without a lock.
func (p *preparedLockStatement) unfenced() bool {
	s := lockStatement{statement: p.statement}
	return s.unfenced()
}

// decideUnfenced decides about the EXECUTE of a write without a lock.
func (c *conn) decideUnfenced(e wire.Envelope, id []byte, p *preparedStatement) (d decision) {
	policy, f := p.stands()
	switch {
	case f != nil:
		d = refused(f)
	case policy == catalog.Allow:
		d = decision{}
	case p.lock != nil:
		d = decideExecuteLock(e, p)
	default:
		d = refused(wire.Unprepared(id))
		if next := c.newer(id, p); next != nil {
			d = decideExecuteLock(e, next)
		}
	}
	d.unlisted = unlistedOf(p.tables)
	return d
}

// newer is what a statement is since it was prepared again, where that has read it as a section; else nil.
func (c *conn) newer(id []byte, old *preparedStatement) *preparedStatement {
	p, ok := c.server.prepared.Get(preparedID(id))
	if !ok || p == old || p.lock == nil {
		return nil
	}
	c.know(preparedID(id), p)
	return p
}
