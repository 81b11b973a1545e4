package proxy

import (
	"context"
	"sync"
	"time"

	"music/musiccore"
)

const (
	hintsKept = 256              // for one proxy; more are dropped
	hintLimit = time.Second      // for one to be taken
	hintIdle  = 30 * time.Second // after which nobody waits to send more
)

// hints carries hints to other proxies: only speed hangs on them (PROTOCOL.md 1, Hints), so what does not get there at once is lost.
// Each proxy that gets any has a goroutine, so that one that does not answer keeps nothing from the others.
type hints struct {
	mu      sync.Mutex
	queues  map[musiccore.SessionID]chan musiccore.Hint
	running sync.WaitGroup
}

// tell sends hints, without waiting, until ctx ends.
func (p *peers) tell(ctx context.Context, all []musiccore.Hint) {
	p.hints.mu.Lock()
	defer p.hints.mu.Unlock()
	for _, h := range all {
		queue := p.hints.queues[h.To]
		if queue == nil {
			if ctx.Err() != nil {
				return
			}
			queue = make(chan musiccore.Hint, hintsKept)
			p.hints.queues[h.To] = queue
			p.hints.running.Go(func() { p.send(ctx, h.To, queue) })
		}
		select {
		case queue <- h:
		default:
		}
	}
}

// send carries one proxy's hints until there have been none for a while.
func (p *peers) send(ctx context.Context, to musiccore.SessionID, queue chan musiccore.Hint) {
	idle := time.NewTimer(hintIdle)
	defer idle.Stop()
	for {
		select {
		case h := <-queue:
			_, _ = p.ask(ctx, to, askHint, question{Key: toWire(h.Key), Hint: h.Kind}, hintLimit)
			idle.Reset(hintIdle)
		case <-ctx.Done():
			return
		case <-idle.C:
			if p.retire(to, queue) {
				return
			}
			idle.Reset(hintIdle)
		}
	}
}

// retire ends a proxy's queue, unless something has come into it.
func (p *peers) retire(to musiccore.SessionID, queue chan musiccore.Hint) bool {
	p.hints.mu.Lock()
	defer p.hints.mu.Unlock()
	if len(queue) > 0 {
		return false
	}
	delete(p.hints.queues, to)
	return true
}
