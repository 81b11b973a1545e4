package proxy

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/datastax/go-cassandra-native-protocol/message"
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
	n := startCQLNode(t, playedSchema{tables: 1}.answer)
	beats := newHeartbeat(n.session, new(clock), musiccore.Defaults(), sessionConfig{references: new(references)}, zerolog.Nop())
	s := newSchema(schemaReader{session: n.session, home: func() string { return "" }, release: "5.0.8", rules: new(criticalRules)},
		catalog.NewTables(), newCriticalTables(), beats, func(func(*musiccore.Core, musiccore.Now) musiccore.Effects) {})
	s.mu.Lock() // another reading, which waits for a node
	ended := make(chan struct{}, 2)
	for range cap(ended) {
		go func() {
			s.catchUp([2]string{"k00", "t0"})
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

// For a table that is not there the schema is not read, however often clients write to one: each of them may, without
// any right, and all others wait for the readings. It is for one that is there, also for a virtual one: some of these can
// be written, and a node that was upgraded has others.
func TestATableThatIsNotThereCostsNoReadingOfTheSchema(t *testing.T) {
	var readings atomic.Int32
	n := startCQLNode(t, func(a asked) message.Message {
		if strings.Contains(a.text, "system_schema.tables") && !strings.Contains(a.text, "WHERE") {
			readings.Add(1)
		}
		switch keyspace := a.where["keyspace_name"]; {
		case !utf8.Valid(keyspace):
			return &message.Invalid{ErrorMessage: "String didn't validate."}
		case strings.Contains(a.text, "system_virtual_schema.tables") && string(keyspace) == "system_views":
			return rowOf("table_name", []byte("settings"))
		}
		return playedSchema{tables: 1}.answer(a)
	})
	beats := newHeartbeat(n.session, new(clock), musiccore.Defaults(), sessionConfig{references: new(references)}, zerolog.Nop())
	s := newSchema(schemaReader{session: n.session, home: func() string { return "" }, release: "5.0.8", rules: new(criticalRules)},
		catalog.NewTables(), newCriticalTables(), beats, func(func(*musiccore.Core, musiccore.Now) musiccore.Effects) {})
	for i := range 10 {
		s.catchUp([2]string{"k00", fmt.Sprintf("missing%d", i)})
		s.catchUp([2]string{strings.Repeat("k", 1<<16), "t0"})
		s.catchUp([2]string{"k\xff", "t0"})
	}
	assert.Zero(t, readings.Load())
	s.catchUp([2]string{"k00", "t0"})
	assert.EqualValues(t, 1, readings.Load())
	s.catchUp([2]string{"system_views", "settings"})
	assert.EqualValues(t, 2, readings.Load())
}

// The proxy's own changes of the schema do not wait until a node that is down knows of them: no other
// change is followed meanwhile.
func TestOwnSchemaChangesDoNotWaitForNodesThatAreDown(t *testing.T) {
	assert.LessOrEqual(t, serviceCluster(config.Default().Cassandra, &nodeDialer{}).MaxWaitSchemaAgreement, homeLimit)
}
