package frontend

import (
	"fmt"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/relay"
	"music/frontend/traffic"
	"music/frontend/wire"
)

// requests is the relay.Handler of the direction client → Cassandra. It decides about each request,
// with one method for each opcode.
type requests conn

// maxBeforeLogin bounds a message of a client that is not logged in yet, in bytes.
const maxBeforeLogin = 64 << 10

// check returns an error if a client must not send this envelope, whatever its body.
func (r *requests) check(e *wire.Envelope) error {
	c, h := (*conn)(r), &e.Header
	limit := c.server.Limits().Frame
	if !c.loggedIn.Load() {
		limit = min(limit, maxBeforeLogin)
	}
	switch {
	case h.Version&wire.ResponseBit != 0:
		return c.violation(0, wire.ProtocolError("Wrong protocol direction (expected REQUEST, got RESPONSE) for opcode %d", h.OpCode))
	case h.Version != c.version:
		return c.violation(h.Stream, wire.ProtocolError("Invalid message version. Got %d/v%[1]d but previous messages on this connection had version %d/v%[2]d", h.Version, c.version))
	case int64(h.Length) > int64(limit):
		return c.violation(h.Stream, wire.Invalid("Request is too big: length %d exceeds maximum allowed length %d", h.Length, limit))
	case c.segmentsOnly && !e.InSegment:
		return c.violation(h.Stream, wire.ProtocolError("Unexpected message %s: after STARTUP every message of protocol 5 comes in a segment, once STARTUP has been answered", traffic.OpcodeName(h.OpCode)))
	case h.Stream < 0:
		return c.violation(h.Stream, wire.ProtocolError("Invalid stream id %d: negative ids are for the server", h.Stream))
	case c.streams.Open(h.Stream), c.operations.uses(h.Stream):
		return c.violation(h.Stream, inUse(h.Stream))
	}
	return nil
}

// inUse returns the error for a second request on an open stream: the answer to one could be taken
// for the answer to the other.
func inUse(stream int16) *wire.Failure {
	return wire.ProtocolError("Stream id %d is in use: its request has not been answered yet", stream)
}

// violation is the error that ends a connection whose client violated the protocol. conn.farewell
// sends failure to the client.
type violation struct {
	version byte
	stream  int16
	failure *wire.Failure
}

// Error returns the error that the client gets.
func (v *violation) Error() string { return v.failure.Error() }

// violation returns a violation on a stream.
func (c *conn) violation(stream int16, f *wire.Failure) error {
	return &violation{version: c.version, stream: stream, failure: f}
}

// Decide implements relay.Handler: it decides about a request by its header and as much of its body
// as is needed (docs/design.md 6.3).
func (r *requests) Decide(e *wire.Envelope) (relay.Decision, error) {
	c := (*conn)(r)
	if err := r.check(e); err != nil {
		return relay.Forward, err
	}
	if c.afterUse && c.busy() {
		return relay.Defer, nil
	}
	c.afterUse = false
	for {
		version := c.server.Tables.Version()
		d := c.decide(e)
		if u, ok := d.action.(*unlistedTable); ok {
			if d = c.decideUnlisted(e.OpCode, u); d.route == relay.Defer {
				return relay.Defer, nil
			}
		}
		c.caughtUp = false
		if d.route == relay.Intercept && c.server.Tables.Version() != version {
			continue // a table has changed: the decision may be based on two of its states
		}
		if d.route != relay.Forward {
			c.intercepted, c.decidedAt = d.action, version
			return d.route, nil
		}
		if d.watch != nil && d.watch.kind == watchKeyspace && c.busy() {
			return relay.Defer, nil
		}
		if err := c.openStream(e.Stream, d.watch); err != nil {
			return relay.Forward, err
		}
		if c.server.Tables.Version() == version {
			c.watchAndCount(&e.Header, d.watch)
			return relay.Forward, nil
		}
		c.streams.End(e.Stream) // a table may have become critical before Server.Outstanding could see the stream
	}
}

