// Package ours is the product as an application uses it: a proxy of this tree that runs as a process of its own, and a plain gocql
// driver that speaks CQL to it. Nothing here knows more of the product than docs/cql.md says.
//
// A section is LOCK, SELECT and UPDATE … USING LOCK, and UNLOCK. What the documentation leaves to the application was chosen so:
//
//   - LOCK has a TOKEN, and the very same statement is sent again for as long as it says QUEUED, or where its answer did not come;
//   - an Enter that is cancelled asks once more by its token, and gives back whatever reference it is told;
//   - MUSIC_LOST is section.ErrLost, unless its text leaves open whether the write was carried out.
//
// A fault that has two holders write was looked for by the chaos tests and the simulation, and not found (docs/proof.md). With
// Auto, writes exclude each other and sections do not: that is what the mode is.
package ours

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
)

// Mode is one of the ways in which a table can be used.
type Mode string

// The modes. In each of them, a key that is used again within `retain` stays at its proxy: whether
// that happens depends on the workload and on the settings of the proxy.
const (
	Lock      Mode = "lock"       // LOCK, then reads and writes under it
	ForUpdate Mode = "for_update" // SELECT … FOR UPDATE enters, and has read the value; nobody can cancel it but by silence
	Auto      Mode = "auto"       // writes without a lock, each in a section of its own: Enter and Leave do nothing
	Strict    Mode = "strict"     // Lock on a table whose operations are acknowledged by the lock row
	Local     Mode = "local"      // Lock on a table that is decided in one data centre
	Long      Mode = "long"       // Lock on a table whose leases may be of three minutes
)

// settings returns the settings in the comment of a mode's table.
func (m Mode) settings() string {
	switch m {
	case Auto:
		return "(unlocked=auto)"
	case Strict:
		return "(strict=true)"
	case Local:
		return "(scope=local)"
	case Long:
		return "(lease=180s)"
	}
	return ""
}

// Options say which proxies an application knows, and what it does. Hosts and Keyspace are required.
type Options struct {
	Hosts    []string      // addresses of proxies, without port; the driver uses no other
	Port     int           // of all; default 9042
	Keyspace string        // exists already
	Mode     Mode          // default Lock
	Lease    time.Duration // that each LOCK asks for; default that of the table
	Timeout  time.Duration // of the driver for one statement; default 12 s
	Wait     time.Duration // that each LOCK asks for; default a quarter of Timeout. The proxy's max-wait may cut it
	Dialer   gocql.Dialer  // default: from where this process is
}

// client is an application with a session.
type client struct {
	o     Options
	table string
	cql   *gocql.Session
}

// New connects an application. It makes the table of the mode if there is none; only one
// application at a time may do that.
func New(o Options) (section.Client, error) {
	if o.Mode == "" {
		o.Mode = Lock
	}
	if o.Timeout == 0 {
		o.Timeout = 12 * time.Second
	}
	if o.Wait == 0 {
		o.Wait = o.Timeout / 4
	}
	cql, err := connect(o)
	if err != nil {
		return nil, fmt.Errorf("ours: %w", err)
	}
	c := &client{o: o, table: o.Keyspace + ".ours_" + string(o.Mode), cql: cql}
	if err := c.create(); err != nil {
		cql.Close()
		return nil, fmt.Errorf("ours: %w", err)
	}
	return c.as(), nil
}

// connect opens the driver's session.
func connect(o Options) (*gocql.Session, error) {
	d := gocql.NewCluster(o.Hosts...)
	if o.Port != 0 {
		d.Port = o.Port
	}
	d.ProtoVersion, d.NumConns, d.Timeout, d.ConnectTimeout = 4, 2, o.Timeout, o.Timeout
	d.Consistency, d.SerialConsistency = gocql.Quorum, gocql.Serial
	if o.Mode == Local {
		d.Consistency, d.SerialConsistency = gocql.LocalQuorum, gocql.LocalSerial
	}
	d.HostFilter = gocql.WhiteListHostFilter(o.Hosts...)
	d.ReconnectInterval = 500 * time.Millisecond
	d.Dialer = o.Dialer
	d.Logger = gocql.NewLogger(gocql.LogLevelNone)
	return d.CreateSession()
}

// create makes the table. It is called only if the table is missing, since Cassandra counts every
// CREATE as a change of the schema.
func (c *client) create() error {
	name := strings.TrimPrefix(c.table, c.o.Keyspace+".")
	n := 0
	err := c.cql.Query("SELECT count(*) FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", c.o.Keyspace, name).
		Consistency(gocql.One).Scan(&n)
	if err != nil || n > 0 {
		return err
	}
	return c.cql.Query(fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (k text PRIMARY KEY, v blob) WITH comment = '@critical%s'",
		c.table, c.o.Mode.settings())).Exec()
}

