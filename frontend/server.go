// Package frontend serves CQL clients: it relays what they and Cassandra say as the bytes received, looks into what may concern a
// critical table, and answers what is the proxy's own.
package frontend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"music/frontend/catalog"
	"music/frontend/relay"
	"music/frontend/topology"
	"music/frontend/wire"
	"music/rewrite"
)

// Options is what a Server is made of. All of it is read-only once the server serves.
type Options struct {
	Cluster
	Schema
	Timeouts

	Locks Locks // nil when locks are off, as are Tables
	// References are what clients see of the references that Locks gives; needed where there are Locks.
	References References
	// Audit is called for each attempt that was refused; nil where nobody wants to know. It may be called by many at once and must not
	// block.
	Audit func(Refusal)

	Bounds         Bounds
	MaxConnections int
	MaxFrame       int // bytes of one message of a client

	Log   zerolog.Logger
	Stats *Stats
}

// Cluster is what stands behind the server and beside it.
type Cluster struct {
	// Dial opens a connection to the home node. It must honour ctx.
	Dial func(ctx context.Context) (net.Conn, error)
	// Advertise is the address that drivers are told in the place of the home node's.
	Advertise netip.AddrPort
	// Nodes returns the other nodes that have a proxy now; the result is not modified, by either side. nil = none ever: the home node is
	// shown as the only one.
	Nodes func() []topology.Node
}

// Schema is what the server knows of Cassandra's schema, and how it comes to know more.
type Schema struct {
	// Tables is nil when locks are off: then no statement is looked into but for the cluster's topology.
	Tables *catalog.Tables
	// DDL is called after a client's schema change, before the client is told of it. It may block up to its own limit.
	DDL func(change SchemaChange) (warnings []string)
	// SchemaIsCurrent reports whether Tables are those of Cassandra's present schema. It blocks for two seconds at most; nil where there
	// are none.
	SchemaIsCurrent func() bool
	// CatchUp has the schema read again, and returns when Tables say what is in it now, or after a time of its own where that fails.
	CatchUp func()
	// CriticalByName reports whether a table is critical whatever its comment says; nil where none is. It must not block.
	CriticalByName func(keyspace, table string) bool
}

// Timeouts bound how long the server waits for what.
type Timeouts struct {
	HandshakeTimeout time.Duration // from connection to login
	MessageTimeout   time.Duration // for the rest of a message that has begun, while it is waited for; 0: for ever
	BackendTimeout   time.Duration // Cassandra says nothing for so long while it owes an answer: it is lost
	DrainTimeout     time.Duration // after the end of Serve's context, for what is in flight
	MaxWait          time.Duration // a LOCK is answered within this, for a driver of unknown patience
}

// Server serves CQL clients, each over one connection of its own to the home node.
type Server struct {
	Options
	buffers   relay.Buffers
	memory    *relay.Budget
	clientLog zerolog.Logger // Log, for what clients cause
	prepared  *preparedStatements
	turns     turns
	lastID    atomic.Uint64

	mu    sync.Mutex
	conns map[*conn]struct{}
	wg    sync.WaitGroup
}

// NewServer makes a server that does not listen yet.
func NewServer(o Options) *Server {
	o.Bounds = o.Bounds.orDefault()
	return &Server{Options: o, memory: relay.NewBudget(o.Bounds.Messages), clientLog: sampled(o.Log), prepared: newStatements(o.Bounds.Prepared, o.Bounds.PreparedEach), conns: map[*conn]struct{}{}}
}

// Serve accepts clients until ctx ends or the listener fails, then drains: requests in flight are answered, connections
// closed, for at most DrainTimeout. It closes the listener and returns when every connection has ended; nil after ctx.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	var helpers sync.WaitGroup
	over := make(chan struct{})
	helpers.Go(func() { s.checkHealth(over) })
	err := s.accept(ctx, ln)
	_ = ln.Close()
	helpers.Go(func() { s.drain(over) })
	s.wg.Wait()
	close(over)
	helpers.Wait()
	return err
}

func (s *Server) accept(ctx context.Context, ln net.Listener) error {
	for {
		client, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = client.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept: %w", err)
		case err != nil:
			s.clientLog.Warn().Err(err).Msg("a client could not be accepted")
			if !sleep(ctx, acceptPause) {
				return nil
			}
			continue
		}
		s.admit(client)
	}
}

// acceptPause keeps a process that is out of file descriptors from spinning.
const acceptPause = 50 * time.Millisecond

// sleep waits and tells whether ctx is still going on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// admit starts a connection, or closes it where there are too many.
func (s *Server) admit(client net.Conn) {
	s.Stats.Accepted.Add(1)
	c := newConn(s, client)
	s.mu.Lock()
	full := len(s.conns) >= s.MaxConnections
	if !full {
		s.conns[c] = struct{}{}
	}
	s.mu.Unlock()
	if full {
		s.Stats.Rejected.Add(1)
		s.clientLog.Warn().Int("max_connections", s.MaxConnections).Msg("a client was turned away: too many connections")
		_ = client.Close()
		return
	}
	s.Stats.Open.Add(1)
	s.wg.Go(func() {
		cause := c.serve()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		s.Stats.Open.Add(-1)
		c.tell(cause) // who reads it finds the place free
	})
}

