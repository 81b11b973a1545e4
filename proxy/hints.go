package proxy

import (
	"context"
	"sync"
	"time"

	"music/musiccore"
)

const (
	hintsKept   = 256              // for one proxy; more are dropped
	hintBytes   = maxQuestion >> 2 // of keys that one question carries, as they are; JSON makes them longer
	hintSenders = 4                // questions under way at one proxy
	hintLimit   = time.Second      // for one to be taken
)

// hints carries hints to other proxies: only speed hangs on them (docs/protocol.md 3.16, Hints), so what does not get there at once is lost.
// What comes while others are under way goes with the next question, all of it: a far proxy takes few questions a second from one
// sender. A proxy that does not answer keeps nothing from the others.
type hints struct {
	mu      sync.Mutex
	queues  map[musiccore.SessionID]*hintQueue
	running sync.WaitGroup
}

// hintQueue is what waits for one proxy, and how many goroutines take it there. It is while there are any.
type hintQueue struct {
	waiting []musiccore.Hint
	senders int
}

// tell sends hints, without waiting, until ctx ends.
func (p *peers) tell(ctx context.Context, all []musiccore.Hint) {
	if ctx.Err() != nil {
		return
	}
	p.hints.mu.Lock()
	defer p.hints.mu.Unlock()
	for _, h := range all {
		q := p.hints.queues[h.To]
		if q == nil {
			q = &hintQueue{}
			p.hints.queues[h.To] = q
		}
		if len(q.waiting) < hintsKept {
			q.waiting = append(q.waiting, h)
		}
		if q.senders < hintSenders {
			q.senders++
			p.hints.running.Go(func() { p.send(ctx, h.To) })
		}
	}
}

// send carries one proxy's hints until there are none.
func (p *peers) send(ctx context.Context, to musiccore.SessionID) {
	for {
		batch := p.hints.take(to)
		if len(batch) == 0 {
			return
		}
		_, _ = p.ask(ctx, to, askHint, question{Hints: batch}, hintLimit)
	}
}

// take is what a sender carries next; nothing ends it.
func (h *hints) take(to musiccore.SessionID) (batch []wireHint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[to]
	for size := 0; len(q.waiting) > 0 && (batch == nil || size+len(q.waiting[0].Key.PK) <= hintBytes); q.waiting = q.waiting[1:] {
		next := q.waiting[0]
		batch = append(batch, wireHint{Hint: next, Key: toWire(next.Key)})
		size += len(next.Key.PK)
	}
	if len(batch) > 0 {
		return batch
	}
	q.senders--
	if q.senders == 0 {
		delete(h.queues, to)
	}
	return nil
}
