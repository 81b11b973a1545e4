package musiccore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Many clients wait for longer than one LOCK may take, because a holder stood still or because they
// are so many. The lock moves on as fast as before, since clients that were told references are
// handed them in memory, too.
func TestACrowdRecoversFromADisturbance(t *testing.T) {
	for _, tc := range []struct {
		name  string
		crowd int
		stall time.Duration
		wait  time.Duration
	}{
		{"100 clients, 0.2 s", 100, 200 * time.Millisecond, 0},
		{"400 clients, 0.3 s", 400, 300 * time.Millisecond, 0},
		{"300 clients, 1.5 s", 300, 1500 * time.Millisecond, 0},
		{"400 clients, 5 s, WAIT 5s", 400, 5 * time.Second, 5 * time.Second},
		{"1000 clients, 1.5 s", 1000, 1500 * time.Millisecond, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFar(t, load{clients: tc.crowd, ops: []Kind{Put}, wait: tc.wait, lwt: 3 * time.Millisecond}, 100*time.Microsecond)
				warm := f.after(3 * time.Second)
				before := f.after(time.Second).sections[0] - warm.sections[0]
				f.stall(tc.stall)
				back := f.after(tc.stall + 2*time.Second)
				after := f.after(time.Second).sections[0] - back.sections[0]
				close(f.ended)
				synctest.Wait()
				assert.GreaterOrEqual(t, 10*after, 9*before, "%d sections a second, %d before", after, before)
				assert.GreaterOrEqual(t, before, 8_000, "sections a second before: the crowd alone is too much")
				time.Sleep(time.Minute) // until nothing is in flight
			})
		})
	}
}

// stall has the next holder keep the lock for a while.
func (f *farSim) stall(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pause = d
}
