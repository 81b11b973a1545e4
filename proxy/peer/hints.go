package peer

import (
	"context"
	"strconv"
	"sync"
	"time"

	"music/musiccore"
)

const (
	hintsKept   = 256              // hints waiting for one proxy; more are dropped
	hintBytes   = maxQuestion >> 2 // bytes of keys in one question, before JSON makes them longer
	hintSenders = 4                // concurrent questions to one proxy
	hintLimit   = time.Second      // for the reply to a question
)

// hints holds the hints that wait to be sent to other proxies. Only speed depends on hints
// (docs/protocol.md 3.16, Hints), so they may be dropped. Hints that arrive while others are being
// sent are collected for the next question, since a far proxy can be asked only a few times a
// second. Each proxy has a queue of its own, so that one that does not answer delays none of the
// others.
type hints struct {
	mu      sync.Mutex
	queues  map[musiccore.SessionID]*hintQueue
	running sync.WaitGroup
}

// hintQueue holds the hints for one proxy, and the number of goroutines that send them. It exists
// only while there is such a goroutine.
type hintQueue struct {
	waiting []musiccore.Hint
	senders int
}

// Hint sends hints, each to its session. It does not block. Nothing is sent after ctx has ended.
func (p *Client) Hint(ctx context.Context, all []musiccore.Hint) {
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
		taken := len(q.waiting) < hintsKept
		if taken {
			q.waiting = append(q.waiting, h)
		}
		p.hinted.WithLabelValues(strconv.FormatBool(taken)).Inc()
		if q.senders < hintSenders {
			q.senders++
			p.hints.running.Go(func() { p.send(ctx, h.To) })
		}
	}
}

// send sends the hints for one proxy until none is waiting.
func (p *Client) send(ctx context.Context, to musiccore.SessionID) {
	for {
		batch := p.hints.take(to)
		if len(batch) == 0 {
			return
		}
		_, _ = p.ask(ctx, to, pathHint, question{Hints: batch}, hintLimit)
	}
}

// take returns the next hints to send. If there are none it counts the sender as ended, which must
// return.
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
