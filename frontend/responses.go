package frontend

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/relay"
	"music/frontend/topology"
	"music/frontend/wire"
)

// responses handles the direction Cassandra → client: it finds the few answers that concern the
// proxy.
type responses conn

// Decide decides about a response by its stream alone. It looks only into those that the proxy
// waits for, and errors that may name nodes.
func (r *responses) Decide(e *wire.Envelope) (relay.Decision, error) {
	c := (*conn)(r)
	if e.Version&wire.ResponseBit == 0 {
		return relay.Forward, fmt.Errorf("request from Cassandra: %w", relay.ErrMalformed)
	}
	if e.Stream >= 0 && c.streams.Watched(e.Stream) {
		return c.decideWatched(*e)
	}
	v := c.decideFailure(e)
	if v == relay.NeedWhole {
		return v, nil
	}
	if v == relay.Forward {
		c.streams.End(e.Stream)
	}
	c.sample.Answered(e.Stream)
	return v, nil
}

// decideWatched decides about a response that the proxy waits for.
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

// login follows the handshake by the opcodes of its answers, before the client can have seen them.
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
	if w.kind == watchRights && c.grants(e, w.probe) {
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

// answerTo returns what the client gets in the place of an answer.
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

// maxDecoded bounds an answer that is decoded: rows of system tables and prepared metadata are
// small.
const maxDecoded = 64 << 20

// plainAnswer returns the body of a response without compression, and the flags that are left of
// it.
func (c *conn) plainAnswer(e wire.Envelope) ([]byte, primitive.HeaderFlag, error) {
	if !c.framing.Compressed(e.Header) {
		return e.Body(), e.Flags, nil
	}
	body, err := wire.Decompress(c.framing.Compression, e.Body(), nil, maxDecoded)
	return body, e.Flags &^ primitive.HeaderFlagCompressed, err
}

// SchemaChange is what a client's DDL has changed, in the protocol's words (v4 spec section
// 4.2.5.5). Change is empty where it has changed nothing: the table may have been made by another
// client, and this proxy may not know it yet.
type SchemaChange struct{ Change, Target, Keyspace, Name string }

// performSchema has the proxy follow a schema change before the client gets the answer: from then
// on the client may rely on a table being critical. Other requests of the connection go on
// meanwhile.
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

// Await returns at once: no response is decided about alone.
func (r *responses) Await() error { return nil }

// Flushed ends a sample whose answer has been written, and a connection that was only waiting for
// its last answers.
func (r *responses) Flushed() {
	c := (*conn)(r)
	c.sample.Tell(c.server.Stats)
	if c.draining() || c.awaited.Load() {
		c.endIfDrained()
	}
}

// watchKind is why the proxy looks into an answer.
type watchKind uint8

const (
	watchLogin    watchKind = iota + 1 // how the handshake goes on: READY, AUTHENTICATE, AUTH_SUCCESS
	watchPrepare                       // the id that Cassandra gives a statement
	watchKeyspace                      // USE
	watchTopology                      // rows of system.local, peers and peers_v2: addresses are translated
	watchSchema                        // a schema change, which the proxy follows first
	watchFenced                        // the outcome of an operation under a lock
	watchColumns                       // the columns that a read would have
	watchRights                        // whether Cassandra permits what the proxy asks for the client
	watchUnserved                      // whether Cassandra can read what holds a clause of ours
)

// String returns what is looked at, for people.
func (k watchKind) String() string {
	return [...]string{
		watchLogin: "login", watchPrepare: "prepared id", watchKeyspace: "USE", watchTopology: "topology", watchSchema: "schema change",
		watchFenced: "operation under a lock", watchColumns: "columns of a read", watchRights: "permission", watchUnserved: "syntax",
	}[k]
}

// watch is why the proxy looks into an answer, and what it does with it.
type watch struct {
	kind      watchKind
	preparing *preparing                                 // watchPrepare
	topology  *topology.Request                          // watchTopology
	sent      *sentOperation                             // watchFenced
	change    SchemaChange                               // watchSchema: what it is about, where Cassandra does not say
	columns   func(wire.Envelope) (wire.Envelope, error) // watchColumns: what is told in its place
	probe     probe                                      // watchRights: what was asked
	allowed   func()                                     // watchRights: what follows where it may
	denied    func(e wire.Envelope)                      // watchRights: what follows where it may not; nil: nothing
	unserved  *wire.Failure                              // watchUnserved: what is told where Cassandra cannot read the text
}

// watches holds the expected answers of a connection, by stream. Most connections have none most of
// the time: the values are pointers, since a map keeps room for several.
type watches struct {
	mu sync.Mutex
	by map[int16]*watch
}

// add expects an answer.
func (w *watches) add(stream int16, x *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[int16]*watch{}
	}
	w.by[stream] = x
}

// peek returns what is expected on a stream, without a change.
func (w *watches) peek(stream int16) watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at(stream)
}

// expects reports whether an answer of a kind is expected.
func (w *watches) expects(kind watchKind) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.by {
		if x.kind == kind {
			return true
		}
	}
	return false
}

// at is called with the mutex held.
func (w *watches) at(stream int16) watch {
	if x := w.by[stream]; x != nil {
		return *x
	}
	return watch{}
}

// remove returns what was expected on a stream, and expects it no longer.
func (w *watches) remove(stream int16) watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.at(stream)
	delete(w.by, stream)
	return x
}

// removeAll empties w and returns what was in it.
func (w *watches) removeAll() map[int16]*watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.by
	w.by = nil
	return all
}

// warn returns an answer with more warnings, behind those that it has; the rest of it stays as it
// was received. In protocol 3, which has no warnings, and where the answer cannot be read, it
// returns e as it is.
func (c *conn) warn(e wire.Envelope, warnings []string) wire.Envelope {
	if len(warnings) == 0 || c.version < byte(primitive.ProtocolVersion4) {
		return e
	}
	body, flags, err := c.plainAnswer(e)
	if err != nil {
		return e
	}
	warned, ok := wire.AppendWarnings(body, flags, warnings)
	if !ok {
		return e
	}
	raw := wire.ResponseEnvelope(c.version, e.Stream, e.OpCode, warned)
	raw[1] = byte(flags | primitive.HeaderFlagWarning)
	return wire.EnvelopeOf(raw)
}

// warned is warn for an answer that the proxy has made itself.
func (c *conn) warned(raw []byte, warnings []string) []byte {
	return c.warn(wire.EnvelopeOf(raw), warnings).Raw
}
