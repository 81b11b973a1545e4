package frontend

import (
	"bytes"
	"fmt"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/relay"
	"music/frontend/wire"
)

// responses handles the direction Cassandra → client: it finds the few answers that concern the proxy.
type responses conn

// Decide decides about a response by its stream alone; only an expected one is looked at, and an error that may name nodes.
func (r *responses) Decide(e wire.Envelope) (relay.Decision, error) {
	c := (*conn)(r)
	if e.Version&wire.ResponseBit == 0 {
		return relay.Forward, fmt.Errorf("request from Cassandra: %w", relay.ErrMalformed)
	}
	if e.Stream >= 0 && c.streams.Watched(e.Stream) {
		return c.decideWatched(e)
	}
	v := c.decideFailure(e)
	if v == relay.NeedWhole {
		return v, nil
	}
	if v == relay.Forward {
		c.streams.End(e.Stream)
	}
	c.measure(e.Stream)
	return v, nil
}

func (c *conn) decideWatched(e wire.Envelope) (relay.Decision, error) {
	if !e.Whole() {
		return relay.NeedWhole, nil
	}
	if c.watches.peek(e.Stream).kind != watchLogin {
		return relay.Hold, nil
	}
	c.login(e)
	c.streams.End(e.Stream)
	c.watches.remove(e.Stream)
	return relay.Forward, nil
}

// login follows the handshake by the opcodes of its answers. Both are set before the client can have seen the answer.
func (c *conn) login(e wire.Envelope) {
	switch e.OpCode {
	case primitive.OpCodeAuthenticate:
		c.authenticated.Store(true)
		c.framing.SetSegmented(c.version >= byte(primitive.ProtocolVersion5))
	case primitive.OpCodeReady:
		c.framing.SetSegmented(c.version >= byte(primitive.ProtocolVersion5))
		c.loggedInNow()
	case primitive.OpCodeAuthSuccess:
		c.loggedInNow()
	case primitive.OpCodeError:
		c.started.Store(c.authenticated.Load()) // a STARTUP that is refused may be followed by another
	}
}

// Perform deals with an answer that the proxy has waited for, or that names nodes.
func (r *responses) Perform(e wire.Envelope) error {
	c := (*conn)(r)
	e = c.showReplicas(e)
	w := c.watches.remove(e.Stream)
	if w.kind == watchSchema && e.OpCode == primitive.OpCodeResult {
		return c.performSchema(e, w.change)
	}
	if w.kind == watchFenced {
		return c.performFenced(e, w.sent)
	}
	if w.kind == watchRights && c.permits(e, w.probe) {
		c.streams.End(e.Stream)
		w.allowed()
		return nil
	}
	if w.denied != nil {
		w.denied(e)
	}
	if (w.kind == watchPrepare || w.kind == watchUnserved) && c.explain(e, w) {
		return nil
	}
	e, err := c.answerTo(e, w)
	if err != nil {
		return err
	}
	c.streams.End(e.Stream)
	c.down.Emit(e.Raw)
	return nil
}

// answerTo is what the client is told in the place of an answer.
func (c *conn) answerTo(e wire.Envelope, w watch) (wire.Envelope, error) {
	switch w.kind {
	case watchPrepare:
		return c.learn(e, w.preparing)
	case watchTopology:
		return c.translateRows(e, w.topology)
	case watchKeyspace:
		return e, c.follow(e)
	case watchColumns:
		return w.columns(e)
	}
	return e, nil
}

// follow notes the keyspace that a USE has set.
func (c *conn) follow(e wire.Envelope) error {
	if e.OpCode != primitive.OpCodeResult {
		return nil
	}
	f, err := c.decode(e)
	if err != nil {
		return err
	}
	if set, ok := f.Body.Message.(*message.SetKeyspaceResult); ok {
		c.keyspace.Store(&set.Keyspace)
	}
	return nil
}

// decode decodes a response of Cassandra whole.
func (c *conn) decode(e wire.Envelope) (*frame.Frame, error) {
	body, flags, err := c.plainAnswer(e)
	if err != nil {
		return nil, err
	}
	return wire.Decode(e.Header, flags, body)
}

// maxDecoded bounds an answer that is decoded: rows of system tables and prepared metadata are small.
const maxDecoded = 64 << 20

// plainAnswer returns the body of a response without compression, and the flags that are left of it.
func (c *conn) plainAnswer(e wire.Envelope) ([]byte, primitive.HeaderFlag, error) {
	if !c.framing.Compressed(e.Header) {
		return e.Body(), e.Flags, nil
	}
	body, err := wire.Decompress(c.framing.Compression, e.Body(), nil, maxDecoded)
	return body, e.Flags &^ primitive.HeaderFlagCompressed, err
}

// SchemaChange is what a client's DDL has changed, in the protocol's words (v4 spec section 4.2.5.5). Change is empty where it has changed
// nothing of a table, which another may have made: this proxy may not know it yet.
type SchemaChange struct{ Change, Target, Keyspace, Name string }

// performSchema lets the proxy follow a schema change before the client is told of it: from then on the client may rely on a
// table being critical. The connection goes on meanwhile.
func (c *conn) performSchema(e wire.Envelope, change SchemaChange) error {
	f, err := c.decode(e)
	if err != nil {
		return err
	}
	if changed, ok := f.Body.Message.(*message.SchemaChangeResult); ok {
		change = SchemaChange{
			Change: string(changed.ChangeType), Target: string(changed.Target), Keyspace: changed.Keyspace, Name: changed.Object,
		}
	}
	if c.server.DDL == nil || change == (SchemaChange{}) {
		c.streams.End(e.Stream)
		c.down.Emit(e.Raw)
		return nil
	}
	raw := bytes.Clone(e.Raw)
	c.later(func() {
		c.streams.End(e.Stream) // Cassandra owes nothing more, and the client may use the stream again as soon as it has the answer
		warnings := c.server.DDL(change)
		c.post(c.warn(wire.Envelope{Header: e.Header, Raw: raw}, warnings).Raw)
	})
	return nil
}

// measure ends the sample if this is its answer.
func (c *conn) measure(stream int16) {
	s := &c.sample
	if s.stream.Load() == int32(stream) && stream >= 0 {
		s.arrived = s.now()
	}
}

// Await is not needed: no answer goes alone.
func (r *responses) Await() error { return nil }

// Flushed ends a sample whose answer has been written, and a connection that was only waiting for its last answers.
func (r *responses) Flushed() {
	c := (*conn)(r)
	if s := &c.sample; s.arrived != 0 {
		s.tell(c.server.Stats)
	}
	if c.draining() || c.awaited.Load() {
		c.endIfDrained()
	}
}