// as returns the client with the methods of its mode.
func (c *client) as() section.Client {
	switch c.o.Mode {
	case Auto:
		return &automatic{c}
	case ForUpdate:
		return &forUpdate{c}
	}
	return c
}

// Close closes the connections. The locks stay until their leases end.
func (c *client) Close() { c.cql.Close() }

// Enter waits for the lock.
func (c *client) Enter(ctx context.Context, key string) (section.Held, error) {
	token := gocql.MustRandomUUID()
	for {
		g, err := c.lock(ctx, key, token, c.o.Wait)
		switch {
		case ctx.Err() != nil:
			return nil, errors.Join(context.Cause(ctx), c.giveUp(ctx, key, token))
		case err != nil && unanswered(err): // the same token again
		case err != nil:
			return nil, err
		case g.state == "HELD":
			return &held{client: c, key: key, ref: g.ref}, nil
		case g.state == "LOST":
			token = gocql.MustRandomUUID() // as where nobody asked for ten seconds: a new place
		}
	}
}

// TryEnter takes the lock if it is free.
func (c *client) TryEnter(ctx context.Context, key string) (section.Held, bool, error) {
	g, err := c.ask(ctx, "SELECT LOCK "+c.table+" WHERE k = ? NOWAIT"+c.lease(), key)
	if err != nil || g.state != "HELD" {
		return nil, false, err
	}
	return &held{client: c, key: key, ref: g.ref}, true, nil
}

// TakeFree takes the locks that are free, in one statement.
func (c *client) TakeFree(ctx context.Context, keys []string) (map[string]section.Held, error) {
	all, free := c.cql.Query("SELECT LOCK "+c.table+" WHERE k IN ? SKIP LOCKED"+c.lease(), keys).IterContext(ctx), map[string]section.Held{}
	for row := map[string]any{}; all.MapScan(row); row = map[string]any{} {
		key, _ := row["k"].(string)
		ref, _ := row["lock_ref"].(int64)
		if row["state"] == "HELD" {
			free[key] = &held{client: c, key: key, ref: ref}
		}
	}
	return free, all.Close()
}

// Force ends the lock of whoever holds it.
func (c *client) Force(ctx context.Context, key string) error {
	_, err := c.ask(ctx, "SELECT UNLOCK "+c.table+" WHERE k = ? FORCE", key)
	return err
}

// lock asks for the lock by a token.
func (c *client) lock(ctx context.Context, key string, token gocql.UUID, wait time.Duration) (grant, error) {
	return c.ask(ctx, "SELECT LOCK "+c.table+" WHERE k = ? WAIT ? TOKEN ?"+c.lease(), key, wait.Milliseconds(), token)
}

// lease returns the LEASE clause.
func (c *client) lease() string {
	if c.o.Lease == 0 {
		return ""
	}
	return fmt.Sprintf(" LEASE %dms", c.o.Lease.Milliseconds())
}

// giveUp releases the place in the queue, or the lock, of a token.
func (c *client) giveUp(ctx context.Context, key string, token gocql.UUID) error {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), c.o.Timeout)
	defer end()
	g, err := c.lock(ctx, key, token, 0)
	for err == nil && g.ref == 0 && g.state == "QUEUED" && ctx.Err() == nil { // not decided yet
		g, err = c.lock(ctx, key, token, c.o.Wait)
	}
	if err != nil || g.ref == 0 {
		return err
	}
	return (&held{client: c, key: key, ref: g.ref}).Leave(ctx)
}

// grant is the answer to LOCK and UNLOCK; ref is 0 if there is none yet.
type grant struct {
	applied bool
	ref     int64
	state   string
}

// ask sends LOCK or UNLOCK.
func (c *client) ask(ctx context.Context, cql string, values ...any) (g grant, err error) {
	row := map[string]any{}
	g.applied, err = c.cql.Query(cql, values...).MapScanCASContext(ctx, row)
	g.ref, _ = row["lock_ref"].(int64)
	g.state, _ = row["state"].(string)
	return g, err
}

// unanswered reports whether a LOCK may have been executed, or may be repeated.
func unanswered(err error) bool {
	var told gocql.RequestError
	return !errors.As(err, &told) || strings.Contains(told.Message(), "MUSIC_UNAVAILABLE")
}
