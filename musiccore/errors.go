package musiccore

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// Errors that an operation can be answered with. Nothing was sent to the store on behalf of such
// an operation.
var (
	// ErrNotHeld: the reference waits, was never given, or is of another key.
	ErrNotHeld = errors.New("musiccore: lock reference is not the holder")
	// ErrLost: the reference expired, was released or was preempted, and that is final: nothing
	// succeeds under it any more, at any proxy, whichever session dies (key.isFinal).
	ErrLost = errors.New("musiccore: lock is lost")
	// ErrReleased is the ErrLost of a reference that was given back here.
	ErrReleased = fmt.Errorf("%w: it was given back", ErrLost)
	// ErrElsewhere: another session has the reference; see ElsewhereError.
	ErrElsewhere = errors.New("musiccore: lock reference is of another session")
	// ErrSynchronising: the key is being synchronised, or its window renewed, and that takes
	// longer than an operation waits. It goes on, so try again. If the store says that it is not
	// possible now, this error comes at once, with the store's as its cause.
	ErrSynchronising = errors.New("musiccore: key is being synchronised")
	// ErrPoisoned: a cell of the key is stamped so far ahead that no window lies above it
	// (docs/protocol.md 3.9, Synch).
	ErrPoisoned = errors.New("musiccore: key has a write timestamp beyond every window")
	// ErrTooLarge: the key cannot be synchronised: a row is larger than the store takes, or the
	// table is of a kind that cannot be.
	ErrTooLarge = errors.New("musiccore: key cannot be synchronised")
	// ErrNoSession: this proxy has no valid session: no term, no operation.
	ErrNoSession = errors.New("musiccore: session is not valid")
	// ErrClock: own and cluster clock differ too much for a new term (H4).
	ErrClock = errors.New("musiccore: clocks differ too much")
	// ErrDraining: the proxy shuts down and grants nothing new.
	ErrDraining = errors.New("musiccore: draining")
	// ErrTooManyWaiters: too many wait for the key.
	ErrTooManyWaiters = errors.New("musiccore: too many waiters")
	// ErrNoBlock: a LOCK with PlaceBlock came to a session that hands out no references of the key.
	ErrNoBlock = errors.New("musiccore: no references are handed out here")
	// ErrUnavailable: the lock row cannot be read or written; no reference stays in the queue.
	ErrUnavailable = errors.New("musiccore: lock row is unavailable")
)

// ElsewhereError is ErrElsewhere with the session that has the reference. Only Force sets Ref: the
// reference of the holder that it found.
type ElsewhereError struct {
	Session SessionID
	Ref     LockRef
}

// Error names the session.
func (e *ElsewhereError) Error() string {
	return ErrElsewhere.Error() + " " + hex.EncodeToString(e.Session[:])
}

// Is reports whether target is ErrElsewhere.
func (e *ElsewhereError) Is(target error) bool { return target == ErrElsewhere }
