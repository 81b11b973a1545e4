// Package etcd is the lock of etcd's own library, concurrency.Mutex, in a session with a lease: the
// key of a waiter is bound to the lease, and the oldest key holds.
//
//	library                                       here
//	concurrency.NewSession, WithTTL               the first Enters; the library renews the lease
//	NewMutex(s, pfx); Lock, TryLock, Unlock       Enter, TryEnter, Leave
//	Mutex.IsOwner, for a Txn                      Get and Put: Txn(If(IsOwner).Then(…))
//	Election: Campaign, Proclaim, Resign, Leader  [Client.Lead], [Client.Leader]
//	Mutex.Header, its revision                    Token
//
// It is a module of its own, since etcd requires more than all of the rest together.
//
// A Mutex is for one session, so goroutines of a Client keep each other out by one session each. What was left goes to the next Enter:
// a process does not grant and revoke a lease for each section, which are two writes of their own.
//
// With values in etcd no fault was found: a Txn is ordered with the deletion of the key that it asks
// for, and one that comes late compares a key that is gone. With Options.Cassandra the values are in
// Cassandra, as with every lock service beside a database, and nothing there knows of the lock: the
// put of a holder whose lease has ended is written. A token exists, and Cassandra has nothing that
// would compare it.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// Where keys lie.
const locks, values, elections = "/lock/", "/value/", "/election/"

// Options of a client.
type Options struct {
	Endpoints []string
	TTL       time.Duration  // of a lease, whole seconds; default 10 s
	Cassandra *store.Options // values are there; default: in etcd
}

// Client is one process.
type Client struct {
	etcd   *clientv3.Client
	values *store.Session // nil: in etcd
	o      Options

	mu   sync.Mutex
	idle []*concurrency.Session // without a lock
}

