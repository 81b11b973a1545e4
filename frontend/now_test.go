package frontend

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
)

// atTime is a request with a time of the client's own, long past or far ahead.
func atTime(m message.Message, now int32) message.Message {
	switch m := m.(type) {
	case *message.Query:
		m.Options = &message.QueryOptions{NowInSeconds: &now}
	case *message.Execute:
		m.Options.NowInSeconds = &now
	case *message.Batch:
		m.NowInSeconds = &now
	}
	return m
}

// What is done under a lock is done now: no tombstone is purged at once, and no read sees what a tombstone hides. Nothing of it reaches
// Cassandra, and no lock is taken for it.
func TestNoTimeOfTheClientsOwnUnderALock(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		r, core := withBorrowed(t)
		for name, unlocked := range map[string]catalog.Policy{"accounts": catalog.Reject, "limits": catalog.Auto} {
			r.server.Tables.Set("bank", name, &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}, Settings: catalog.Settings{Unlocked: unlocked}})
		}
		client, backend := r.login(d)
		id := prepareWrite(client, backend)
		all := append(underLock(id),
			query("DELETE FROM bank.accounts USING LOCK 1 WHERE id = 'x'"),
			query("UPDATE bank.accounts USING LOCK 1 SET n = 1 WHERE id = 'x' IF EXISTS"),
			query("SELECT n FROM bank.accounts WHERE id = 'x' FOR UPDATE"),
			query("DELETE FROM bank.limits WHERE id = 'x'"),
			query("DELETE FROM bank.limits WHERE id = 'x' IF EXISTS"),
			query("BEGIN BATCH DELETE FROM bank.limits WHERE id = 'x'; DELETE FROM bank.limits WHERE id = 'y' APPLY BATCH"),
			query("BEGIN BATCH DELETE FROM bank.limits WHERE id = 'x'; DELETE FROM bank.plain WHERE id = 'x' APPLY BATCH"),
			&message.Batch{Children: []*message.BatchChild{{Query: "DELETE FROM bank.limits WHERE id = 'x'"}}},
		)
		for _, m := range all {
			for _, now := range []int32{0, 1, 1_000_000_000, 2_147_483_646} {
				client.send(5, atTime(m, now))
				f := client.failure(5)
				assert.Equal(t, primitive.ErrorCodeInvalid, f.GetErrorCode(), "%v", m)
				assert.Contains(t, f.GetErrorMessage(), "MUSIC_REFUSED: bank.", "%v", m)
				assert.Contains(t, f.GetErrorMessage(), "now_in_seconds", "%v", m)
			}
		}
		backend.silent()
		assert.Empty(t, core.ended)
		relayed(client, backend, 6, atTime(query("SELECT n FROM bank.accounts WHERE id = 'x'"), 1), rows(nil)) // an ordinary read is the client's own affair
	})
}
