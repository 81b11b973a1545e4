package frontend

import (
	"sync"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/musiccore"
)

// ungrantedLocks never grant a lock.
type ungrantedLocks struct{ Locks }

func (ungrantedLocks) Lock(_ musiccore.Key, _ musiccore.Request, done func(musiccore.Answer)) (musiccore.Answer, func()) {
	return musiccore.Answer{}, func() { done(musiccore.Answer{Err: musiccore.ErrElsewhere}) }
}

// A client that waits for a lock is told when Cassandra is lost, as for any other open request.
func TestLockIsAnsweredWhenCassandraIsLost(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = ungrantedLocks{} })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
	client, backend := r.login(dialect{version: v4})
	client.send(1, query("LOCK bank.accounts WHERE id = 'x'"))
	relayed(client, backend, 2, query("SELECT a FROM b.c"), rows(nil))
	_ = backend.Close()
	backendLost(client, 1)
}

// brokenLocks give answers that make no sense.
type brokenLocks struct {
	Locks
	running *sync.WaitGroup
}

func (b brokenLocks) Lock(_ musiccore.Key, _ musiccore.Request, done func(musiccore.Answer)) (musiccore.Answer, func()) {
	b.running.Go(func() { done(musiccore.Answer{Grant: musiccore.Grant{State: 99}, Err: unmatchableError{}}) })
	return musiccore.Answer{}, func() {}
}

func (b brokenLocks) Begin(_ musiccore.Key, _ musiccore.LockRef, _ musiccore.Kind, done func(musiccore.Answer)) (musiccore.Answer, bool) {
	b.running.Go(func() { done(musiccore.Answer{Err: unmatchableError{}}) })
	return musiccore.Answer{}, false
}

// unmatchableError is an error that cannot be asked what it is.
type unmatchableError struct{}

func (unmatchableError) Error() string { panic("no text") }

func (unmatchableError) Is(error) bool { panic("no kind") }

// What goes wrong in a goroutine that answers one client ends that client's connection, with an answer, and nobody else's.
func TestPanicInAnAnswerEndsOneConnection(t *testing.T) {
	var running sync.WaitGroup
	r := newRig(t, func(o *Options) {
		o.Locks = brokenLocks{running: &running}
		o.DDL = func(SchemaChange) []string { panic("no schema") }
	})
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
	healthy, itsBackend := r.login(dialect{version: v4})
	for _, m := range []message.Message{
		query("LOCK bank.accounts WHERE id = 'x'"), query("UPDATE bank.accounts USING LOCK 1 SET a = 1 WHERE id = 'x'"), query("DROP TABLE a.b"),
	} {
		client, backend := r.login(dialect{version: v4})
		client.send(1, m)
		if m.(*message.Query).Query == "DROP TABLE a.b" {
			backend.answer(1)
			backend.send(1, &message.SchemaChangeResult{ChangeType: "DROPPED", Target: "TABLE", Keyspace: "a", Object: "b"})
		}
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_BACKEND: internal error")
		client.ended()
		relayed(healthy, itsBackend, 1, query("SELECT a FROM b.c"), rows(nil))
	}
	running.Wait()
	r.holds(0, "nothing is counted of a request that nobody answers any more")
}
