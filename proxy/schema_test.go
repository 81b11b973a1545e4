package proxy

import (
	"bytes"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// Who keeps a table waiting for long is logged, once a minute: clients are told that the log says it.
func TestWhoIsWaitedForIsLogged(t *testing.T) {
	var out bytes.Buffer
	s := newSchema(schemaReader{}, nil, nil, &heartbeat{log: zerolog.New(&out)}, nil)
	s.tellLate(laggardLooks, []string{"10.0.0.2:9042"})
	s.tellLate(laggardLooks+1, nil)
	require.Empty(t, out.String(), "they may be about to follow")
	s.tellLate(laggardLooks+1, []string{"10.0.0.2:9042"})
	s.tellLate(laggardLooks+2, []string{"10.0.0.2:9042"})
	assert.Equal(t, 1, strings.Count(out.String(), `"waits_for":["10.0.0.2:9042"]`), out.String())
}

// Why a critical table cannot be locked is logged once: where its comment was set at a node there is no client that could be told.
func TestATableThatCannotBeLockedIsLogged(t *testing.T) {
	var out bytes.Buffer
	cores := func(func(*musiccore.Core, musiccore.Now) musiccore.Effects) {}
	s := newSchema(schemaReader{}, catalog.NewTables(), newCriticalTables(), &heartbeat{log: zerolog.New(&out)}, cores)
	table := &dataTable{keyspace: "bank", name: "visits", Critical: catalog.Critical{ID: [16]byte{1}, Marked: true}}
	table.readComment("@critical(leases:5s)")
	for _, before := range []*dataTable{nil, table} {
		_, err := s.makeReady(t.Context(), before, table, gocql.UUID{}, musiccore.SessionID{})
		require.NoError(t, err)
	}
	assert.Equal(t, 1, strings.Count(out.String(), `"table":"bank.visits","why":"there is no setting`), out.String())
}

// unreadyStart is the schema of a proxy that starts before a node which is played: all tables can be made ready, where what refused
// returns is not the answer. sessions are the other proxies' rows.
func unreadyStart(t *testing.T, p playedSchema, refused func(asked) message.Message, sessions *message.RowsResult, log *jsonLog, o musiccore.Options) (*cqlNode, *schema) {
	t.Helper()
	beats, lockTable := clusterClock(time.Now, &message.VoidResult{}), gocql.UUID{8}
	n := startCQLNode(t, func(a asked) message.Message {
		if m := refused(a); m != nil {
			return m
		}
		switch {
		case strings.HasPrefix(a.text, "CREATE TABLE"):
			return &message.VoidResult{}
		case a.verb() != "SELECT" && strings.Contains(a.text, " IF "):
			return applied(true)
		case strings.HasPrefix(a.text, "SELECT id FROM system_schema.tables"):
			return rowOf("id", lockTable[:])
		case strings.HasPrefix(a.text, "SELECT companion"):
			return noRow("companion", "first", "last")
		case strings.HasPrefix(a.text, "SELECT session, beat"):
			return sessions
		case strings.Contains(a.text, "now()"), a.verb() == "INSERT":
			return beats(a)
		}
		return p.answer(a)
	})
	l := newHeartbeat(n.session, new(clock), o, sessionConfig{references: new(references)}, zerolog.New(log))
	home := gocql.UUID{7}.String() // as the played node says
	return n, newSchema(schemaReader{session: n.session, home: func() string { return home }, release: "5.0.8", rules: new(criticalRules)},
		catalog.NewTables(), newCriticalTables(), l, func(func(*musiccore.Core, musiccore.Now) musiccore.Effects) {})
}

// noLockTable answers when the lock table of k00.t0 is made.
func noLockTable(refused func() message.Message) func(asked) message.Message {
	return func(a asked) message.Message {
		if strings.HasPrefix(a.text, "CREATE TABLE") && strings.Contains(a.text, "lock rows of k00.t0") {
			return refused()
		}
		return nil
	}
}

// noSessions is music.sessions without a row.
func noSessions() *message.RowsResult {
	return noRow("session", "beat", "schema_version", "addr", "lease", "rules", "version")
}

// A table that cannot be made ready does not keep a proxy from its start, nor the others from being locked.
func TestAStartWithATableThatCannotBeMadeReady(t *testing.T) {
	var refused message.Message = &message.Unauthorized{ErrorMessage: "User music has no CREATE permission on <keyspace k00>"}
	log := &jsonLog{}
	_, s := unreadyStart(t, playedSchema{tables: 4}, noLockTable(func() message.Message { return refused }), noSessions(), log, musiccore.Defaults())
	require.NoError(t, s.begin(t.Context()))
	assert.Empty(t, s.tables.Of("k00", "t1").Critical().Refused)
	first := s.tables.Of("k00", "t0").Critical()
	assert.Equal(t, catalog.Reject, first.Unlocked)
	assert.True(t, first.Passing, first.Refused)
	require.Len(t, log.of("the schema could not be followed"), 1)
	assert.Contains(t, log.of("the schema could not be followed")[0]["error"], "no CREATE permission")
	assert.False(t, s.isComplete(gocql.UUID{7}), "it is tried again")

	refused = &message.Overloaded{ErrorMessage: "later"}
	s.known.Store(nil)
	assert.Error(t, s.begin(t.Context()), "what Cassandra may answer soon is waited for")
}
