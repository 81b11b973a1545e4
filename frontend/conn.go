package frontend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"music/frontend/classify"
	"music/frontend/relay"
	"music/frontend/traffic"
	"music/frontend/wire"
)

// conn is a client's connection together with its own connection to the home node. Two goroutines
// serve it, one for each direction; its state is grouped by which of them writes it.
type conn struct {
	id     uint64
	server *Server

	client  net.Conn
	address string // the client's
	backend net.Conn
	up      *relay.Direction // client → backend
	down    *relay.Direction // backend → client

	codec       // version, framing
	clientState // written by up
	serverState // written by down
	pending     // written by both
	lifecycle   // written by any goroutine that ends the connection
}

// clientState is the state that comes from the client's requests.
type clientState struct {
	driverTimeout time.Duration // how long the client's driver waits for an answer; 0 = unknown
	claimedRole   string        // the role that the client logs in as; "" if its login does not show it
	intercepted   action        // what to do with the request that Decide has held back, until Perform
	decidedAt     uint64        // the version of Tables by which that was decided
	prepared      map[preparedID]*sharedStatement
	classifier    classify.Classifier
	performing    int16         // the stream of the request being performed, or noStream: a panic must be answered on it
	values        [][]byte      // memory for the values of the present request
	afterUse      bool          // a USE has been sent, and nothing after it
	catchUp       *[2]string    // a table for which the schema must be read before the present request is decided about again; nil: none
	caughtUp      bool          // it has been read
	lastStream    int16         // the stream of the request that was forwarded last, perhaps in part
	segmentsOnly  bool          // a STARTUP of protocol 5 has been sent: from then on the client may send segments only
	registered    atomic.Uint32 // the event types of REGISTER: registeredStatus, registeredTopology
}

// serverState is the state that comes from Cassandra's answers.
type serverState struct {
	loggedIn      atomic.Bool
	authenticated atomic.Bool            // Cassandra has asked for a login, so there are roles
	keyspace      atomic.Pointer[string] // the keyspace that USE has set
}

// pending is the state of requests that have no answer yet; both directions use it.
type pending struct {
	started        atomic.Bool // a STARTUP has been sent and not been refused
	streams        relay.Streams
	share          *preparedShare // this connection's share of the prepared statements; apart, since those outlive it
	sample         traffic.Sample
	watches        watches
	operations     operations
	rights         rights
	guesses        wrongReferences
	waitingBytes   atomic.Int64  // bytes of requests that wait for the core
	keptAnswers    atomic.Int64  // bytes of answers that wait for the core
	listing        chan struct{} // holds a value while an answer is made whose size is not known in advance
	timestampsTold atomic.Bool   // see timestampWarning
	answering      atomic.Bool   // a part of an answer has been forwarded, and the rest is to come: its stream is free already
	awaited        atomic.Bool   // the direction up waits until every request has been answered
	answeredOne    chan struct{} // receives when awaited is set and a request has been answered
}

// busy reports whether a request of the client has no answer yet, or only a part of it.
func (p *pending) busy() bool {
	return p.streams.Any() || p.operations.count() > 0 || p.answering.Load()
}

// newConn returns the connection of an accepted client.
func newConn(s *Server, client net.Conn) *conn {
	c := &conn{id: s.lastID.Add(1), server: s, client: client, address: client.RemoteAddr().String()}
	c.performing, c.classifier.Tables = noStream, s.Tables
	c.limits, c.stats = s.Limits, s.Stats
	c.share = new(preparedShare)
	c.sample.Start()
	c.done = make(chan struct{})
	c.answeredOne, c.guesses.turn, c.listing = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	c.up = relay.NewDirection((*requests)(c), &c.framing, c.account(s.memory))
	c.up.In = relay.NewInbound(client, &s.buffers, c.account(s.memory))
	c.down = relay.NewDirection((*responses)(c), &c.framing, c.account(s.answers))
	c.down.Out = relay.NewOutbound(client)
	c.up.Back = c.down.Out
	return c
}

// serve opens the connection, relays until it ends, and tells the client why. It blocks until both
// sockets are closed and every goroutine of the connection has ended, and returns why it ended.
func (c *conn) serve() error {
	cause := c.open()
	if cause == nil {
		cause = c.relay()
	}
	c.end(cause)
	if c.backend != nil {
		_ = c.backend.Close()
	}
	c.farewell(cause)
	_ = c.client.Close()
	c.abandon()
	c.children.Wait()
	c.up.Close()
	c.prepared = nil // what waits for others may hold c for a while
	return cause
}

// account returns a new account of one of the server's budgets for a part of the connection.
func (c *conn) account(b *relay.Budget) relay.Account { return b.Account(c.done) }

