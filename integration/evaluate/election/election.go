// Package election is the lease of the blog post "Consensus on Cassandra", and the leader election
// that the post builds from it.
//
//	post                                              here
//	CREATE TABLE leases (name text PRIMARY KEY,       the same, but for Options.TTL
//	  owner text, value text)
//	  with default_time_to_live = 180
//	INSERT INTO leases (name, owner) VALUES (…)       Enter, TryEnter
//	  IF NOT EXISTS
//	UPDATE leases set owner = me where name = n       Renew; [Client.Lead] repeats it
//	  IF owner = me
//	DELETE FROM leases where name = n IF owner = me   Leave
//	select writetime(owner), value, owner from        [Client.Observe]
//	  leases …, "consistency level of SERIAL"
//	"the time they should wait before polling again   Enter waits so, but never longer than
//	 (take write time and add TTL …)"                 Options.Poll: an owner may resign
//
// The post says "TTL time in milliseconds" where write times are microseconds. What the leader does
// under its lease it leaves to the reader; as everywhere in this evaluation it reads and writes
// a row at QUORUM. An outcome that is unknown it leaves out: here the statement is sent again, and
// an INSERT that finds its own owner has been applied.
//
// What breaks it. The renewal writes the column owner only, so the column value, which the post has
// for "the ip address and port number of the elected service", expires under a leader that renews.
// And a leader that was paused does not know that its lease has ended: what it writes then is
// written. With Options.Fenced, the repair, a renewal writes value too; a leader counts its lease
// from before it sent the last renewal, and stops by itself; and what is put stands in the row of
// the lease, without a TTL, by UPDATE … IF owner = me.
package election

import (
	"context"
	"fmt"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// The table of the post, and that of the repair, in which a row stays after its owner's death.
const (
	leasesTable = "CREATE TABLE IF NOT EXISTS leases (name text PRIMARY KEY, owner text, value text) WITH default_time_to_live = 180"
	fencedTable = "CREATE TABLE IF NOT EXISTS fenced (name text PRIMARY KEY, owner text, value text, data blob)"
)

// The statements; hooks of tests know them by their first words.
const (
	acquireStatement = "INSERT INTO leases (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL ?"
	renewStatement   = "UPDATE leases USING TTL ? SET owner = ? WHERE name = ? IF owner = ?"
	publishStatement = "UPDATE leases USING TTL ? SET value = ? WHERE name = ? IF owner = ?"
	dropStatement    = "DELETE FROM leases WHERE name = ? IF owner = ?"
	observeStatement = "SELECT writetime(owner), value, owner FROM leases WHERE name = ?"

	fencedAcquire = "UPDATE fenced USING TTL ? SET owner = ? WHERE name = ? IF owner = null"
	fencedRenew   = "UPDATE fenced USING TTL ? SET owner = ?, value = ? WHERE name = ? IF owner = ?"
	fencedDrop    = "DELETE owner, value FROM fenced WHERE name = ? IF owner = ?"
	fencedObserve = "SELECT writetime(owner), value, owner, data FROM fenced WHERE name = ?"
	fencedPut     = "UPDATE fenced SET data = ? WHERE name = ? IF owner = ?"
)

// Options of a client.
type Options struct {
	store.Options
	TTL    time.Duration // of a lease, whole seconds; default 180 s
	Poll   time.Duration // longest time between two looks of one that waits; default 100 ms
	Fenced bool          // repaired
}

// Client is one process.
type Client struct {
	session *store.Session
	o       Options
}

// New opens a client.
func New(o Options) (*Client, error) {
	if o.TTL == 0 {
		o.TTL = 180 * time.Second
	}
	if o.Poll == 0 {
		o.Poll = 100 * time.Millisecond
	}
	session, err := store.Open(o.Options, leasesTable, fencedTable)
	if err != nil {
		return nil, err
	}
	return &Client{session: session, o: o}, nil
}

// Close implements section.Client.
func (c *Client) Close() { c.session.Close() }

// Leader is what any process can read of a lease.
type Leader struct {
	Owner string // "": nobody
	Value string // what it published
	Until time.Time
}

// Observe returns the leader, read at SERIAL.
func (c *Client) Observe(ctx context.Context, name string) (Leader, error) {
	l, _, err := c.look(ctx, name)
	return l, err
}

// look is Observe with the data of a fenced lease.
func (c *Client) look(ctx context.Context, name string) (Leader, []byte, error) {
	statement := observeStatement
	if c.o.Fenced {
		statement = fencedObserve
	}
	rows, err := c.session.Rows(ctx, gocql.Serial, statement, name)
	if err != nil || len(rows) == 0 {
		return Leader{}, nil, err
	}
	var l Leader
	l.Owner, _ = rows[0]["owner"].(string)
	l.Value, _ = rows[0]["value"].(string)
	written, _ := rows[0]["writetime(owner)"].(int64)
	l.Until = time.UnixMicro(written).Add(c.o.TTL)
	data, _ := rows[0]["data"].([]byte)
	return l, data, nil
}

// Enter repeats acquiring the lease until it succeeds, and observes the leader in between.
func (c *Client) Enter(ctx context.Context, key string) (section.Held, error) {
	lease := &Lease{c: c, name: key, owner: gocql.MustRandomUUID().String()}
	pause := c.o.Poll
	err := store.Poll(ctx, func() time.Duration { return pause }, func() (bool, error) {
		ok, err := lease.acquire(ctx)
		if err != nil || ok {
			return ok, err
		}
		leader, err := c.Observe(ctx, key)
		pause = min(max(leader.Until.Sub(c.session.Now()), 0), c.o.Poll)
		return false, err
	})
	if err != nil {
		cleanup, cancel := store.Cleanup(ctx)
		defer cancel()
		_ = lease.Leave(cleanup)
		return nil, fmt.Errorf("enter %q: %w", key, err)
	}
	return lease, nil
}

// TryEnter tries once.
func (c *Client) TryEnter(ctx context.Context, key string) (section.Held, bool, error) {
	lease := &Lease{c: c, name: key, owner: gocql.MustRandomUUID().String()}
	ok, err := lease.acquire(ctx)
	if err != nil || !ok {
		return nil, false, err
	}
	return lease, true, nil
}

// Lead campaigns, publishes value, and renews the lease until ctx ends, when it resigns, or until
// the lease is lost. elected is called when the lease is acquired.
func (c *Client) Lead(ctx context.Context, name, value string, elected func(*Lease)) error {
	held, err := c.Enter(ctx, name)
	if err != nil {
		return err
	}
	lease := held.(*Lease) //nolint:forcetypeassert // Enter made it
	if err := lease.Publish(ctx, value); err != nil {
		return err
	}
	elected(lease)
	ticker := time.NewTicker(c.o.TTL / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			cleanup, cancel := store.Cleanup(ctx)
			defer cancel()
			return lease.Leave(cleanup)
		case <-ticker.C:
		}
		if err := lease.Renew(ctx); err != nil && !store.Unknown(err) {
			return err
		}
	}
}

