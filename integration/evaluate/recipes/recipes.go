// Package recipes is the product as its docs/recipes.md uses it, statement by statement: the mutex
// over music.named, leases, leader election, batches of what is free, and work that is done once.
//
//	docs/recipes.md                                          here
//	Mutex: LOCK … WAIT … TOKEN, UNLOCK                       Enter, Leave
//	rule 2: QUEUED, ask again with the same TOKEN            Enter
//	rule 3: MUSIC_LOST, stop                                 section.ErrLost
//	rule 4: LOCK … USING LOCK n, every third of the lease    Renew; [Client.Lead] repeats it
//	Leader election: LOCK … LEASE … AS, UPDATE … SET value,  [Client.Lead], [Client.Leader]
//	  ordinary SELECT
//	Work queue: LOCK … NOWAIT, read, do, DELETE, UNLOCK      TryEnter, [Client.RunOnce]; package batch
//	A stuck lock: UNLOCK … FORCE REASON                      Force
//
// As gocql wants it, each verb has SELECT in front. The column value is a text, so what is put is
// written in hexadecimal. The page leaves open what becomes of a candidate that gives up: here it
// gives its reference back.
package recipes

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
)

// The statements of the page.
const (
	lockStatement   = "SELECT LOCK music.named WHERE name = ? WAIT ? LEASE ? TOKEN ?"
	tryStatement    = "SELECT LOCK music.named WHERE name = ? NOWAIT LEASE ?"
	renewStatement  = "SELECT LOCK music.named WHERE name = ? USING LOCK ? LEASE ?"
	unlockStatement = "SELECT UNLOCK music.named WHERE name = ? USING LOCK ?"
	forceStatement  = "SELECT UNLOCK music.named WHERE name = ? FORCE REASON 'forced'"
	readStatement   = "SELECT value FROM music.named WHERE name = ? USING LOCK ?"
	writeStatement  = "UPDATE music.named USING LOCK ? SET value = ? WHERE name = ?"
	deleteStatement = "DELETE FROM music.named USING LOCK ? WHERE name = ?"
	seenStatement   = "SELECT value FROM music.named WHERE name = ?"
)

// wait is how long one LOCK waits; Enter asks again.
const wait = 200 * time.Millisecond

// Options of a client.
type Options struct {
	Host  string        // of a proxy, host:port
	Lease time.Duration // default 30 s
}

// Client is an application with a session at a proxy.
type Client struct {
	session *gocql.Session
	o       Options
}

// New connects.
func New(o Options) (*Client, error) {
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	cluster := gocql.NewCluster(o.Host)
	cluster.Timeout, cluster.ConnectTimeout = 15*time.Second, 15*time.Second
	session, err := cluster.CreateSession()
	if err != nil {
		return nil, fmt.Errorf("recipes: %w", err)
	}
	return &Client{session: session, o: o}, nil
}

// Close implements section.Client.
func (c *Client) Close() { c.session.Close() }

// verb sends LOCK or UNLOCK, and returns whether it was applied, and the reference.
func (c *Client) verb(ctx context.Context, statement string, args ...any) (bool, int64, error) {
	row := map[string]any{}
	applied, err := c.session.Query(statement, args...).MapScanCASContext(context.WithoutCancel(ctx), row)
	ref, _ := row["lock_ref"].(int64)
	return applied, ref, lost(err)
}

// lost returns an error with section.ErrLost for MUSIC_LOST.
func lost(err error) error {
	if err != nil && strings.Contains(err.Error(), "MUSIC_LOST") {
		return errors.Join(section.ErrLost, err)
	}
	return err
}

// Enter repeats LOCK until the name is held.
func (c *Client) Enter(ctx context.Context, key string) (section.Held, error) {
	token := gocql.MustRandomUUID()
	for {
		sent := time.Now()
		held, ref, err := c.verb(ctx, lockStatement, key, wait.Milliseconds(), c.o.Lease.Milliseconds(), token)
		h := &Held{c: c, name: key, ref: ref, sent: sent}
		switch {
		case err != nil:
			return nil, fmt.Errorf("lock %q: %w", key, err)
		case ctx.Err() != nil:
			return nil, errors.Join(context.Cause(ctx), h.Leave(context.WithoutCancel(ctx)))
		case held:
			return h, nil
		}
	}
}

// TryEnter sends LOCK with NOWAIT.
func (c *Client) TryEnter(ctx context.Context, key string) (section.Held, bool, error) {
	held, ref, err := c.verb(ctx, tryStatement, key, c.o.Lease.Milliseconds())
	if err != nil || !held {
		return nil, false, err
	}
	return &Held{c: c, name: key, ref: ref}, true, nil
}

// Force ends the section of the holder.
func (c *Client) Force(ctx context.Context, key string) error {
	_, _, err := c.verb(ctx, forceStatement, key)
	return err
}