// open waits for the client's first bytes before it dials: a client that sends nothing, or an
// unknown version of the protocol, costs Cassandra nothing.
func (c *conn) open() error {
	limit := time.Now().Add(c.server.HandshakeTimeout)
	c.readUntil(limit)
	ctx, cancel := context.WithDeadline(context.Background(), limit)
	defer cancel()
	c.children.Go(func() {
		select {
		case <-c.done:
			cancel()
		case <-ctx.Done():
		}
	})
	if err := c.secure(ctx); err != nil {
		return err
	}
	in := c.up.In
	for len(in.Window()) < wire.HeaderSize {
		if err := in.Fill(wire.HeaderSize); err != nil {
			return clientError(err)
		}
		if first := in.Window(); !wire.Supported(wire.Header{Version: first[0]}.Protocol()) {
			c.down.Out.Post(wire.UnsupportedVersion(first))
			return errUnsupported
		}
	}
	first := wire.Envelope{Header: wire.ReadHeader(in.Window())}
	c.version = first.Version &^ wire.ResponseBit
	if err := (*requests)(c).check(&first); err != nil {
		return err
	}
	backend, err := c.server.Dial(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errBackendLost, err)
	}
	c.backend = backend
	c.up.Out = relay.NewOutbound(backend)
	c.down.In = relay.NewInbound(backend, &c.server.buffers, c.account(c.server.answers))
	return nil
}

// secure does the TLS handshake if the client's socket uses TLS.
func (c *conn) secure(ctx context.Context) error {
	client, ok := c.client.(*tls.Conn)
	if !ok {
		return nil
	}
	err := client.HandshakeContext(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		return errClientClosed
	}
	return fmt.Errorf("%w: %w", errNotSecure, err)
}

// relay runs both directions. It blocks until both have ended, and returns why the first did.
func (c *conn) relay() error {
	c.relaying.Store(true)
	if c.over() {
		c.unblock()
	}
	var down sync.WaitGroup
	down.Go(func() { c.end(caught(c.runDown)) })
	c.end(caught(c.runUp))
	down.Wait()
	c.down.Close()
	return c.cause
}

// caught turns a panic of f into an error, so that it ends only this connection.
func caught(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack())
		}
	}()
	return f()
}

// restTime is how long a draining connection waits for the rest of a message: a client that never
// finishes one must not delay the shutdown.
const restTime = time.Second

// runUp relays requests until that fails, and returns why. A draining connection reads no further
// than to the end of an envelope that has begun.
func (c *conn) runUp() error {
	for {
		err := c.up.Run()
		limit := c.drainLimit.Load()
		if limit == 0 || !isTimeout(err) {
			return c.upError(err)
		}
		rest := min(limit, c.drainBegan.Load()+int64(restTime))
		if !c.up.Inside() || time.Now().UnixNano() >= rest {
			break
		}
		_ = c.client.SetReadDeadline(time.Unix(0, rest))
		if c.over() {
			break
		}
	}
	if c.up.HalfForwarded() {
		c.streams.End(c.lastStream) // Cassandra never gets all of it, and will not answer
	}
	c.drained.Store(true)
	c.endIfDrained()
	<-c.done
	return errDrained
}

// upError returns why the connection ends, given the error of its direction up.
func (c *conn) upError(err error) error {
	var v *violation
	if errors.As(err, &v) || errors.Is(err, relay.ErrMalformed) || errors.Is(err, wire.ErrCorrupt) {
		return err
	}
	if c.up.Out.Err() != nil {
		return fmt.Errorf("%w: %w", errBackendLost, err)
	}
	if isTimeout(err) && !c.loggedIn.Load() && !c.over() {
		if c.streams.Any() {
			return fmt.Errorf("%w: it has not answered the handshake", errBackendSlow)
		}
		return errLoginSlow
	}
	return clientError(err)
}

// runDown relays responses until that fails, and returns why.
func (c *conn) runDown() error {
	err := c.down.Run()
	if c.down.Out.Err() != nil {
		return clientError(err)
	}
	if errors.Is(err, io.EOF) {
		return errBackendLost
	}
	return fmt.Errorf("%w: %w", errBackendLost, err)
}

// clientError wraps err as the end of the client's socket.
func clientError(err error) error {
	if errors.Is(err, io.EOF) {
		return errClientClosed
	}
	return fmt.Errorf("%w: %w", errClientClosed, err)
}

// isTimeout reports whether an error is due to a deadline.
func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// post sends an envelope to the client. It copies the envelope. Any goroutine may call it.
func (c *conn) post(envelope []byte) { c.down.Post(envelope) }

// reject answers the request with header h with an error.
func (c *conn) reject(h wire.Header, f *wire.Failure) {
	c.server.Stats.Count(c.id, h.OpCode, traffic.Refused)
	c.post(c.failureEnvelope(h.Stream, f))
}
