package frontend

import (
	"music/frontend/wire"
	"music/rewrite"
)

// Limits bound what clients can take of the proxy. A request obeys those that hold when it is looked
// at; what is there already, such as connections, stays.
type Limits struct {
	Connections  int // at a time
	Frame        int // bytes of one message of a client
	Label        int // bytes of AS and REASON
	Statement    int // bytes of the text of a verb of the lock, and of a prepared statement that concerns a critical table
	Prepared     int // bytes that are kept of all prepared statements
	PreparedEach int // … and of those that one connection has prepared
	Waits        int // operations of a connection that wait for the core
	Messages     int // bytes of messages that are held, of all connections
}

// DefaultLimits returns those of package config.
func DefaultLimits() Limits {
	return Limits{
		Connections: 10_000, Frame: 16 << 20, Label: 256, Statement: 64 << 10, Prepared: 64 << 20, PreparedEach: 8 << 20, Waits: 2000, Messages: 1 << 30,
	}
}

// checkText refuses a statement that the proxy would keep or carry out itself, and that is too long
// for that.
func (l *Limits) checkText(text []byte) *wire.Failure {
	if len(text) > l.Statement {
		return wire.Invalid("MUSIC_REFUSED: the statement has %d bytes; at most %d here (max-statement-size): bind its values", len(text), l.Statement)
	}
	return nil
}

// checkVerb is checkText for what came as text: only a verb of the lock is bounded, since a write
// may carry its values in it.
func (l *Limits) checkVerb(verb rewrite.Verb, text []byte) *wire.Failure {
	switch verb {
	case rewrite.Lock, rewrite.Unlock, rewrite.ListLocks:
		return l.checkText(text)
	}
	return nil
}

// checkLabel refuses a text of AS or REASON that is too long: it is sent to every waiting client,
// and to other proxies.
func (l *Limits) checkLabel(label, what string) *wire.Failure {
	if len(label) > l.Label {
		return wire.Invalid("MUSIC_REFUSED: the text of %s has %d bytes; at most %d (max-label-size): shorten it", what, len(label), l.Label)
	}
	return nil
}

// checkWaits refuses an operation where as many wait as may.
func (c *conn) checkWaits() *wire.Failure {
	if most := c.server.Limits().Waits; c.operations.count() >= most {
		return wire.Invalid("MUSIC_UNAVAILABLE: %d operations of this connection wait already (max-waits-per-connection): try again when some have their answer; nothing was done", most)
	}
	return nil
}
