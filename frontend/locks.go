package frontend

import (
	"bytes"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// Locks is the protocol as clients' connections use it. Its methods may be called by many at once.
// Every done is called exactly once, by a goroutine that may block, but where the answer is there at once. Errors are those of musiccore:
// any method may answer ErrNoSession, and for a reference of another proxy that cannot be asked an
// error that wraps ErrAway.
type Locks interface {
	Locker
	OperationGuard
	LockLister
}

// Locker gives locks and takes them back.
type Locker interface {
	// Lock asks for a reference, or after one. Where cancel is nil the answer is there at once and done is not called. Else cancel says
	// that the client does not wait any more; done is called all the same. A new reference may be refused with ErrDraining, ErrClock, ErrTooManyWaiters or ErrUnavailable, a given one with ErrNotHeld, ErrLost or
	// ErrReleased, and either with what keeps the key from being synchronised: ErrSynchronising, ErrTooLarge or ErrPoisoned.
	Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (a musiccore.Answer, cancel func())
	// Unlock gives a reference back; by is the client that does, for the audit. Where ok is true the answer is there at once and done is
	// not called. It is refused with ErrNotHeld or ErrUnavailable.
	Unlock(k musiccore.Key, r musiccore.LockRef, by musiccore.Client, done func(musiccore.Answer)) (a musiccore.Answer, ok bool)
	// Force takes the lock of a key from whoever holds it. It is refused with ErrUnavailable.
	Force(k musiccore.Key, f Force, done func(musiccore.Answer))
}

// OperationGuard lets operations under a lock through to Cassandra: each between Begin and End.
type OperationGuard interface {
	// Begin asks to do one operation under a lock; the answer has its ticket. Where ok is true the answer is there at once and done is not
	// called. The operation is refused with ErrNotHeld, ErrLost or ErrReleased, or with what keeps the key from being synchronised:
	// ErrSynchronising (with a ShortError, where too few replicas live), ErrTooLarge or ErrPoisoned.
	Begin(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, done func(musiccore.Answer)) (a musiccore.Answer, ok bool)
	// End reports what became of the operation and says what the client may be told. It does not block. Where wait is not nil the
	// verdict is still to come: wait blocks until it is there, and need not be called.
	End(t musiccore.Ticket, o musiccore.Outcome) (v musiccore.Verdict, wait func() musiccore.Verdict)
}

// LockLister shows locks.
type LockLister interface {
	// List returns who holds and who waits at all living proxies, of one table or key where only names one. It blocks for a second at
	// most. missing says in words whose locks are not among them.
	List(only musiccore.Key) (all []musiccore.Listing, missing []string)
}

// Force is who takes a lock from its holder, and why: both are for the audit.
type Force struct {
	By     musiccore.Client
	Reason string
}

// String returns who and why in one text.
func (f Force) String() string {
	who := f.By.Address
	if f.By.Role != "" {
		who = f.By.Role + " at " + who
	}
	if f.Reason == "" {
		return who
	}
	return who + ": " + f.Reason
}

// abandon tells the core what a client that has gone leaves behind: its places in queues are given
// up, and so are locks that it was never told of; of the operations whose answer will not come any
// more nobody knows the outcome.
func (c *conn) abandon() {
	c.operations.cancel()
	for _, w := range c.watches.removeAll() {
		if w.sent != nil {
			c.abandonSent(w.sent)
		}
	}
}

// abandonSent ends an operation whose answer will not come, or cannot be read: its outcome is
// unknown.
func (c *conn) abandonSent(f *sentOperation) {
	c.endTickets(f, musiccore.OutcomeUnknown)
	f.done()
	if f.update != nil && f.update.fresh {
		c.server.Locks.Unlock(f.key, f.ticket.Ref, c.auditClient(), func(musiccore.Answer) {})
	}
}

// byPosition makes values that are bound by name values that are bound by position, each as often as its marker stands in the statement. Of
// several values with one name the first counts, as with Cassandra.
func byPosition(p *wire.Parameters, st *rewrite.Statement, text []byte) *wire.Failure {
	if len(st.MarkerNames) < st.Markers {
		return wire.Invalid("MUSIC_SYNTAX: values are bound by name, but not every bind marker has one: name all markers (:name), or bind by place")
	}
	ordered := make([][]byte, 0, st.Markers)
	for _, n := range st.MarkerNames {
		name := n.AppendTo(nil, text)
		i := slices.IndexFunc(p.Names, func(given []byte) bool { return bytes.Equal(given, name) })
		if n == (rewrite.Name{}) || i < 0 {
			return wire.Invalid("MUSIC_SYNTAX: no value is bound to the marker %q", name)
		}
		ordered = append(ordered, p.Values[i])
	}
	p.Values, p.Names = ordered, nil
	p.Flags &^= primitive.QueryFlagValueNames
	if len(ordered) == 0 {
		p.Flags &^= primitive.QueryFlagValues
	}
	return nil
}

// checkNow refuses a time of the client's own (v5, now_in_seconds) under a lock. A deletion of long ago is purged at once, so that a late
// write of an earlier holder comes back; and a read of the far future is not shown what was deleted until then, but what it hid.
func checkNow(p *wire.Parameters, t *catalog.Table) *wire.Failure {
	if !p.Flags.Contains(primitive.QueryFlagNowInSeconds) {
		return nil
	}
	return wire.Invalid("MUSIC_REFUSED: %s is critical: now_in_seconds cannot stand in a request under a lock: leave it out", t)
}

// fenceParameters makes the parameters those of an operation under a lock: QUORUM at least, or LOCAL_QUORUM where the lock is of one data
// centre, and the stamp of a write, if it is one, in the wire's own form of USING TIMESTAMP (docs/design.md 5, "one mechanism"). QUORUM
// over all data centres is not higher than LOCAL_QUORUM: the two need not have a replica in common.
func fenceParameters(p *wire.Parameters, stamp int64, local bool) {
	switch c := p.Consistency; {
	case c == primitive.ConsistencyLevelAll, c == primitive.ConsistencyLevelEachQuorum:
	case local:
		p.Consistency = primitive.ConsistencyLevelLocalQuorum
	case c != primitive.ConsistencyLevelSerial:
		p.Consistency = primitive.ConsistencyLevelQuorum
	}
	if stamp != 0 {
		p.Flags |= primitive.QueryFlagDefaultTimestamp
		p.Timestamp = stamp
	}
}
