package musiccore

import (
	"container/heap"
	"time"
)

// timer wakes one key, entry, watch or loan. It may ring early, never late: its owner looks at its own
// deadline and sets it again, so that moving a deadline back, as every statement does that renews
// a lease, costs nothing.
type timer struct {
	at   time.Duration
	slot int // in the heap, from 1; 0 is not set
	who  interface{ due(now Now) }
}

// timers is a heap by time; see container/heap.
type timers []*timer

// Len is heap.Interface.
func (h timers) Len() int { return len(h) }

// Less is heap.Interface.
func (h timers) Less(i, j int) bool { return h[i].at < h[j].at }

// Swap is heap.Interface.
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i+1, j+1
}

// Push is heap.Interface.
func (h *timers) Push(x any) {
	t := x.(*timer)
	*h = append(*h, t)
	t.slot = len(*h)
}

// Pop is heap.Interface.
func (h *timers) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.slot = 0
	return t
}

// set makes the timer ring at that time or earlier.
func (h *timers) set(t *timer, at time.Duration) {
	switch {
	case t.slot == 0:
		t.at = at
		heap.Push(h, t)
	case at < t.at:
		t.at = at
		heap.Fix(h, t.slot-1)
	}
}

// stop keeps the timer from ringing.
func (h *timers) stop(t *timer) {
	if t.slot != 0 {
		heap.Remove(h, t.slot-1)
	}
}

// ring takes out the first timer that is due, or returns nil.
func (h *timers) ring(now time.Duration) *timer {
	if len(*h) == 0 || (*h)[0].at > now {
		return nil
	}
	return heap.Pop(h).(*timer)
}

// first returns when the next timer rings; 0 is never.
func (h timers) first() time.Duration {
	if len(h) == 0 {
		return 0
	}
	return h[0].at
}

// backoff returns how long to wait before the next try: 20 ms, doubled up to 1 s.
func backoff(tries int) time.Duration {
	return min(20*time.Millisecond<<min(tries, 6), time.Second)
}

// sooner returns the earlier of two moments that lie ahead; one that has passed waits for an event
// and not for time.
func sooner(now, a, b time.Duration) time.Duration {
	if b <= now || (a != 0 && a <= b) {
		return a
	}
	return b
}
