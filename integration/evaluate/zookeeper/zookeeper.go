// Package zookeeper is MUSIC as it was before its lock table: locks in ZooKeeper, values in
// Cassandra, after the slides "A locking service based on Cassandra's light-weight transactions for
// MUSIC" ("Current Zookeeper-based Solution") and the old MUSIC release.
//
//	slides                                              here
//	createLockRef: "(i) Atomically creates the 'Key'    a persistent node for the key, and a persistent
//	 node if it does not already exist. (ii) Atomically  sequential child of it
//	 creates a new child node with a new unique number"
//	acquireLock: "(i) Retrieves all the children of     Children at the server of this client, which may
//	 key with a non-atomic read … (ii) Sorts all the     be behind
//	 children and returns true if lockReference is the
//	 youngest" (the lowest: it was created first)
//	releaseLock: "Atomically deletes the child node"    delete, and it is no error if it is gone
//	criticalPut, criticalGet "(lockRef, key, …)"; old    Put, Get: whether the reference is the lowest, as in
//	 release: a check of the holder, then QUORUM         acquireLock, and package store
//	old release: forced release deletes the child, and  Force, in this order; the flag is a row in
//	 then sets needToSync                                Cassandra. Options.FlagFirst is the repair
//	old release: an acquirer that finds needToSync      Enter
//	 reads the value and writes it back
//
// The slides call ZooKeeper's protocol RAFT; it is Zab. Children are persistent, not ephemeral: no session says that a holder has died, and somebody has to
// call Force; with Options.Patience those do that wait. Key nodes are never deleted, as in the release.
//
// What breaks it. Between the deletion of the child and the flag the next one may enter: it finds no
// flag, does not synchronise, and what the holder before it has left half done decides itself later.
// And the values are written without any token: the put of a holder that was forced out after its check, or
// whose server has not heard of it yet, lies on top of its successor's. With Options.FlagFirst the flag is set before the child is deleted; the late put
// stays.
package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/go-zookeeper/zk"

	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// root is where the keys' nodes lie.
const root = "/music"

// flagTable has a row for each key that must be synchronised.
const flagTable = "CREATE TABLE IF NOT EXISTS need_to_sync (key text PRIMARY KEY, flag boolean)"

// The statements; hooks of tests know them by their first words.
const (
	setFlag   = "INSERT INTO need_to_sync (key, flag) VALUES (?, true)"
	readFlag  = "SELECT flag FROM need_to_sync WHERE key = ?"
	clearFlag = "DELETE FROM need_to_sync WHERE key = ?"
)

// Options of a client.
type Options struct {
	store.Options
	Servers   []string      // host:port; the client speaks to one of them
	Session   time.Duration // default 10 s
	Poll      time.Duration // between two looks at the children; default 5 ms
	Patience  time.Duration // after which the first that others wait for has failed, and is forced out; default: never
	FlagFirst bool          // repaired: Force sets the flag before it deletes
}

// Client is one process.
type Client struct {
	zk      *zk.Conn
	session *store.Session
	o       Options
}

