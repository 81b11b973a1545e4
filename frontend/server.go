// Package frontend serves CQL clients. It relays requests and responses as the bytes received,
// looks into those that may be on a critical table, and carries out LOCK, UNLOCK and the operations
// under a lock.
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

// Options configure a Server. They must not change once it serves.
type Options struct {
	Cluster
	Schema
	Timeouts

	Locks Locks // nil if locks are off; then Tables is nil, too
	// References converts references of Locks to those that clients see. It must be set if Locks
	// is.
	References References
	// Audit is called for each refused statement on a lock, unless it is nil. It must be safe for
	// concurrent use and must not block.
	Audit func(Refusal)

	// Limits returns the present limits. It is called for each request, and must not block.
	Limits func() *Limits

	Log   zerolog.Logger
	Stats *traffic.Stats
}

// Cluster describes the home node and the other nodes' proxies.
type Cluster struct {
	// Dial opens a connection to the home node. It must honour ctx.
	Dial func(ctx context.Context) (net.Conn, error)
	// Advertise is the address that drivers are shown in the place of the home node's.
	Advertise netip.AddrPort
	// Nodes returns the nodes beside the home node that have a proxy now; the result must not be
	// modified. If Nodes is nil, drivers see only the home node.
	Nodes func() []topology.Node
	// Roles says that clients have a role even if Cassandra asks for no login: it takes the role from
	// the certificate of their connections.
	Roles bool
	// RoleByCertificate returns the role that Cassandra gives all clients by that certificate, whatever
	// they log in as; "" if it gives none. It must not block. It may be nil.
	RoleByCertificate func() string
}

// Schema gives the server access to Cassandra's schema.
type Schema struct {
	// Tables is nil if locks are off. Then only statements on the cluster's topology are looked
	// into.
	Tables *catalog.Tables
	// DDL is called after a client's schema change, before the client gets the answer. It blocks
	// until the change has been followed, or up to a limit of its own.
	DDL func(change SchemaChange) (warnings []string)
	// Hindrance returns why a table that a client's schema change would make critical cannot be
	// locked, and what to do about it; "" if it can. It blocks for at most two seconds. It may be
	// nil.
	Hindrance func(change CriticalChange) string
	// SchemaIsCurrent reports whether Tables corresponds to Cassandra's present schema. It blocks
	// for at most two seconds. It may be nil.
	SchemaIsCurrent func() bool
	// CatchUp reads the schema again if it has a table, given by keyspace and name, as few of those that
	// clients name have. It blocks until Tables is current for that table, or up to a limit of its own.
	CatchUp func(table [2]string)
	// CriticalByName reports whether a table is critical by the configuration, whatever its comment
	// says. It must not block. It may be nil.
	CriticalByName func(keyspace, table string) bool
}

// Timeouts bound how long the server waits.
type Timeouts struct {
	HandshakeTimeout time.Duration // from accepting the connection to the end of the login
	MessageTimeout   time.Duration // for the rest of a message that has begun; 0 = for ever
	BackendTimeout   time.Duration // for anything from Cassandra while a request is open; then it is taken to be lost
	DrainTimeout     time.Duration // for the answers to open requests, after Serve's context has ended
	MaxWait          time.Duration // for the answer to a LOCK if the client's driver is not known to wait longer
}

// Server serves CQL clients. Each client has its own connection to the home node.
type Server struct {
	Options
	buffers    relay.Buffers
	memory     *relay.Budget  // for requests
	answers    *relay.Budget  // for answers: a request that is held may wait for one, so it must leave them room
	listing    chan struct{}  // holds a value for each LIST LOCKS that is being answered
	evaluating chan struct{}  // holds a value for each large condition that is being evaluated
	clientLog  zerolog.Logger // Log with a bound, for events that clients cause
	prepared   *preparedStatements
	turns      turns
	groups     groups
	tokens     tokens
	lastID     atomic.Uint64

	mu    sync.Mutex
	conns map[*conn]struct{}
	wg    sync.WaitGroup
}

// listsAtOnce is how many LIST LOCKS of all connections are answered at once: their rows take far more
// memory than the answers.
const listsAtOnce = 4

// Conditions on more than largeCondition bytes are evaluated evaluationsAtOnce at a time, for all
// connections: a collection takes up to a dozen times its bytes while it is compared.
const (
	largeCondition    = 64 << 10
	evaluationsAtOnce = 2
)

// evaluate calls f, which evaluates conditions on n bytes and must not block. It waits for its turn if n is large.
func (s *Server) evaluate(n int, f func()) {
	if n > largeCondition {
		s.evaluating <- struct{}{}
		defer func() { <-s.evaluating }()
	}
	f()
}

// NewServer returns a server. Serve starts it.
func NewServer(o Options) *Server {
	requests := func() int { return o.Limits().Messages }
	answers := func() int { return o.Limits().Messages / 2 }
	return &Server{
		Options: o, memory: relay.NewBudget(requests), answers: relay.NewBudget(answers), listing: make(chan struct{}, listsAtOnce), clientLog: sampled(o.Log),
		evaluating: make(chan struct{}, evaluationsAtOnce), prepared: newStatements(o.Limits), conns: map[*conn]struct{}{},
	}
}

