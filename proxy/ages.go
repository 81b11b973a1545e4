package proxy

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// ageStep is the precision of ages.oldest.
const ageStep = 100 * time.Millisecond

// ages finds the age of the oldest of many items without visiting them: it counts how many began in
// each ageStep. Its memory grows with the number of different steps, not of items. It is safe for
// concurrent use.
type ages struct {
	mu     sync.Mutex
	starts []start // ascending; the first is not empty
	empty  int     // how many of starts have none left
}

// start is the number of items left that began in a step.
type start struct {
	step int64
	left int
}

// add adds an item that began at a moment of BOOTTIME.
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

// remove removes an item that was added with this moment.
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

// find returns the index of a moment's step, or where it would be inserted.
func (a *ages) find(at time.Duration) (i int, found bool) {
	return slices.BinarySearchFunc(a.starts, int64(at/ageStep), func(s start, step int64) int { return cmp.Compare(s.step, step) })
}

// oldest returns the age of the oldest item; 0 if there is none.
func (a *ages) oldest(now time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.starts) == 0 {
		return 0
	}
	return max(0, now-time.Duration(a.starts[0].step)*ageStep)
}
