package frontend

import (
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// Locks is the lock protocol as clients' connections use it. It is safe for concurrent use.
//
// An answer is either returned, or passed to done: then done is called exactly once, later, by a
// goroutine that may block. The errors in answers are those of musiccore. Beside those that are
// named below every answer may have ErrNoSession and, for a reference of another proxy that cannot
// be reached, an error that wraps refusal.ErrAway.
type Locks interface {
	Locker
	OperationGuard
	LockLister
}

// Locker gives and releases locks.
type Locker interface {
	// Lock asks for a new reference or, if q has one, continues to wait with it. If cancel is nil,
	// a is the answer. Otherwise the answer is passed to done by another goroutine, and cancel must be
	// called if the client no longer waits; done is called all the same.
	//
	// Errors for a new reference: ErrDraining, ErrClock, ErrTooManyWaiters, ErrUnavailable. For a
	// given one: ErrNotHeld, ErrLost, ErrReleased. For both, if the key cannot be synchronised:
	// ErrSynchronising, ErrTooLarge, ErrPoisoned.
	Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (a musiccore.Answer, cancel func())
	// Unlock releases a reference. by is the client, for the audit. If ok is true, a is the answer;
	// else the answer is passed to done. Errors: ErrNotHeld, ErrUnavailable.
	Unlock(k musiccore.Key, r musiccore.LockRef, by musiccore.Client, done func(musiccore.Answer)) (a musiccore.Answer, ok bool)
	// Force releases the lock of a key, whoever holds it. The answer is passed to done. Error:
	// ErrUnavailable.
	Force(k musiccore.Key, f Force, done func(musiccore.Answer))
}

// OperationGuard admits operations under a lock. Each is sent to Cassandra between Begin and End.
type OperationGuard interface {
	// Begin asks to carry out one operation under a lock; the answer has its ticket. If ok is true,
	// a is the answer; else another goroutine passes the answer to done. Every ticket must be ended
	// by End.
	//
	// Errors: ErrNotHeld, ErrLost, ErrReleased. If the key cannot be synchronised: ErrSynchronising
	// (with a ShortError, if too few replicas are alive), ErrTooLarge, ErrPoisoned.
	Begin(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, done func(musiccore.Answer)) (a musiccore.Answer, ok bool)
	// End reports the outcome of the operation and returns what the client may be told. It does not
	// block. If wait is not nil, the verdict is not known yet: wait blocks until it is. wait need
	// not be called.
	End(t musiccore.Ticket, o musiccore.Outcome) (v musiccore.Verdict, wait func() musiccore.Verdict)
}

// LockLister lists locks.
type LockLister interface {
	// List returns the holders and waiters at all living proxies; if only is not zero, those of its
	// table or key. It blocks for at most a second. missing names, for people to read, the proxies
	// whose locks are not in the result.
	List(only musiccore.Key) (all []musiccore.Listing, missing []string)
}

// Force names the client that takes a lock from its holder, and its reason: both are for the audit.
type Force struct {
	By     musiccore.Client
	Reason string
}

// String returns both in one text.
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

// abandon cleans up when the connection has ended. It cancels the client's waits, releases locks
// that the client was never told of, and ends the operations whose answer will not come with an
// unknown outcome.
func (c *conn) abandon() {
	c.operations.cancel()
	for _, w := range c.watches.removeAll() {
		c.countKept(-w.kept)
		if w.sent != nil {
			c.abandonSent(w.sent)
		}
	}
}

// abandonSent ends an operation whose answer will not come, or cannot be read, with an unknown
// outcome.
func (c *conn) abandonSent(f *sentOperation) {
	c.endTickets(f, musiccore.OutcomeUnknown)
	f.done()
	if f.update != nil && f.update.fresh {
		c.server.Locks.Unlock(f.key, f.ticket.Ref, c.auditClient(), func(musiccore.Answer) {})
	}
}

// byPosition converts values bound by name to values bound by position, in place. A value is
// repeated as often as its marker occurs in the statement, so it refuses values that have more than
// most bytes then.
func byPosition(p *wire.Parameters, st *rewrite.Statement, text []byte, most int) *wire.Failure {
	if len(st.MarkerNames) < st.Markers {
		return wire.Invalid("MUSIC_SYNTAX: values are bound by name, but not every bind marker has one: name all markers (:name), or bind by position")
	}
	given := p.ByName()
	ordered, size := make([][]byte, 0, st.Markers), 0
	for _, n := range st.MarkerNames {
		name := n.AppendTo(nil, text)
		i, ok := given[string(name)]
		if n == (rewrite.Name{}) || !ok {
			return wire.Invalid("MUSIC_SYNTAX: no value is bound to the marker %q", name)
		}
		if size += len(p.Values[i]); size > most {
			return wire.Invalid("MUSIC_REFUSED: with its values repeated for each marker of their names the request has more than %d bytes: write fewer markers of one name", most)
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

// checkNow refuses the parameter now_in_seconds of v5 under a lock. A deletion with a time long ago
// is purged at once, so that a late write of an earlier holder would come back. A read with a time
// in the far future does not see tombstones, but the data that they hide.
func checkNow(p *wire.Parameters, t *catalog.Table) *wire.Failure {
	if !p.Flags.Contains(primitive.QueryFlagNowInSeconds) {
		return nil
	}
	return wire.Invalid("MUSIC_REFUSED: %s is critical: now_in_seconds cannot stand in a request under a lock: leave it out", t)
}

// fenceParameters changes the parameters to those of an operation under a lock. The consistency is
// raised to QUORUM or, if local, set to LOCAL_QUORUM: a QUORUM over all data centres need not have
// a replica in common with a LOCAL_QUORUM. A stamp that is not 0 becomes the default timestamp of
// the request (docs/design.md 5, "one mechanism").
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
