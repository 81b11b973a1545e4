// Package batch is the non-blocking use of a lock that the ScyllaDB post asks for: "try to lock a
// bunch of keys, and then process the keys that were successfully locked … Not until the service
// fails to lock any of the keys remaining, would the locking fall back into the blocking mode, and
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
	for rest := slices.Clone(keys); len(rest) > 0; {
		free, err := tryAll(ctx, lock, rest)
		for _, key := range rest {
			if free[key] == nil {
				continue
			}
			if err == nil {
				err = work(free[key], key)
			}
			err = errors.Join(err, free[key].Leave(ctx))
		}
		if err != nil {
			return err
		}
		rest = slices.DeleteFunc(rest, func(key string) bool { return free[key] != nil })
		if len(free) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rand.N(sleep)): //nolint:gosec // G404: chance, not secrets
		}
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
