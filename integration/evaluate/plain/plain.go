// Package plain is what all systems on Cassandra are measured beside: one write, at QUORUM or by a lightweight transaction, that is
// no section. Enter and Leave do nothing, nobody is kept out, and there is nothing to break: a later write is the later one by the
// clock of its client, or by its ballot.
package plain

import (
	"context"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// Options of a client.
type Options struct {
	store.Options
	LWT bool // writes are lightweight transactions whose condition always holds
}

// Client is one application.
type Client struct {
	session *store.Session
	o       Options
}

// table has the values; never is null, so that a condition on it holds.
const table = "CREATE TABLE IF NOT EXISTS plain_values (key text PRIMARY KEY, value blob, never boolean)"

// New opens a client.
func New(o Options) (*Client, error) {
	session, err := store.Open(o.Options, table)
	if err != nil {
		return nil, err
	}
	return &Client{session: session, o: o}, nil
}

// Close ends the connection.
func (c *Client) Close() { c.session.Close() }

// Enter does nothing.
func (c *Client) Enter(_ context.Context, key string) (section.Held, error) {
	return &held{c, key}, nil
}

// held is a key that anybody may write.
type held struct {
	client *Client
	key    string
}

// Get reads at QUORUM, or at SERIAL.
func (h *held) Get(ctx context.Context) ([]byte, error) {
	level := gocql.Quorum
	if h.client.o.LWT {
		level = gocql.Serial
	}
	rows, err := h.client.session.Rows(ctx, level, "SELECT value FROM plain_values WHERE key = ?", h.key)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, section.ErrNoValue
	}
	value, _ := rows[0]["value"].([]byte)
	return value, nil
}

// Put writes.
func (h *held) Put(ctx context.Context, value []byte) error {
	if h.client.o.LWT {
		_, _, err := h.client.session.Swap(ctx, "UPDATE plain_values SET value = ? WHERE key = ? IF never = null", value, h.key)
		return err
	}
	return h.client.session.Exec(ctx, "UPDATE plain_values SET value = ? WHERE key = ?", value, h.key)
}

// Leave does nothing.
func (h *held) Leave(context.Context) error { return nil }
