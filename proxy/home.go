package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"music/config"
)

// home dials the home node: the first contact point that answers, and from then on that one. Only a
// proxy without others beside it may change to another contact point (docs/design.md 3). It is safe
// for concurrent use.
type home struct {
	addresses []string
	nodes     *nodeDialer // for the proxy's own connections
	clients   *nodeDialer // for clients' connections
	timeout   time.Duration
	current   atomic.Int64 // index of the address that answered last
	bound     atomic.Bool  // there are other proxies: this one must stay with its node
	host      atomic.Pointer[string]
	role      atomic.Pointer[string] // that the node gives clients by their certificate, as it was last asked; nil = not yet
}

// roleOfClients returns the role that the node gives all clients by their certificate; "" if it gives none.
func (h *home) roleOfClients() string {
	if role := h.role.Load(); role != nil {
		return *role
	}
	return ""
}

// newHome returns the home of the configured contact points. It reads the TLS files.
func newHome(c config.Cassandra, log zerolog.Logger) (*home, error) {
	nodes, err := newNodeDialer(c, log)
	if err != nil {
		return nil, err
	}
	clients, err := newNodeDialer(c.ForClients(), log)
	if err != nil {
		return nil, err
	}
	return &home{addresses: c.Addresses(), nodes: nodes, clients: clients, timeout: c.ConnectTimeout}, nil
}

// id returns the home node's host id, as the node has last reported it; "" before that.
func (h *home) id() string {
	if id := h.host.Load(); id != nil {
		return *id
	}
	return ""
}

// dial opens a connection for a client.
func (h *home) dial(ctx context.Context) (net.Conn, error) { return h.reach(ctx, h.clients) }

// reach opens a connection. It blocks for at most the timeout, for all contact points together.
func (h *home) reach(ctx context.Context, by *nodeDialer) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	first, tries := int(h.current.Load()), len(h.addresses)
	if h.bound.Load() {
		tries = 1
	}
	var faults []error
	for i := range tries {
		at := (first + i) % len(h.addresses)
		share, release := h.share(ctx, tries-i)
		conn, err := by.dialPoint(share, h.addresses[at])
		release()
		if err == nil {
			h.current.Store(int64(at))
			return conn, nil
		}
		faults = append(faults, err)
	}
	return nil, fmt.Errorf("reach Cassandra: %w", errors.Join(faults...))
}

// share returns a context with an equal share of the time for each of the contact points that are
// left.
func (h *home) share(ctx context.Context, left int) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
}
