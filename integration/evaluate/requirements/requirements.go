// Package requirements are the tests that the ScyllaDB post had before it had a lock: "Tests included
// deadlock test, starvation test, redeployment scenario, stop-the-world scenario and of course,
// performance tests". The post has their names only; what each does is written here, after the
// requirements it lists: liveness, safety, high availability, non-blocking, speed, and progress. They
// are for any system that can try.
package requirements

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"music/integration/evaluate/batch"
	"music/integration/evaluate/section"
)

// Lock is a system under test.
type Lock interface {
	section.Client
	section.Trier
}

// System is how a test gets clients of it.
type System struct {
	New    func() (Lock, error) // another worker, a process of its own
	Mortal func() (Lock, error) // one that is taken for dead when it has said nothing for a moment
	Sleep  time.Duration        // the longest of a batch of which nothing is free
}

// keys returns n keys of a test.
func keys(of string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, of+strconv.Itoa(i))
	}
	return all
}

// raise adds one to the number under a key.
func raise(ctx context.Context, h section.Held) error {
	value, err := h.Get(ctx)
	if err != nil && !errors.Is(err, section.ErrNoValue) {
		return err
	}
	n, _ := strconv.Atoi(string(value)) // no value is 0
	return h.Put(ctx, []byte(strconv.Itoa(n+1)))
}

// totals checks the number under each key.
func totals(ctx context.Context, lock Lock, all []string, want int) error {
	for _, key := range all {
		h, err := lock.Enter(ctx, key)
		if err != nil {
			return err
		}
		value, err := h.Get(ctx)
		if err := errors.Join(err, h.Leave(ctx)); err != nil {
			return err
		}
		if string(value) != strconv.Itoa(want) {
			return fmt.Errorf("%s is %s, not %d: an update is lost", key, value, want)
		}
	}
	return nil
}

// workers runs n of them, each with a client of its own, and returns the first error.
func (s System) workers(n int, work func(i int, lock Lock) error) error {
	return workers(s.New, n, work)
}

// workers is the same with clients of a kind.
func workers(open func() (Lock, error), n int, work func(i int, lock Lock) error) error {
	var all errgroup.Group
	for i := range n {
		lock, err := open()
		if err != nil {
			return err
		}
		all.Go(func() error {
			defer lock.Close()
			return work(i, lock)
		})
	}
	return all.Wait()
}

// Deadlock has workers take the same batch in opposite orders and keep each key until they have
// processed the batch. All must end, and every key must have been processed by each.
func (s System) Deadlock(ctx context.Context) error {
	const workers = 2
	all := keys("deadlock", 6)
	err := s.workers(workers, func(i int, lock Lock) error {
		mine := slices.Clone(all)
		if i%2 == 1 {
			slices.Reverse(mine)
		}
		return batch.Process(ctx, lock, mine, s.Sleep, func(h section.Held, _ string) error { return raise(ctx, h) })
	})
	if err != nil {
		return err
	}
	return s.check(ctx, all, workers)
}

// Starvation has workers enter one key again and again. Each must get it as often as it tries.
func (s System) Starvation(ctx context.Context, workers int) error {
	const sections = 5
	err := s.workers(workers, func(_ int, lock Lock) error {
		for range sections {
			h, err := lock.Enter(ctx, "starvation")
			if err != nil {
				return err
			}
			if err := errors.Join(raise(ctx, h), h.Leave(ctx)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.check(ctx, []string{"starvation"}, workers*sections)
}

// Redeployment has all workers end in the middle of a batch, one of them without leaving. Workers
// that start afterwards must be able to process the whole batch.
func (s System) Redeployment(ctx context.Context) error {
	all := keys("redeployment", 4)
	stop := errors.New("redeployed")
	err := workers(s.Mortal, 1, func(_ int, lock Lock) error {
		if _, err := lock.Enter(ctx, all[0]); err != nil { // and its process ends
			return err
		}
		err := batch.Process(ctx, lock, all[1:], s.Sleep, func(section.Held, string) error { return stop })
		if !errors.Is(err, stop) {
			return fmt.Errorf("work that fails ends with %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = s.workers(2, func(_ int, lock Lock) error {
		return batch.Process(ctx, lock, all, s.Sleep, func(h section.Held, _ string) error { return raise(ctx, h) })
	})
	if err != nil {
		return err
	}
	return s.check(ctx, all, 2)
}

// ErrSafety is returned by StopTheWorld if the put of the paused worker was carried out.
var ErrSafety = errors.New("a worker that had been taken for dead has written")

// ErrLost is returned by StopTheWorld if that put was acknowledged, and not carried out.
var ErrLost = errors.New("what a worker has written that had been taken for dead is lost")

// StopTheWorld has a worker pause within its section until another one enters. When it continues,
// its put must be refused.
func (s System) StopTheWorld(ctx context.Context) error {
	stopped, err := s.Mortal()
	if err != nil {
		return err
	}
	defer stopped.Close()
	late, err := stopped.Enter(ctx, "world")
	if err != nil {
		return err
	}
	other, err := s.New()
	if err != nil {
		return err
	}
	defer other.Close()
	h, err := other.Enter(ctx, "world")
	if err != nil {
		return err
	}
	if err := h.Put(ctx, []byte("of the other")); err != nil {
		return err
	}
	wrote := late.Put(ctx, []byte("late"))
	value, err := h.Get(ctx)
	if err := errors.Join(err, h.Leave(ctx)); err != nil {
		return err
	}
	if string(value) != "of the other" {
		return fmt.Errorf("%w: %q, told %v", ErrSafety, value, wrote) //nolint:errorlint // nil where the put was acknowledged
	}
	if wrote == nil {
		return ErrLost
	}
	return nil
}

// Performance has two workers process batches of which a share is the same for both. It returns how
// long the slower worker took with each share; the difference to a share of 0 is the cost of conflict.
func (s System) Performance(ctx context.Context, size int, shares ...float64) ([]time.Duration, error) {
	var took []time.Duration
	for round, share := range shares {
		common := keys(fmt.Sprintf("performance-%d-common", round), int(share*float64(size)))
		var each [2]time.Duration
		err := s.workers(len(each), func(i int, lock Lock) error {
			own := keys(fmt.Sprintf("performance-%d-%d-", round, i), size-len(common))
			began := time.Now()
			err := batch.Process(ctx, lock, append(own, common...), s.Sleep, func(h section.Held, _ string) error { return raise(ctx, h) })
			each[i] = time.Since(began)
			return err
		})
		if err != nil {
			return nil, err
		}
		took = append(took, max(each[0], each[1]))
		if err := s.check(ctx, common, len(each)); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// check checks totals with a client of its own.
func (s System) check(ctx context.Context, all []string, want int) error {
	return s.workers(1, func(_ int, lock Lock) error { return totals(ctx, lock, all, want) })
}
