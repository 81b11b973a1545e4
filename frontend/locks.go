package frontend

import "music/musiccore"

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
