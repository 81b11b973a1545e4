package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// home dials the node that this proxy stands for: the first contact point that answers, and that one from then on. Only a proxy that
// is alone goes on to another (DESIGN.md 3).
type home struct {
	addresses []string
	nodes     *nodeDialer
	timeout   time.Duration
	current   atomic.Int64 // index of the one that answered last
	settled   atomic.Bool  // there are other proxies, which count on this one to stand for its node
	host      atomic.Pointer[string]
}

// id is the host id of the node, as it has last said itself; "" before it was asked.
func (h *home) id() string {
	if id := h.host.Load(); id != nil {
		return *id
	}
	return ""
}

// dial opens a connection for one client. It takes at most the timeout, whatever the number of contact points.
func (h *home) dial(ctx context.Context) (net.Conn, error) {
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
		conn, err := h.nodes.dialPoint(share, h.addresses[at])
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
