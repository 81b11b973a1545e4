// Package battery has the tests that every system of the evaluation must pass on one node, without
// faults. The faults that break a system are shown by its own tests and by the safety table.
package battery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"

	"github.com/stretchr/testify/assert"
)

// System is a system under test.
type System struct {
	Name string
	New  func(t testing.TB) section.Client // another process of the system; battery closes it

	Clients    int           // that want one key; default 3
	Goroutines int           // of each client; default 2
	Sections   int           // of each goroutine; default 3
	Limit      time.Duration // of each test, for a system that stands still; default 1 minute
}

// Run runs the battery. The keys of a run begin with the time, so that runs share a store.
func Run(t *testing.T, s System) {
	t.Helper()
	s.Clients, s.Goroutines, s.Sections = cmp.Or(s.Clients, 3), cmp.Or(s.Goroutines, 2), cmp.Or(s.Sections, 3)
	s.Limit = cmp.Or(s.Limit, time.Minute)
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), s.Limit)
			defer cancel()
			r := &run{system: s, key: s.Name + strconv.FormatInt(time.Now().UnixNano(), 36), open: func() section.Client {
				client := s.New(t)
				t.Cleanup(client.Close)
				return client
			}}
			assert.NoError(t, c.do(ctx, r), s.Name)
		})
	}
}

// run is what a check uses.
type run struct {
	system System
	key    string
	open   func() section.Client
}

// check is one test of the battery.
type check struct {
	name string
	do   func(context.Context, *run) error
}

// checks returns all checks.
func checks() []check {
	return []check{
		{"a value is kept", valueIsKept},
		{"sections exclude each other", sectionsExclude},
		{"keys do not disturb each other", keysAreApart},
		{"a cancelled Enter leaves nothing", cancelledLeavesNothing},
		{"what else it can do", extras},
	}
}

// within calls a function in a section of its own.
func within(ctx context.Context, client section.Client, key string, do func(section.Held) error) error {
	held, err := client.Enter(ctx, key)
	if err != nil {
		return fmt.Errorf("enter: %w", err)
	}
	if err := do(held); err != nil {
		return errors.Join(err, held.Leave(ctx))
	}
	if err := held.Leave(ctx); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}

// wants reads the value and returns an error if it is another one.
func wants(ctx context.Context, held section.Held, want string) error {
	value, err := held.Get(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("get: %w", err)
	case string(value) != want:
		return fmt.Errorf("got %q, not %q", value, want)
	}
	return nil
}

// valueIsKept: the value that was put last is returned by gets, in the section and in later ones,
// for any bytes.
func valueIsKept(ctx context.Context, r *run) error {
	one, two := r.open(), r.open()
	last := "\x00\xff'\"" + r.key
	err := within(ctx, one, r.key, func(held section.Held) error {
		switch value, err := held.Get(ctx); {
		case err == nil:
			return fmt.Errorf("a new key has %q", value)
		case !errors.Is(err, section.ErrNoValue):
			return fmt.Errorf("get of a new key: %w", err)
		}
		for _, value := range []string{"zz", "a", last} {
			if err := held.Put(ctx, []byte(value)); err != nil {
				return fmt.Errorf("put: %w", err)
			}
			if err := wants(ctx, held, value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, client := range []section.Client{two, one} {
		if err := within(ctx, client, r.key, func(held section.Held) error { return wants(ctx, held, last) }); err != nil {
			return err
		}
	}
	return nil
}

// sectionsExclude: many clients raise one number. Each of them enters as often as it tries, each
// section sees the put of the one before, and the history has no violation of entry consistency.
func sectionsExclude(ctx context.Context, r *run) error {
	var history judge.History
	var group sync.WaitGroup
	errs := make(chan error, r.system.Clients*r.system.Goroutines*r.system.Sections)
	for id := range r.system.Clients {
		client := judge.Record(r.open(), id+1, history.Add)
		for range r.system.Goroutines {
			group.Go(func() {
				for range r.system.Sections {
					errs <- within(ctx, client, r.key, func(held section.Held) error { return raise(ctx, held) })
				}
			})
		}
	}
	group.Wait()
	var all []error
	for range cap(errs) {
		all = append(all, <-errs)
	}
	for _, v := range history.Check() {
		all = append(all, errors.New(v.String()))
	}
	all = append(all, within(ctx, r.open(), r.key, func(held section.Held) error { return wants(ctx, held, strconv.Itoa(cap(errs))) }))
	return errors.Join(all...)
}

// raise adds one to the number that is the value.
func raise(ctx context.Context, held section.Held) error {
	value, err := held.Get(ctx)
	if err != nil && !errors.Is(err, section.ErrNoValue) {
		return fmt.Errorf("get: %w", err)
	}
	n, _ := strconv.Atoi(string(value)) // no value is 0
	if err := held.Put(ctx, []byte(strconv.Itoa(n+1))); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	return nil
}

// keysAreApart: holding a key does not delay sections of other keys, neither of this client nor of
// others.
func keysAreApart(ctx context.Context, r *run) error {
	one, two := r.open(), r.open()
	return within(ctx, one, r.key, func(held section.Held) error {
		if err := held.Put(ctx, []byte("mine")); err != nil {
			return fmt.Errorf("put: %w", err)
		}
		for _, client := range []section.Client{one, two} {
			if err := within(ctx, client, r.key+"b", func(other section.Held) error { return other.Put(ctx, []byte("other")) }); err != nil {
				return fmt.Errorf("at another key: %w", err)
			}
		}
		return wants(ctx, held, "mine")
	})
}

// attempt is the time for an Enter that cannot succeed.
const attempt = 500 * time.Millisecond

// cancelledLeavesNothing: an Enter that is cancelled does not enter, and does not delay later ones.
func cancelledLeavesNothing(ctx context.Context, r *run) error {
	one, two := r.open(), r.open()
	err := within(ctx, one, r.key, func(held section.Held) error {
		short, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()
		if other, err := two.Enter(short, r.key); err == nil {
			return errors.Join(errors.New("two holders"), other.Leave(ctx))
		}
		return held.Put(ctx, []byte("kept"))
	})
	if err != nil {
		return err
	}
	for _, client := range []section.Client{r.open(), two} {
		if err := within(ctx, client, r.key, func(held section.Held) error { return wants(ctx, held, "kept") }); err != nil {
			return fmt.Errorf("after an Enter that was given up: %w", err)
		}
	}
	return nil
}
