package proxy

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

// beatingOn has a heartbeat go on by itself before a node that is played, until the test ends.
func beatingOn(t *testing.T, answer func(asked) message.Message) (*jsonLog, *heartbeat) {
	t.Helper()
	n, log := startCQLNode(t, answer), &jsonLog{}
	options := musiccore.Defaults()
	options.SessionLease = 1200 * time.Millisecond
	l := newHeartbeat(n.session, new(clock), options, sessionConfig{references: new(references)}, zerolog.New(log))
	cores, tables := startStation(t, newCluster()).locks, &schema{critical: newCriticalTables()}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.run(ctx, cores, tables) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return log, l
}

// A session beats again and again, also after beats that timed out, and goes on for as long as it is
// valid. Another takes its place when it is dead, and then at once.
func TestASessionGoesOnUntilItIsDead(t *testing.T) {
	told := clusterClock(time.Now, &message.VoidResult{})
	var mu sync.Mutex
	beats := 0
	log, l := beatingOn(t, func(a asked) message.Message {
		mu.Lock()
		defer mu.Unlock()
		if a.verb() != "INSERT" {
			return told(a)
		}
		if beats++; beats == 2 || beats == 3 {
			return &message.WriteTimeout{ErrorMessage: "slow", Consistency: primitive.ConsistencyLevelQuorum, BlockFor: 2, WriteType: primitive.WriteTypeSimple}
		}
		return told(a)
	})
	until := func(what string, come func() bool) {
		t.Helper()
		last := l.self.Load()
		require.Eventually(t, func() bool {
			now := l.self.Load()
			assert.True(t, now == last || last.Dead(), "a session that lives is not replaced")
			last = now
			return come()
		}, 30*time.Second, time.Millisecond, what)
	}
	until("beats go on", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return beats >= 6
	})
	ended := l.self.Load()
	ended.End()
	until("another session", func() bool {
		now := l.self.Load()
		return now.ID() != ended.ID() && now.Valid(l.clock.now())
	})
	line := log.of("the session has ended: its beats were not acknowledged in time, or another process has written them; clients that do not go on elsewhere lose their locks")
	require.Len(t, line, 1)
	assert.NotContains(t, line[0], "last_trouble", "the beats that timed out had nothing to do with that")
}
