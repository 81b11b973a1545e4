// Package optimistic is the first lock of the ScyllaDB post, "a very optimistic lock", without any
// consensus: everybody who wants a token writes down that he does, and whoever reads only himself
// has it.
//
//	post                                                 here
//	CREATE TABLE index_lock.tokens (token text,          table
//	  service_session_id text, PRIMARY KEY ((key), id))
//	generate service_session_id                          for each attempt, as printed
//	write (token, service_session_id)                    INSERT at QUORUM
//	entries = read token                                 SELECT at QUORUM
//	if len(entries) == 1 and entries[0] is mine:         attempt
//	  callback
//	  delete (token, service_session_id)                 Leave
//	else: delete (token, service_session_id)
//	  sleep(rand(1))                                     up to Options.Sleep, default 1 s
//
// The printed primary key names columns that the table does not have; the text has it right: token
// is the partition key and service_session_id the clustering key. TOKEN is a reserved word of
// Cassandra's, and so quoted.
//
// Nobody ever has it at the same time as another: of two, the one that reads later sees both. What
// breaks it is progress. If all write before any reads, all give up, and may do so for ever, which
// the post says itself. A process that dies leaves its row for ever. And a delete carries the time
// of the client, or of whichever node coordinates: if that is behind the time of the row, the row
// stays, although the delete was acknowledged. With Options.Repaired a delete has the time of its
// own insert plus one, and rows have a TTL (Options.TTL): that ends both kinds of stuck tokens and
// brings another fault, since a section that is longer than the TTL is not the only one. The first
// fault cannot be repaired without an order among those who try, and then it is another lock.
package optimistic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// table holds who wants which token.
const table = "CREATE TABLE IF NOT EXISTS tokens (\"token\" text, service_session_id text, PRIMARY KEY (\"token\", service_session_id))"

// The statements; hooks of tests know them by their first words.
const (
	writeStatement  = "INSERT INTO tokens (\"token\", service_session_id) VALUES (?, ?) USING TTL ?"
	readStatement   = "SELECT service_session_id FROM tokens WHERE \"token\" = ?"
	deleteStatement = "DELETE FROM tokens WHERE \"token\" = ? AND service_session_id = ?"
)

// Options of a client.
type Options struct {
	store.Options
	Sleep    time.Duration // the longest between two attempts; default 1 s
	Repaired bool          // rows expire, and a delete is above its insert
	TTL      time.Duration // of a row, if Repaired; whole seconds, default 60 s
}

// Client is one worker.
type Client struct {
	session *store.Session
	o       Options
}

// New opens a client.
func New(o Options) (*Client, error) {
	if o.Sleep == 0 {
		o.Sleep = time.Second
	}
	if o.TTL == 0 {
		o.TTL = 60 * time.Second
	}
	session, err := store.Open(o.Options, table)
	if err != nil {
		return nil, err
	}
	return &Client{session: session, o: o}, nil
}

// Close implements section.Client.
func (c *Client) Close() { c.session.Close() }

// Enter attempts until it succeeds, with a random sleep in between.
func (c *Client) Enter(ctx context.Context, key string) (section.Held, error) {
	var h section.Held
	err := store.Poll(ctx, c.sleep, func() (ok bool, err error) {
		h, ok, err = c.TryEnter(ctx, key)
		return ok, err
	})
	if err != nil {
		return nil, fmt.Errorf("enter %q: %w", key, err)
	}
	return h, nil
}

// sleep returns a random pause, as sleep(rand(1)) in the post.
func (c *Client) sleep() time.Duration { return rand.N(c.o.Sleep) } //nolint:gosec // G404: chance, not secrets

// TryEnter is one attempt: what it has written it deletes again unless it is alone.
func (c *Client) TryEnter(ctx context.Context, key string) (section.Held, bool, error) {
	h := &held{c: c, token: key, session: gocql.MustRandomUUID().String()}
	alone, err := h.attempt(ctx)
	if alone {
		return h, true, nil
	}
	cleanup, cancel := store.Cleanup(ctx)
	defer cancel()
	if gone := h.Leave(cleanup); err == nil {
		err = gone
	}
	return nil, false, err
}

// held is a row in the table.
type held struct {
	c              *Client
	token, session string
	written        time.Time // the timestamp of the row
}

// attempt writes, reads, and reports whether there is only what it wrote.
func (h *held) attempt(ctx context.Context) (bool, error) {
	ttl := 0
	if h.c.o.Repaired {
		ttl = int(h.c.o.TTL / time.Second)
	}
	h.written = h.c.session.Now()
	if err := h.c.session.ExecAt(ctx, h.written, writeStatement, h.token, h.session, ttl); err != nil {
		return false, err
	}
	rows, err := h.c.session.Rows(ctx, gocql.Quorum, readStatement, h.token)
	return err == nil && len(rows) == 1 && rows[0]["service_session_id"] == h.session, err
}

// Get implements section.Held.
func (h *held) Get(ctx context.Context) ([]byte, error) { return h.c.session.Value(ctx, h.token) }

// Put implements section.Held.
func (h *held) Put(ctx context.Context, value []byte) error {
	return h.c.session.SetValue(ctx, h.token, value)
}

// Leave deletes the row.
func (h *held) Leave(ctx context.Context) error {
	return store.Poll(ctx, h.c.sleep, func() (bool, error) {
		at := h.c.session.Now()
		if h.c.o.Repaired {
			at = h.written.Add(time.Microsecond)
		}
		err := h.c.session.ExecAt(ctx, at, deleteStatement, h.token, h.session)
		return err == nil, err
	})
}