// New connects.
func New(o Options) (*Client, error) {
	if o.TTL == 0 {
		o.TTL = 10 * time.Second
	}
	c := &Client{o: o}
	var err error
	if o.Cassandra != nil {
		if c.values, err = store.Open(*o.Cassandra); err != nil {
			return nil, err
		}
	}
	c.etcd, err = clientv3.New(clientv3.Config{Endpoints: o.Endpoints, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return c, nil
}

// Close closes the connections: leases are not renewed any more.
func (c *Client) Close() {
	_ = c.etcd.Close()
	if c.values != nil {
		c.values.Close()
	}
}

// borrow returns a session that nobody uses, a new one if there is none.
func (c *Client) borrow() (*concurrency.Session, error) {
	c.mu.Lock()
	for n := len(c.idle); n > 0; n = len(c.idle) {
		s := c.idle[n-1]
		c.idle = c.idle[:n-1]
		if alive(s) {
			c.mu.Unlock()
			return s, nil
		}
	}
	c.mu.Unlock()
	s, err := concurrency.NewSession(c.etcd, concurrency.WithTTL(int(c.o.TTL/time.Second)))
	if err != nil {
		return nil, fmt.Errorf("etcd: a session: %w", err)
	}
	return s, nil
}

// alive reports whether a session has not ended, as far as it knows.
func alive(s *concurrency.Session) bool {
	select {
	case <-s.Done():
		return false
	default:
		return true
	}
}

// giveBack takes a session that has no lock any more.
func (c *Client) giveBack(s *concurrency.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, s)
}

// locked locks a mutex. The key of one that gives up goes with its lease. A session whose lease has ended unnoticed, as where the
// process stood still, has locked nothing, and another one is taken.
func (c *Client) locked(key string, lock func(*concurrency.Mutex) error) (*held, error) {
	for {
		s, err := c.borrow()
		if err != nil {
			return nil, err
		}
		h := &held{c: c, key: key, session: s, mutex: concurrency.NewMutex(s, locks+key)}
		err = lock(h.mutex)
		switch {
		case err == nil:
			return h, nil
		case errors.Is(err, concurrency.ErrLocked):
			c.giveBack(s)
			return nil, err
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			s.Orphan()
		default:
			return nil, errors.Join(err, s.Close())
		}
	}
}

// Enter waits for the lock.
func (c *Client) Enter(ctx context.Context, key string) (section.Held, error) {
	h, err := c.locked(key, func(m *concurrency.Mutex) error { return m.Lock(ctx) })
	if err != nil {
		return nil, fmt.Errorf("enter %q: %w", key, err)
	}
	return h, nil
}

// TryEnter tries once.
func (c *Client) TryEnter(ctx context.Context, key string) (section.Held, bool, error) {
	h, err := c.locked(key, func(m *concurrency.Mutex) error { return m.TryLock(ctx) })
	if errors.Is(err, concurrency.ErrLocked) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return h, true, nil
}

// Force deletes the key of whoever holds the lock.
func (c *Client) Force(ctx context.Context, key string) error {
	first, err := c.etcd.Get(ctx, locks+key+"/", clientv3.WithFirstCreate()...)
	if err != nil || len(first.Kvs) == 0 {
		return err
	}
	_, err = c.etcd.Delete(ctx, string(first.Kvs[0].Key))
	return err
}

// Lead campaigns, and resigns when ctx ends. elected is called once it leads.
func (c *Client) Lead(ctx context.Context, name, value string, elected func()) error {
	s, err := concurrency.NewSession(c.etcd, concurrency.WithTTL(int(c.o.TTL/time.Second)))
	if err != nil {
		return fmt.Errorf("etcd: a session: %w", err)
	}
	defer func() { _ = s.Close() }()
	e := concurrency.NewElection(s, elections+name)
	if err := e.Campaign(ctx, value); err != nil {
		return err
	}
	elected()
	select {
	case <-s.Done():
		return section.ErrLost
	case <-ctx.Done():
		return e.Resign(context.WithoutCancel(ctx))
	}
}

// Leader returns what the leader has proclaimed, "" where there is none.
func (c *Client) Leader(ctx context.Context, name string) (string, error) {
	first, err := c.etcd.Get(ctx, elections+name+"/", clientv3.WithFirstCreate()...)
	if err != nil || len(first.Kvs) == 0 {
		return "", err
	}
	return string(first.Kvs[0].Value), nil
}

// held is a mutex that was locked.
type held struct {
	c       *Client
	key     string
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

// Token is the revision at which the lock was had: each holder's is above that of the one before.
func (h *held) Token() int64 { return h.mutex.Header().GetRevision() }

// Get implements section.Held.
func (h *held) Get(ctx context.Context) ([]byte, error) {
	if h.c.values != nil {
		return h.c.values.Value(ctx, h.key)
	}
	answer, err := h.owning(ctx, clientv3.OpGet(values+h.key))
	if err != nil {
		return nil, err
	}
	kvs := answer.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return nil, section.ErrNoValue
	}
	return kvs[0].Value, nil
}

// Put implements section.Held.
func (h *held) Put(ctx context.Context, value []byte) error {
	if h.c.values != nil {
		return h.c.values.SetValue(ctx, h.key, value)
	}
	_, err := h.owning(ctx, clientv3.OpPut(values+h.key, string(value)))
	return err
}

// owning carries out an operation if the lock is still there.
func (h *held) owning(ctx context.Context, op clientv3.Op) (*clientv3.TxnResponse, error) {
	answer, err := h.c.etcd.Txn(ctx).If(h.mutex.IsOwner()).Then(op).Commit()
	if err != nil {
		return nil, err
	}
	if !answer.Succeeded {
		return nil, section.ErrLost
	}
	return answer, nil
}

// Leave unlocks. A session of which that is not known ends, with its lease.
func (h *held) Leave(ctx context.Context) error {
	err := h.mutex.Unlock(ctx)
	switch {
	case err == nil:
		h.c.giveBack(h.session)
		return nil
	case errors.Is(err, concurrency.ErrLockReleased):
		return err // it was left before: the session may be another's
	}
	return errors.Join(err, h.session.Close())
}