// Serve accepts clients until ctx ends or the listener fails. Then it drains: it waits, for at most
// DrainTimeout, until open requests have been answered. It closes the listener, and returns when
// every connection has ended: nil if ctx has ended, else why the listener failed.
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
	s.turns.running.Wait()
	s.groups.running.Wait()
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

// acceptPause is the pause after a failed accept: a process that is out of file descriptors must
// not spin.
const acceptPause = 50 * time.Millisecond

// sleep blocks for d or until ctx ends. It returns false if ctx has ended.
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

// admit starts serving a connection, or closes it if there are too many.
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
		c.tell(cause) // last: once it is in the log, another client can connect
	})
}

// each calls f with every present connection.
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

// whilePresent runs f in a goroutine that Serve waits for, unless the connection has ended.
func (s *Server) whilePresent(c *conn, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, present := s.conns[c]; present {
		s.wg.Go(f)
	}
}

// Outstanding marks the requests that Cassandra has not answered yet. left reports whether any of
// these still has no answer. Once a plain write from before a table became critical has been
// answered, it has got its timestamp.
func (s *Server) Outstanding() (left func() bool) {
	s.each(func(c *conn) { c.streams.Mark() })
	return func() bool {
		some := false
		s.each(func(c *conn) { some = some || c.streams.Marked() })
		return some
	}
}

// drain makes every connection end when its requests have been answered. After DrainTimeout it ends
// those that are left. It returns then, or when over is closed.
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

// every returns the channel of a ticker; one that never ticks if d is 0.
func every(d time.Duration) (ticks <-chan time.Time, stop func()) {
	if d <= 0 {
		return nil, func() {}
	}
	ticker := time.NewTicker(d)
	return ticker.C, ticker.Stop
}

// checkHealth checks every connection, checksPerTimeout times per BackendTimeout and per
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

// Limits bound what clients can use of the proxy's resources. They may change: a new limit applies
// to requests from then on, and does not end existing connections.
type Limits struct {
	Connections  int // open connections
	Frame        int // bytes of one message of a client
	Label        int // bytes of the text after AS or REASON
	Statement    int // bytes of the text of LOCK, UNLOCK or LIST LOCKS, and of a prepared statement on a critical table or one that is read again when it is executed
	Prepared     int // bytes of memory for all prepared statements
	PreparedEach int // bytes of memory for those that one connection has prepared
	Waits        int // operations of one connection that wait for the core
	Messages     int // bytes of memory for requests of all connections, see relay.Budget; answers have half as much
}

// DefaultLimits returns the defaults of package config.
func DefaultLimits() Limits {
	return Limits{
		Connections: 10_000, Frame: 16 << 20, Label: 256, Statement: 64 << 10, Prepared: 64 << 20, PreparedEach: 8 << 20, Waits: 2000, Messages: 1 << 30,
	}
}

// checkText refuses a text that is too long for the proxy to keep or to carry out itself.
func (l *Limits) checkText(text []byte) *wire.Failure {
	if len(text) > l.Statement {
		return wire.Invalid("MUSIC_REFUSED: the statement has %d bytes; this proxy takes at most %d (max-statement-size): bind its values", len(text), l.Statement)
	}
	return nil
}

// checkReread refuses to prepare a text that is too long to be read again with each EXECUTE, of few bytes.
func (l *Limits) checkReread(text []byte) *wire.Failure {
	if len(text) > l.Statement {
		return wire.Invalid("MUSIC_REFUSED: the statement has %d bytes; of a schema change, or of what this proxy cannot parse, it prepares at most %d (max-statement-size): send it without preparing it", len(text), l.Statement)
	}
	return nil
}

// checkVerb is checkText for a QUERY: only LOCK, UNLOCK and LIST LOCKS are bounded, since the text
// of a write may contain its values.
func (l *Limits) checkVerb(verb rewrite.Verb, text []byte) *wire.Failure {
	switch verb {
	case rewrite.Lock, rewrite.Unlock, rewrite.ListLocks:
		return l.checkText(text)
	}
	return nil
}

// checkLabel refuses a text of AS or REASON that is too long, since it is sent to every waiting
// client and to other proxies.
func (l *Limits) checkLabel(label, what string) *wire.Failure {
	if len(label) > l.Label {
		return wire.Invalid("MUSIC_REFUSED: the text of %s has %d bytes; at most %d (max-label-size): shorten it", what, len(label), l.Label)
	}
	return nil
}

// checkWaits refuses an operation if too many of the connection wait already. What goes on with a request
// about which Cassandra was asked first is not one of them.
func (c *conn) checkWaits() *wire.Failure {
	if most := c.server.Limits().Waits; int(c.operations.busy.Load()) >= most {
		return wire.Invalid("MUSIC_UNAVAILABLE: %d operations of this connection wait already (max-waits-per-connection): try again when some have their answer; nothing was done", most)
	}
	return nil
}
