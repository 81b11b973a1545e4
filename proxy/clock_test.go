package proxy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"music/musiccore"
)

// The cluster's clock is taken to have stood where it did in the middle of the question; and it counts from there only while it is not far from ours.
func TestObservedClock(t *testing.T) {
	var c clock
	assert.Zero(t, c.now().Clk, "nothing is known")
	before := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, ahead := range []time.Duration{0, -time.Second, 5 * time.Second} {
		c.observe(before, before.Add(40*time.Millisecond), before.Add(20*time.Millisecond+ahead))
		assert.Equal(t, ahead, time.Duration(c.ahead.Load()))
		assert.NotZero(t, c.now().Clk)
	}
	for _, ahead := range []time.Duration{-musiccore.ClockGap - time.Second, musiccore.ClockGap + time.Second} {
		c.observe(before, before, before.Add(ahead))
		assert.Zero(t, c.now().Clk, "the clocks are too far apart")
	}
}
