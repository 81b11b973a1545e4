// Package transaction is the paper's critical section over transactions (VIII-d, X-B3), as package eachupdate is, by BEGIN TRANSACTION of
// Cassandra 6 (CEP-15, "Accord"), which is nearest to what the paper has it on, CockroachDB: each update of the state is an exclusive
// transaction of its own.
//
//	paper X-B3                                        here, one statement
//	do batch size times:                              each Put
//	  BEGIN                                            BEGIN TRANSACTION
//	  SELECT … WHERE k=lock; //check for lock          LET held = (SELECT holder …); IF held.holder IS NULL THEN
//	  UPSERT … (lock, ME) //entry using consensus      –
//	  UPSERT … (k, random string) //local update       UPDATE … SET value = …
//	  UPSERT … (lock, NONE) //exit using consensus     –
//	  COMMIT                                           END IF COMMIT TRANSACTION
//
// Nobody sees what a transaction writes before its commit, so that an entry and an exit in the same one leave nothing; in CockroachDB
// they make the transactions of two clients conflict, and here their statements do that by naming the same row. What the pseudo-code
// leaves open: an update that meets another's lock tries again after Options.Sleep. As in the paper the lock is had for an update and not
// for a section, so Enter and Leave do nothing, and a get and the put after it are not one: the paper compares times. An update of
// unknown outcome is an error.
package transaction

import (
	"cmp"
	"context"
	"fmt"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// Release is a Cassandra with transactions.
const Release = "6.0-alpha2"

// Enabled is the setting in cassandra.yaml of a node that carries them out.
func Enabled() map[string]string { return map[string]string{"accord": "{enabled: true}"} }

// The table and its statements.
const (
	table = "CREATE TABLE IF NOT EXISTS transactions (key text PRIMARY KEY, value blob, holder uuid) WITH transactional_mode = 'full'"

	// The driver prepares, and so binds, what ends with the word batch.
	putStatement = `BEGIN TRANSACTION
  LET held = (SELECT holder FROM transactions WHERE key = ?);
  SELECT held.holder;
  IF held.holder IS NULL THEN
    UPDATE transactions SET value = ? WHERE key = ?;
  END IF
COMMIT TRANSACTION -- batch
`

	getStatement = "SELECT value FROM transactions WHERE key = ?"
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

// New connects to nodes of Release.
func New(o Options) (*Client, error) {
	o.Sleep = cmp.Or(o.Sleep, 5*time.Millisecond)
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
	return &held{c, key}, nil
}

// held is a key.
type held struct {
	c   *Client
	key string
}

// Put is a transaction.
func (h *held) Put(ctx context.Context, value []byte) error {
	for {
		rows, err := h.c.session.Rows(ctx, gocql.Quorum, putStatement, h.key, value, h.key)
		if err != nil {
			return fmt.Errorf("put %q: %w", h.key, err)
		}
		if len(rows) == 0 || rows[0]["held.holder"] == (gocql.UUID{}) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("put %q: another has locked it: %w", h.key, context.Cause(ctx))
		case <-time.After(h.c.o.Sleep):
		}
	}
}

// Get reads the value; in the table's mode that is a transaction.
func (h *held) Get(ctx context.Context) ([]byte, error) {
	rows, err := h.c.session.Rows(ctx, gocql.Quorum, getStatement, h.key)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, section.ErrNoValue
	}
	value, _ := rows[0]["value"].([]byte)
	if value == nil {
		return nil, section.ErrNoValue // there is only a lock
	}
	return value, nil
}

// Leave does nothing.
func (h *held) Leave(context.Context) error { return nil }
