package proxy

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// stalledLooks is how many looks in a row must find a shard stalled for the watchdog to trip. Looks
// and not time are counted: a process that is stopped looks at nothing.
const stalledLooks = 8

// watchdog ends the session when a shard stalls. Such a shard serves none of its keys, while the
// heartbeats, which go on, keep every other proxy from them.
type watchdog struct {
	lease  time.Duration         // of the session
	resign func(context.Context) // ends it
	shards [shardCount]*shard
	log    zerolog.Logger

	stalled [shardCount]int
	tripped atomic.Bool // a shard is stalled
}

// newWatchdog has not looked yet.
func newWatchdog(lease time.Duration, resign func(context.Context), shards [shardCount]*shard, log zerolog.Logger) *watchdog {
	return &watchdog{lease: lease, resign: resign, shards: shards, log: log}
}

// run looks until ctx ends, stalledLooks times in half a session lease.
func (v *watchdog) run(ctx context.Context) {
	for pause(ctx, v.lease/2/stalledLooks) {
		v.look(ctx)
	}
}

// look ends the session where a shard has not moved for too long.
func (v *watchdog) look(ctx context.Context) {
	worst := 0
	for i, s := range v.shards {
		v.stalled[i]++
		if s.moves() {
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

// moves reports whether the shard's mutex has been free since the last look. A goroutine waits for
// a mutex that is not.
func (s *shard) moves() bool {
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

// resign ends the session and says so to the others, within a beat's time.
func (l *heartbeat) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.options.SessionLease/3)
	defer cancel()
	l.end(ctx)
}