// each calls f with every connection there is now.
func (s *Server) each(f func(*conn)) {
	s.mu.Lock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		f(c)
	}
}

// Outstanding looks at what has been forwarded as it came and has no answer of Cassandra yet; left tells whether any of that still has
// none. What a client sent before a table became critical is stamped once it is answered.
func (s *Server) Outstanding() (left func() bool) {
	s.each(func(c *conn) { c.streams.Mark() })
	return func() bool {
		some := false
		s.each(func(c *conn) { some = some || c.streams.Marked() })
		return some
	}
}

// drain tells every connection to end once it owes no answer, and ends those that still do after DrainTimeout.
func (s *Server) drain(over <-chan struct{}) {
	timer := time.NewTimer(s.DrainTimeout)
	defer timer.Stop()
	deadline := time.Now().Add(s.DrainTimeout)
	s.each(func(c *conn) { c.drain(deadline) })
	select {
	case <-timer.C:
		s.each(func(c *conn) { c.end(errDrained) })
	case <-over:
	}
}

// every ticks, unless d is 0.
func every(d time.Duration) (ticks <-chan time.Time, stop func()) {
	if d <= 0 {
		return nil, func() {}
	}
	ticker := time.NewTicker(d)
	return ticker.C, ticker.Stop
}

// checkHealth looks at every connection, looks times in BackendTimeout and in MessageTimeout.
func (s *Server) checkHealth(over <-chan struct{}) {
	backend, stop := every(s.BackendTimeout / checksPerTimeout)
	defer stop()
	message, stop := every(s.MessageTimeout / checksPerTimeout)
	defer stop()
	for {
		select {
		case <-backend:
			s.each((*conn).checkProgress)
		case <-message:
			s.each((*conn).checkLate)
		case <-over:
			return
		}
	}
}

// Bounds are what clients can take of the proxy. A zero is the default: there is no client without bounds.
type Bounds struct {
	Label        int // bytes of AS and REASON
	Statement    int // bytes of the text of a verb of the lock, and of a prepared statement that concerns a critical table
	Prepared     int // bytes of what is remembered of all prepared statements
	PreparedEach int // … and of those that one connection has prepared
	Waits        int // operations of a connection that wait for the core
	Messages     int // bytes of messages that are held, of all connections
}

// defaultBounds are those of package config.
func defaultBounds() Bounds {
	return Bounds{Label: 256, Statement: 64 << 10, Prepared: 64 << 20, PreparedEach: 8 << 20, Waits: 2000, Messages: 1 << 30}
}

// orDefault fills in what is zero.
func (b Bounds) orDefault() Bounds {
	d := defaultBounds()
	for _, field := range []struct{ at, from *int }{
		{&b.Label, &d.Label}, {&b.Statement, &d.Statement}, {&b.Prepared, &d.Prepared}, {&b.PreparedEach, &d.PreparedEach}, {&b.Waits, &d.Waits},
		{&b.Messages, &d.Messages},
	} {
		if *field.at == 0 {
			*field.at = *field.from
		}
	}
	return b
}

// checkText refuses a statement that is the proxy's to keep or to carry out, and too long for that.
func (b *Bounds) checkText(text []byte) *wire.Failure {
	if len(text) > b.Statement {
		return wire.Invalid("MUSIC_REFUSED: the statement has %d bytes; at most %d here (max-statement-size): bind its values", len(text), b.Statement)
	}
	return nil
}

// checkVerb is checkText for what came as text: only a verb of the lock is bounded, since a write may carry its values in it.
func (b *Bounds) checkVerb(verb rewrite.Verb, text []byte) *wire.Failure {
	switch verb {
	case rewrite.Lock, rewrite.Unlock, rewrite.ListLocks:
		return b.checkText(text)
	}
	return nil
}

// checkLabel refuses a text of AS or REASON that is too long: it is told to everybody who waits, and to other proxies.
func (b *Bounds) checkLabel(label, what string) *wire.Failure {
	if len(label) > b.Label {
		return wire.Invalid("MUSIC_REFUSED: the text of %s has %d bytes; at most %d (max-label-size)", what, len(label), b.Label)
	}
	return nil
}

// checkWaits refuses an operation that would be one more than may wait.
func (c *conn) checkWaits() *wire.Failure {
	if c.operations.count() >= c.server.Bounds.Waits {
		return wire.Invalid("MUSIC_UNAVAILABLE: %d operations of this connection wait already (max-waits-per-connection): try again when some have their answer; nothing was done", c.server.Bounds.Waits)
	}
	return nil
}
