package frontend

import (
	"bytes"
	"fmt"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/relay"
	"music/frontend/traffic"
	"music/frontend/wire"
)

// requests handles the direction client → Cassandra: it decides about each request, with one method
// for each opcode.
type requests conn

// maxBeforeLogin bounds a message of a client that is not logged in yet, in bytes.
const maxBeforeLogin = 64 << 10

// check returns an error for a header that a client must not send on this connection.
func (r *requests) check(h *wire.Header) error {
	c := (*conn)(r)
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
	case h.Stream < 0:
		return c.violation(h.Stream, wire.ProtocolError("Invalid stream id %d: negative ones are the server's", h.Stream))
	case c.streams.Open(h.Stream):
		return c.violation(h.Stream, inUse(h.Stream))
	}
	return nil
}

// inUse refuses a second request on a stream: the answer to one would be taken for the answer to
// the other.
func inUse(stream int16) *wire.Failure {
	return wire.ProtocolError("Stream id %d is in use: its request has not been answered yet", stream)
}

// violation ends a connection whose client broke the protocol; farewell tells the client how.
type violation struct {
	version byte
	stream  int16
	failure *wire.Failure
}

// Error returns what the client is told.
func (v *violation) Error() string { return v.failure.Error() }

// violation returns the error that ends the connection.
func (c *conn) violation(stream int16, f *wire.Failure) error {
	return &violation{version: c.version, stream: stream, failure: f}
}

// Decide decides about a request from its header and as much of its body as is needed
// (docs/design.md 6.3).
func (r *requests) Decide(e *wire.Envelope) (relay.Decision, error) {
	c := (*conn)(r)
	if err := r.check(&e.Header); err != nil {
		return relay.Forward, err
	}
	if c.afterUse && c.busy() {
		return relay.Alone, nil
	}
	c.afterUse = false
	for {
		version := c.server.Tables.Version()
		d := c.decide(e)
		if u, ok := d.action.(*unlistedTable); ok {
			if d = c.decideUnlisted(e.OpCode, u); d.verdict == relay.Alone {
				return relay.Alone, nil
			}
		}
		c.caughtUp = false
		if d.verdict == relay.Hold && c.server.Tables.Version() != version {
			continue // it may have met two states of a table
		}
		if d.verdict != relay.Forward {
			c.held, c.decidedAt = d.action, version
			return d.verdict, nil
		}
		if d.watch != nil && d.watch.kind == watchKeyspace && c.busy() {
			return relay.Alone, nil
		}
		if err := c.owe(e.Stream, d.watch); err != nil {
			return relay.Forward, err
		}
		if c.server.Tables.Version() == version {
			c.note(&e.Header, d.watch)
			return relay.Forward, nil
		}
		c.streams.End(e.Stream) // a table may have become critical before the stream was open for Outstanding to see
	}
}

// Await blocks until the schema has been read, for a request on a table that it did not have, or
// until every request is answered. USE needs that, before it and after: Cassandra carries out the
// requests of a connection in any order, and the proxy must know in which keyspace each of them
// names its tables.
func (r *requests) Await() error {
	c := (*conn)(r)
	if c.catchUp {
		c.server.CatchUp()
		c.catchUp, c.caughtUp = false, true
		return nil
	}
	c.awaited.Store(true)
	defer c.awaited.Store(false)
	for c.busy() {
		select {
		case <-c.settled:
		case <-c.done:
			return c.cause
		}
	}
	return nil
}

// expect notes that Cassandra owes an answer to a request that goes on now, and what the proxy
// wants to know of the answer; nil is nothing.
func (c *conn) expect(e wire.Envelope, w *watch) error {
	if err := c.owe(e.Stream, w); err != nil {
		return err
	}
	c.note(&e.Header, w)
	return nil
}

// owe opens the stream of a request; it fails where the stream is open already.
func (c *conn) owe(stream int16, w *watch) error {
	if !c.streams.Begin(stream, w != nil) {
		return c.violation(stream, inUse(stream))
	}
	c.lastStream = stream
	return nil
}

// note notes what the answer is for, and counts the request.
func (c *conn) note(h *wire.Header, w *watch) {
	if w != nil {
		c.watches.add(h.Stream, w)
		c.afterUse = w.kind == watchKeyspace
		if w.kind == watchLogin {
			c.started.Store(true)
		}
	} else {
		c.sample.Begin(h.Stream)
	}
	c.server.Stats.Count(c.id, h.OpCode, traffic.Forwarded)
}

// decide decides what becomes of a request: it is the table from opcode to method. It may be called
// again about the same request, and changes nothing by which it decides.
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
		return held(registerEvents{})
	case primitive.OpCodeStartup:
		return refused(wire.ProtocolError("Unexpected message STARTUP, the connection is already initialized"))
	}
	return refused(wire.ProtocolError("Unknown opcode %d", e.OpCode))
}

// headerFlags are those that a request may have. Any other may change what the body means.
const headerFlags = primitive.HeaderFlagCompressed | primitive.HeaderFlagTracing | primitive.HeaderFlagCustomPayload |
	primitive.HeaderFlagWarning | primitive.HeaderFlagUseBeta

// Perform does what was decided about the request that Decide has just held back. Its custom
// payload goes along wherever it goes on.
func (r *requests) Perform(e wire.Envelope) error {
	c := (*conn)(r)
	if c.down.Out.Full() { // no answer is made for a client that does not read
		if err := c.up.Flush(); err != nil {
			return err
		}
		c.down.Out.Room(c.done)
	}
	if e.Flags.Contains(primitive.HeaderFlagCustomPayload) {
		e.Payload = c.payload(e)
	}
	action := c.held
	c.held = nil
	c.performing = e.Stream
	err := action.perform(c, e)
	c.performing = noStream
	return err
}

