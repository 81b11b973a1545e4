// Package timeuuid is the lock table of the slides "A locking service based on Cassandra's
// light-weight transactions for MUSIC": for every key a partition of references, sorted by time.
//
//	slides                                                  here
//	"create a lock table (key, UUID) that partitions        table, PRIMARY KEY (key, ref)
//	 according to key and sorts according to UUID"
//	createLockRef: "(i) Create a unique time-based UUID     INSERT … IF NOT EXISTS, the client's clock
//	 for this key (ii) Use CAI to insert into lock table"
//	acquireLock: "a select of the top most row for the      SELECT … LIMIT 1 at ONE; the slides say
//	 key … return true if the lockRef UUID matches it"      "neither requires atomic reads"
//	releaseLock: "Atomically deletes the row"               DELETE … IF EXISTS
//	criticalGet, criticalPut "(lockRef, key, …)"            Get, Put: the check of acquireLock, and package store
//
// The slides leave out where the values are: here they are ordinary rows, read and written at QUORUM.
// Listing 1 gives the reference to both operations and does not say what for; here, as in the paper
// (IV-A), one that is not first waits, and one that is there no more is refused, as far as one replica
// knows. The slides say nothing of a holder that dies: its row stays until somebody calls Force, which
// deletes the top row and tells the one in it nothing.
//
// What breaks it. Order is by the clients' clocks, not by arrival. A client whose clock is behind
// creates a reference below that of a living holder, becomes the top row itself, and there are two
// holders: the first one goes on when the second has left, with what it has read before. With
// Options.Ordered, the repair, a static column keeps the last reference given out, the same
// conditional batch raises it, and a reference is never made below it: order is that of insertion.
// What stays is that nothing fences a put that has passed its check when its client is forced out, and
// that values are written with the clients' clocks: the put of one that is behind is acknowledged and
// lost.
package timeuuid

