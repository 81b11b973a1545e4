package proxy

import (
	"bytes"
	"strings"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
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
