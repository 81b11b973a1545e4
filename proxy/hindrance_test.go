package proxy

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"

	"music/frontend"
	"music/frontend/catalog"
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
	beats := &heartbeat{log: zerolog.Nop(), clock: new(clock)}
	beats.rejoin()
	s := newSchema(schemaReader{session: n.session, home: func() string { return "" }, release: "5.0.8", rules: new(criticalRules)}, nil, newCriticalTables(), beats, nil)
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

// What keeps a table from being locked is looked up for a few statements at a time: clients may have thousands on their way, and the
// session's beats would wait behind what is asked for them.
func TestHindrancesAreLookedUpForAFewStatementsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looking atomic.Int32
		free := make(chan struct{})
		s := newSchema(schemaReader{home: func() string {
			looking.Add(1)
			<-free
			runtime.Goexit()
			return ""
		}}, nil, newCriticalTables(), &heartbeat{log: zerolog.Nop(), clock: new(clock)}, nil)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { s.hindrance(frontend.CriticalChange{Keyspace: "bank", Name: "t", Grace: -1}) })
		}
		synctest.Wait()
		assert.EqualValues(t, looksAtOnce, looking.Load())
		time.Sleep(2 * homeLimit)
		close(free)
		all.Wait()
		assert.EqualValues(t, looksAtOnce, looking.Load(), "the others have not been waited for")
	})
}

// A column that was dropped with a time of the future hides what is written to it, once it is back.
func TestAColumnDroppedInTheFuture(t *testing.T) {
	for _, c := range []struct {
		column  string
		ahead   time.Duration
		refused bool
	}{
		{"n", 0, false}, {"n", 5 * time.Second, false}, {"n", time.Hour, true}, {"gone", time.Hour, false}, {"n", -time.Hour, false},
	} {
		table := &dataTable{keyspace: "bank", name: "t", Critical: catalog.Critical{Columns: map[string]catalog.Column{"n": {Name: "n"}}}}
		table.checkDropped(c.column, time.Now().Add(c.ahead))
		assert.Equal(t, c.column == "n" && !c.refused, table.hidden != 0, "locks write above the drop")
		assert.Equal(t, c.refused, strings.Contains(table.Refused, "DROP it without a timestamp"), "%s, %v ahead: %q", c.column, c.ahead, table.Refused)
	}
}
