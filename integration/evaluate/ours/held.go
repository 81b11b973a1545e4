package ours

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"golang.org/x/sync/errgroup"

	"music/integration/evaluate/section"
)

// held is a lock that was granted.
type held struct {
	*client
	key   string
	ref   int64
	begun *[]byte // the value that was read with the lock, until the first Put; nil: none was
}

// Token is the reference, which rises with each lock of its key.
func (h *held) Token() int64 { return h.ref }

// Get reads under the lock.
func (h *held) Get(ctx context.Context) ([]byte, error) {
	if h.begun != nil {
		return value(*h.begun, nil)
	}
	var v []byte
	err := h.cql.Query("SELECT v FROM "+h.table+" WHERE k = ? USING LOCK ?", h.key, h.ref).ScanContext(ctx, &v)
	return value(v, lost(err))
}

// Put writes under the lock.
func (h *held) Put(ctx context.Context, v []byte) error {
	h.begun = nil
	return h.put(ctx, v)
}

// put is one write, of several at a time.
func (h *held) put(ctx context.Context, v []byte) error {
	return lost(h.cql.Query("UPDATE "+h.table+" USING LOCK ? SET v = ? WHERE k = ?", h.ref, v, h.key).ExecContext(ctx))
}

// underway is how many puts of a PutMany may be in flight.
const underway = 32

// PutMany writes values without waiting for each answer. The last one is sent when all others have
// been answered, so it is the key's value afterwards.
func (h *held) PutMany(ctx context.Context, values [][]byte) error {
	if len(values) == 0 {
		return nil
	}
	var group errgroup.Group
	group.SetLimit(underway)
	last := len(values) - 1
	for _, v := range values[:last] {
		group.Go(func() error { return h.put(ctx, v) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return h.Put(ctx, values[last])
}

// Renew lengthens the lease.
func (h *held) Renew(ctx context.Context) error {
	g, err := h.ask(ctx, "SELECT LOCK "+h.table+" WHERE k = ? USING LOCK ?"+h.lease(), h.key, h.ref)
	if err == nil && g.state != "HELD" {
		return fmt.Errorf("%w: %s", section.ErrLost, g.state)
	}
	return lost(err)
}

// Leave unlocks the key.
func (h *held) Leave(ctx context.Context) error {
	g, err := h.ask(ctx, "SELECT UNLOCK "+h.table+" WHERE k = ? USING LOCK ?", h.key, h.ref)
	if err == nil && !g.applied {
		return fmt.Errorf("%w: %s", section.ErrLost, g.state)
	}
	return lost(err)
}

// lost returns an error with section.ErrLost if the lock was lost.
func lost(err error) error {
	var told gocql.RequestError
	if !errors.As(err, &told) || strings.Contains(told.Message(), "is unknown") {
		return err
	}
	if strings.Contains(told.Message(), "MUSIC_LOST") || strings.Contains(told.Message(), "MUSIC_NOT_HELD") {
		return fmt.Errorf("%w: %w", section.ErrLost, err)
	}
	return err
}

// value is the answer to a read.
func value(v []byte, err error) ([]byte, error) {
	if errors.Is(err, gocql.ErrNotFound) || err == nil && v == nil {
		return nil, section.ErrNoValue
	}
	return v, err
}

// again is after how long a FOR UPDATE is sent again that was refused for the moment.
const again = 100 * time.Millisecond

// forUpdate is a client that locks and reads with one statement.
type forUpdate struct{ *client }

// Enter sends FOR UPDATE, and continues as with LOCK if the state is QUEUED.
func (c *forUpdate) Enter(ctx context.Context, key string) (section.Held, error) {
	for {
		row := map[string]any{}
		applied, err := c.cql.Query("SELECT v FROM "+c.table+" WHERE k = ? FOR UPDATE WAIT ?"+c.lease(), key, c.o.Wait.Milliseconds()).
			MapScanCASContext(ctx, row)
		ref, _ := row["lock_ref"].(int64)
		switch {
		case err != nil && strings.Contains(err.Error(), "nothing was done") && ctx.Err() == nil: // as while a table becomes critical
			section.Rest(ctx, again)
		case err != nil:
			return nil, err
		case applied:
			v, _ := row["v"].([]byte)
			return &held{client: c.client, key: key, ref: ref, begun: &v}, nil
		case ref == 0: // none was given
		default:
			if h, err := c.goOn(ctx, key, ref); h != nil || err != nil {
				return h, err
			}
		}
	}
}

// goOn waits until a reference is granted; it returns nil if that is lost.
func (c *forUpdate) goOn(ctx context.Context, key string, ref int64) (section.Held, error) {
	h := &held{client: c.client, key: key, ref: ref}
	for {
		g, err := c.ask(ctx, "SELECT LOCK "+c.table+" WHERE k = ? USING LOCK ? WAIT ?", key, ref, c.o.Wait.Milliseconds())
		switch {
		case ctx.Err() != nil:
			leave, end := context.WithTimeout(context.WithoutCancel(ctx), c.o.Timeout)
			defer end()
			return nil, errors.Join(context.Cause(ctx), h.Leave(leave))
		case err != nil && !unanswered(err):
			return nil, err
		case err == nil && g.state == "HELD":
			return h, nil
		case err == nil && g.state != "QUEUED":
			return nil, nil
		}
	}
}

// automatic is a client without locks.
type automatic struct{ client *client }

// Close closes the connections.
func (c *automatic) Close() { c.client.Close() }

// Enter does nothing.
func (c *automatic) Enter(_ context.Context, key string) (section.Held, error) {
	return &plain{client: c.client, key: key}, nil
}

// plain is a key that the client writes without a lock.
type plain struct {
	client *client
	key    string
}

// Get reads at QUORUM, without a lock.
func (p *plain) Get(ctx context.Context) ([]byte, error) {
	var v []byte
	err := p.client.cql.Query("SELECT v FROM "+p.client.table+" WHERE k = ?", p.key).ScanContext(ctx, &v)
	return value(v, err)
}

// Put writes without a lock; the proxy gives the write a section of its own.
func (p *plain) Put(ctx context.Context, v []byte) error {
	return p.client.cql.Query("UPDATE "+p.client.table+" SET v = ? WHERE k = ?", v, p.key).ExecContext(ctx)
}

// Leave does nothing.
func (p *plain) Leave(context.Context) error { return nil }