import (
	"context"
	"fmt"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// table is the lock table; last is used by Options.Ordered only.
const table = `CREATE TABLE IF NOT EXISTS timeuuid_locks
	(key text, ref timeuuid, last timeuuid static, PRIMARY KEY (key, ref))`

// The statements; hooks of tests know them by their first words.
const (
	insertStatement = "INSERT INTO timeuuid_locks (key, ref) VALUES (?, ?) IF NOT EXISTS"
	topStatement    = "SELECT ref FROM timeuuid_locks WHERE key = ? LIMIT 1"
	deleteStatement = "DELETE FROM timeuuid_locks WHERE key = ? AND ref = ? IF EXISTS"
	allStatement    = "SELECT ref, last FROM timeuuid_locks WHERE key = ?"
	firstStatement  = "UPDATE timeuuid_locks SET last = ? WHERE key = ? IF last = null"
	raiseStatement  = "UPDATE timeuuid_locks SET last = ? WHERE key = ? IF last = ?"
	addStatement    = "INSERT INTO timeuuid_locks (key, ref) VALUES (?, ?)"
)

// tick is the resolution of a time-based UUID.
const tick = 100 * time.Nanosecond

// Options of a client.
type Options struct {
	store.Options
	Ordered bool          // repaired: references grow in the order of insertion
	Poll    time.Duration // between two looks at the top row; default 5 ms
}

// Client is one process.
type Client struct {
	session *store.Session
	o       Options
}

// New opens a client.
func New(o Options) (*Client, error) {
	if o.Poll == 0 {
		o.Poll = 5 * time.Millisecond
	}
	session, err := store.Open(o.Options, table)
	if err != nil {
		return nil, err
	}
	return &Client{session: session, o: o}, nil
}

// Close implements section.Client.
func (c *Client) Close() { c.session.Close() }

// Enter is createLockRef, and acquireLock until it returns true.
func (c *Client) Enter(ctx context.Context, key string) (section.Held, error) {
	h := &held{c: c, key: key}
	err := store.Poll(ctx, c.pause, func() (bool, error) { return h.createLockRef(ctx) })
	if err == nil {
		err = store.Poll(ctx, c.pause, func() (bool, error) { return h.acquireLock(ctx) })
	}
	if err != nil {
		cleanup, cancel := store.Cleanup(ctx)
		defer cancel()
		_ = h.Leave(cleanup)
		return nil, fmt.Errorf("enter %q: %w", key, err)
	}
	return h, nil
}

// pause implements store.Poll's pause.
func (c *Client) pause() time.Duration { return c.o.Poll }

// Force deletes the top row of a key, whoever's it is.
func (c *Client) Force(ctx context.Context, key string) error {
	rows, err := c.session.Rows(ctx, gocql.Quorum, topStatement, key)
	if err != nil || len(rows) == 0 {
		return err
	}
	ref, _ := rows[0]["ref"].(gocql.UUID)
	_, _, err = c.session.Swap(ctx, deleteStatement, key, ref)
	return err
}

// held is a reference, at the top or on its way there.
type held struct {
	c   *Client
	key string
	ref gocql.UUID
}

// createLockRef inserts a reference. After an unknown outcome the same one is inserted again, which
// the slides do not say: another would leave the first as an orphan.
func (h *held) createLockRef(ctx context.Context) (bool, error) {
	if h.c.o.Ordered {
		return h.createOrdered(ctx)
	}
	if h.ref == (gocql.UUID{}) {
		h.ref = gocql.UUIDFromTime(h.c.session.Now())
	}
	_, _, err := h.c.session.Swap(ctx, insertStatement, h.key, h.ref)
	return err == nil, err // not applied: it was there already, by an attempt of unknown outcome
}

// createOrdered is createLockRef above the last reference. It reads at SERIAL, so that an attempt of
// unknown outcome is either seen or will never be carried out.
func (h *held) createOrdered(ctx context.Context) (bool, error) {
	rows, err := h.c.session.Rows(ctx, gocql.Serial, allStatement, h.key)
	if err != nil {
		return false, err
	}
	var last gocql.UUID
	for _, row := range rows {
		last, _ = row["last"].(gocql.UUID)
		if h.ref != (gocql.UUID{}) && row["ref"] == h.ref {
			return true, nil
		}
	}
	h.ref = gocql.UUIDFromTime(h.c.session.Now())
	raise := store.Statement{Text: firstStatement, Args: []any{h.ref, h.key}}
	if last != (gocql.UUID{}) {
		if after := last.Time().Add(tick); after.After(h.ref.Time()) {
			h.ref = gocql.UUIDFromTime(after)
		}
		raise = store.Statement{Text: raiseStatement, Args: []any{h.ref, h.key, last}}
	}
	return h.c.session.SwapAll(ctx, raise, store.Statement{Text: addStatement, Args: []any{h.key, h.ref}})
}

// acquireLock reports whether the reference is at the top, as one replica knows it.
func (h *held) acquireLock(ctx context.Context) (bool, error) {
	rows, err := h.top(ctx)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	return rows[0]["ref"] == h.ref, nil
}

// top is the top row, as one replica knows it.
func (h *held) top(ctx context.Context) ([]map[string]any, error) {
	return h.c.session.Rows(ctx, gocql.One, topStatement, h.key)
}

// check waits until the reference is at the top again, or returns section.ErrLost where it is there no more.
func (h *held) check(ctx context.Context) error {
	return store.Poll(ctx, h.c.pause, func() (bool, error) {
		rows, err := h.top(ctx)
		if err != nil {
			return false, err
		}
		return first(rows, h.ref)
	})
}

// first reports whether a reference is the one in the top row; section.ErrLost where all that are there are later.
func first(rows []map[string]any, ref gocql.UUID) (bool, error) {
	if len(rows) == 0 {
		return false, section.ErrLost
	}
	top, _ := rows[0]["ref"].(gocql.UUID)
	if top.Timestamp() > ref.Timestamp() {
		return false, section.ErrLost
	}
	return top == ref, nil
}

// Get is criticalGet.
func (h *held) Get(ctx context.Context) ([]byte, error) {
	if err := h.check(ctx); err != nil {
		return nil, err
	}
	return h.c.session.Value(ctx, h.key)
}

// Put is criticalPut.
func (h *held) Put(ctx context.Context, value []byte) error {
	if err := h.check(ctx); err != nil {
		return err
	}
	return h.c.session.SetValue(ctx, h.key, value)
}

// Leave is releaseLock, repeated until its outcome is known.
func (h *held) Leave(ctx context.Context) error {
	if h.ref == (gocql.UUID{}) {
		return nil
	}
	return store.Poll(ctx, h.c.pause, func() (bool, error) {
		_, _, err := h.c.session.Swap(ctx, deleteStatement, h.key, h.ref)
		return err == nil, err
	})
}
