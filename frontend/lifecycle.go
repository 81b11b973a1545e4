package frontend

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"

	"music/frontend/wire"
	"music/musiccore"
)

// The reasons why a connection ends.
var (
	errClientClosed = errors.New("client closed the connection")
	errBackendLost  = errors.New("connection to Cassandra lost")
	errBackendSlow  = errors.New("no answer from Cassandra for too long")
	errClientSlow   = errors.New("client does not read its answers")
	errLoginSlow    = errors.New("client does not finish its login")
	errClientLate   = errors.New("a message has begun and is not finished in time (message-timeout)")
	errDrained      = errors.New("proxy is shutting down")
	errPanic        = errors.New("internal error")
	errNotSecure    = errors.New("TLS handshake failed")
	errUnsupported  = errors.New("unsupported protocol version") // normal: drivers negotiate the version so
)

// lifecycle is the state of a connection's end, which comes at once or when it is drained. The
// first cause counts.
type lifecycle struct {
	ended sync.Once
	done  chan struct{} // closed when the connection ends
	cause error         // valid after done is closed

	relaying   atomic.Bool  // both sockets are open
	drained    atomic.Bool  // the direction up has stopped because the proxy is shutting down
	drainBegan atomic.Int64 // when the shutdown began, wall clock in ns; 0 = it has not
	drainLimit atomic.Int64 // when the connection must end, wall clock in ns; 0 = no shutdown

	health   health
	children sync.WaitGroup
}

// over reports whether the connection has ended.
func (l *lifecycle) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// draining reports whether the proxy is shutting down.
func (l *lifecycle) draining() bool { return l.drainLimit.Load() != 0 }

// end ends the connection for a cause, unless it has ended. Any goroutine may call it.
func (c *conn) end(cause error) {
	c.ended.Do(func() {
		c.cause = cause
		close(c.done)
		if c.relaying.Load() {
			c.unblock()
		}
	})
}

// loseBackend ends the connection because Cassandra's answer on a stream cannot be read. The stream is open again, so
// that the end of the connection answers the request.
func (c *conn) loseBackend(stream int16, err error) {
	c.streams.Begin(stream, false)
	c.end(fmt.Errorf("%w: %w", errBackendLost, err))
}

// unblock makes reads and writes on both sockets return. Only writes to the client may go on for
// farewellTime.
func (c *conn) unblock() {
	now := time.Now()
	_ = c.client.SetReadDeadline(now)
	_ = c.client.SetWriteDeadline(now.Add(c.farewellTime()))
	_ = c.backend.SetDeadline(now)
}

// farewellTime returns how long a client may take to read the last answers. It is shorter while the
// proxy is shutting down.
func (c *conn) farewellTime() time.Duration {
	if c.draining() {
		return 150 * time.Millisecond
	}
	return time.Second
}

// farewell answers every request that is still open with an error that tells why the connection
// ends. During the handshake it reports only the client's own faults, as a node does: drivers take
// any other error for a refusal of the protocol version, and use a lower one from then on.
func (c *conn) farewell(cause error) {
	if errors.Is(cause, errClientClosed) {
		return
	}
	var v *violation
	switch {
	case errors.As(cause, &v):
		c.post(wire.ErrorEnvelope(v.version, v.stream, v.failure))
	case c.loggedIn.Load():
		for _, told := range []error{errBackendLost, errBackendSlow, errClientLate, errDrained, errPanic} {
			if errors.Is(cause, told) {
				c.giveUp(told)
			}
		}
	}
	c.down.Out.Finish()
	c.linger()
}

// giveUp answers every open request with an error. cause must be one of the sentinels: details of
// an error could name addresses that clients do not know.
func (c *conn) giveUp(cause error) {
	f := &wire.Failure{Code: primitive.ErrorCodeServerError, Text: "MUSIC_BACKEND: " + cause.Error() + "; whether the request was carried out is unknown: connect again, and read to find out"}
	owed := map[int16]struct{}{} // a request that an operation has just sent to Cassandra is that of both
	for _, stream := range c.operations.disown() {
		owed[stream] = struct{}{}
	}
	c.streams.Each(func(stream int16) { owed[stream] = struct{}{} })
	if c.performing != noStream {
		owed[c.performing] = struct{}{}
	}
	for _, stream := range slices.Sorted(maps.Keys(owed)) {
		c.post(c.failureEnvelope(stream, f))
	}
}

// linger waits until the client has read everything and closes its side, for at most farewellTime.
// Closing a socket with unread bytes would discard what has been written.
func (c *conn) linger() {
	socket := c.client
	if secure, ok := socket.(*tls.Conn); ok {
		_ = secure.CloseWrite() // it fails if the handshake has failed, which is logged elsewhere
		socket = secure.NetConn()
	}
	half, ok := socket.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = socket.SetReadDeadline(time.Now().Add(c.farewellTime()))
	_, _ = io.Copy(io.Discard, socket)
}

// abandon cleans up when the connection has ended. It cancels the client's waits, releases locks
// that the client was never told of, and ends the operations whose answer will not come with an
// unknown outcome.
func (c *conn) abandon() {
	c.operations.cancel()
	for _, w := range c.watches.removeAll() {
		c.countKept(-w.kept)
		if w.sent != nil {
			c.abandonSent(w.sent)
		}
	}
}

