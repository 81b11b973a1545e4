package frontend

import (
	"sync"

	"music/frontend/topology"
	"music/frontend/wire"
)

// watchKind says why the proxy looks at an answer.
type watchKind uint8

const (
	watchLogin    watchKind = iota + 1 // READY, AUTHENTICATE, AUTH_SUCCESS: the handshake moves on
	watchPrepare                       // the id that Cassandra gives a statement
	watchKeyspace                      // USE
	watchTopology                      // rows of system.local, peers and peers_v2: addresses are translated
	watchSchema                        // a schema change is known to the proxy before it is to the client
	watchFenced                        // the outcome of an operation under a lock
	watchColumns                       // what a read would have answered
	watchRights                        // whether Cassandra lets a question of the proxy through
	watchUnserved                      // whether Cassandra can read what holds a clause of ours
)

// String returns what is looked at, for people.
func (k watchKind) String() string {
	return [...]string{
		watchLogin: "login", watchPrepare: "prepared id", watchKeyspace: "USE", watchTopology: "topology", watchSchema: "schema change",
		watchFenced: "operation under a lock", watchColumns: "columns of a read", watchRights: "permission", watchUnserved: "syntax",
	}[k]
}

// watch is what the proxy wants to know of an answer that it has seen the request of.
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

// watches holds the expected answers of a connection, by stream. Most connections have none at most times, and are not to pay for the
// room that a map keeps for several: hence pointers.
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

// peek returns what is expected on a stream.
func (w *watches) peek(stream int16) watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at(stream)
}

// expects tells whether an answer of a kind is expected.
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
