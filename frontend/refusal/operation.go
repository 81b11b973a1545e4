// Package refusal makes the errors that a client gets for an operation that was not done, or whose outcome is
// unknown.
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

// ErrAway says that another proxy has the reference and cannot be asked. Nothing was done, or it
// may be asked for again. The text of what wraps it is for clients: it names no address.
var ErrAway = errors.New("the proxy that has this lock_ref does not answer: try again under it; the lock goes on here when that proxy's session has ended")

// OfOperation returns the error for an operation under a lock that was not done; ref is the
// reference as the client sees it.
func OfOperation(err error, t *catalog.Table, ref int64) *wire.Failure {
	var short *ShortError
	switch {
	case errors.Is(err, musiccore.ErrSynchronising) && errors.As(err, &short):
		return short.failure()
	case errors.Is(err, musiccore.ErrNotHeld):
		return wire.Invalid("MUSIC_NOT_HELD: lock_ref %d is not the holder of this key of %s: it waits, or was never given for this key; nothing was done: LOCK … USING LOCK %[1]d goes on waiting and tells where it stands", ref, t)
	case errors.Is(err, musiccore.ErrReleased):
		return wire.Invalid("MUSIC_LOST: lock_ref %d on %s was given back by UNLOCK; nothing was written, and nothing more will succeed under it: LOCK again", ref, t)
	case errors.Is(err, musiccore.ErrLost):
		return wire.Invalid("MUSIC_LOST: lock_ref %d on %s has expired, was preempted or was given back; nothing was written, and nothing more will succeed under it: LOCK again", ref, t)
	case errors.Is(err, musiccore.ErrTooLarge):
		return wire.Invalid("MUSIC_REFUSED: this key of %s cannot be locked, and trying again does not help: %s; whoever runs Cassandra can mend it (docs/runbook.md, MUSIC_REFUSED); nothing was done", t, tooLarge(err))
	case errors.Is(err, musiccore.ErrPoisoned):
		return wire.Invalid("MUSIC_REFUSED: this key of %s cannot be locked: a value of it has a write timestamp in the far future, which nothing can overwrite, and trying again does not help: whoever runs Cassandra can mend it (docs/runbook.md, MUSIC_REFUSED); nothing was done", t)
	}
	return wire.Invalid("MUSIC_UNAVAILABLE: %s: %s", t, unavailable(err))
}

// StaleReferences returns the error for an operation under a reference that this proxy cannot judge:
// keyspace music was dropped since it has read by what references are known.
func StaleReferences(t *catalog.Table) *wire.Failure {
	return wire.Invalid("MUSIC_UNAVAILABLE: %s: keyspace music was dropped, and this proxy has not read yet what was made in its place: try again in a moment, or at another proxy; nothing was done", t)
}

// tooLarge returns what of a key cannot be synchronised, as far as the proxy that has tried it has
// said.
func tooLarge(err error) string {
	if _, cause, told := strings.Cut(err.Error(), musiccore.ErrTooLarge.Error()+": "); told {
		return cause
	}
	return "a row of it is larger than Cassandra takes in one mutation"
}

// unavailable returns in words for whoever wrote the application why an operation could not be done
// now, and what to do. Nothing was sent to Cassandra for it. What went wrong in detail names
// addresses that clients do not know; it is in the log.
func unavailable(err error) string {
	switch {
	case errors.Is(err, ErrAway):
		return err.Error()
	case errors.Is(err, musiccore.ErrSynchronising):
		return "what the last holder left behind could not be settled in time: try again under the same lock_ref; nothing was done"
	case errors.Is(err, musiccore.ErrNoSession):
		return "this proxy has lost touch with the cluster and may neither give nor serve locks: try again, or at another proxy; nothing was done"
	case errors.Is(err, musiccore.ErrClock):
		return "the clocks of this proxy and of Cassandra differ by more than 10 s: no new lock is given until whoever runs them sets them right; nothing was done"
	case errors.Is(err, musiccore.ErrDraining):
		return "this proxy is shutting down and gives no new lock: LOCK at another one; nothing was done"
	case errors.Is(err, musiccore.ErrTooManyWaiters):
		return "too many wait for this key already (max-waiters-per-key): try again when some have had their turn; nothing was done"
	}
	return "the lock of this key cannot be read or written at QUORUM now: try again when a majority of its replicas answers (music check says which nodes do not); nothing was done"
}

// ShortError is Cassandra's word that too few replicas live for what the proxy had to ask of a key
// before the client's own operation (v4 spec section 9, 0x1000).
type ShortError struct {
	Text            string // Cassandra's own
	Consistency     uint16 // as on the wire
	Required, Alive int
}

// Error returns what Cassandra said.
func (e *ShortError) Error() string { return e.Text }

// failure tells a client what Cassandra would have told of its operation, which was not sent.
func (e *ShortError) failure() *wire.Failure {
	extra := binary.BigEndian.AppendUint16(nil, e.Consistency)
	extra = binary.BigEndian.AppendUint32(extra, uint32(e.Required))
	return &wire.Failure{
		Code: primitive.ErrorCodeUnavailable, Extra: binary.BigEndian.AppendUint32(extra, uint32(e.Alive)),
		Text: e.Text + ": what the last holder left behind cannot be settled; nothing was done",
	}
}
