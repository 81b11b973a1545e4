// Package postgres is what a local database does: SELECT … FOR UPDATE on the row of the key, in a
// transaction that is the section. Leaving is COMMIT. FOR UPDATE SKIP LOCKED is TryEnter, and NOWAIT
// is not used, since an error would end the transaction.
//
// A row that nobody has put yet cannot be locked, so Enter inserts it first, without a value, with
// ON CONFLICT DO NOTHING. What is put is in the same transaction, so that nobody sees any of it
// before COMMIT, and a client that dies takes it with it: another than the rest of the evaluation,
// where each put stays. Options.Each commits each put by itself, in a connection of its own beside
// the one that holds the lock; it is the usage of those who hold an advisory lock.
//
// No fault of exclusion was found in the first form: lock and data are one transaction of one
// process, and a connection that is lost takes both. What breaks it is that process's end: there is
// one node, and no other answers while it is gone. With Options.Each there is a fault: a connection
// that holds the lock may be gone, and its client's next put is written all the same.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"music/integration/evaluate/section"
)

// The statements. The table of the locks is that of the data.
const (
	table      = "CREATE TABLE IF NOT EXISTS section (key text PRIMARY KEY, value bytea)"
	rowFirst   = "INSERT INTO section (key) VALUES ($1) ON CONFLICT DO NOTHING"
	forUpdate  = "SELECT 1 FROM section WHERE key = $1 FOR UPDATE"
	skipLocked = "SELECT 1 FROM section WHERE key = $1 FOR UPDATE SKIP LOCKED"
	advisory   = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
	tryLock    = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))"
	read       = "SELECT value FROM section WHERE key = $1"
	write      = "UPDATE section SET value = $2 WHERE key = $1"
)

// Options of a client.
type Options struct {
	URL  string // postgres://…
	Each bool   // each put is a transaction of its own, under an advisory lock
}

// Client is one application with its pool of connections, of which each section takes one.
type Client struct {
	pool *pgxpool.Pool
	o    Options
}

// New connects, and makes the table where it is missing. Of several clients only one may be the
// first.
func New(ctx context.Context, o Options) (*Client, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	config.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if _, err := pool.Exec(ctx, table); err != nil {
		pool.Close()
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return &Client{pool: pool, o: o}, nil
}

// closeLimit is how long Close waits for sections that are still open.
const closeLimit = time.Second

// Close closes the connections, those of sections too: the server rolls back what they have put.
func (c *Client) Close() {
	closed := make(chan struct{})
	go func() {
		c.pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeLimit): // a section is open, and nobody will end it
	}
}

// Enter waits for the row.
func (c *Client) Enter(ctx context.Context, key string) (section.Held, error) {
	lock := forUpdate
	if c.o.Each {
		lock = advisory
	}
	h, _, err := c.begin(ctx, key, lock)
	if err != nil {
		return nil, fmt.Errorf("enter %q: %w", key, err)
	}
	return h, nil
}

// TryEnter takes the row unless it is locked.
func (c *Client) TryEnter(ctx context.Context, key string) (section.Held, bool, error) {
	lock := skipLocked
	if c.o.Each {
		lock = tryLock
	}
	return c.begin(ctx, key, lock)
}

// begin opens the transaction of a section, and reports whether it has the lock.
func (c *Client) begin(ctx context.Context, key, lock string) (section.Held, bool, error) {
	if _, err := c.pool.Exec(ctx, rowFirst, key); err != nil {
		return nil, false, err
	}
	// The transaction is not ended by the context of whoever opens it.
	tx, err := c.pool.Begin(context.WithoutCancel(ctx))
	if err != nil {
		return nil, false, err
	}
	h := &held{c: c, tx: tx, key: key}
	var got any
	err = tx.QueryRow(ctx, lock, key).Scan(&got)
	if err == nil && got != false {
		return h, true, nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return nil, false, errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
}

// held is an open transaction.
type held struct {
	c   *Client
	tx  pgx.Tx
	key string
}

// Get implements section.Held.
func (h *held) Get(ctx context.Context) (value []byte, err error) {
	row := h.tx.QueryRow
	if h.c.o.Each {
		row = h.c.pool.QueryRow
	}
	if err := row(ctx, read, h.key).Scan(&value); err != nil {
		return nil, h.lost(err)
	}
	if value == nil {
		return nil, section.ErrNoValue
	}
	return value, nil
}

// Put implements section.Held. In the first form it counts once the section has been left.
func (h *held) Put(ctx context.Context, value []byte) error {
	if h.c.o.Each {
		_, err := h.c.pool.Exec(ctx, write, h.key, value)
		return err
	}
	_, err := h.tx.Exec(ctx, write, h.key, value)
	return h.lost(err)
}

// lost makes of an error section.ErrLost where the connection is gone, and the transaction with it.
func (h *held) lost(err error) error {
	if err != nil && h.tx.Conn().IsClosed() {
		return errors.Join(section.ErrLost, err)
	}
	return err
}

// Leave commits.
func (h *held) Leave(ctx context.Context) error { return h.lost(h.tx.Commit(ctx)) }
