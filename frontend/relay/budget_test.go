package relay

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// However many want more than there is: nobody gets what another has, nobody waits for ever, and
// what was given back is there again.
func TestBudgetIsKept(t *testing.T) {
	const limit = 1000
	b := NewBudget(func() int { return limit })
	var working sync.WaitGroup
	for worker := range 16 {
		working.Go(func() {
			a := Account{budget: b}
			for i := range 2000 {
				n := (i*7919+worker*104729)%limit + 1
				assert.True(t, a.grow(n/2))
				a.clear()
				assert.True(t, a.grow(n))
				assert.LessOrEqual(t, int64(a.held), b.used.Load())
				a.clear()
				a.clear()
			}
		})
	}
	working.Wait()
	assert.Zero(t, b.used.Load())

	alone, second, done := Account{budget: b}, Account{budget: b}, make(chan struct{})
	require.True(t, alone.grow(5*limit), "who is alone does not wait for itself")
	second.done = done
	waits := make(chan bool)
	go func() { waits <- second.grow(1) }()
	close(done)
	assert.False(t, <-waits)
	assert.Zero(t, second.held)
	alone.clear()
	assert.Zero(t, b.used.Load())
}

// A limit that changes holds for who asks next, and for who waits as soon as anything is given back.
func TestBudgetFollowsItsLimit(t *testing.T) {
	limit := 10
	b := NewBudget(func() int { return limit })
	require.True(t, b.try(8))
	require.False(t, b.try(8))
	limit = 20
	require.True(t, b.try(8))
	limit = 10
	b.Give(8)
	assert.False(t, b.try(8), "what is there stays, and nothing more comes")
}

// An attempt that finds no room takes nothing meanwhile: two that saw what each other was about to give back would both wait, though
// nothing is taken any more, and nobody would wake them.
func TestBudgetAttemptWithoutRoomTakesNothing(t *testing.T) {
	const held = 60
	var b *Budget
	var seen []int64
	b = NewBudget(func() int {
		seen = append(seen, b.InUse())
		return 100
	})
	b.Take(held)
	over := make(chan struct{})
	close(over)
	require.False(t, b.Acquire(200, over))
	for _, used := range seen {
		require.EqualValues(t, held, used)
	}
}
