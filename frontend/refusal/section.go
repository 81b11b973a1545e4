package refusal

import (
	"errors"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
)

// OfSection returns the error for a write without a lock whose section could not begin or
// came to nothing: nothing was written, and what a driver makes of it needs no word of locks.
func OfSection(err error, t *catalog.Table) *wire.Failure {
	if short := (*ShortError)(nil); errors.Is(err, musiccore.ErrTooLarge) || errors.Is(err, musiccore.ErrPoisoned) || errors.As(err, &short) {
		return OfOperation(err, t, 0)
	}
	return TryAgain(t, whyUnserved(err))
}

// TryAgain returns the error for a write that was not done, and may be done a moment later.
func TryAgain(t *catalog.Table, why string) *wire.Failure {
	return &wire.Failure{Code: primitive.ErrorCodeOverloaded, Text: "MUSIC_UNAVAILABLE: " + t.String() + ": " + why + ": nothing was written, try again"}
}

// StillBecoming says of a table that it does not give sections yet.
const StillBecoming = "it is not ready yet: its comment has just been changed, and some proxy has not followed"

// whyUnserved returns in words why a section of one write could not be served.
func whyUnserved(err error) string {
	switch {
	case errors.Is(err, musiccore.ErrSynchronising):
		return "what the last writer of this key left behind could not be settled in time"
	case errors.Is(err, musiccore.ErrNoSession):
		return "this proxy has lost touch with the cluster"
	case errors.Is(err, musiccore.ErrClock):
		return "the clocks of this proxy and of Cassandra differ by more than 10 s"
	case errors.Is(err, musiccore.ErrDraining):
		return "this proxy is shutting down"
	case errors.Is(err, musiccore.ErrTooManyWaiters):
		return "too many wait for this key already (max-waiters-per-key)"
	case errors.Is(err, musiccore.ErrLost), errors.Is(err, musiccore.ErrNotHeld):
		return "the write came too late for its turn"
	}
	return "this key cannot be read or written at QUORUM now (music check says which nodes do not answer)"
}
