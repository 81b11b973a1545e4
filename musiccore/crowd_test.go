package musiccore

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// LOCKs of one key that time out together cost the same each, in any order; meanwhile no other
// client of the shard is served. The test counts copied entries instead of time.
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
			bytes := after.TotalAlloc - before.TotalAlloc
			assert.LessOrEqual(t, bytes, uint64(crowd*4096), "%d bytes were copied for %d LOCKs", bytes, crowd)
			h.collect(fx)
			for _, op := range ops {
				h.answerOf(op)
			}
		})
	}
}
