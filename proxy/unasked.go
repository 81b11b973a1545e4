package proxy

import (
	"context"
	"time"

	"github.com/rs/zerolog"
)

// unaskedText warns about a proxy without a peer address beside other proxies.
const unaskedText = "peer-listen is not set, and other proxies serve this cluster: they cannot ask this one for its locks, and answer " +
	"MUSIC_UNAVAILABLE for references of it; set peer-listen on each proxy (docs/several-proxies.md)"

// watchUnasked warns every minute, until ctx ends, while other proxies live beside this one, which
// has no peer address. A proxy that has just died looks alive for DeadAfter.
func (p *process) watchUnasked(ctx context.Context, l *heartbeat) {
	log := p.log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})
	patience := l.options.DeadAfter(l.options.SessionLease) + lookEvery
	var since time.Time // others live
	for pause(ctx, lookEvery) {
		switch others := len(l.others.living(l.id())); {
		case others == 0:
			since = time.Time{}
			p.unasked.Store(false)
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > patience:
			p.unasked.Store(true)
			log.Warn().Int("others", others).Msg(unaskedText)
		}
	}
}

// remark returns a warning to show in /ready while drivers are served; empty if there is none.
func (p *process) remark() string {
	if p.unasked.Load() {
		return "warning: " + unaskedText
	}
	return ""
}
