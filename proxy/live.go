package proxy

import (
	"context"
	"math"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"music/config"
	"music/frontend"
)

// follow applies each configuration that comes from reloads, until ctx ends.
func (p *process) follow(ctx context.Context, reloads <-chan config.Config) {
	for {
		select {
		case cfg := <-reloads:
			before := p.limits.Load().Connections
			p.applySettings(cfg)
			if cfg.Limits.MaxConnections > before {
				checkFiles(cfg.Limits.MaxConnections, p.log)
			}
		case <-ctx.Done():
			return
		}
	}
}

// applySettings applies those settings of cfg that a running proxy can change.
func (p *process) applySettings(cfg config.Config) {
	limits := limitsOf(cfg.Limits)
	p.limits.Store(&limits)
	p.critical.widen(cfg.Music)
}

// criticalRules are the patterns of tables that are critical whatever their comments say. Patterns
// can only be added while a proxy runs, since other proxies give locks on such a table as soon as
// this proxy's beats say that it refuses plain writes on it (docs/design.md 4). A change is applied
// with the next reading of the schema. It is safe for concurrent use; the zero value has no
// patterns.
type criticalRules struct {
	current atomic.Pointer[config.Music]
	grown   atomic.Bool // patterns were added, and the schema has not been read since
}

// now returns the present rules.
func (r *criticalRules) now() config.Music {
	if m := r.current.Load(); m != nil {
		return *m
	}
	return config.Music{}
}

// names reports whether a table is critical by the present rules.
func (r *criticalRules) names(keyspace, table string) bool {
	return r.now().CriticalByName(keyspace, table)
}

// widen adds the patterns of m. It must be called by one goroutine at a time.
func (r *criticalRules) widen(m config.Music) {
	before := r.now()
	after := config.Music{Critical: slices.Concat(before.Critical, m.Critical)}
	if after.CriticalRules() == before.CriticalRules() {
		return
	}
	r.current.Store(&after)
	r.grown.Store(true)
}

// limitsOf returns the frontend's limits by the settings.
func limitsOf(l config.Limits) frontend.Limits {
	return frontend.Limits{
		Connections: l.MaxConnections, Frame: int(l.MaxFrameSize),
		Label: int(l.Label), Statement: int(l.Statement), Prepared: int(l.Prepared), PreparedEach: int(l.PreparedEach), Waits: l.Waits,
		Messages: messageMemory(l, debug.SetMemoryLimit(-1)),
	}
}

// messageMemory returns how many bytes messages may take: the setting or, if it is 0, a share of
// limit, which is Go's memory limit.
func messageMemory(l config.Limits, limit int64) int {
	const noLimit, share, otherwise = math.MaxInt64, 4, 1 << 30
	switch {
	case l.Messages > 0:
		return int(l.Messages)
	case limit == noLimit:
		return otherwise
	}
	return int(max(limit/share, int64(l.MaxFrameSize)))
}
