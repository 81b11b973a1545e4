package proxy

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/frontend/catalog"
	"music/musiccore"
)

// A client's connection waits for a reading of the schema as long as it may, and no longer, whatever
// keeps the reading before it.
func TestAClientWaitsForTheSchemaNoLongerThanItMay(t *testing.T) {
	n := startCQLNode(t, playedSchema{}.answer)
	beats := newHeartbeat(n.session, new(clock), musiccore.Defaults(), sessionConfig{references: new(references)}, zerolog.Nop())
	s := newSchema(schemaReader{session: n.session, home: func() string { return "" }, release: "5.0.8", rules: new(criticalRules)},
		catalog.NewTables(), newCriticalTables(), beats, func(func(*musiccore.Core, musiccore.Now) musiccore.Effects) {})
	s.mu.Lock() // another reading, which waits for a node
	ended := make(chan struct{}, 2)
	for range cap(ended) {
		go func() {
			s.catchUp()
			ended <- struct{}{}
		}()
	}
	late := time.After(2 * homeLimit)
	for range cap(ended) {
		select {
		case <-ended:
		case <-late:
			require.Fail(t, "it waits for the other reading")
		}
	}
	s.mu.Unlock()
	assert.Eventually(t, func() bool { return len(s.readings.turn) == 0 }, 20*time.Second, time.Millisecond, "it reads no more")
}

// The proxy's own changes of the schema do not wait until a node that is down knows of them: no other
// change is followed meanwhile.
func TestOwnSchemaChangesDoNotWaitForNodesThatAreDown(t *testing.T) {
	assert.LessOrEqual(t, serviceCluster(config.Default().Cassandra, &nodeDialer{}).MaxWaitSchemaAgreement, homeLimit)
}
