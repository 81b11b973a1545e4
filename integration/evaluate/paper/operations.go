package paper

import (
	"context"
	"errors"
	"fmt"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
)

// errLost is "youAreNoLongerLockHolder".
var errLost = fmt.Errorf("youAreNoLongerLockHolder: %w", section.ErrLost)

// errNack says that a reference is not the first yet, or is unknown to the replica.
var errNack = errors.New("the reference is not the first here")

// delta is δ of IV-B.
const delta = 1

// CreateLockRef enqueues a reference. One that was enqueued without an answer stays in the queue until
// ForcedRelease (IV-B: an orphan).
func (c *Client) CreateLockRef(ctx context.Context, key string) (int64, error) {
	for {
		ref, applied, err := c.generateAndEnqueue(ctx, key)
		if applied || err != nil {
			return ref, err
		}
		if err := c.pause(ctx); err != nil {
			return 0, err
		}
	}
}

// AcquireLock reports whether the reference is the first, and if so starts the section.
func (c *Client) AcquireLock(ctx context.Context, key string, ref int64) (bool, error) {
	start := c.o.Now()
	f, err := c.peek(ctx, key)
	if err != nil || f.of(ref) > 0 {
		return false, err
	}
	if f.of(ref) < 0 {
		return false, errLost
	}
	flag, err := c.getFlag(ctx, key)
	if err != nil {
		return false, err
	}
	if flag {
		if err := c.synchronise(ctx, key, ref, start); err != nil {
			return false, err
		}
	}
	c.mu.Lock()
	c.starts[lock{key, ref}] = start
	c.mu.Unlock()
	err = c.send(ctx, StartTime, gocql.One, "UPDATE lock_table USING TIMESTAMP 1 SET starttime = ? WHERE lockname = ? AND lockref = ?", start.UnixMicro(), key, ref)
	return err == nil, err
}

// synchronise defines the value for a new holder (IV-B).
func (c *Client) synchronise(ctx context.Context, key string, ref int64, start time.Time) error {
	value, err := c.get(ctx, SyncRead, gocql.Quorum, key)
	if err != nil && !errors.Is(err, section.ErrNoValue) {
		return err
	}
	if err := c.putQuorum(ctx, SyncWrite, key, value, c.v2s(ref, c.o.Now().Sub(start))); err != nil {
		return err
	}
	return c.putFlag(ctx, ResetFlag, key, false, c.v2s(ref, c.o.Now().Sub(start)))
}

// guard is what critical operations begin with (IV-A, X-A4): it returns the time since startTime.
func (c *Client) guard(ctx context.Context, key string, ref int64) (time.Duration, error) {
	f, err := c.peek(ctx, key)
	if err != nil {
		return 0, err
	}
	switch at := f.of(ref); {
	case at > 0:
		return 0, errNack
	case at < 0:
		return 0, errLost
	}
	now := c.o.Now()
	start := f.start
	if start.IsZero() {
		c.mu.Lock()
		start = c.starts[lock{key, ref}]
		c.mu.Unlock()
	}
	if start.IsZero() {
		return 0, errNack // not granted, as far as this replica knows
	}
	if now.Sub(start) >= c.o.T {
		return 0, fmt.Errorf("exceededDuration: %w", section.ErrLost)
	}
	return now.Sub(start), nil
}

// CriticalPut writes the value; nil deletes it (III-A, note 3).
func (c *Client) CriticalPut(ctx context.Context, key string, ref int64, value []byte) error {
	since, err := c.guard(ctx, key, ref)
	if err != nil {
		return err
	}
	if !c.o.Repaired {
		return c.putQuorum(ctx, DataPut, key, value, c.v2s(ref, since))
	}
	if err := c.putQuorum(ctx, DataPut, key, value, c.v2s(ref, c.later(lock{key, ref}, since))); err != nil {
		return err
	}
	return c.still(ctx, key, ref)
}

