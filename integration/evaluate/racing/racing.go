// Package racing is what applications do that have conditional writes and no lock: read the row,
// compute, and write it back IF its version is still the one that was read; if it is not, do all of
// it again.
//
//	SELECT value, version FROM racing WHERE key = k            -- at SERIAL
//	UPDATE racing SET value = x, version = v+1 WHERE key = k IF version = v
//
// A row that is missing is inserted IF NOT EXISTS. Enter is the read. Nobody is kept out: of several
// sections of a key the first that puts goes on, and all others learn section.ErrLost by their own
// puts. So "held" promises less here than anywhere else, and the loop around it, [Client.Update], is
// part of the system.
//
// What breaks it. An answer may be unknown, a timeout after the proposal was accepted. The loop has
// only the version to judge by: it finds another one than it read, takes it for somebody else's,
// and computes once more from its own result. With Options.Identify each write says who made it, and
// the loop looks for its own mark before it begins again. And there is no queue: a client that is
// further from the replicas than the others reads a version that is history when its write arrives,
// as often as the others write. That is not repaired.
package racing

import (
	"context"
	"errors"
	"fmt"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// table is the table of the data; writer is null unless Options.Identify.
const table = "CREATE TABLE IF NOT EXISTS racing (key text PRIMARY KEY, value blob, version bigint, writer uuid)"

// The statements; hooks of tests know them by their first words.
const (
	readStatement   = "SELECT value, version, writer FROM racing WHERE key = ?"
	insertStatement = "INSERT INTO racing (key, value, version, writer) VALUES (?, ?, ?, ?) IF NOT EXISTS"
	updateStatement = "UPDATE racing SET value = ?, version = ?, writer = ? WHERE key = ? IF version = ?"
)

// Options of a client.
type Options struct {
	store.Options
	Identify bool // repaired: an unknown outcome is looked up
}

// Client is one application.
type Client struct {
	session *store.Session
	o       Options
}

// New opens a client.
func New(o Options) (*Client, error) {
	session, err := store.Open(o.Options, table)
	if err != nil {
		return nil, err
	}
	return &Client{session: session, o: o}, nil
}

// Close implements section.Client.
func (c *Client) Close() { c.session.Close() }

// Enter reads the row.
func (c *Client) Enter(ctx context.Context, key string) (section.Held, error) {
	h := &held{c: c, key: key}
	return h, h.read(ctx)
}

// Update is the application's loop: it puts what compute returns for the value that was read, which
// is nil if there is none. It returns when a put was applied, as far as it can know; with
// Options.Identify also when the outcome of one cannot be found out any more.
func (c *Client) Update(ctx context.Context, key string, compute func([]byte) []byte) error {
	for {
		h := &held{c: c, key: key}
		if err := h.read(ctx); err != nil {
			return err
		}
		err := h.Put(ctx, compute(h.value))
		again := errors.Is(err, section.ErrLost) || !c.o.Identify && store.Unknown(err)
		if !again {
			return err
		}
	}
}

// held is a row as it was read or last put.
type held struct {
	c       *Client
	key     string
	value   []byte
	version int64 // 0: there is no row
	writer  gocql.UUID
}

// read reads at SERIAL, which also completes a write that is half done.
func (h *held) read(ctx context.Context) error {
	rows, err := h.c.session.Rows(ctx, gocql.Serial, readStatement, h.key)
	if err != nil {
		return fmt.Errorf("read %q: %w", h.key, err)
	}
	if len(rows) == 0 {
		h.value, h.version, h.writer = nil, 0, gocql.UUID{}
		return nil
	}
	h.value, h.version = rows[0]["value"].([]byte), rows[0]["version"].(int64)
	h.writer, _ = rows[0]["writer"].(gocql.UUID)
	return nil
}

// Get returns the value as it was read or put last.
func (h *held) Get(context.Context) ([]byte, error) {
	if h.version == 0 {
		return nil, section.ErrNoValue
	}
	return h.value, nil
}

// Put returns section.ErrLost if the version has changed.
func (h *held) Put(ctx context.Context, value []byte) error {
	writer := gocql.MustRandomUUID()
	applied, err := h.swap(ctx, value, writer)
	if err != nil && h.c.o.Identify && store.Unknown(err) {
		applied, err = h.settle(ctx, value, writer, err)
	}
	if err != nil {
		return fmt.Errorf("put %q: %w", h.key, err)
	}
	if !applied {
		return section.ErrLost
	}
	h.value, h.version = value, h.version+1
	return nil
}

// swap writes if the version is still the one that was read.
func (h *held) swap(ctx context.Context, value []byte, writer gocql.UUID) (bool, error) {
	statement, args := updateStatement, []any{value, h.version + 1, h.mark(writer), h.key, h.version}
	if h.version == 0 {
		statement, args = insertStatement, []any{h.key, value, 1, h.mark(writer)}
	}
	applied, _, err := h.c.session.Swap(ctx, statement, args...)
	return applied, err
}

// settle finds out whether a write of an unknown outcome was done. If it is not there, it is sent once
// more: the condition permits only one of the two, so the answer is valid for both. Of the writer
// before the last nothing is known: then it returns unknown.
func (h *held) settle(ctx context.Context, value []byte, writer gocql.UUID, unknown error) (bool, error) {
	for {
		now := &held{c: h.c, key: h.key}
		err := now.read(ctx)
		switch {
		case err != nil:
		case now.writer == writer:
			return true, nil
		case now.version > h.version+1:
			return false, unknown
		case now.version != h.version:
			return false, nil
		default:
			var applied bool
			if applied, err = h.swap(ctx, value, writer); applied {
				return true, nil
			}
		}
		if err != nil && !store.Unknown(err) {
			return false, err
		}
	}
}

// mark is the value of the column writer.
func (h *held) mark(writer gocql.UUID) any {
	if h.c.o.Identify {
		return writer
	}
	return nil
}

// Leave does nothing.
func (h *held) Leave(context.Context) error { return nil }
