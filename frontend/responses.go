package frontend

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/relay"
	"music/frontend/topology"
	"music/frontend/wire"
)

// responses is the relay.Handler of the direction Cassandra → client. It finds the few answers that
// the proxy must look at.
type responses conn

// Decide implements relay.Handler: it decides about a response by its stream. It looks only into
// watched answers and into errors that may name nodes.
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
		if !e.Whole() {
			c.answering.Store(true)
		}
		c.streams.End(e.Stream)
	}
	c.sample.Answered(e.Stream)
	return v, nil
}

// decideWatched decides about a watched response.
func (c *conn) decideWatched(e wire.Envelope) (relay.Decision, error) {
	if !e.Whole() {
		return relay.NeedWhole, nil
	}
	if c.loggedIn.Load() || c.watches.peek(e.Stream).kind != watchLogin {
		return relay.Intercept, nil
	}
	c.login(e)
	c.streams.End(e.Stream)
	c.watches.remove(e.Stream)
	return relay.Forward, nil
}

// login follows the handshake by the opcodes of Cassandra's answers, before the client has them.
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
		c.started.Store(c.authenticated.Load()) // after a refused STARTUP the client may send another
	}
}

// Perform implements relay.Handler: it processes a watched answer, or one that names nodes.
func (r *responses) Perform(e wire.Envelope) error {
	c := (*conn)(r)
	e = c.showReplicas(e)
	w := c.unwatch(e.Stream)
	switch done := e.OpCode == primitive.OpCodeResult; {
	case w.kind == watchUnderLock:
		return c.performUnderLock(e, w.sent)
	case w.kind == watchSchema && done:
		return c.performSchema(e, w.change)
	case w.kind == watchProbe && c.grants(e, w.probe):
		defer c.goOn(e.Stream, noStream).end()
		w.accepted()
		return nil
	case w.kind == watchMade, w.kind == watchValues && done:
		defer c.goOn(e.Stream, noStream).end()
		err := w.values(e)
		if err != nil {
			c.loseBackend(e.Stream, err)
		}
		return err
	case (w.kind == watchPrepare || w.kind == watchLockClause) && c.explain(e, w):
		return nil
	case w.refused != nil:
		w.refused(e)
	}
	e, err := c.answerTo(e, w)
	if err != nil || e.Raw == nil {
		return err
	}
	c.streams.End(e.Stream)
	c.down.Emit(e.Raw)
	return nil
}

// answerTo returns the envelope that the client gets for an answer; none if Cassandra has been asked again.
func (c *conn) answerTo(e wire.Envelope, w watch) (wire.Envelope, error) {
	switch w.kind {
	case watchPrepare:
		return c.learn(e, w)
	case watchTopology:
		return c.translateRows(e, w.topology)
	case watchKeyspace:
		return e, c.follow(e)
	case watchColumns:
		return w.columns(e)
	}
	return e, nil
}

// follow stores the keyspace that a USE has set.
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

// SchemaChange is the change that a client's DDL has made, in the protocol's words (v4 spec section
// 4.2.5.5). Change is empty if it has made none, as with IF NOT EXISTS: the table may have been
// created by another client, and this proxy may not know it yet.
type SchemaChange struct{ Change, Target, Keyspace, Name string }

// performSchema has the proxy follow a schema change before the client gets the answer, so that the
// client can rely on a table being critical. It does not block the connection's other requests.
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
	e.Raw = bytes.Clone(e.Raw)
	c.goOn(e.Stream, e.Stream).answerLater(func(operation) []byte {
		return c.warn(e, c.server.DDL(change)).Raw
	})
	return nil
}

// Await implements relay.Handler. It is never called, since Decide never returns relay.Defer.
func (r *responses) Await() error { return nil }

// Flushed implements relay.Handler. It ends a sample whose answer has been written, and a draining
// connection whose last answer has been written. It blocks while this connection keeps answers and
// the memory for them is used up.
func (r *responses) Flushed() {
	c := (*conn)(r)
	if c.keptAnswers.Load() > 0 {
		c.server.answers.Acquire(0, c.done)
	}
	c.sample.Tell(c.server.Stats)
	if c.answering.Load() && !c.down.HalfForwarded() {
		c.answering.Store(false)
	}
	if c.draining() || c.awaited.Load() {
		c.endIfDrained()
	}
}

