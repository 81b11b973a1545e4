package frontend

import (
	"crypto/md5" //nolint:gosec // G501: Cassandra's ids, not a secret
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
)

// cassandraID is the id that Cassandra gives a text in a keyspace, and in each if keyspace is empty.
func cassandraID(keyspace, text string) []byte {
	id := md5.Sum([]byte(keyspace + text)) //nolint:gosec // G401: as above
	return id[:]
}

// unqualifiedTexts are texts that write accounts of whichever keyspace, as a client sends them and as Cassandra gets them.
func unqualifiedTexts() map[string]string {
	same := map[string]string{
		"UPDATE accounts USING LOCK ? SET v = 1 WHERE id = 'x'": "UPDATE accounts  SET v = 1 WHERE id = 'x'",
	}
	for _, text := range []string{
		"INSERT INTO accounts (id) VALUES ('x')", "DELETE FROM \"accounts\" WHERE id = 'x'", "TRUNCATE /* bank. */ accounts",
		"BEGIN BATCH DELETE FROM other.accounts WHERE id = 'x'; DELETE FROM accounts WHERE id = 'x'; APPLY BATCH",
		"BEGIN TRANSACTION UPDATE accounts SET v = 1 WHERE id = 'x'; COMMIT TRANSACTION",
		"ALTER TABLE accounts ADD w int",
	} {
		same[text] = text
	}
	return same
}

// A node that does not know the release of each node of the ring gives a text without a keyspace one id for all keyspaces, and
// executes what it prepared first. The client gets the id of its keyspace, under which no other statement is executed.
func TestAnIDForAllKeyspaces(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		for text, sent := range unqualifiedTexts() {
			for _, keyspace := range []string{"bank", "other"} {
				r := withCritical(t)
				client, backend := r.login(d)
				use(client, backend, keyspace)
				lock := text != sent
				if lock && keyspace == "other" || strings.Contains(text, "TRANSACTION") && keyspace == "bank" {
					continue // it is refused, as the table is not critical there, or is
				}
				shared, own := cassandraID("", sent), cassandraID(keyspace, sent)
				client.send(1, &message.Prepare{Query: text})
				client.send(2, query("USE third"))
				for _, id := range [][]byte{shared, own} {
					assert.Equal(t, sent, backend.answer(1).(*message.Prepare).Query)
					backend.send(1, preparedAs(id))
				}
				got := client.answer(1).(*message.PreparedResult).PreparedQueryId
				assert.Equal(t, !lock, string(own) == string(got), text)
				backend.answer(2)
				backend.send(2, &message.SetKeyspaceResult{Keyspace: "third"})
				client.answer(2)
				client.send(3, execute(shared, nil))
				assert.Equal(t, primitive.ErrorCodeUnprepared, client.failure(3).GetErrorCode(), text)
				client.send(3, &message.Batch{Children: []*message.BatchChild{{Id: shared}}})
				assert.Equal(t, primitive.ErrorCodeUnprepared, client.failure(3).GetErrorCode(), text)
				backend.silent()
				r.stop()
			}
		}
	})
}

// A keyspace that the PREPARE names is named again.
func TestAnIDForAllKeyspacesInARequestWithOne(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		client, backend := withCritical(t).login(d)
		request := &message.Prepare{Query: "DELETE FROM accounts WHERE id = 'x'", Keyspace: "other"}
		client.send(1, request)
		for _, keyspace := range []string{"", "other"} {
			assert.Equal(t, request, backend.answer(1))
			backend.send(1, preparedAs(cassandraID(keyspace, request.Query)))
		}
		assert.Equal(t, cassandraID("other", request.Query), client.answer(1).(*message.PreparedResult).PreparedQueryId)
	})
}

// Where Cassandra has no other id, the client is told, and nothing is executed under that one.
func TestAnIDForAllKeyspacesTwice(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		client, backend := withCritical(t).login(d)
		use(client, backend, "other")
		for _, c := range []struct{ text, hashed string }{
			{"DELETE FROM accounts WHERE id = 'x'", "DELETE FROM accounts WHERE id = 'x'"},
			{"DELETE /* \xff */ FROM accounts WHERE id = 'x'", "DELETE /* \uFFFD */ FROM accounts WHERE id = 'x'"},
		} {
			client.send(1, &message.Prepare{Query: c.text})
			for range 2 {
				backend.answer(1)
				backend.send(1, preparedAs(cassandraID("", c.hashed)))
			}
			assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_UNAVAILABLE")
			client.send(1, execute(cassandraID("", c.hashed), nil))
			assert.Equal(t, primitive.ErrorCodeUnprepared, client.failure(1).GetErrorCode())
		}
		survives(client, backend)
	})
}

// A text that names the keyspace means the same in all, and is prepared once.
func TestAnIDOfAQualifiedText(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		client, backend := withCritical(t).login(d)
		use(client, backend, "bank")
		for _, text := range []string{"DELETE FROM other.accounts WHERE id = 'x'", "BEGIN BATCH DELETE FROM other.accounts WHERE id = 'x' APPLY BATCH", "USE other"} {
			got := relayed(client, backend, 1, &message.Prepare{Query: text}, preparedAs(cassandraID("", text)))
			assert.Equal(t, cassandraID("", text), got.(*message.PreparedResult).PreparedQueryId)
		}
	})
}
