package frontend

import (
	"crypto/tls"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"

	"music/frontend/wire"
)

// ending is the end of a connection: the first cause wins.
type ending struct {
	once  sync.Once
	done  chan struct{}
	cause error // to be read after done is closed
}

// end ends the connection, from whatever goroutine.
func (c *conn) end(cause error) {
	c.ending.once.Do(func() {
		c.ending.cause = cause
		close(c.ending.done)
		if c.relaying.Load() {
			c.unblock()
		}
	})
}

// unblock ends whatever waits for either socket, but for the last words to the client.
func (c *conn) unblock() {
	now := time.Now()
	_ = c.client.SetReadDeadline(now)
	_ = c.client.SetWriteDeadline(now.Add(c.farewellTime()))
	_ = c.backend.SetDeadline(now)
}

// farewellTime is how long a client may take to read the last words: less where the proxy itself comes to its end.
func (c *conn) farewellTime() time.Duration {
	if c.limit.Load() != 0 {
		return 150 * time.Millisecond
	}
	return time.Second
}

// farewell tells the client why the connection ends: an error on each request that Cassandra still owes an answer to. During the
// handshake nothing is told but what the client did wrong itself, as by a node that goes: drivers take any other error for the
// refusal of the protocol version, and go on with a lower one for good.
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
	c.linger()
}

// giveUp answers every request that Cassandra still owes an answer to. Only the kind of the cause is told: its details name
// addresses that clients do not know.
func (c *conn) giveUp(cause error) {
	f := &wire.Failure{Code: primitive.ErrorCodeServerError, Text: "MUSIC_BACKEND: " + cause.Error() + "; the request may or may not have been carried out"}
	c.streams.Each(func(stream int16) { c.post(wire.ErrorEnvelope(c.version, stream, f)) })
	for _, stream := range c.operations.disown() {
		c.post(wire.ErrorEnvelope(c.version, stream, f))
	}
}

// linger lets the client read the last words: a socket that is closed with unread bytes on it throws them away.
func (c *conn) linger() {
	socket := c.client
	if secure, ok := socket.(*tls.Conn); ok {
		_ = secure.CloseWrite() // it fails where the handshake did, which has said why
		socket = secure.NetConn()
	}
	half, ok := socket.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = socket.SetReadDeadline(time.Now().Add(c.farewellTime()))
	_, _ = io.Copy(io.Discard, socket)
}

// endsTold and endsPeriod bound the lines of one level about clients that end otherwise than they should: what thousands do at once, or one
// does again and again, must not fill the log. The metrics count all.
const (
	endsTold   = 100
	endsPeriod = time.Minute
)

// sampled is a log for lines that clients cause.
func sampled(log zerolog.Logger) zerolog.Logger {
	burst := func() zerolog.Sampler { return &zerolog.BurstSampler{Burst: endsTold, Period: endsPeriod} }
	return log.Sample(zerolog.LevelSampler{InfoSampler: burst(), WarnSampler: burst(), ErrorSampler: burst()})
}

// tell logs the end of the connection, once, unless there are too many.
func (c *conn) tell(cause error) {
	log := c.server.ends.With().Uint64("conn", c.id).Str("client", c.client.RemoteAddr().String()).Logger()
	switch {
	case errors.Is(cause, errBackendLost), errors.Is(cause, errBackendSlow):
		c.server.Stats.Lost.Add(1)
		log.Warn().Err(cause).Msg("client connection closed: Cassandra is lost")
	case errors.Is(cause, errPanic):
		log.Error().Err(cause).Msg("client connection closed: a bug of the proxy")
	case errors.Is(cause, errClientClosed), errors.Is(cause, errDrained), errors.Is(cause, errUnsupported):
		log.Debug().AnErr("cause", cause).Msg("client connection closed")
	default:
		c.server.Stats.Rejected.Add(1)
		log.Info().Err(cause).Msg("client connection closed: it did not keep to the protocol or its limits")
	}
}
