package proxy

import (
	"strings"
	"sync"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"

	"music/frontend"
)

// What keeps a table from being locked is looked up for a client while the schema is read: under the race detector this
// fails where the two share what the reader of the moment owns.
func TestHindrancesAreLookedUpWhileTheSchemaIsRead(t *testing.T) {
	n := startCQLNode(t, func(a asked) message.Message {
		if strings.Contains(a.text, "schema_version") {
			return rowOf("schema_version", make([]byte, 16))
		}
		return &message.ServerError{ErrorMessage: "not now"}
	})
	s := newSchema(schemaReader{session: n.session, home: func() string { return "" }, release: "5.0.8", rules: new(criticalRules)}, nil, newCriticalTables(), &heartbeat{log: zerolog.Nop()}, nil)
	var both sync.WaitGroup
	both.Go(func() {
		for range 20 {
			_, err := s.refresh(t.Context())
			assert.Error(t, err)
		}
	})
	for range 20 {
		assert.Empty(t, s.hindrance(frontend.CriticalChange{Keyspace: "bank", Name: "t", Grace: -1}), "the answer will warn")
	}
	both.Wait()
}
