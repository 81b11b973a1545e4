package frontend

import (
	"music/frontend/wire"
	"music/rewrite"
)

// Bounds are what clients can take of the proxy. A zero is the default: there is no client without bounds.
type Bounds struct {
	Label        int // bytes of AS and REASON
	Statement    int // bytes of the text of a verb of the lock, and of a prepared statement that concerns a critical table
	Prepared     int // bytes of what is remembered of all prepared statements
	PreparedEach int // … and of those that one connection has prepared
	Waits        int // operations of a connection that wait for the core
	Messages     int // bytes of messages that are held, of all connections
}

// defaultBounds are those of package config.
func defaultBounds() Bounds {
	return Bounds{Label: 256, Statement: 64 << 10, Prepared: 64 << 20, PreparedEach: 8 << 20, Waits: 2000, Messages: 1 << 30}
}

// orDefault fills in what is zero.
func (b Bounds) orDefault() Bounds {
	d := defaultBounds()
	for _, field := range []struct{ at, from *int }{
		{&b.Label, &d.Label}, {&b.Statement, &d.Statement}, {&b.Prepared, &d.Prepared}, {&b.PreparedEach, &d.PreparedEach}, {&b.Waits, &d.Waits},
		{&b.Messages, &d.Messages},
	} {
		if *field.at == 0 {
			*field.at = *field.from
		}
	}
	return b
}

// checkText refuses a statement that is the proxy's to keep or to carry out, and too long for that.
func (b *Bounds) checkText(text []byte) *wire.Failure {
	if len(text) > b.Statement {
		return wire.Invalid("MUSIC_REFUSED: the statement has %d bytes; at most %d here (max-statement-size): bind its values", len(text), b.Statement)
	}
	return nil
}

// checkVerb is checkText for what came as text: only a verb of the lock is bounded, since a write may carry its values in it.
func (b *Bounds) checkVerb(verb rewrite.Verb, text []byte) *wire.Failure {
	switch verb {
	case rewrite.Lock, rewrite.Unlock, rewrite.ListLocks:
		return b.checkText(text)
	}
	return nil
}

// checkLabel refuses a text of AS or REASON that is too long: it is told to everybody who waits, and to other proxies.
func (b *Bounds) checkLabel(label, what string) *wire.Failure {
	if len(label) > b.Label {
		return wire.Invalid("MUSIC_REFUSED: the text of %s has %d bytes; at most %d (max-label-size)", what, len(label), b.Label)
	}
	return nil
}

// checkWaits refuses an operation that would be one more than may wait.
func (c *conn) checkWaits() *wire.Failure {
	if c.operations.count() >= c.server.Bounds.Waits {
		return wire.Invalid("MUSIC_UNAVAILABLE: %d operations of this connection wait already (max-waits-per-connection): try again when some have their answer; nothing was done", c.server.Bounds.Waits)
	}
	return nil
}
