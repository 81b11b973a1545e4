package proxy

import (
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/frontend"
	"music/frontend/catalog"
	"music/musiccore"
)

// A change of a critical table is answered when all living proxies have applied it, and so is a
// DROP: what they know of a table is what they read statements by. An ordinary table may change
// without them.
func TestChangesThatAllProxiesApplyFirst(t *testing.T) {
	s := &schema{tables: catalog.NewTables()}
	s.tables.Set("bank", "accounts", &catalog.Critical{})
	for change, want := range map[frontend.SchemaChange]bool{
		{Change: "UPDATED", Target: "TABLE", Keyspace: "bank", Name: "accounts"}: true,
		{Change: "UPDATED", Target: "TABLE", Keyspace: "bank", Name: "plain"}:    false,
		{Change: "UPDATED", Target: "KEYSPACE", Keyspace: "bank"}:                false,
		{Change: "DROPPED", Target: "TABLE", Keyspace: "bank", Name: "plain"}:    true,
		{Change: "CREATED", Target: "TABLE", Keyspace: "bank", Name: "accounts"}: false,
		{Target: "TABLE", Keyspace: "bank", Name: "accounts"}:                    false,
	} {
		assert.Equal(t, want, s.forAll(change), "%v", change)
	}
}

// A change that names a table which is not there leaves nothing in memory: DROP TABLE IF EXISTS takes any name.
func TestAChangeOfNoTableIsNotKept(t *testing.T) {
	version := gocql.UUID{7} // as the played node says
	n := startCQLNode(t, playedSchema{}.answer)
	n.peers = noRow("host_id")
	n.session = n.connect(t) // it asks for the node's id
	beats := newHeartbeat(n.session, new(clock), musiccore.Defaults(), sessionConfig{references: new(references)}, zerolog.Nop())
	s := newSchema(schemaReader{session: n.session, home: func() string { return version.String() }, release: "5.0.8", rules: new(criticalRules)},
		catalog.NewTables(), newCriticalTables(), beats, func(func(*musiccore.Core, musiccore.Now) musiccore.Effects) {})
	s.known.Store(&version)
	for _, change := range []frontend.SchemaChange{
		{Target: "TABLE", Keyspace: "k00", Name: "none"}, {Change: "UPDATED", Target: "TABLE", Keyspace: "k00", Name: "none"},
	} {
		assert.Empty(t, s.follow(change))
		assert.Nil(t, s.tables.Find([]byte("k00\x00none")))
	}
}

// Nor does a table that cannot be made ready concern who changes another one.
func TestAChangeBesideATableThatCannotBeMadeReady(t *testing.T) {
	refused := noLockTable(func() message.Message { return &message.Unauthorized{ErrorMessage: "no"} })
	s := startedUnready(t, playedSchema{tables: 4}, refused, noSessions())
	for change, concerned := range map[frontend.SchemaChange]bool{
		{Change: "DROPPED", Target: "TABLE", Keyspace: "k00", Name: "none"}: false,
		{Change: "UPDATED", Target: "TABLE", Keyspace: "k00", Name: "t1"}:   false,
		{Change: "UPDATED", Target: "TABLE", Keyspace: "k00", Name: "t0"}:   true,
		{Change: "UPDATED", Target: "TYPE", Keyspace: "k00", Name: "type"}:  true,
		{Change: "DROPPED", Target: "KEYSPACE", Keyspace: "k01"}:            false,
	} {
		told := strings.Join(s.follow(change), "; ")
		assert.Equal(t, concerned, strings.Contains(told, "could not follow this change"), "%v: %s", change, told)
	}
}

// All proxies follow that other change before it is answered, as ever, and the client is told of those that have not, each once.
func TestOthersFollowAChangeBesideATableThatCannotBeMadeReady(t *testing.T) {
	unreadable := func(a asked) message.Message {
		if strings.HasPrefix(a.text, "SELECT id, closed, settings FROM music.tables WHERE") {
			return &message.Unauthorized{ErrorMessage: "no"}
		}
		return nil
	}
	other, old := gocql.UUID{2}, gocql.UUID{3}
	sessions := rowOf("session", other[:], "beat", bigint(4), "schema_version", old[:], "addr", []byte("there:1"), "lease", bigint(3_600_000), "rules", nil, "version", []byte{0, 0, 0, 4})
	for name, c := range map[string]struct {
		tables  int
		refused func(asked) message.Message
		change  frontend.SchemaChange
	}{
		"one that cannot be read": {1, unreadable, frontend.SchemaChange{Change: "DROPPED", Target: "TABLE", Keyspace: "k00", Name: "none"}},
		"several of a keyspace":   {4, nobodyRefuses, frontend.SchemaChange{Change: "UPDATED", Target: "TYPE", Keyspace: "k00", Name: "type"}},
	} {
		s := startedUnready(t, playedSchema{tables: c.tables}, c.refused, sessions)
		told := s.follow(c.change)
		require.Len(t, told, 1, name)
		assert.Contains(t, told[0], "not followed yet by the proxies at there:1: ", name)
	}
}

// Where a table waits for a proxy with another setting critical, which may take hours, a change of another one does not.
func TestAChangeBesideATableThatWaits(t *testing.T) {
	other := gocql.UUID{2}
	sessions := rowOf("session", other[:], "beat", bigint(4), "schema_version", nil, "addr", []byte("there:1"), "lease", bigint(3_600_000), "rules", []byte("another"), "version", []byte{0, 0, 0, 4})
	unmarked := func(a asked) message.Message {
		if !strings.HasPrefix(a.text, "SELECT keyspace_name, table_name, id, comment") {
			return nil
		}
		r := playedSchema{tables: 1}.answer(a).(*message.RowsResult)
		r.Data[0][3] = nil // the comment
		return r
	}
	s := startedUnready(t, playedSchema{tables: 1}, unmarked, sessions)
	followed := s.applied.digest
	sessions.Data[0][2] = followed[:]
	s.rules.widen(config.Music{Critical: []string{"k00.t0"}})
	for _, change := range []frontend.SchemaChange{
		{Change: "CREATED", Target: "TABLE", Keyspace: "k00", Name: "none"}, {Change: "DROPPED", Target: "TABLE", Keyspace: "k00", Name: "none"},
	} {
		assert.Empty(t, s.follow(change))
		assert.False(t, s.isComplete(gocql.UUID{7}), "it still waits")
	}
	told := s.follow(frontend.SchemaChange{Change: "UPDATED", Target: "TABLE", Keyspace: "k00", Name: "t0"})
	require.Len(t, told, 1)
	assert.Contains(t, told[0], "not followed yet by the proxies at there:1 (its setting critical is another)")
}

// nobodyRefuses leaves every statement to the played schema.
func nobodyRefuses(asked) message.Message { return nil }

// startedUnready is a schema by unreadyStart that has begun.
func startedUnready(t *testing.T, p playedSchema, refused func(asked) message.Message, sessions *message.RowsResult) *schema {
	t.Helper()
	o := musiccore.Defaults()
	o.SessionLease = time.Second // for so long a change waits
	n, s := unreadyStart(t, p, refused, sessions, &jsonLog{}, o)
	n.peers = noRow("host_id")
	s.session = n.connect(t) // it asks for the node's id
	require.NoError(t, s.begin(t.Context()))
	return s
}
