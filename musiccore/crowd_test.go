package musiccore

import (
	"runtime"
	"testing"
	"time"
)

// LOCKs of one key whose time is up together are answered at a cost that each adds to alike, in
// whichever order: while they are, nobody else is served who has a key of the shard. What is copied
// shows it, and no clock.
func TestACrowdThatTimesOutCostsEachAlike(t *testing.T) {
	const crowd = 16_000
	for name, wait := range map[string]func(i int) time.Duration{
		"in order": func(int) time.Duration { return time.Second },
		"mixed":    func(i int) time.Duration { return time.Second + time.Duration(i*7919%1000)*time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			h, s := heldByOther(t, theirs())
			s.beat[session(9)] = 1
			var ops []OpID
			for i := range crowd {
				ops = append(ops, h.lock(Request{Wait: wait(i)}))
				h.advanceUnticked(time.Microsecond)
			}
			h.advanceUnticked(2 * time.Second)
			h.beat()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			fx := h.core.Tick(h.time())
			runtime.ReadMemStats(&after)
			if bytes := after.TotalAlloc - before.TotalAlloc; bytes > crowd*4096 {
				t.Errorf("%d bytes were copied for %d LOCKs", bytes, crowd)
			}
			h.collect(fx)
			for _, op := range ops {
				h.answerOf(op)
			}
		})
	}
}