// Lease is an acquired lease.
type Lease struct {
	c           *Client
	name, owner string
	value       string
	until       time.Time // by the monotonic clock, from before the statement was sent
}

// acquire tries to acquire the lease, and reports whether it has.
func (l *Lease) acquire(ctx context.Context) (bool, error) {
	sent := time.Now()
	statement, args := acquireStatement, []any{l.name, l.owner, seconds(l.c.o.TTL)}
	if l.c.o.Fenced {
		statement, args = fencedAcquire, []any{seconds(l.c.o.TTL), l.owner, l.name}
	}
	applied, row, err := l.c.session.Swap(ctx, statement, args...)
	if err != nil || !applied && row["owner"] != l.owner {
		return false, err
	}
	if applied {
		l.extend(sent)
		return true, nil
	}
	return true, l.Renew(ctx) // acquired by an attempt of unknown outcome, nobody knows when
}

// extend records until when the lease lasts at least, since Cassandra counts whole seconds.
func (l *Lease) extend(sent time.Time) { l.until = sent.Add(l.c.o.TTL - time.Second) }

// over reports whether the lease may have ended. The post does not ask.
func (l *Lease) over() bool { return l.c.o.Fenced && !time.Now().Before(l.until) }

// Renew extends the lease by a TTL, or returns section.ErrLost.
func (l *Lease) Renew(ctx context.Context) error {
	sent, ttl := time.Now(), seconds(l.c.o.TTL)
	statement, args := renewStatement, []any{ttl, l.owner, l.name, l.owner}
	if l.c.o.Fenced {
		statement, args = fencedRenew, []any{ttl, l.owner, l.value, l.name, l.owner}
	}
	if err := l.swap(ctx, statement, args...); err != nil {
		return fmt.Errorf("renew %q: %w", l.name, err)
	}
	l.extend(sent)
	return nil
}

// Publish stores the value that observers read.
func (l *Lease) Publish(ctx context.Context, value string) error {
	l.value = value
	if l.c.o.Fenced {
		return l.Renew(ctx)
	}
	return l.swap(ctx, publishStatement, seconds(l.c.o.TTL), value, l.name, l.owner)
}

// swap executes a statement whose condition is the owner.
func (l *Lease) swap(ctx context.Context, statement string, args ...any) error {
	applied, _, err := l.c.session.Swap(ctx, statement, args...)
	if err == nil && !applied {
		return section.ErrLost
	}
	return err
}

// Get implements section.Held.
func (l *Lease) Get(ctx context.Context) ([]byte, error) {
	if !l.c.o.Fenced {
		return l.c.session.Value(ctx, l.name)
	}
	leader, data, err := l.c.look(ctx, l.name)
	switch {
	case err != nil:
		return nil, err
	case leader.Owner != l.owner || l.over():
		return nil, section.ErrLost
	case data == nil:
		return nil, section.ErrNoValue
	}
	return data, nil
}

// Put implements section.Held.
func (l *Lease) Put(ctx context.Context, value []byte) error {
	if !l.c.o.Fenced {
		return l.c.session.SetValue(ctx, l.name, value)
	}
	if l.over() {
		return section.ErrLost
	}
	return l.swap(ctx, fencedPut, value, l.name, l.owner)
}

// Leave deletes the lease if this client still owns it, and repeats that until the outcome is
// known.
func (l *Lease) Leave(ctx context.Context) error {
	statement := dropStatement
	if l.c.o.Fenced {
		statement = fencedDrop
	}
	return store.Poll(ctx, func() time.Duration { return l.c.o.Poll }, func() (bool, error) {
		_, _, err := l.c.session.Swap(ctx, statement, l.name, l.owner)
		return err == nil, err
	})
}

// seconds is a TTL as CQL has it.
func seconds(d time.Duration) int { return int(d / time.Second) }