// Await implements relay.Handler. For a request on a table that is not in the schema it blocks
// until the schema has been read again. Otherwise it blocks until every request has been answered. USE
// needs that before and after it: Cassandra carries out the requests of a connection in any order,
// and the proxy must know the keyspace of each.
func (r *requests) Await() error {
	c := (*conn)(r)
	if c.catchUp != nil {
		c.server.CatchUp(*c.catchUp)
		c.catchUp, c.caughtUp = nil, true
		return nil
	}
	c.awaited.Store(true)
	defer c.awaited.Store(false)
	for c.busy() {
		select {
		case <-c.answeredOne:
		case <-c.done:
			return c.cause
		}
	}
	return nil
}

// expect opens the stream of a request that is forwarded now, and has its answer watched; nil means
// that it need not be. It fails if the stream is already open.
func (c *conn) expect(e wire.Envelope, w *watch) error {
	if err := c.openStream(e.Stream, w); err != nil {
		return err
	}
	c.watchAndCount(&e.Header, w)
	return nil
}

// openStream opens the stream of a request. It fails if the stream is already open.
func (c *conn) openStream(stream int16, w *watch) error {
	if !c.streams.Begin(stream, w != nil) {
		return c.violation(stream, inUse(stream))
	}
	c.lastStream = stream
	return nil
}

// watchAndCount stores the watch of a request's answer, and counts the request.
func (c *conn) watchAndCount(h *wire.Header, w *watch) {
	if w != nil {
		w.kept = w.memory()
		c.watch(h.Stream, w)
		c.afterUse = w.kind == watchKeyspace
		if w.kind == watchLogin {
			c.started.Store(true)
			c.segmentsOnly = c.version >= byte(primitive.ProtocolVersion5)
		}
	} else {
		c.sample.Begin(h.Stream)
	}
	c.server.Stats.Count(c.id, h.OpCode, traffic.Forwarded)
}

// decide decides about a request: it is the table from opcode to method. It may be called several
// times for one request, and changes no state that it depends on.
func (c *conn) decide(e *wire.Envelope) decision {
	if !c.loggedIn.Load() {
		return c.decideLogin(*e)
	}
	if e.Flags&^headerFlags != 0 {
		return refused(wire.ProtocolError("Unknown flags %#x in the header", uint8(e.Flags&^headerFlags)))
	}
	switch e.OpCode {
	case primitive.OpCodeExecute:
		return c.decideExecute(e)
	case primitive.OpCodeQuery:
		return c.decideQuery(e)
	case primitive.OpCodePrepare:
		return c.decidePrepare(*e)
	case primitive.OpCodeBatch:
		return c.decideBatch(*e)
	case primitive.OpCodeOptions:
		return decision{}
	case primitive.OpCodeAuthResponse:
		return refused(loginOver())
	case primitive.OpCodeRegister:
		return intercepted(registerEvents{})
	case primitive.OpCodeStartup:
		return refused(wire.ProtocolError("Unexpected message STARTUP, the connection is already initialized"))
	}
	return refused(wire.ProtocolError("Unknown opcode %d", e.OpCode))
}

// headerFlags are the flags that a request may have. Any other may change what the body means.
const headerFlags = primitive.HeaderFlagCompressed | primitive.HeaderFlagTracing | primitive.HeaderFlagCustomPayload |
	primitive.HeaderFlagWarning | primitive.HeaderFlagUseBeta

// Perform implements relay.Handler: it performs the action for the request that Decide has just
// held back. The request's custom payload is sent with whatever replaces it.
func (r *requests) Perform(e wire.Envelope) error {
	c := (*conn)(r)
	if c.down.Out.Full() { // do not pile up answers for a client that does not read
		if err := c.up.Flush(); err != nil {
			return err
		}
		c.down.Out.Room(c.done)
	}
	if e.Flags.Contains(primitive.HeaderFlagCustomPayload) {
		e.Payload = c.payload(e)
	}
	action := c.intercepted
	c.intercepted = nil
	c.performing = e.Stream
	err := action.perform(c, e)
	c.performing = noStream
	return err
}

// Flushed implements relay.Handler. It blocks while the client does not read its answers, or Cassandra what
// has waited for its lock, and while the memory for waiting requests is used up. It stops reading from a draining connection.
func (r *requests) Flushed() {
	r.sample.Flushed()
	r.down.Out.Room(r.done)
	if !r.up.HalfForwarded() { // else it would wait for the rest of that
		r.up.Out.Room(r.done)
	}
	if r.waitingBytes.Load() > 0 {
		r.server.memory.Acquire(0, r.done)
	}
	if r.draining() && !r.up.Inside() {
		_ = r.client.SetReadDeadline(time.Now())
	}
}

