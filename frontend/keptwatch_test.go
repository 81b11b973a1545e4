package frontend

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
)

// What is kept of a request until Cassandra has answered it is counted, beside what waits for a lock: a node that is slow, or that a client
// has asked for a lot, may owe many answers.
func TestWhatIsKeptForAnAnswerIsCounted(t *testing.T) {
	long := " /*" + strings.Repeat("x", 30_000) + "*/"
	for name, asked := range map[string]struct {
		request message.Message
		least   int
	}{
		"PREPARE of a write under a lock": {&message.Prepare{Query: "UPDATE bank.locked USING LOCK ? SET v = ? WHERE k = ?" + long}, 30_000 * textMemory},
		"PREPARE of LOCK":                 {&message.Prepare{Query: "LOCK bank.locked WHERE k = ?" + long}, 30_000 * textMemory},
		"PREPARE of a schema change":      {&message.Prepare{Query: "ALTER TABLE bank.accounts ADD w int" + long}, 30_000},
		"PREPARE of a batch":              {&message.Prepare{Query: "BEGIN BATCH INSERT INTO bank.accounts (a) VALUES (1) INSERT INTO bank.other (a) VALUES (1) APPLY BATCH"}, 2 * pairMemory},
		"PREPARE on the topology":         {&message.Prepare{Query: "SELECT * FROM system.peers" + long}, 30_000 * textMemory},
		"QUERY on the topology":           {query("SELECT * FROM system.peers" + long), 30_000 * textMemory},
		"a lock clause of no table":       {query("UPDATE bank." + strings.Repeat("x", 30_000) + " USING LOCK 5 SET v = 1 WHERE k = 'x'"), 30_000},
		"LOCK of no table":                {query("LOCK bank." + strings.Repeat("x", 30_000) + " WHERE k = 'x'"), 30_000},
	} {
		t.Run(name, func(t *testing.T) {
			for _, answered := range []bool{true, false} {
				m, _ := fencedConn(t, d4(), underLockText, catalog.Reject)
				m.authenticated.Store(true) // LOCK is prepared for who may execute it
				require.NoError(t, m.feed(m.up, d4().envelope(t, 1, asked.request)))
				require.True(t, m.streams.Open(1))
				assert.GreaterOrEqual(t, m.server.memory.InUse(), int64(asked.least))
				if answered {
					require.NoError(t, m.feed(m.down, d4().envelope(t, 1, &message.SyntaxError{ErrorMessage: "no"})))
				} else {
					m.end(errClientClosed)
				}
				m.abandon()
				m.children.Wait()
				assert.Zero(t, m.server.memory.InUse())
			}
		})
	}
}

// So is a schema change that waits until it is known whether its table can be locked.
func TestASchemaChangeThatWaitsIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hindered := make(chan string)
		r := newPipedRig(t, func(o *Options) { o.Hindrance = func(CriticalChange) string { return <-hindered } })
		client, _ := r.login(d4())
		client.send(1, query("CREATE TABLE bank.accounts (id text PRIMARY KEY) WITH comment = '@critical' /*"+strings.Repeat("x", 30_000)+"*/"))
		synctest.Wait()
		assert.GreaterOrEqual(t, r.server.memory.InUse(), int64(30_000))
		hindered <- "no"
		client.failure(1)
		synctest.Wait()
		assert.Zero(t, r.server.memory.InUse())
		_ = client.Close()
	})
}
