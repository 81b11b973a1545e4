package frontend

import (
	"context"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"

	"music/musiccore"
)

// While Cassandra is asked what a literal of a batch means, the connection goes on: what its direction uses without a lock
// is not for the goroutine that waits.
func TestBatchWaitsForALiteralApart(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(o *Options) {
		o.Locks = noLocks{}
		o.Literal = func(context.Context, string, string) ([]byte, error) {
			close(asked)
			<-goOn
			return make([]byte, 8), nil
		}
	})
	r.server.Tables.Set("bank", "events", &Critical{Key: []Column{{Name: "at", Type: "timestamp"}}, Primary: []string{"at"}})
	client, backend := r.login(dialect{version: v4})
	client.send(1, &message.Batch{Children: []*message.BatchChild{
		{Query: "UPDATE bank.events USING LOCK 1 SET a = 1 WHERE at = '2020-01-01'"},
		{Query: "UPDATE bank.events USING LOCK 1 SET b = 1 WHERE at = '2020-01-01'"},
	}})
	<-asked
	client.send(2, query("SELECT a FROM b.c"))
	backend.answer(2)
	client.send(3, query("SELECT a FROM b.c"))
	close(goOn)
	backend.answer(3)
	assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_NOT_HELD")
}

// waiting is a core whose locks are never granted.
type waiting struct{ Locks }

func (waiting) Lock(_ musiccore.Key, _ musiccore.Request, done func(musiccore.Answer)) func() {
	return func() { done(musiccore.Answer{Err: musiccore.ErrElsewhere}) }
}

// A client that waits for a lock is told when Cassandra is lost, as for any other open request.
func TestLockIsAnsweredWhenCassandraIsLost(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = waiting{} })
	r.server.Tables.Set("bank", "accounts", &Critical{Key: []Column{{Name: "id", Type: "text"}}})
	client, backend := r.login(dialect{version: v4})
	client.send(1, query("LOCK bank.accounts WHERE id = 'x'"))
	relayed(client, backend, 2, query("SELECT a FROM b.c"), rows(nil))
	_ = backend.Close()
	backendLost(client, 1)
}
