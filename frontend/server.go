// Package frontend serves CQL clients. It relays requests and responses as the bytes received,
// looks into those that may concern a critical table, and answers the statements that are the
// proxy's own.
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
	"music/frontend/traffic"
	"music/frontend/wire"
	"music/rewrite"
)

// Options are what a Server is made of. They must not change once it serves.
type Options struct {
	Cluster
	Schema
	Timeouts

	Locks Locks // nil when locks are off, as are Tables
	// References are what clients see of the references that Locks gives; needed where there are
	// Locks.
	References References
	// Audit is called for each attempt that was refused, unless it is nil. It may be called by many
	// goroutines at once and must not block.
	Audit func(Refusal)

	// Limits returns those that hold now. It is called for each request, and must not block.
	Limits func() *Limits

	Log   zerolog.Logger
	Stats *traffic.Stats
}

// Cluster is the node behind the server, and the proxies beside it.
type Cluster struct {
	// Dial opens a connection to the home node. It must honour ctx.
	Dial func(ctx context.Context) (net.Conn, error)
	// Advertise is the address that drivers get in the place of the home node's.
	Advertise netip.AddrPort
	// Nodes returns the other nodes that have a proxy now; neither side modifies the result. Where
	// it is nil, the home node is shown as the only one.
	Nodes func() []topology.Node
}

// Schema is what the server knows of Cassandra's schema, and how it follows changes.
type Schema struct {
	// Tables is nil when locks are off: then no statement is looked into but for the cluster's
	// topology.
	Tables *catalog.Tables
	// DDL is called after a client's schema change, before the client gets the answer. It may block
	// up to its own limit.
	DDL func(change SchemaChange) (warnings []string)
	// Hindrance returns why a table cannot be locked that a client's schema change would make
	// critical, and what to type; "" where it can. It blocks for two seconds at most. nil finds
	// nothing.
	Hindrance func(change CriticalChange) string
	// SchemaIsCurrent reports whether Tables are those of Cassandra's present schema. It blocks for
	// two seconds at most; nil where there are none.
	SchemaIsCurrent func() bool
	// CatchUp has the schema read again. It returns when Tables are current, or after a time of its
	// own where that fails.
	CatchUp func()
	// CriticalByName reports whether a table is critical whatever its comment says; nil where none
	// is. It must not block.
	CriticalByName func(keyspace, table string) bool
}

// Timeouts bound how long the server waits.
type Timeouts struct {
	HandshakeTimeout time.Duration // from the connection to the end of the login
	MessageTimeout   time.Duration // for the rest of a message that has begun; 0: for ever
	BackendTimeout   time.Duration // for Cassandra to send anything while it owes an answer; then it is taken for lost
	DrainTimeout     time.Duration // for requests in flight, after the end of Serve's context
	MaxWait          time.Duration // within which a LOCK is answered, where it is not known how long the driver waits
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

// NewServer returns a server that does not listen yet.
func NewServer(o Options) *Server {
	messages := func() int { return o.Limits().Messages }
	return &Server{Options: o, memory: relay.NewBudget(messages), clientLog: sampled(o.Log), prepared: newStatements(o.Limits), conns: map[*conn]struct{}{}}
}

// Serve accepts clients until ctx ends or the listener fails, then drains: for at most DrainTimeout
// it waits for the answers to requests in flight. It closes the listener and returns when every
// connection has ended: nil where ctx has, else why the listener failed.
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

// accept accepts clients until ctx ends or the listener fails.
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

// acceptPause is the time between two attempts to accept: a process that is out of file descriptors
// must not spin.
const acceptPause = 50 * time.Millisecond

// sleep blocks for d or until ctx ends, and reports whether ctx still goes on.
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
	c, most := newConn(s, client), s.Limits().Connections
	s.mu.Lock()
	full := len(s.conns) >= most
	if !full {
		s.conns[c] = struct{}{}
	}
	s.mu.Unlock()
	if full {
		s.Stats.Rejected.Add(1)
		s.clientLog.Warn().Int("max_connections", most).Msg("a client was turned away: too many connections")
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
		c.tell(cause) // whoever reads it in the log finds the place free
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

// Outstanding marks the requests that have been forwarded as received and are not answered yet;
// left reports whether any of them still is not. Writes that a client sent before a table became
// critical have their timestamps once they are answered.
func (s *Server) Outstanding() (left func() bool) {
	s.each(func(c *conn) { c.streams.Mark() })
	return func() bool {
		some := false
		s.each(func(c *conn) { some = some || c.streams.Marked() })
		return some
	}
}

// drain makes every connection end once its requests are answered, and ends the others after
// DrainTimeout or when over is closed.
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

// every returns a ticker's channel, or one that never ticks where d is 0.
func every(d time.Duration) (ticks <-chan time.Time, stop func()) {
	if d <= 0 {
		return nil, func() {}
	}
	ticker := time.NewTicker(d)
	return ticker.C, ticker.Stop
}

// checkHealth checks every connection, checksPerTimeout times in BackendTimeout and in
// MessageTimeout, until over is closed.
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

// Limits bound what clients can take of the proxy. A request obeys those that hold when it is looked
// at; what is there already, such as connections, stays.
type Limits struct {
	Connections  int // at a time
	Frame        int // bytes of one message of a client
	Label        int // bytes of AS and REASON
	Statement    int // bytes of the text of a verb of the lock, and of a prepared statement that concerns a critical table
	Prepared     int // bytes that are kept of all prepared statements
	PreparedEach int // … and of those that one connection has prepared
	Waits        int // operations of a connection that wait for the core
	Messages     int // bytes of messages that are held, of all connections
}

// DefaultLimits returns those of package config.
func DefaultLimits() Limits {
	return Limits{
		Connections: 10_000, Frame: 16 << 20, Label: 256, Statement: 64 << 10, Prepared: 64 << 20, PreparedEach: 8 << 20, Waits: 2000, Messages: 1 << 30,
	}
}

// checkText refuses a statement that the proxy would keep or carry out itself, and that is too long
// for that.
func (l *Limits) checkText(text []byte) *wire.Failure {
	if len(text) > l.Statement {
		return wire.Invalid("MUSIC_REFUSED: the statement has %d bytes; at most %d here (max-statement-size): bind its values", len(text), l.Statement)
	}
	return nil
}

// checkVerb is checkText for what came as text: only a verb of the lock is bounded, since a write
// may carry its values in it.
func (l *Limits) checkVerb(verb rewrite.Verb, text []byte) *wire.Failure {
	switch verb {
	case rewrite.Lock, rewrite.Unlock, rewrite.ListLocks:
		return l.checkText(text)
	}
	return nil
}

// checkLabel refuses a text of AS or REASON that is too long: it is sent to every waiting client,
// and to other proxies.
func (l *Limits) checkLabel(label, what string) *wire.Failure {
	if len(label) > l.Label {
		return wire.Invalid("MUSIC_REFUSED: the text of %s has %d bytes; at most %d (max-label-size): shorten it", what, len(label), l.Label)
	}
	return nil
}

// checkWaits refuses an operation where as many wait as may.
func (c *conn) checkWaits() *wire.Failure {
	if most := c.server.Limits().Waits; c.operations.count() >= most {
		return wire.Invalid("MUSIC_UNAVAILABLE: %d operations of this connection wait already (max-waits-per-connection): try again when some have their answer; nothing was done", most)
	}
	return nil
}
