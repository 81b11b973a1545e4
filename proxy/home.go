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

// home dials the node that this proxy stands for: the first contact point that answers, and that
// one from then on. Only a proxy that is alone goes on to another (docs/design.md 3).
type home struct {
	addresses []string
	nodes     *nodeDialer // of the proxy's own connections
	clients   *nodeDialer // of clients' connections
	timeout   time.Duration
	current   atomic.Int64 // index of the one that answered last
	settled   atomic.Bool  // there are other proxies, which count on this one to stand for its node
	host      atomic.Pointer[string]
}

// newHome dials as c says: clients' connections are not the proxy's own, and look so.
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

// id returns the host id of the node, as it has last said itself; "" before it was asked.
func (h *home) id() string {
	if id := h.host.Load(); id != nil {
		return *id
	}
	return ""
}

// dial opens a connection for one client, as reach does.
func (h *home) dial(ctx context.Context) (net.Conn, error) { return h.reach(ctx, h.clients) }

// reach opens a connection. It takes at most the timeout, whatever the number of contact points.
func (h *home) reach(ctx context.Context, by *nodeDialer) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	first, tries := int(h.current.Load()), len(h.addresses)
	if h.settled.Load() {
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

// share leaves time for the contact points that come after this one.
func (h *home) share(ctx context.Context, left int) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
}
