package proxy

import (
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"

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