// forwardHeld forwards a request that was held back, and has its answer watched.
func (c *conn) forwardHeld(e wire.Envelope, w *watch) error {
	if err := c.expect(e, w); err != nil {
		return err
	}
	c.up.Emit(e.Raw)
	return nil
}

// forwardEdited sends a request that was held back with another body, which is uncompressed and
// without custom payload, and has its answer watched.
func (c *conn) forwardEdited(e wire.Envelope, w *watch, body []byte) error {
	return c.forwardAs(e, e.OpCode, w, body)
}

// forwardAs is forwardEdited with another opcode. The request is counted under the opcode that the
// client has sent.
func (c *conn) forwardAs(e wire.Envelope, opcode primitive.OpCode, w *watch, body []byte) error {
	if err := c.expect(e, w); err != nil {
		return err
	}
	h := e.Rewritten()
	h.OpCode = opcode
	h.Length = uint32(len(h.Payload) + len(body))
	raw := h.AppendTo(make([]byte, 0, wire.HeaderSize+h.Length))
	c.up.Emit(append(append(raw, h.Payload...), body...))
	return nil
}

// answer answers a request that was held back with an error. It returns nil.
func (c *conn) answer(e wire.Envelope, f *wire.Failure) error {
	c.reject(e.Header, f)
	return nil
}

// answerUnreadable answers a request whose body is malformed. It returns nil.
func (c *conn) answerUnreadable(e wire.Envelope, err error) error {
	return c.answer(e, unreadableFailure(e.OpCode, err))
}

// unreadable returns the decision about a body that could not be read: wait for the rest or, if it
// is whole, refuse it.
func (c *conn) unreadable(e wire.Envelope, err error) decision {
	if !e.Whole() {
		return decision{route: relay.NeedWhole}
	}
	return refused(unreadableFailure(e.OpCode, err))
}

// unreadableFailure returns the error for a body that does not follow the protocol.
func unreadableFailure(opcode primitive.OpCode, err error) *wire.Failure {
	return wire.ProtocolError("%s message cannot be read: %v", traffic.OpcodeName(opcode), err)
}

// decision is what becomes of a request. The zero value forwards it as the bytes received. With
// more than four words it would no longer be returned in registers.
type decision struct {
	route  relay.Decision
	watch  *watch // for relay.Forward: how its answer is watched; nil if it is not
	action action // for relay.Intercept
}

// action is what to do with a request that is held back.
type action interface {
	// perform is called with the whole request, right after the decision: slices of the read buffer
	// that the action holds are still valid, but no longer once it returns.
	perform(c *conn, e wire.Envelope) error
	String() string // for tests and logs
}

// intercepted returns the decision to hold a request back for an action.
func intercepted(a action) decision { return decision{route: relay.Intercept, action: a} }

// watched returns the decision to forward a request and to watch its answer.
func watched(w *watch) decision { return decision{watch: w} }

// refused returns the decision to answer a request with an error, without asking Cassandra.
func refused(f *wire.Failure) decision { return intercepted(refuse{f}) }

// String returns the decision in a form for people to read.
func (d decision) String() string {
	if u, ok := d.action.(*unlistedTable); ok {
		return fmt.Sprintf("%v (table %s.%s is not in the schema)", u.otherwise, u.name[0], u.name[1])
	}
	text := [...]string{relay.Forward: "forward", relay.NeedWhole: "need whole", relay.Intercept: "intercept", relay.Defer: "defer"}[d.route]
	if d.watch != nil {
		text += fmt.Sprintf(", watch the answer: %v", d.watch.kind)
	}
	if d.action != nil {
		text += ": " + d.action.String()
	}
	return text
}

// refuse is the action that answers a request with an error.
type refuse struct{ failure *wire.Failure }

// perform implements action.
func (a refuse) perform(c *conn, e wire.Envelope) error { return c.answer(e, a.failure) }

// String implements action.
func (a refuse) String() string { return "refuse, " + a.failure.Error() }
