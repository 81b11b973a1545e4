package proxy

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

// stuckWriter is a log that stops being read with its first line.
type stuckWriter struct {
	stuck atomic.Int32
	never <-chan struct{}
}

// Write blocks.
func (w *stuckWriter) Write(b []byte) (int, error) {
	w.stuck.Add(1)
	<-w.never
	return len(b), nil
}

// Nothing is written under a shard's mutex: where every line hangs, each shard loses the goroutine
// that writes and none of its locks.
func TestLogThatHangsStopsNoLock(t *testing.T) {
	s := startStation(t, newCluster())
	never := make(chan struct{})
	log := &stuckWriter{never: never}
	audit := newAudit(zerolog.New(log), "all", "here", newCriticalTables())
	for _, shard := range s.shards {
		shard.audit, shard.log = audit, zerolog.New(log)
	}
	defer close(never)
	for i := range 10 * shardCount {
		k := keyOf(strconv.Itoa(i))
		ref := s.held(k)
		s.put(k, ref)
		require.Equal(t, musiccore.StateReleased, s.unlock(k, ref).Grant.State)
	}
	assert.EqualValues(t, shardCount, log.stuck.Load(), "one line of each shard hangs")
}

// A shard that stands still ends the session, after half a session lease and not before.
func TestShardThatStandsStillEndsTheSession(t *testing.T) {
	for which := range shardCount {
		v, self, ended := newTestVigil(t)
		look := func(times int) {
			for range times {
				v.look(t.Context())
			}
		}
		look(10 * stalledLooks)
		v.shards[which].mu.Lock()
		look(stalledLooks)
		assert.False(t, v.tripped.Load())
		assert.False(t, self.Dead())
		look(1)
		assert.True(t, v.tripped.Load(), "/ready says 503")
		assert.True(t, self.Dead())
		look(10)
		assert.EqualValues(t, 1, ended.Load(), "others are told, once")

		v.shards[which].mu.Unlock()
		v.shards[which].running.Wait()
		look(1)
		assert.False(t, v.tripped.Load())
	}
}

// A shard whose mutex is held whenever it is looked at, but not all the time between, does not
// stand still.
func TestBusyShardMoves(t *testing.T) {
	v, self, _ := newTestVigil(t)
	for range 100 {
		v.shards[3].mu.Lock()
		v.look(t.Context())
		v.shards[3].mu.Unlock()
		v.shards[3].running.Wait()
	}
	assert.False(t, v.tripped.Load())
	assert.False(t, self.Dead())
}

// newTestVigil is one over shards that nobody uses. It counts how often the others are told that
// its session has ended.
func newTestVigil(t *testing.T) (v *watchdog, self *musiccore.Session, ended *atomic.Int32) {
	t.Helper()
	options := musiccore.Defaults()
	ended = new(atomic.Int32)
	self = musiccore.NewSession(musiccore.SessionID{1}, options)
	var shards [shardCount]*shard
	for i := range shards {
		shards[i] = new(shard)
	}
	resign := func(context.Context) {
		self.End()
		ended.Add(1)
	}
	return newWatchdog(options.SessionLease, resign, shards, zerolog.Nop()), self, ended
}
