// Package heartbeat is the second lock of the ScyllaDB post: a conditional insert for each token, a
// heartbeat for each session, and a housekeeper that deletes the tokens of sessions that do not beat.
//
//	post                                                here
//	CREATE TABLE lwt_lock.tokens (token text            tokensTable
//	  PRIMARY KEY, service_session_id text,
//	  timestamp timestamp)
//	CREATE TABLE lwt_lock.token_times (                 timesTable
//	  service_session_id text PRIMARY KEY,
//	  tokens list<text>, timestamp timestamp)
//	generate service_session_id                         once for each Client, since a beat names "a list
//	                                                    of tokens it holds in one session"; goroutines
//	                                                    of a Client keep each other out in memory
//	write … on token IF token not exists #LWT           acquire
//	read token; if token.service_session_id == mine     acquire; this also settles unknown outcomes
//	callback, delete token                              Leave
//	else: sleep 1                                       Options.Sleep
//	"a worker starts heartbeating"                      beat, every Options.Beat
//	"housekeeping service … (grace period is of         [Housekeeper]
//	  course added)"
//	"lock a bunch of keys, and then process the keys    [Client.Process]
//	  that were successfully locked … Not until the
//	  service fails to lock any of the keys remaining,
//	  would the locking fallback into the blocking
//	  mode … random limited sleep periods"
//
// TOKEN is a reserved word of Cassandra's, and so quoted. The post creates lwt_lock.token_times and
// writes to lock.token_times, which is the same. It does not tell its times; those of Options are ours.
//
// What breaks it. "delete token" is a plain DELETE of a row that was written under a Paxos ballot. If
// the client's clock is behind the ballot by more than the section was long, the delete is
// acknowledged and nothing is deleted: the token is stuck until the housekeeper finds it stale. And
// the DELETE asks nothing: a session that wakes after its eviction puts what it had in mind, and
// then deletes the token of whoever has it now, so that a third one enters. With Options.Conditional,
// the repair, both deletes are conditional on the session; the late put stays.
package heartbeat

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/batch"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// The two tables.
const (
	tokensTable = "CREATE TABLE IF NOT EXISTS lwt_tokens (\"token\" text PRIMARY KEY, service_session_id text, timestamp timestamp)"
	timesTable  = "CREATE TABLE IF NOT EXISTS token_times (service_session_id text PRIMARY KEY, tokens list<text>, timestamp timestamp)"
)

// The statements; hooks of tests know them by their first words.
const (
	insertStatement = "INSERT INTO lwt_tokens (\"token\", service_session_id, timestamp) VALUES (?, ?, ?) IF NOT EXISTS"
	readStatement   = "SELECT service_session_id FROM lwt_tokens WHERE \"token\" = ?"
	deleteStatement = "DELETE FROM lwt_tokens WHERE \"token\" = ?"
	deleteMine      = "DELETE FROM lwt_tokens WHERE \"token\" = ? IF service_session_id = ?"
	beatStatement   = "INSERT INTO token_times (service_session_id, tokens, timestamp) VALUES (?, ?, ?)"
	allTokens       = "SELECT \"token\", service_session_id, timestamp FROM lwt_tokens" //nolint:gosec // G101: no credentials
	timesStatement  = "SELECT tokens, timestamp FROM token_times WHERE service_session_id = ?"
)

// Options of a client.
type Options struct {
	store.Options
	Sleep       time.Duration // between two attempts; default 1 s. Of Process: the longest
	Beat        time.Duration // default 1 s
	Grace       time.Duration // of the housekeeper, without a beat; default 10 s
	Conditional bool          // repaired: deletes ask whose the token is
}

// complete returns the options with their defaults.
func (o Options) complete() Options {
	for _, d := range []struct {
		of       *time.Duration
		standard time.Duration
	}{{&o.Sleep, time.Second}, {&o.Beat, time.Second}, {&o.Grace, 10 * time.Second}} {
		if *d.of == 0 {
			*d.of = d.standard
		}
	}
	return o
}

// Client is one session.
type Client struct {
	session *store.Session
	o       Options
	id      string // service_session_id

	mu   sync.Mutex
	held map[string]bool // tokens of this session, also those that are being tried

	stop context.CancelFunc
	beat sync.WaitGroup
}

