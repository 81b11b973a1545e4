package paper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
)

// hostOf returns an address without its port.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// in names the tables of the keyspace in a statement.
func (c *Client) in(text string) string {
	return strings.NewReplacer("lock_table", c.o.Keyspace+".lock_table", "data_table", c.o.Keyspace+".data_table").Replace(text)
}

// front is the result of a peek: the first reference of a queue, 0 if it is empty, and the guard.
type front struct {
	guard, ref int64
	start      time.Time // zero before the reference is granted
}

// of returns the position of a reference: 0 for the first, above 0 for one that waits, below 0 for
// one that was dequeued.
func (f front) of(ref int64) int {
	switch {
	case f.ref == 0 && ref <= f.guard || f.ref != 0 && ref < f.ref:
		return -1
	case f.ref == ref:
		return 0
	}
	return 1
}

// peek is lsPeek (III-B): "the lockRef that is first in the queue of the local replica".
func (c *Client) peek(ctx context.Context, key string) (f front, err error) {
	level := gocql.One
	if c.o.Repaired {
		level = gocql.Quorum
	}
	var guard, ref, start *int64
	err = c.ask(ctx, Peek, func(s *gocql.Session) error {
		return s.Query(c.in("SELECT guard, lockref, starttime FROM lock_table WHERE lockname = ? LIMIT 1"), key).
			Consistency(level).ScanContext(ctx, &guard, &ref, &start)
	})
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return f, err
	}
	if guard != nil {
		f.guard = *guard
	}
	if ref != nil {
		f.ref = *ref
	}
	if start != nil {
		f.start = time.UnixMicro(*start)
	}
	return f, nil
}

// generateAndEnqueue is one attempt of lsGenerateAndEnqueue (III-B, X-A4).
func (c *Client) generateAndEnqueue(ctx context.Context, key string) (ref int64, applied bool, err error) {
	var prevGuard *int64
	err = c.ask(ctx, ReadGuard, func(s *gocql.Session) error {
		return s.Query(c.in("SELECT guard FROM lock_table WHERE lockname = ? LIMIT 1"), key).
			Consistency(gocql.One).ScanContext(ctx, &prevGuard)
	})
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return 0, false, err
	}
	ref = 1
	if prevGuard != nil {
		ref = *prevGuard + 1
	}
	const batch = "BEGIN BATCH UPDATE lock_table SET guard = ? WHERE lockname = ? IF guard = ?; " +
		"INSERT INTO lock_table (lockname, lockref) VALUES (?, ?) IF NOT EXISTS; APPLY BATCH"
	err = c.ask(ctx, Enqueue, func(s *gocql.Session) (err error) {
		applied, err = s.Query(c.in(batch), ref, key, prevGuard, key, ref).Consistency(gocql.Quorum).MapScanCASContext(ctx, map[string]any{})
		return err
	})
	return ref, applied, err
}

// dequeue is lsDequeue (III-B, VI): no-op if the reference is not in the queue.
func (c *Client) dequeue(ctx context.Context, key string, ref int64) error {
	return c.ask(ctx, Dequeue, func(s *gocql.Session) error {
		_, err := s.Query(c.in("DELETE FROM lock_table WHERE lockname = ? AND lockref = ? IF EXISTS"), key, ref).
			Consistency(gocql.Quorum).MapScanCASContext(ctx, map[string]any{})
		return err
	})
}

// v2s is the function of VI and X-A3, in microseconds.
func (c *Client) v2s(ref int64, sinceStart time.Duration) int64 {
	return ref*c.o.T.Microseconds() + sinceStart.Microseconds()
}

// putQuorum is dsPutQuorum of a value (III-B, X-A4), or MSCP's write.
func (c *Client) putQuorum(ctx context.Context, step Step, key string, value []byte, stamp int64) error {
	if c.o.Variant != MSCP {
		return c.send(ctx, step, gocql.Quorum, "UPDATE data_table USING TIMESTAMP ? SET value = ? WHERE key = ?", stamp, value, key)
	}
	return c.ask(ctx, step, func(s *gocql.Session) error {
		_, err := s.Query(c.in("UPDATE data_table SET value = ? WHERE key = ? IF never = null"), value, key).
			Consistency(gocql.Quorum).MapScanCASContext(ctx, map[string]any{})
		return err
	})
}

// putFlag is dsPutQuorum of the synchFlag.
func (c *Client) putFlag(ctx context.Context, step Step, key string, flag bool, stamp int64) error {
	return c.send(ctx, step, gocql.Quorum, "UPDATE data_table USING TIMESTAMP ? SET synchflag = ? WHERE key = ?", stamp, flag, key)
}

// get reads a value, or returns section.ErrNoValue.
func (c *Client) get(ctx context.Context, step Step, level gocql.Consistency, key string) (value []byte, err error) {
	err = c.ask(ctx, step, func(s *gocql.Session) error {
		return s.Query(c.in("SELECT value FROM data_table WHERE key = ?"), key).Consistency(level).ScanContext(ctx, &value)
	})
	if errors.Is(err, gocql.ErrNotFound) || err == nil && value == nil {
		return nil, fmt.Errorf("%s: %w", step, section.ErrNoValue)
	}
	return value, err
}

// getFlag is dsGetQuorum of the synchFlag: false if there is none.
func (c *Client) getFlag(ctx context.Context, key string) (flag bool, err error) {
	err = c.ask(ctx, ReadFlag, func(s *gocql.Session) error {
		return s.Query(c.in("SELECT synchflag FROM data_table WHERE key = ?"), key).Consistency(gocql.Quorum).ScanContext(ctx, &flag)
	})
	if errors.Is(err, gocql.ErrNotFound) {
		return false, nil
	}
	return flag, err
}
