package frontend

import (
	"bytes"
	"fmt"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// responses is the role of the direction Cassandra → client: it finds the few answers that concern the proxy.
type responses conn

// judge decides about a response by its stream alone; only an expected one is looked at, and an error that may name nodes.
func (r *responses) judge(e envelope) (verdict, error) {
	c := (*conn)(r)
	if e.version&responseBit == 0 {
		return forward, fmt.Errorf("request from Cassandra: %w", errMalformed)
	}
	if e.stream >= 0 && c.streams.watched(e.stream) {
		return c.judgeWatched(e)
	}
	v := c.judgeFailure(e)
	if v == more {
		return v, nil
	}
	if v == forward {
		c.streams.end(e.stream)
	}
	c.measure(e.stream)
	return v, nil
}

func (c *conn) judgeWatched(e envelope) (verdict, error) {
	if !e.whole() {
		return more, nil
	}
	if c.watches.peek(e.stream).kind != watchLogin {
		return hold, nil
	}
	c.login(e)
	c.streams.end(e.stream)
	c.watches.remove(e.stream)
	return forward, nil
}

// login follows the handshake by the opcodes of its answers. Both are set before the client can have seen the answer.
func (c *conn) login(e envelope) {
	switch e.opcode {
	case primitive.OpCodeAuthenticate:
		c.authenticated.Store(true)
		c.segmented.Store(c.version >= byte(primitive.ProtocolVersion5))
	case primitive.OpCodeReady:
		c.segmented.Store(c.version >= byte(primitive.ProtocolVersion5))
		c.loggedInNow()
	case primitive.OpCodeAuthSuccess:
		c.loggedInNow()
	case primitive.OpCodeError:
		c.started.Store(c.authenticated.Load()) // a STARTUP that is refused may be followed by another
	}
}

// perform deals with an answer that the proxy has waited for, or that names nodes.
func (r *responses) perform(e envelope) error {
	c := (*conn)(r)
	e = c.showReplicas(e)
	w := c.watches.remove(e.stream)
	if w.kind == watchSchema && e.opcode == primitive.OpCodeResult {
		return c.performSchema(e, w.change)
	}
	if w.kind == watchFenced {
		return c.performFenced(e, w.fenced)
	}
	if w.kind == watchRights && c.permits(e, w.probe) {
		c.streams.end(e.stream)
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
	c.streams.end(e.stream)
	c.down.emit(e.raw)
	return nil
}

// answerTo is what the client is told in the place of an answer.
func (c *conn) answerTo(e envelope, w watch) (envelope, error) {
	switch w.kind {
	case watchPrepare:
		return c.learn(e, w.preparing)
	case watchTopology:
		return c.translateRows(e, w.question)
	case watchKeyspace:
		return e, c.follow(e)
	case watchColumns:
		return w.columns(e)
	}
	return e, nil
}

// follow notes the keyspace that a USE has set.
func (c *conn) follow(e envelope) error {
	if e.opcode != primitive.OpCodeResult {
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

// SchemaChange is what a client's DDL has changed, in the protocol's words (v4 spec section 4.2.5.5). Change is empty where it has changed
// nothing of a table, which another may have made: this proxy may not know it yet.
type SchemaChange struct{ Change, Target, Keyspace, Name string }

// performSchema lets the proxy follow a schema change before the client is told of it: from then on the client may rely on a
// table being critical. The connection goes on meanwhile.
func (c *conn) performSchema(e envelope, change SchemaChange) error {
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
		c.streams.end(e.stream)
		c.down.emit(e.raw)
		return nil
	}
	raw := bytes.Clone(e.raw)
	c.later(func() {
		c.streams.end(e.stream) // Cassandra owes nothing more, and the client may use the stream again as soon as it has the answer
		warnings := c.server.DDL(change)
		c.post(c.warn(envelope{header: e.header, raw: raw}, warnings).raw)
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

// await is not needed: no answer goes alone.
func (r *responses) await() error { return nil }

// flushed ends a sample whose answer has been written, and a connection that was only waiting for its last answers.
func (r *responses) flushed() {
	c := (*conn)(r)
	if s := &c.sample; s.arrived != 0 {
		s.tell(c.server.Stats)
	}
	if c.limit.Load() != 0 || c.awaited.Load() {
		c.endIfDrained()
	}
}
