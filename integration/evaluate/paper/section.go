package paper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
)

// cleanup is the time for removing a reference that is not needed any more.
const cleanup = 10 * time.Second

// Enter is Listing 1 up to "enter critical section". It releases a first reference by force that
// stays first for Options.Patience.
func (c *Client) Enter(ctx context.Context, key string) (section.Held, error) {
	if c.o.Variant == CassaEV {
		return &local{c, key}, nil
	}
	ref, err := c.retried(ctx, key)
	if err != nil {
		return nil, err
	}
	if err := c.wait(ctx, key, ref); err != nil {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		return nil, errors.Join(err, c.RemoveLockReference(after, key, ref))
	}
	return &Held{c, key, ref}, nil
}

// retried repeats CreateLockRef until it is answered (III-A, Failure Semantics).
func (c *Client) retried(ctx context.Context, key string) (ref int64, err error) {
	err = c.until(ctx, func() error {
		ref, err = c.CreateLockRef(ctx, key)
		return err
	})
	return ref, err
}

// until repeats do until it is acknowledged, the section is lost, or ctx ends.
func (c *Client) until(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || errors.Is(err, section.ErrLost) || errors.Is(err, section.ErrNoValue) || errors.Is(err, errUnsure) {
			return err
		}
		if paused := c.pause(ctx); paused != nil {
			return errors.Join(err, paused)
		}
	}
}

// wait calls AcquireLock until it returns true.
func (c *Client) wait(ctx context.Context, key string, ref int64) error {
	var first int64
	var since time.Time
	return c.until(ctx, func() error {
		if in, err := c.AcquireLock(ctx, key, ref); in || err != nil {
			return err
		}
		f, err := c.peek(ctx, key)
		if err != nil {
			return err
		}
		if f.ref != first {
			first, since = f.ref, time.Now()
		}
		if first != 0 && f.of(ref) > 0 && time.Since(since) > c.o.Patience {
			return errors.Join(errNack, c.ForcedRelease(ctx, key, first))
		}
		return errNack
	})
}

// EnterMany enters several keys in lexicographic order. If one cannot be entered, it leaves the
// others.
func (c *Client) EnterMany(ctx context.Context, keys ...string) (all []section.Held, err error) {
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		held, err := c.Enter(ctx, key)
		if err != nil {
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
			defer cancel()
			for _, h := range all {
				err = errors.Join(err, h.Leave(after))
			}
			return nil, err
		}
		all = append(all, held)
	}
	return all, nil
}

// Force is ForcedRelease of the first of the queue.
func (c *Client) Force(ctx context.Context, key string) error {
	f, err := c.peek(ctx, key)
	if err != nil || f.ref == 0 {
		return err
	}
	return c.ForcedRelease(ctx, key, f.ref)
}

// Held is a section.
type Held struct {
	c   *Client
	key string
	ref int64
}

// Token is the lock reference.
func (h *Held) Token() int64 { return h.ref }

// Get is CriticalGet, until it is answered.
func (h *Held) Get(ctx context.Context) (value []byte, err error) {
	err = h.c.until(ctx, func() error {
		value, err = h.c.CriticalGet(ctx, h.key, h.ref)
		return err
	})
	return value, plain(err)
}

// plain returns section.ErrNoValue without wrapping, since it is an answer.
func plain(err error) error {
	if errors.Is(err, section.ErrNoValue) && !errors.Is(err, errUnsure) {
		return section.ErrNoValue
	}
	return err
}

// Put is CriticalPut, until it is answered. A put that was sent more than once may have been
// written although the section was lost in the end.
func (h *Held) Put(ctx context.Context, value []byte) error {
	sent := false
	err := h.c.until(ctx, func() error {
		err := h.c.CriticalPut(ctx, h.key, h.ref, value)
		sent = sent || err != nil && !errors.Is(err, section.ErrLost) && !errors.Is(err, errNack)
		return err
	})
	if sent && errors.Is(err, section.ErrLost) {
		return fmt.Errorf("%w: %v", errUnsure, err) //nolint:errorlint // it may have been written: not section.ErrLost
	}
	return err
}

// Leave is ReleaseLock, until it is answered.
func (h *Held) Leave(ctx context.Context) error {
	return h.c.until(ctx, func() error { return h.c.ReleaseLock(ctx, h.key, h.ref) })
}

// local is what CassaEV does: a write to one replica, without a lock.
type local struct {
	c   *Client
	key string
}

// Get is GetEventual.
func (l *local) Get(ctx context.Context) ([]byte, error) {
	value, err := l.c.GetEventual(ctx, l.key)
	return value, plain(err)
}

// Put writes to one replica.
func (l *local) Put(ctx context.Context, value []byte) error {
	return l.c.send(ctx, DataPut, gocql.One, "UPDATE data_table SET value = ? WHERE key = ?", value, l.key)
}

// Leave does nothing.
func (l *local) Leave(context.Context) error { return nil }
