package frontend

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/musiccore"
)

// withCritical is a rig with bank.accounts as a critical table.
func withCritical(t testing.TB) *rig {
	t.Helper()
	r := newRig(t, func(o *Options) { o.Locks = noLocks{} })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
	return r
}

// noLocks give no lock. A method that is not there must not be called.
type noLocks struct{ Locks }

func (noLocks) Lock(_ musiccore.Key, _ musiccore.Request, _ func(musiccore.Answer)) (musiccore.Answer, func()) {
	return musiccore.Answer{Err: musiccore.ErrNotHeld}, nil
}

func (noLocks) Unlock(_ musiccore.Key, _ musiccore.LockRef, _ musiccore.Client, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{Err: musiccore.ErrNotHeld}, true
}

func (noLocks) Begin(musiccore.Key, musiccore.LockRef, musiccore.Kind, func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{Err: musiccore.ErrNotHeld}, true
}

func (noLocks) End(musiccore.Ticket, musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	return musiccore.VerdictUncertain, nil
}

// unqualifiedWrites are plain writes on accounts, in whatever keyspace.
func unqualifiedWrites() []message.Message {
	return []message.Message{
		query("DELETE FROM accounts WHERE id = 'x'"),
		query("BEGIN BATCH DELETE FROM accounts WHERE id = 'x'; APPLY BATCH"),
		&message.Batch{Children: []*message.BatchChild{{Query: "DELETE FROM accounts WHERE id = 'x'"}}},
	}
}

func fencedOff(client *peer, stream int16) {
	client.t.Helper()
	assert.Contains(client.t, client.failure(stream).GetErrorMessage(), "MUSIC_UNLOCKED")
}

// The keyspace of a connection is the one that Cassandra says it is.
func TestKeyspaceOfAConnection(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := withCritical(t)
		client, backend := r.login(d)
		forwarded := func(m message.Message) { relayed(client, backend, 2, m, &message.VoidResult{}) }
		refused := func(m message.Message) {
			client.send(2, m)
			fencedOff(client, 2)
		}
		for _, m := range unqualifiedWrites() {
			forwarded(m)
		}
		use(client, backend, "bank")
		for _, m := range unqualifiedWrites() {
			refused(m)
		}
		relayed(client, backend, 1, query("USE nowhere"), &message.Invalid{ErrorMessage: "no"})
		for _, m := range unqualifiedWrites() {
			refused(m)
		}
		use(client, backend, "other")
		for _, m := range unqualifiedWrites() {
			forwarded(m)
		}
		// USE may be prepared, too.
		relayed(client, backend, 1, &message.Prepare{Query: "USE bank"}, preparedAs(idOf("USE bank")))
		relayed(client, backend, 1, execute(idOf("USE bank"), nil), &message.SetKeyspaceResult{Keyspace: "bank"})
		for _, m := range unqualifiedWrites() {
			refused(m)
		}
	})
}

// A request of version 5 may carry its own keyspace, in four kinds of messages.
func TestKeyspaceOfARequest(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		r := withCritical(t)
		client, backend := r.login(d)
		use(client, backend, "other")
		write := "DELETE FROM accounts WHERE id = 'x'"
		client.send(2, &message.Query{Query: write, Options: &message.QueryOptions{Keyspace: "bank"}})
		fencedOff(client, 2)
		client.send(2, &message.Batch{Children: []*message.BatchChild{{Query: write}}, Keyspace: "bank"})
		fencedOff(client, 2)
		relayed(client, backend, 2, &message.Prepare{Query: write, Keyspace: "bank"}, preparedAs(idOf(write)))
		client.send(2, execute(idOf(write), nil))
		fencedOff(client, 2)
		client.send(2, &message.Batch{Children: []*message.BatchChild{{Id: idOf(write)}}})
		fencedOff(client, 2)

		use(client, backend, "bank")
		relayed(client, backend, 2, &message.Query{Query: write, Options: &message.QueryOptions{Keyspace: "other"}}, &message.VoidResult{})
		relayed(client, backend, 2, &message.Batch{Children: []*message.BatchChild{{Query: write}}, Keyspace: "other"}, &message.VoidResult{})
		relayed(client, backend, 2, &message.Prepare{Query: write, Keyspace: "other"}, preparedAs(idOf("other "+write)))
		relayed(client, backend, 2, execute(idOf("other "+write), nil), &message.VoidResult{})
		backend.silent()
	})
}

// Cassandra carries out the requests of a connection in any order. A USE goes alone, so that a client that does not wait for
// answers cannot have a write judged in one keyspace and carried out in another.
func TestUseGoesAlone(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		for _, oneSegment := range []bool{false, true} {
			r := withCritical(t)
			client, backend := r.login(d)
			use(client, backend, "other")
			client.write(joined(client, [][]byte{
				client.envelope(t, 1, query("DELETE FROM accounts WHERE id = 'before'")),
				client.envelope(t, 2, query("USE bank")),
				client.envelope(t, 3, query("DELETE FROM accounts WHERE id = 'after'")),
				client.envelope(t, 4, query("USE other")),
				client.envelope(t, 5, query("DELETE FROM accounts WHERE id = 'last'")),
			}, oneSegment))
			backend.answer(1)
			backend.silent() // of USE, before the answer
			backend.send(1, &message.VoidResult{})
			client.answer(1)
			backend.answer(2)
			client.silent() // of the DELETE after it
			backend.send(2, &message.SetKeyspaceResult{Keyspace: "bank"})
			client.answer(2)
			fencedOff(client, 3)
			backend.answer(4)
			backend.send(4, &message.SetKeyspaceResult{Keyspace: "other"})
			client.answer(4)
			backend.answer(5)
		}
	})
}

// The same for a large request behind a USE, which comes in parts.
func TestUseGoesAloneBeforeALargeRequest(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := withCritical(t)
		client, backend := r.login(d)
		large := &message.Query{Query: "DELETE FROM accounts WHERE id = ?", Options: &message.QueryOptions{
			PositionalValues: []*primitive.Value{primitive.NewValue(noise(300_000))},
		}}
		client.write(append(client.framed(client.envelope(t, 1, query("USE bank"))), client.framed(client.envelope(t, 2, large))...))
		backend.answer(1)
		backend.send(1, &message.SetKeyspaceResult{Keyspace: "bank"})
		client.answer(1)
		fencedOff(client, 2)
	})
}

// A stream whose request has no answer cannot be used again: the answer to one would be taken for that to the other.
func TestStreamInUse(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := withCritical(t)
		client, backend := r.login(d)
		client.send(1, query("SELECT a FROM b.c"))
		client.send(1, query("USE bank"))
		assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(1).GetErrorCode())
		client.ended()
		backend.answer(1)
		backend.ended()
	})
}

// Streams below zero are the server's: the proxy does not follow them, and so lets none pass.
func TestStreamBelowZero(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := withCritical(t)
		client, backend := r.login(d)
		client.send(-3, query("USE bank"))
		assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(-3).GetErrorCode())
		client.ended()
		backend.ended()
	})
}
