package proxy

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The oldest of many is as old as a list of all of them says, and what has ended takes no memory.
func TestOldestOfMany(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	var a ages
	var all []time.Duration
	now := time.Duration(0)
	for range 20000 {
		now += time.Duration(chance.IntN(int(ageStep)))
		if len(all) < 50 && chance.IntN(2) == 0 {
			a.add(now)
			all = append(all, now)
		} else if len(all) > 0 {
			i := chance.IntN(len(all))
			a.remove(all[i])
			all = slices.Delete(all, i, i+1)
		}
		want := time.Duration(0)
		if len(all) > 0 {
			want = now - slices.Min(all)
		}
		assert.InDelta(t, want, a.oldest(now), float64(ageStep))
		assert.LessOrEqual(t, len(a.starts), 2*len(all)+1)
	}
	a.remove(now + time.Hour) // never added
	for _, at := range all {
		a.remove(at)
	}
	assert.Zero(t, a.oldest(now))
	assert.Empty(t, a.starts)
}