// Lead campaigns with an address, and leads until ctx ends, when it resigns, or until it loses the
// lock. elected is called when it leads.
func (c *Client) Lead(ctx context.Context, name, address string, elected func(*Held)) error {
	entered, err := c.Enter(ctx, name)
	if err != nil {
		return err
	}
	h := entered.(*Held) //nolint:forcetypeassert // Enter made it
	if err := h.write(ctx, address); err != nil {
		return err
	}
	elected(h)
	if err := keep(ctx, c.o.Lease, h.sent, h.Renew); err != nil {
		return err
	}
	return h.Leave(context.WithoutCancel(ctx))
}

// keep renews a lease every third of it, and returns nil when ctx ends. It is lost on an answer that says so, and when it has passed
// since the last renewal was sent that was answered; sent is when the lease itself was.
func keep(ctx context.Context, lease time.Duration, sent time.Time, renew func(context.Context) error) error {
	type answer struct {
		sent time.Time
		err  error
	}
	ticker, end, answers := time.NewTicker(lease/3), time.NewTimer(time.Until(sent.Add(lease))), make(chan answer, 1)
	defer ticker.Stop()
	for tick := ticker.C; ; { // nil while a renewal is under way
		select {
		case <-ctx.Done():
			return nil
		case <-end.C:
			return fmt.Errorf("%w: its lease has passed", section.ErrLost)
		case sent := <-tick:
			tick = nil
			go func() { answers <- answer{sent, renew(ctx)} }()
		case a := <-answers:
			tick = ticker.C
			if errors.Is(a.err, section.ErrLost) {
				return a.err
			}
			if a.err == nil {
				end.Reset(time.Until(a.sent.Add(lease)))
			}
		}
	}
}

// Leader returns the leader's address, for a moment perhaps that of the leader before.
func (c *Client) Leader(ctx context.Context, name string) (address string, err error) {
	err = c.session.Query(seenStatement, name).ScanContext(ctx, &address)
	if errors.Is(err, gocql.ErrNotFound) {
		return "", nil
	}
	return address, err
}

// Submit writes a job under its own lock.
func (c *Client) Submit(ctx context.Context, job, what string) error {
	h, err := c.Enter(ctx, job)
	if err != nil {
		return err
	}
	return errors.Join(h.(*Held).write(ctx, what), h.Leave(ctx)) //nolint:forcetypeassert // Enter made it
}

// RunOnce does a job unless another client does it or has done it, and reports whether it has. If
// the client is lost meanwhile, what do does in other systems may happen twice.
func (c *Client) RunOnce(ctx context.Context, job string, do func(what string) error) (bool, error) {
	entered, ok, err := c.TryEnter(ctx, job)
	if err != nil || !ok {
		return false, err
	}
	h := entered.(*Held) //nolint:forcetypeassert // TryEnter made it
	what, err := h.read(ctx)
	if errors.Is(err, section.ErrNoValue) {
		return false, h.Leave(ctx)
	}
	if err == nil {
		err = do(what)
	}
	if err == nil {
		err = lost(c.session.Query(deleteStatement, h.ref, h.name).ExecContext(ctx))
	}
	return err == nil, errors.Join(err, h.Leave(ctx))
}

// Held is a reference to a name.
type Held struct {
	c    *Client
	name string
	ref  int64
	sent time.Time // when the LOCK was, that was answered HELD
}

// Token is the reference: it grows with every section of a name.
func (h *Held) Token() int64 { return h.ref }

// Get implements section.Held.
func (h *Held) Get(ctx context.Context) ([]byte, error) {
	text, err := h.read(ctx)
	if err != nil {
		return nil, err
	}
	return hex.DecodeString(text)
}

// Put implements section.Held.
func (h *Held) Put(ctx context.Context, value []byte) error {
	return h.write(ctx, hex.EncodeToString(value))
}

// read reads the value under the lock.
func (h *Held) read(ctx context.Context) (value string, err error) {
	err = h.c.session.Query(readStatement, h.name, h.ref).ScanContext(ctx, &value)
	if errors.Is(err, gocql.ErrNotFound) {
		return "", section.ErrNoValue
	}
	return value, lost(err)
}

// write writes the value under the lock.
func (h *Held) write(ctx context.Context, value string) error {
	return lost(h.c.session.Query(writeStatement, h.ref, value, h.name).ExecContext(ctx))
}

// Renew extends the lease. Any other state than HELD is an error.
func (h *Held) Renew(ctx context.Context) error {
	held, _, err := h.c.verb(ctx, renewStatement, h.name, h.ref, h.c.o.Lease.Milliseconds())
	if err == nil && !held {
		return section.ErrLost
	}
	return err
}

// Leave unlocks the reference, unless it is lost.
func (h *Held) Leave(ctx context.Context) error {
	_, _, err := h.c.verb(ctx, unlockStatement, h.name, h.ref)
	if errors.Is(err, section.ErrLost) {
		return nil
	}
	return err
}
