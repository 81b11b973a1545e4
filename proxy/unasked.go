package proxy

import (
	"context"
	"time"

	"github.com/rs/zerolog"
)

// unaskedText warns operators of several proxies of one without a peer address.
const unaskedText = "peer-listen is not set, and other proxies serve this cluster: they cannot ask this one for its locks, and answer " +
	"MUSIC_UNAVAILABLE for references of it; set peer-listen on each proxy (docs/several-proxies.md)"

// watchUnasked warns every minute while other proxies live beside this one, which has no address at
// which they could ask it; until ctx ends. One that has just died looks alive for DeadAfter.
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

// remark returns what /ready says beside whether drivers are served; empty where all is well.
func (p *process) remark() string {
	if p.unasked.Load() {
		return "warning: " + unaskedText
	}
	return ""
}
