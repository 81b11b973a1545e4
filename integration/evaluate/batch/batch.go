// Package batch is the non-blocking use of a lock that the ScyllaDB post asks for: "try to lock a
// bunch of keys, and then process the keys that were successfully locked … Not until the service
// fails to lock any of the keys remaining, would the locking fallback into the blocking mode, and
// the service would keep retrying with random limited sleep periods". It is for every system that
// can try.
package batch

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// Process locks those keys that are free, calls work for each of them and leaves it, and repeats
// that with the rest. Only if none was free it sleeps, for at most sleep. It returns the first
// error of work, after leaving what it has locked.
func Process(ctx context.Context, lock section.Trier, keys []string, sleep time.Duration, work func(section.Held, string) error) error {
	return process(ctx, keys, work, func(rest []string) (map[string]section.Held, error) {
		free, err := tryAll(ctx, lock, rest)
		if len(free) == 0 && err == nil {
			section.Rest(ctx, rand.N(sleep)) //nolint:gosec // G404: chance, not secrets
		}
		return free, err
	})
}

// Queue is a Client that can ask for several keys at once, and in which one waits for a key.
type Queue interface {
	section.Client
	section.Taker
}

// ProcessQueued does the same with a lock that takes all that is free in one statement. If none was
// free it waits for one of the rest in that key's queue: this is the blocking mode of a lock that
// has one.
func ProcessQueued(ctx context.Context, lock Queue, keys []string, work func(section.Held, string) error) error {
	return process(ctx, keys, work, func(rest []string) (map[string]section.Held, error) {
		free, err := lock.TakeFree(ctx, rest)
		if len(free) == 0 && err == nil {
			key := rest[rand.N(len(rest))] //nolint:gosec // G404: likewise
			var held section.Held
			if held, err = lock.Enter(ctx, key); err == nil {
				free = map[string]section.Held{key: held}
			}
		}
		return free, err
	})
}

// process takes some of the keys, calls work for each and leaves it, until none is left. What take
// returns with an error is left, too.
func process(ctx context.Context, keys []string, work func(section.Held, string) error, take func(rest []string) (map[string]section.Held, error)) error {
	for rest := slices.Clone(keys); len(rest) > 0; {
		taken, err := take(rest)
		for _, key := range rest {
			if taken[key] == nil {
				continue
			}
			if err == nil {
				err = work(taken[key], key)
			}
			err = errors.Join(err, taken[key].Leave(ctx))
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		rest = slices.DeleteFunc(rest, func(key string) bool { return taken[key] != nil })
	}
	return nil
}

// tryAll tries every key once, and returns those that it has locked, also with an error. An unknown
// outcome is not an error: the key is tried again.
func tryAll(ctx context.Context, lock section.Trier, keys []string) (map[string]section.Held, error) {
	free := map[string]section.Held{}
	for _, key := range keys {
		h, ok, err := lock.TryEnter(ctx, key)
		if err != nil && !store.Unknown(err) {
			return free, err
		}
		if ok && err == nil {
			free[key] = h
		}
	}
	return free, nil
}
