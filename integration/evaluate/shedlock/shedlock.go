// Package shedlock is ShedLock's Cassandra provider, out of its jar: a lock for tasks that are to run once in a cluster. ShedLock.java
// is the client, a process of its own.
//
//	ShedLock                                          here
//	lock(name, lockAtMostFor, lockAtLeastFor)         Enter. ShedLock does not wait, since the task is being run already: here one
//	  INSERT … IF NOT EXISTS, or UPDATE … IF           that was refused tries again every Options.Poll
//	  lockUntil < now
//	extend(lockAtMostFor, lockAtLeastFor)             Renew
//	unlock(): UPDATE … lockUntil = now IF lockedBy    Leave
//	values: whatever the task does                    package store: writes at QUORUM with the client's timestamps
//
// What breaks it. The row has the end of the lock by the clock of its holder, and who wants it compares that with its own: a client
// whose clock is ahead enters while the lock is held. And nothing is fenced: the put of a task that has run for longer than
// lockAtMostFor lies on top of its successor's. The documentation says the first ("ShedLock assumes that clocks on the nodes are
// synchronized") and asks for a lockAtMostFor "much longer than normal execution time".
package shedlock

import (
	"context"
	_ "embed"
	"net"
	"strconv"
	"time"

	"music/integration/evaluate/remote"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// The program. go:embed works on package-level variables only.
var (
	//go:embed ShedLock.java
	source []byte
	//go:embed pom.xml
	pom []byte
)

// Program is the client. To build it fetches ShedLock with Maven.
func Program() remote.Java { return remote.Java{Class: "ShedLock", Source: source, Pom: pom} }

// Options of a client.
type Options struct {
	store.Options
	Program    []string      // as Build of Program returns it
	Datacenter string        // of the node; default dc1
	Lease      time.Duration // lockAtMostFor; default 10 s
	Poll       time.Duration // default 50 ms
	Ahead      time.Duration // of the clock of the locks
}

// Client is a program that has the locks, and a session for the values.
type Client struct {
	locks  *remote.Client
	values *store.Session
}

// New starts a client.
func New(o Options) (*Client, error) {
	if o.Datacenter == "" {
		o.Datacenter = "dc1"
	}
	if o.Lease == 0 {
		o.Lease = 10 * time.Second
	}
	if o.Poll == 0 {
		o.Poll = 50 * time.Millisecond
	}
	host, port, err := net.SplitHostPort(o.Hosts[0])
	if err != nil {
		return nil, err
	}
	values, err := store.Open(o.Options)
	if err != nil {
		return nil, err
	}
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	locks, err := remote.Start(o.Program, host, port, o.Datacenter, o.Keyspace, ms(o.Lease), ms(o.Poll), ms(o.Ahead))
	if err != nil {
		values.Close()
		return nil, err
	}
	return &Client{locks, values}, nil
}

// Close implements section.Client.
func (c *Client) Close() {
	c.locks.Close()
	c.values.Close()
}

// Enter locks.
func (c *Client) Enter(ctx context.Context, key string) (section.Held, error) {
	lock, err := c.locks.Enter(ctx, key)
	if err != nil {
		return nil, err
	}
	return &held{c, key, lock}, nil
}

// held is a key whose lock was had.
type held struct {
	c    *Client
	key  string
	lock section.Held
}

// Get reads at QUORUM.
func (h *held) Get(ctx context.Context) ([]byte, error) { return h.c.values.Value(ctx, h.key) }

// Put writes at QUORUM.
func (h *held) Put(ctx context.Context, value []byte) error {
	return h.c.values.SetValue(ctx, h.key, value)
}

// Renew extends the lock.
func (h *held) Renew(ctx context.Context) error { return h.lock.(section.Renewer).Renew(ctx) }

// Leave unlocks.
func (h *held) Leave(ctx context.Context) error { return h.lock.Leave(ctx) }