// watchKind is the reason why the proxy looks into an answer.
type watchKind uint8

const (
	watchLogin      watchKind = iota + 1 // to follow the handshake: READY, AUTHENTICATE, AUTH_SUCCESS
	watchPrepare                         // for the id of a prepared statement
	watchKeyspace                        // for the keyspace that a USE has set
	watchTopology                        // to translate addresses in rows of system.local, peers and peers_v2
	watchSchema                          // to follow a schema change before the client has the answer
	watchUnderLock                       // for the outcome of an operation under a lock
	watchColumns                         // for the columns that a read would have
	watchProbe                           // for whether Cassandra accepts a statement that changes nothing
	watchLockClause                      // for a syntax error due to a lock clause
	watchValues                          // for the values of terms that Cassandra evaluates
	watchMade                            // for the id of a text that the proxy has made
)

// String returns the reason in words.
func (k watchKind) String() string {
	return [...]string{
		watchLogin: "login", watchPrepare: "prepared id", watchKeyspace: "USE", watchTopology: "topology", watchSchema: "schema change",
		watchUnderLock: "operation under a lock", watchColumns: "columns of a read", watchProbe: "probe", watchLockClause: "syntax", watchValues: "values",
		watchMade: "own prepared id",
	}[k]
}

// watch describes how the proxy processes the answer to a request.
type watch struct {
	kind            watchKind
	preparing       *preparing                                 // watchPrepare
	topology        *topology.Request                          // watchTopology
	sent            *sentOperation                             // watchUnderLock
	change          SchemaChange                               // watchSchema: the change if the answer does not name it
	columns         func(wire.Envelope) (wire.Envelope, error) // watchColumns: returns the client's answer
	probe           probe                                      // watchProbe: the statement that was sent
	accepted        func()                                     // watchProbe: called if Cassandra accepts it
	refused         func(e wire.Envelope)                      // watchProbe: called if it does not; may be nil
	values          func(wire.Envelope) error                  // watchValues: continues with Cassandra's rows; watchMade: with any answer
	lockClauseError *wire.Failure                              // watchLockClause: the error if Cassandra cannot parse the text
	kept            int                                        // bytes of the request that wait for the answer, see conn.countKept
}

// watch registers w for the answer on a stream, and counts what waits for it.
func (c *conn) watch(stream int16, w *watch) {
	if w.kept != 0 {
		c.countKept(w.kept)
	}
	c.watches.add(stream, w)
	if w.kept != 0 && w.sent == nil && c.over() {
		c.unwatch(stream) // no goroutine would see the answer
	}
}

// unwatch removes the watch of a stream and returns it, or the zero value. Nothing waits for the answer
// any more.
func (c *conn) unwatch(stream int16) watch {
	w := c.watches.remove(stream)
	if w.kept != 0 {
		c.countKept(-w.kept)
	}
	return w
}

// watches holds the watched requests of a connection, by stream. It is safe for concurrent use. The
// values are pointers because a map allocates room for several values at once, and most connections
// have none.
type watches struct {
	mu sync.Mutex
	by map[int16]*watch
}

// add has the answer on a stream watched.
func (w *watches) add(stream int16, x *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[int16]*watch{}
	}
	w.by[stream] = x
}

// peek returns the watch of a stream, or the zero value.
func (w *watches) peek(stream int16) watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at(stream)
}

// expects reports whether there is a watch of a kind.
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

// at is peek with the mutex held.
func (w *watches) at(stream int16) watch {
	if x := w.by[stream]; x != nil {
		return *x
	}
	return watch{}
}

// remove removes the watch of a stream and returns it, or the zero value.
func (w *watches) remove(stream int16) watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.at(stream)
	delete(w.by, stream)
	return x
}

// removeAll removes all watches and returns them.
func (w *watches) removeAll() map[int16]*watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.by
	w.by = nil
	return all
}
