package proxy

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// ageStep is how exactly the age of the oldest is told.
const ageStep = 100 * time.Millisecond

// ages tells how old the oldest of many is, without a walk over them: it counts how many began in
// each ageStep. Its memory grows with the moments at which those that are left began, not with
// their number. For concurrent use.
type ages struct {
	mu     sync.Mutex
	starts []start // ascending; the first has some left
	empty  int     // of starts, how many have none left
}

// start is how many of those that began in a step are left.
type start struct {
	step int64
	left int
}

// add notes that one has begun, at a moment of BOOTTIME.
func (a *ages) add(at time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, found := a.find(at)
	switch {
	case !found:
		a.starts = slices.Insert(a.starts, i, start{step: int64(at / ageStep)})
	case a.starts[i].left == 0:
		a.empty--
	}
	a.starts[i].left++
}

// remove notes that one has ended that was added with this moment.
func (a *ages) remove(at time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, found := a.find(at)
	if !found || a.starts[i].left == 0 {
		return
	}
	if a.starts[i].left--; a.starts[i].left > 0 {
		return
	}
	a.empty++
	switch {
	case a.empty > len(a.starts)/2:
		a.starts = slices.DeleteFunc(a.starts, func(s start) bool { return s.left == 0 })
		a.empty = 0
	case i == 0:
		for ; a.starts[0].left == 0; a.empty-- {
			a.starts = a.starts[1:]
		}
	}
}

// find returns where the step of a moment stands, or would stand.
func (a *ages) find(at time.Duration) (i int, found bool) {
	return slices.BinarySearchFunc(a.starts, int64(at/ageStep), func(s start, step int64) int { return cmp.Compare(s.step, step) })
}

// oldest returns how old the oldest is; 0 where there is none.
func (a *ages) oldest(now time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.starts) == 0 {
		return 0
	}
	return max(0, now-time.Duration(a.starts[0].step)*ageStep)
}
