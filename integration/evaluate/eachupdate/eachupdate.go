// Package eachupdate is the paper's critical section over transactions (VIII-d, X-B3): each update of the state is an exclusive
// transaction of its own. The paper has it on CockroachDB; here a transaction is what Cassandra 5 has for one, a lightweight
// transaction. Package transaction has BEGIN TRANSACTION of Cassandra 6, which is nearer.
//
//	paper X-B3                                        here
//	do batch size times:                              each Put
//	  SELECT … WHERE k=lock; //check for lock          takeStatement, with a condition that nobody has it
//	  UPSERT … (lock, ME) //entry using consensus       (one LWT)
//	  UPSERT … (k, random string) //local update       putStatement: the value and the unlock in one LWT,
//	  UPSERT … (lock, NONE) //exit using consensus      with a condition that it is still mine
//	  COMMIT
//
// That is the 2C a transaction of X-B4, as few as can be. What the pseudo-code leaves open: an update that meets another's lock
// tries again after Options.Sleep, and what a dead holder has locked stays locked. The lock is had for an update and not for a
// section, so Enter and Leave do nothing, and a get and the put after it are not one: the paper compares times.
package eachupdate

import (
	"context"
	"fmt"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// The table and its statements.
const (
	table         = "CREATE TABLE IF NOT EXISTS each_update (key text PRIMARY KEY, value blob, holder uuid)"
	takeStatement = "UPDATE each_update SET holder = ? WHERE key = ? IF holder = null"
	putStatement  = "UPDATE each_update SET value = ?, holder = null WHERE key = ? IF holder = ?"
	getStatement  = "SELECT value FROM each_update WHERE key = ?"
)

// Options of a client.
type Options struct {
	store.Options
	Sleep time.Duration // between two tries; default 5 ms
}

// Client is one application.
type Client struct {
	session *store.Session
	o       Options
}

// New connects.
func New(o Options) (*Client, error) {
	if o.Sleep == 0 {
		o.Sleep = 5 * time.Millisecond
	}
	session, err := store.Open(o.Options, table)
	if err != nil {
		return nil, err
	}
	return &Client{session, o}, nil
}

// Close implements section.Client.
func (c *Client) Close() { c.session.Close() }

// Enter does nothing.
func (c *Client) Enter(_ context.Context, key string) (section.Held, error) {
	return &held{c, key, gocql.MustRandomUUID()}, nil
}

// held is a key, and by what name it is locked.
type held struct {
	c    *Client
	key  string
	name gocql.UUID
}

// Put is a transaction.
func (h *held) Put(ctx context.Context, value []byte) error {
	err := store.Poll(ctx, func() time.Duration { return h.c.o.Sleep }, func() (bool, error) {
		taken, row, err := h.c.session.Swap(ctx, takeStatement, h.name, h.key)
		return taken || err == nil && row["holder"] == h.name, err // mine after an unknown outcome
	})
	if err != nil {
		return fmt.Errorf("put: %w", err)
	}
	done, _, err := h.c.session.Swap(ctx, putStatement, value, h.key, h.name)
	if err == nil && !done {
		err = section.ErrLost
	}
	return err
}

// Get reads at SERIAL.
func (h *held) Get(ctx context.Context) ([]byte, error) {
	rows, err := h.c.session.Rows(ctx, gocql.Serial, getStatement, h.key)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, section.ErrNoValue
	}
	value, _ := rows[0]["value"].([]byte)
	if value == nil {
		return nil, section.ErrNoValue // a first update that has only locked
	}
	return value, nil
}

// Leave does nothing.
func (h *held) Leave(context.Context) error { return nil }
