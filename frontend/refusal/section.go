package refusal

import (
	"errors"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
)

// OfSection returns the error for a plain write that was to be carried out in a section of its own,
// and was not because of err. Its text does not speak of locks, since the client did not ask for
// one.
func OfSection(err error, t *catalog.Table) *wire.Failure {
	if short := (*ShortError)(nil); errors.Is(err, musiccore.ErrTooLarge) || errors.Is(err, musiccore.ErrPoisoned) || errors.As(err, &short) {
		return OfOperation(err, t, 0)
	}
	return TryAgain(t, whyUnserved(err))
}

// TryAgain returns the error for a write that was not done but may succeed a moment later.
func TryAgain(t *catalog.Table, why string) *wire.Failure {
	return &wire.Failure{Code: primitive.ErrorCodeOverloaded, Text: "MUSIC_UNAVAILABLE: " + t.String() + ": " + why + ": nothing was written, try again"}
}

// OthersWrite is the reason why a key did not become free in time.
const OthersWrite = "others are writing this key"

// StillBecoming is the reason why a table that is becoming critical cannot be written yet.
const StillBecoming = "it is not ready yet: its comment has just been changed, and some proxy has not followed"

// JustAltered is the reason why a statement that was read by former columns of its table is not sent.
const JustAltered = "its columns have just been changed, and what this statement names may be another key now"

// whyUnserved returns a text that tells why a write's section could not be served.
func whyUnserved(err error) string {
	switch {
	case errors.Is(err, musiccore.ErrSynchronising):
		return "writes that the last writer of this key left unfinished could not be settled in time"
	case errors.Is(err, musiccore.ErrNoSession):
		return "this proxy has lost touch with the cluster"
	case errors.Is(err, musiccore.ErrClock):
		return "the clocks of this proxy and of Cassandra differ by more than 10 s"
	case errors.Is(err, musiccore.ErrDraining):
		return "this proxy is shutting down"
	case errors.Is(err, musiccore.ErrTooManyWaiters):
		return "too many writes wait for this key already (max-waiters-per-key)"
	case errors.Is(err, musiccore.ErrLost), errors.Is(err, musiccore.ErrNotHeld):
		return "the write came too late for its turn"
	}
	return "this key cannot be read or written at QUORUM now (music check says which nodes do not answer)"
}