// New opens a session, which beats until Close.
func New(o Options) (*Client, error) {
	o = o.complete()
	session, err := store.Open(o.Options, tokensTable, timesTable)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Client{session: session, o: o, id: gocql.MustRandomUUID().String(), held: map[string]bool{}, stop: stop}
	c.beat.Go(func() { c.keepBeating(ctx) })
	return c, nil
}

// Close implements section.Client: the session does not beat any more.
func (c *Client) Close() {
	c.stop()
	c.beat.Wait()
	c.session.Close()
}

// keepBeating is the heartbeat thread. A beat that fails is not repeated; the next one follows.
func (c *Client) keepBeating(ctx context.Context) {
	ticker := time.NewTicker(c.o.Beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = c.sendBeat(ctx)
		}
	}
}

// sendBeat writes what the session holds, if anything.
func (c *Client) sendBeat(ctx context.Context) error {
	tokens := c.tokens()
	if len(tokens) == 0 {
		return nil
	}
	return c.session.Exec(ctx, beatStatement, c.id, tokens, c.session.Now())
}

// tokens lists what the session holds.
func (c *Client) tokens() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for token := range c.held {
		all = append(all, token)
	}
	slices.Sort(all)
	return all
}

// Enter tries until it has the token.
func (c *Client) Enter(ctx context.Context, key string) (section.Held, error) {
	var h section.Held
	err := store.Poll(ctx, func() time.Duration { return c.o.Sleep }, func() (ok bool, err error) {
		h, ok, err = c.TryEnter(ctx, key)
		return ok, err
	})
	if err != nil {
		return nil, fmt.Errorf("enter %q: %w", key, err)
	}
	return h, nil
}

// TryEnter tries once.
func (c *Client) TryEnter(ctx context.Context, key string) (section.Held, bool, error) {
	c.mu.Lock()
	mine := c.held[key]
	c.held[key] = true
	c.mu.Unlock()
	if mine {
		return nil, false, nil
	}
	ok, err := c.acquire(ctx, key)
	if ok {
		return &held{c: c, token: key}, true, nil
	}
	c.forget(key)
	return nil, false, err
}

// forget removes a token from the session's list.
func (c *Client) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, key)
}

// acquire inserts the token and reads its owner, also if ctx ends in between. If the outcome of an
// insert is unknown, the next attempt finds it, or the housekeeper deletes it.
func (c *Client) acquire(ctx context.Context, key string) (bool, error) {
	ctx = context.WithoutCancel(ctx)
	if _, _, err := c.session.Swap(ctx, insertStatement, key, c.id, c.session.Now()); err != nil {
		return false, err
	}
	rows, err := c.session.Rows(ctx, gocql.Quorum, readStatement, key)
	return err == nil && len(rows) == 1 && rows[0]["service_session_id"] == c.id, err
}

// Process processes a batch: free tokens first; the others are waited for only when nothing else is
// left.
func (c *Client) Process(ctx context.Context, keys []string, work func(section.Held, string) error) error {
	return batch.Process(ctx, c, keys, c.o.Sleep, work)
}

// held is a token.
type held struct {
	c     *Client
	token string
}

// Get implements section.Held.
func (h *held) Get(ctx context.Context) ([]byte, error) { return h.c.session.Value(ctx, h.token) }

// Put implements section.Held.
func (h *held) Put(ctx context.Context, value []byte) error {
	return h.c.session.SetValue(ctx, h.token, value)
}

// Leave deletes the token.
func (h *held) Leave(ctx context.Context) error {
	defer h.c.forget(h.token)
	return store.Poll(ctx, func() time.Duration { return h.c.o.Sleep }, func() (bool, error) {
		err := remove(ctx, h.c.session, h.c.o.Conditional, h.token, h.c.id)
		return err == nil, err
	})
}

// remove deletes a token, as printed, or on the condition that it is the session's.
func remove(ctx context.Context, s *store.Session, conditional bool, token, session string) error {
	if !conditional {
		return s.Exec(ctx, deleteStatement, token)
	}
	_, _, err := s.Swap(ctx, deleteMine, token, session)
	return err
}