// later returns a time that is later than all times that it has returned for a section, whatever
// the clock does.
func (c *Client) later(l lock, since time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[l] = max(since, c.last[l]+time.Microsecond)
	return c.last[l]
}

// errUnsure says that a put was written, but perhaps after its section had ended.
var errUnsure = errors.New("the section ended while a put was under way")

// still returns nil if the reference is still the first at a quorum after a put was acknowledged.
func (c *Client) still(ctx context.Context, key string, ref int64) error {
	f, err := c.peek(ctx, key)
	if err == nil && f.of(ref) != 0 {
		return errUnsure
	}
	return err
}

// CriticalGet reads the value, or returns section.ErrNoValue.
func (c *Client) CriticalGet(ctx context.Context, key string, ref int64) ([]byte, error) {
	if _, err := c.guard(ctx, key, ref); err != nil {
		return nil, err
	}
	value, err := c.get(ctx, DataGet, gocql.Quorum, key)
	if c.o.Repaired && (err == nil || errors.Is(err, section.ErrNoValue)) {
		err = errors.Join(err, c.still(ctx, key, ref))
	}
	return value, err
}

// ReleaseLock ends the section.
func (c *Client) ReleaseLock(ctx context.Context, key string, ref int64) error {
	f, err := c.peek(ctx, key)
	if err != nil || f.of(ref) < 0 {
		return err
	}
	return c.RemoveLockReference(ctx, key, ref)
}

// RemoveLockReference removes a reference from the queue.
func (c *Client) RemoveLockReference(ctx context.Context, key string, ref int64) error {
	c.mu.Lock()
	delete(c.starts, lock{key, ref})
	delete(c.last, lock{key, ref})
	c.mu.Unlock()
	return c.dequeue(ctx, key, ref)
}

// ForcedRelease takes the lock from a holder that seems to have failed.
func (c *Client) ForcedRelease(ctx context.Context, key string, ref int64) error {
	f, err := c.peek(ctx, key)
	if err != nil || f.of(ref) < 0 {
		return err
	}
	since := time.Duration(0)
	if !f.start.IsZero() {
		since = c.o.Now().Sub(f.start)
	}
	stamp := c.v2s(ref, since) + delta
	if c.o.Repaired {
		stamp = c.v2s(ref, c.o.T) - 1
	}
	if err := c.putFlag(ctx, SetFlag, key, !c.o.FlagAsPrinted, stamp); err != nil {
		return err
	}
	return c.dequeue(ctx, key, ref)
}

// unlocked returns the stamp of a put without a lock: stamps rise in the order of the puts, and are
// below all of v2s.
func (c *Client) unlocked() int64 { return c.o.Now().UnixMicro() - 1<<60 }

// Put writes a value without a lock.
func (c *Client) Put(ctx context.Context, key string, value []byte) error {
	return c.send(ctx, DataPut, gocql.One, "UPDATE data_table USING TIMESTAMP ? SET value = ? WHERE key = ?", c.unlocked(), value, key)
}

// GetEventual reads a value without a lock, or returns section.ErrNoValue.
func (c *Client) GetEventual(ctx context.Context, key string) ([]byte, error) {
	return c.get(ctx, DataGet, gocql.One, key)
}

// GetAllKeys returns the keys that one replica knows, in no order.
func (c *Client) GetAllKeys(ctx context.Context) (keys []string, err error) {
	err = c.ask(ctx, DataGet, func(s *gocql.Session) error {
		keys = nil
		iter := s.Query(c.in("SELECT key FROM data_table")).Consistency(gocql.One).IterContext(ctx)
		for key := ""; iter.Scan(&key); {
			keys = append(keys, key)
		}
		return iter.Close()
	})
	return keys, err
}

// pause waits between two attempts.
func (c *Client) pause(ctx context.Context) error {
	timer := time.NewTimer(c.o.Poll)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
