// Package refusal makes the errors that a client gets for an operation that was not done, or whose
// outcome is unknown.
package refusal

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
)

// ErrAway means that another proxy has the reference and cannot be reached. The operation was not
// done, or can safely be repeated. The text, and that of an error that wraps it, is shown to
// clients: it must not name an address.
var ErrAway = errors.New("the proxy that has this lock_ref does not answer: try again with the same lock_ref; this proxy takes the lock over when that proxy's session has ended")

// OfOperation returns the error that a client gets for an operation under a lock that was not done
// because of err. ref is the reference as the client sees it.
func OfOperation(err error, t *catalog.Table, ref int64) *wire.Failure {
	var short *ShortError
	switch {
	case errors.Is(err, musiccore.ErrSynchronising) && errors.As(err, &short):
		return short.failure()
	case errors.Is(err, musiccore.ErrNotHeld):
		return wire.Invalid("MUSIC_NOT_HELD: lock_ref %d does not hold this key of %s: it still waits, or was never given; nothing was done: LOCK … USING LOCK %[1]d goes on waiting and returns its state", ref, t)
	case errors.Is(err, musiccore.ErrReleased):
		return wire.Invalid("MUSIC_LOST: lock_ref %d on %s was released by UNLOCK; nothing was written, and nothing more will succeed under it: LOCK again", ref, t)
	case errors.Is(err, musiccore.ErrLost):
		return wire.Invalid("MUSIC_LOST: lock_ref %d on %s has expired, was taken away or was released; nothing was written, and nothing more will succeed under it: LOCK again", ref, t)
	case errors.Is(err, musiccore.ErrTooLarge):
		return wire.Invalid("MUSIC_REFUSED: this key of %s cannot be locked, and trying again does not help: %s; an operator of Cassandra can repair it (docs/runbook.md, MUSIC_REFUSED); nothing was done", t, tooLarge(err))
	case errors.Is(err, musiccore.ErrPoisoned):
		return wire.Invalid("MUSIC_REFUSED: this key of %s cannot be locked: one of its values has a write timestamp in the far future, which nothing can overwrite, and trying again does not help: an operator of Cassandra can repair it (docs/runbook.md, MUSIC_REFUSED); nothing was done", t)
	}
	return wire.Invalid("MUSIC_UNAVAILABLE: %s: %s", t, unavailable(err))
}

// WrongReference returns the error for a number that is no reference of the statement's key.
func WrongReference(t *catalog.Table, n int64) *wire.Failure {
	return wire.Invalid("MUSIC_NOT_HELD: lock_ref %d is not one of this key of %s: it is of another key, mistyped, or from before the table's locks were made anew; nothing was done: send the lock_ref that LOCK returned for this key, or LOCK again", n, t)
}

// StaleReferences returns the error for an operation under a reference that this proxy cannot
// check: keyspace music was dropped, and the proxy has not read the new secret of references yet.
func StaleReferences(t *catalog.Table) *wire.Failure {
	return wire.Invalid("MUSIC_UNAVAILABLE: %s: keyspace music was dropped, and this proxy has not read yet what was made in its place: try again in a moment, or at another proxy; nothing was done", t)
}

// tooLarge returns which part of a key is too large to be synchronised, as far as err tells.
func tooLarge(err error) string {
	if _, cause, told := strings.Cut(err.Error(), musiccore.ErrTooLarge.Error()+": "); told {
		return cause
	}
	return "a row of it is larger than Cassandra takes in one mutation"
}

// unavailable returns a text that tells the application's developer why an operation could not be
// done now, and what to do. Nothing was sent to Cassandra for it. err itself is not shown, since it
// names addresses that clients do not know; it is in the log.
func unavailable(err error) string {
	switch {
	case errors.Is(err, ErrAway):
		return err.Error()
	case errors.Is(err, musiccore.ErrSynchronising):
		return "writes that the last holder left unfinished could not be settled in time: try again with the same lock_ref; nothing was done"
	case errors.Is(err, musiccore.ErrNoSession):
		return "this proxy has lost touch with the cluster and may neither give nor serve locks: try again, or at another proxy; nothing was done"
	case errors.Is(err, musiccore.ErrClock):
		return "the clocks of this proxy and of Cassandra differ by more than 10 s: no new lock is given until an operator sets them right; nothing was done"
	case errors.Is(err, musiccore.ErrDraining):
		return "this proxy is shutting down and gives no new lock: LOCK at another one; nothing was done"
	case errors.Is(err, musiccore.ErrTooManyWaiters):
		return "too many clients wait for this key already (max-waiters-per-key): try again when some have had their turn; nothing was done"
	}
	return "the lock of this key cannot be read or written at QUORUM now: try again when a majority of its replicas answers (music check says which nodes do not); nothing was done"
}

// ShortError is Cassandra's error UNAVAILABLE (v4 spec section 9, 0x1000) for a request that the
// proxy had to make before the client's own operation: too few replicas are alive.
type ShortError struct {
	Text            string // Cassandra's own
	Consistency     uint16 // as on the wire
	Required, Alive int
}

// Error returns Cassandra's text.
func (e *ShortError) Error() string { return e.Text }

// failure returns the error that Cassandra would have given for the client's operation, which was
// not sent.
func (e *ShortError) failure() *wire.Failure {
	extra := binary.BigEndian.AppendUint16(nil, e.Consistency)
	extra = binary.BigEndian.AppendUint32(extra, uint32(e.Required))
	return &wire.Failure{
		Code: primitive.ErrorCodeUnavailable, Extra: binary.BigEndian.AppendUint32(extra, uint32(e.Alive)),
		Text: e.Text + ": writes that the last holder left unfinished cannot be settled; nothing was done",
	}
}
