package proxy

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"music/frontend"
	"music/frontend/catalog"
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