// abandonSent ends an operation whose answer will not come, or cannot be read, with an unknown
// outcome.
func (c *conn) abandonSent(f *sentOperation) {
	c.endTickets(f, musiccore.OutcomeUnknown)
	f.done()
	c.releaseFresh(f)
}

// releaseFresh releases the lock that a SELECT … FOR UPDATE has taken, whose client is not told. It reports
// whether there is one.
func (c *conn) releaseFresh(f *sentOperation) bool {
	if !f.fresh() {
		return false
	}
	c.release(f.key, f.ticket.Ref)
	return true
}

// fresh reports whether a SELECT … FOR UPDATE has taken a lock of which its client has not been told.
func (f *sentOperation) fresh() bool { return f.update != nil && f.update.fresh }

// clientLogBurst and clientLogPeriod bound the log lines per level about connections that end with
// an error, so that thousands of clients, or one that tries again and again, do not fill the log.
// The metrics count all of them.
const (
	clientLogBurst  = 100
	clientLogPeriod = time.Minute
)

// sampled returns a logger with these bounds.
func sampled(log zerolog.Logger) zerolog.Logger {
	burst := func() zerolog.Sampler { return &zerolog.BurstSampler{Burst: clientLogBurst, Period: clientLogPeriod} }
	return log.Sample(zerolog.LevelSampler{InfoSampler: burst(), WarnSampler: burst(), ErrorSampler: burst()})
}

// tell logs and counts the end of the connection. It must be called once.
func (c *conn) tell(cause error) {
	log := c.server.clientLog.With().Uint64("conn", c.id).Str("client", c.address).Logger()
	switch {
	case errors.Is(cause, errBackendLost), errors.Is(cause, errBackendSlow):
		c.server.Stats.Lost.Add(1)
		log.Warn().Err(cause).Msg("client connection closed: the connection to Cassandra is lost")
	case errors.Is(cause, errPanic):
		log.Error().Err(cause).Msg("client connection closed: a bug of the proxy")
	case errors.Is(cause, errClientClosed), errors.Is(cause, errDrained), errors.Is(cause, errUnsupported):
		log.Debug().AnErr("cause", cause).Msg("client connection closed")
	default:
		c.server.Stats.Rejected.Add(1)
		log.Info().Err(cause).Msg("client connection closed: it violated the protocol or a limit")
	}
}

// readUntil sets the deadline for reads from the client; zero means none. It has no effect once the
// connection has ended or drains.
func (c *conn) readUntil(t time.Time) {
	_ = c.client.SetReadDeadline(t)
	if c.draining() || c.over() {
		_ = c.client.SetReadDeadline(time.Now())
	}
}

// drain makes the connection end when every request has been answered. The caller must end it at
// the deadline if it has not ended by then.
func (c *conn) drain(deadline time.Time) {
	c.drainBegan.Store(time.Now().UnixNano())
	c.drainLimit.Store(deadline.UnixNano())
	_ = c.client.SetReadDeadline(time.Now())
}

// endIfDrained must be called after every answer. It ends a draining connection when every request
// has been answered, and wakes Await.
func (c *conn) endIfDrained() {
	if c.awaited.Load() {
		select {
		case c.answeredOne <- struct{}{}:
		default:
		}
	}
	if c.drained.Load() && !c.busy() {
		c.end(errDrained)
	}
}

// checksPerTimeout is how often the server checks each connection during a BackendTimeout, and
// during a MessageTimeout.
const checksPerTimeout = 8

// health is the state of a connection at the last check, and for how many checks in a row there has
// been no progress. Only the goroutine that checks uses it.
type health struct {
	reads, writes             uint64
	backendStill, clientStill int
	checks                    int
}

// checkProgress ends the connection if, for a whole BackendTimeout, Cassandra has sent nothing
// although a request is open or its answer is not finished, or the client has not read what is being
// written to it. A peer that is stopped or cut off does not close its socket. It also does so if one
// answer for which tables wait (Server.Outstanding) has not come for that long, whatever else Cassandra sends:
// else no table could become critical any more.
func (c *conn) checkProgress() {
	h := &c.health
	reads, writes := c.down.Arrivals(), c.down.Out.Progress()
	stuck := writes == h.writes && writes%2 == 1
	owed := c.streams.Any() || c.answering.Load() || c.down.Out.Full()
	h.clientStill = inARow(h.clientStill, stuck)
	h.backendStill = inARow(h.backendStill, owed && !stuck && reads == h.reads)
	h.reads, h.writes = reads, writes
	h.checks++
	overdue := h.checks%(checksPerTimeout+1) == 0 && c.streams.Overdue()
	switch {
	case h.clientStill > checksPerTimeout:
		c.end(errClientSlow)
	case h.backendStill > checksPerTimeout, overdue:
		c.end(errBackendSlow)
	}
}

// checkLate ends the connection if the rest of a message has been waited for too long, since the
// part that has arrived takes memory.
func (c *conn) checkLate() {
	if c.up.Late(c.server.MessageTimeout) {
		c.end(errClientLate)
	}
}

// inARow returns n+1 if still, else 0.
func inARow(n int, still bool) int {
	if still {
		return n + 1
	}
	return 0
}