// New connects.
func New(o Options) (*Client, error) {
	if o.Poll == 0 {
		o.Poll = 5 * time.Millisecond
	}
	if o.Session == 0 {
		o.Session = 10 * time.Second
	}
	session, err := store.Open(o.Options, flagTable)
	if err != nil {
		return nil, err
	}
	conn, _, err := zk.Connect(o.Servers, o.Session, zk.WithLogger(silent{}))
	if err != nil {
		session.Close()
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	c := &Client{zk: conn, session: session, o: o}
	if err := c.ensure(root); err != nil {
		c.Close()
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	return c, nil
}

// silent is a logger that says nothing.
type silent struct{}

// Printf implements zk.Logger.
func (silent) Printf(string, ...any) {}

// Close implements section.Client.
func (c *Client) Close() {
	c.zk.Close()
	c.session.Close()
}

// ensure makes a persistent node where there is none.
func (c *Client) ensure(node string) error {
	_, err := c.zk.Create(node, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// nodeOf is the node of a key, whose name has no slash.
func nodeOf(key string) string { return path.Join(root, url.PathEscape(key)) }

// Enter is createLockRef, acquireLock until it returns true, and the synchronisation.
func (c *Client) Enter(ctx context.Context, key string) (section.Held, error) {
	h := &held{c: c, key: key}
	err := h.createLockRef()
	if err == nil {
		err = store.Poll(ctx, func() time.Duration { return c.o.Poll }, func() (bool, error) { return h.acquireLock(ctx) })
	}
	if err == nil {
		err = h.synchronise(ctx)
	}
	if err != nil {
		cleanup, cancel := store.Cleanup(ctx)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("enter %q: %w", key, err), h.Leave(cleanup))
	}
	return h, nil
}

// Force ends the section of whoever holds the key.
func (c *Client) Force(ctx context.Context, key string) error {
	children, _, err := c.zk.Children(nodeOf(key))
	if err != nil || len(children) == 0 {
		return err
	}
	return c.force(ctx, key, slices.Min(children))
}

// force ends the section of a child.
func (c *Client) force(ctx context.Context, key, child string) error {
	remove := func() error { return c.remove(path.Join(nodeOf(key), child)) }
	flag := func() error { return c.session.Exec(ctx, setFlag, key) }
	steps := []func() error{remove, flag}
	if c.o.FlagFirst {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("force %q: %w", key, err)
		}
	}
	return nil
}

// remove deletes a child, if it is there.
func (c *Client) remove(node string) error {
	err := c.zk.Delete(node, -1)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// held is a lock reference.
type held struct {
	c    *Client
	key  string
	node string // of the reference; "" until there is one

	first string // the lowest child since some time, while this one waits
	since time.Time
}

// createLockRef makes the child. A request whose answer was lost leaves one that nobody knows.
func (h *held) createLockRef() error {
	if err := h.c.ensure(nodeOf(h.key)); err != nil {
		return err
	}
	node, err := h.c.zk.Create(path.Join(nodeOf(h.key), "x-"), nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
	h.node = node
	return err
}

// acquireLock reports whether the reference is the lowest. One that is not there any more was forced out.
func (h *held) acquireLock(ctx context.Context) (bool, error) {
	children, err := h.children()
	if err != nil || slices.Min(children) == path.Base(h.node) {
		return err == nil, err
	}
	return false, h.suspect(ctx, slices.Min(children))
}

// children returns the references of the key, as the server of this client knows them; section.ErrLost where this one is not among them.
func (h *held) children() ([]string, error) {
	all, _, err := h.c.zk.Children(nodeOf(h.key))
	if err != nil {
		return nil, err
	}
	return all, present(all, path.Base(h.node))
}

// present returns section.ErrLost where a reference is not among others: a server that has answered its client has heard of it.
func present(all []string, mine string) error {
	if !slices.Contains(all, mine) {
		return section.ErrLost
	}
	return nil
}

// suspect forces out a child that has been the lowest for longer than Options.Patience.
func (h *held) suspect(ctx context.Context, child string) error {
	if child != h.first {
		h.first, h.since = child, time.Now()
	}
	if h.c.o.Patience == 0 || time.Since(h.since) < h.c.o.Patience {
		return nil
	}
	return h.c.force(ctx, h.key, child)
}

// synchronise writes back what it reads where the flag is set.
func (h *held) synchronise(ctx context.Context) error {
	rows, err := h.c.session.Rows(ctx, gocql.Quorum, readFlag, h.key)
	if err != nil || len(rows) == 0 {
		return err
	}
	value, err := h.c.session.Value(ctx, h.key)
	if err == nil {
		err = h.c.session.SetValue(ctx, h.key, value)
	}
	if err != nil && !errors.Is(err, section.ErrNoValue) {
		return err
	}
	return h.c.session.Exec(ctx, clearFlag, h.key)
}

// Get is criticalGet. Whoever has been the lowest is it for as long as he is there.
func (h *held) Get(ctx context.Context) ([]byte, error) {
	if _, err := h.children(); err != nil {
		return nil, err
	}
	return h.c.session.Value(ctx, h.key)
}

// Put is criticalPut.
func (h *held) Put(ctx context.Context, value []byte) error {
	if _, err := h.children(); err != nil {
		return err
	}
	return h.c.session.SetValue(ctx, h.key, value)
}

// Leave is releaseLock.
func (h *held) Leave(context.Context) error {
	if h.node == "" {
		return nil
	}
	return h.c.remove(h.node)
}
