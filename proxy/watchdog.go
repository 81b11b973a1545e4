package proxy

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// stalledLooks is how many checks in a row must find a shard stalled for the watchdog to trip.
// Checks are counted instead of time, since a process that is stopped makes none.
const stalledLooks = 8

// watchdog ends the session when a shard stalls. Such a shard serves none of its keys, while the
// session's beats would keep every other proxy from serving them.
type watchdog struct {
	lease  time.Duration         // the session lease
	resign func(context.Context) // ends the session
	shards [shardCount]*shard
	log    zerolog.Logger

	stalled [shardCount]int
	tripped atomic.Bool // a shard is stalled
}

// newWatchdog returns a watchdog; run starts it.
func newWatchdog(lease time.Duration, resign func(context.Context), shards [shardCount]*shard, log zerolog.Logger) *watchdog {
	return &watchdog{lease: lease, resign: resign, shards: shards, log: log}
}

// run checks the shards until ctx ends, stalledLooks times per half a session lease.
func (v *watchdog) run(ctx context.Context) {
	for pause(ctx, v.lease/2/stalledLooks) {
		v.look(ctx)
	}
}

// look checks the shards once, and ends the session if one is stalled.
func (v *watchdog) look(ctx context.Context) {
	worst := 0
	for i, s := range v.shards {
		v.stalled[i]++
		if s.makesProgress() {
			v.stalled[i] = 0
		}
		worst = max(worst, v.stalled[i])
	}
	stands := worst >= stalledLooks
	if before := v.tripped.Swap(stands); before == stands {
		return
	}
	if !stands {
		v.log.Warn().Msg("a shard that stood still moves again: the proxy takes a new session")
		return
	}
	v.log.Error().Msg("a shard of the locks stands still, which is a bug of the proxy: the session ends, so that other proxies serve its keys")
	v.resign(ctx)
}

// makesProgress reports whether the shard's mutex has been free since the last call. If it is not free now,
// a goroutine waits for it.
func (s *shard) makesProgress() bool {
	switch {
	case s.probing.Load():
		return false
	case s.mu.TryLock():
		s.mu.Unlock()
	default:
		s.probing.Store(true)
		s.running.Go(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.probing.Store(false)
		})
	}
	return true
}