// payload returns a copy of the custom payload of a whole request as on the wire, or nil where it
// cannot be read.
func (c *conn) payload(e wire.Envelope) []byte {
	body, err := c.uncompressed(e)
	if err != nil {
		return nil
	}
	cur := wire.Cursor{Body: body}
	if cur.BytesMap(); cur.Bad {
		return nil
	}
	return bytes.Clone(body[:cur.At])
}

// Flushed is called when all requests decided about so far are on their way. It blocks while the
// client does not read its answers, and while memory for its waiting requests is used up. A
// draining connection is not read on.
func (r *requests) Flushed() {
	r.sample.Flushed()
	r.down.Out.Room(r.done)
	if r.waitingBytes.Load() > 0 {
		r.server.memory.Acquire(0, r.done)
	}
	if r.draining() && !r.up.Inside() {
		_ = r.client.SetReadDeadline(time.Now())
	}
}

// forwardHeld sends a request that was held back as it is; w is what the proxy wants to know of its
// answer.
func (c *conn) forwardHeld(e wire.Envelope, w *watch) error {
	if err := c.expect(e, w); err != nil {
		return err
	}
	c.up.Emit(e.Raw)
	return nil
}

// forwardEdited sends a request that was held back with another body, uncompressed and behind its
// custom payload; w is what the proxy wants to know of its answer.
func (c *conn) forwardEdited(e wire.Envelope, w *watch, body []byte) error {
	return c.forwardAs(e, e.OpCode, w, body)
}

// forwardAs is forwardEdited that makes another kind of request of it. It counts as what the client
// has sent.
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

// answer answers a request that has been kept back with an error.
func (c *conn) answer(e wire.Envelope, f *wire.Failure) error {
	c.reject(e.Header, f)
	return nil
}

// answerUnreadable answers a request whose body could not be read.
func (c *conn) answerUnreadable(e wire.Envelope, err error) error {
	return c.answer(e, unreadable(e.OpCode, err))
}

// scratchSize is the memory that a connection keeps for compressed requests; larger ones get memory
// of their own.
const scratchSize = 4 << 10

// plainBody returns a request's body without compression and without the custom payload that may
// stand before it (v4 spec section 2.2), as far as it has arrived. A compressed one can only be
// read whole; it is valid until the next one is read.
func (c *conn) plainBody(e *wire.Envelope) ([]byte, error) {
	if e.Flags&(primitive.HeaderFlagCompressed|primitive.HeaderFlagCustomPayload) == 0 {
		return e.Body(), nil
	}
	body, err := c.uncompressed(*e)
	if err != nil {
		return nil, err
	}
	if e.Flags.Contains(primitive.HeaderFlagCustomPayload) {
		cur := wire.Cursor{Body: body}
		if cur.BytesMap(); cur.Bad {
			return nil, wire.ErrShort
		}
		body = body[cur.At:]
	}
	return body, nil
}

// uncompressed returns the body of a request as plainBody does, with its custom payload.
func (c *conn) uncompressed(e wire.Envelope) ([]byte, error) {
	if !c.framing.Compressed(e.Header) {
		return e.Body(), nil
	}
	if !e.Whole() {
		return nil, wire.ErrShort
	}
	if c.scratch == nil {
		c.scratch = make([]byte, scratchSize)
	}
	return wire.Decompress(c.framing.Compression, e.Body(), c.scratch, c.server.Limits().Frame)
}

// unreadable returns the decision on a body that could not be read: wait for the rest, or refuse it
// where all is there.
func (c *conn) unreadable(e wire.Envelope, err error) decision {
	if !e.Whole() {
		return decision{verdict: relay.NeedWhole}
	}
	return refused(unreadable(e.OpCode, err))
}

// unreadable returns the error for a body that does not follow the protocol.
func unreadable(opcode primitive.OpCode, err error) *wire.Failure {
	return wire.ProtocolError("%s message cannot be read: %v", traffic.OpcodeName(opcode), err)
}

// decision is what becomes of a request. The zero value hands it on as the bytes received. Its four
// words are returned in registers; five would be copied at each return.
type decision struct {
	verdict relay.Decision // what its direction does with it
	watch   *watch         // forward: what the proxy wants to know of the answer; nil: nothing
	action  action         // hold: what is done with the request
}

// action is what is done with a request that is held back.
type action interface {
	// perform is called with the whole request, right after it was decided about: what the decision
	// has read still lies where it lay.
	perform(c *conn, e wire.Envelope) error
	String() string
}

// held returns the decision to hold a request back for an action.
func held(a action) decision { return decision{verdict: relay.Hold, action: a} }

// watched returns the decision to hand a request on and to look at its answer.
func watched(w *watch) decision { return decision{watch: w} }

// refused returns the decision to answer a request with an error: Cassandra does not hear of it.
func refused(f *wire.Failure) decision { return held(refuse{f}) }

// String describes the decision for people.
func (d decision) String() string {
	if u, ok := d.action.(*unlistedTable); ok {
		return fmt.Sprintf("%v (table %s.%s is not in the schema)", u.otherwise, u.name[0], u.name[1])
	}
	text := [...]string{relay.Forward: "forward", relay.NeedWhole: "need whole", relay.Hold: "hold", relay.Alone: "alone"}[d.verdict]
	if d.watch != nil {
		text += fmt.Sprintf(", look at the answer: %v", d.watch.kind)
	}
	if d.action != nil {
		text += ": " + d.action.String()
	}
	return text
}

// refuse answers a request with an error.
type refuse struct{ failure *wire.Failure }

// perform implements action.
func (a refuse) perform(c *conn, e wire.Envelope) error { return c.answer(e, a.failure) }

// String implements action.
func (a refuse) String() string { return "refuse, " + a.failure.Error() }
