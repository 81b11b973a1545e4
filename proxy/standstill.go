package proxy

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// stillLooks is how many looks in a row find a shard standing before it counts as standing still. Looks and not time are counted: a
// process that is stopped looks at nothing.
const stillLooks = 8

// vigil watches that the shards move. One that does not can serve none of its keys, and what beats for it beside keeps everybody else
// from them: the session is ended, so that other proxies go on.
type vigil struct {
	lease  time.Duration         // of the session
	resign func(context.Context) // ends it
	shards [shardCount]*shard
	log    zerolog.Logger

	still    [shardCount]int
	standing atomic.Bool // a shard stands still
}

// newVigil has not looked yet.
func newVigil(lease time.Duration, resign func(context.Context), shards [shardCount]*shard, log zerolog.Logger) *vigil {
	return &vigil{lease: lease, resign: resign, shards: shards, log: log}
}

// run looks until ctx ends, stillLooks times in half a session lease.
func (v *vigil) run(ctx context.Context) {
	for pause(ctx, v.lease/2/stillLooks) {
		v.look(ctx)
	}
}

// look ends the session where a shard has not moved for too long.
func (v *vigil) look(ctx context.Context) {
	worst := 0
	for i, s := range v.shards {
		v.still[i]++
		if s.moves() {
			v.still[i] = 0
		}
		worst = max(worst, v.still[i])
	}
	stands := worst >= stillLooks
	if before := v.standing.Swap(stands); before == stands {
		return
	}
	if !stands {
		v.log.Warn().Msg("a shard that stood still moves again: the proxy takes a new session")
		return
	}
	v.log.Error().Msg("a shard of the locks stands still, which is a bug of the proxy: the session ends, so that other proxies serve its keys")
	v.resign(ctx)
}

// moves reports whether the shard's mutex has been free since the last look. A busy one is waited for beside.
func (s *shard) moves() bool {
	switch {
	case s.looking.Load():
		return false
	case s.mu.TryLock():
		s.mu.Unlock()
	default:
		s.looking.Store(true)
		s.running.Go(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.looking.Store(false)
		})
	}
	return true
}

// resign ends the session and says so to the others, within a beat's time.
func (l *life) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.options.SessionLease/3)
	defer cancel()
	l.end(ctx)
}
