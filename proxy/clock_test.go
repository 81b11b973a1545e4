package proxy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

// The cluster's clock is taken to have stood where it did in the middle of the question; and it counts from there only while it is not far from ours.
func TestObservedClock(t *testing.T) {
	var c clock
	assert.Zero(t, c.now().Clk, "nothing is known")
	assert.Zero(t, c.ahead(time.Now(), boottime()))
	for _, ahead := range []time.Duration{0, -time.Second, 5 * time.Second} {
		c.observe(4*time.Second, time.Now().Add(ahead-2*time.Second))
		assert.InDelta(t, ahead, c.ahead(time.Now(), boottime()), float64(100*time.Millisecond))
		assert.NotZero(t, c.now().Clk)
	}
	for _, ahead := range []time.Duration{-musiccore.ClockGap - time.Second, musiccore.ClockGap + time.Second} {
		c.observe(0, time.Now().Add(ahead))
		assert.Zero(t, c.now().Clk, "the clocks are too far apart")
	}
}

// The wall clock is set between two looks at the cluster's: that moves no epoch, and no closed, before the next look.
func TestClkWhereTheWallClockIsSet(t *testing.T) {
	var c clock
	cluster := time.Now()
	c.observe(0, cluster)
	for name, set := range map[string]time.Duration{"back": -time.Hour, "forth": 9 * time.Minute, "by years": 10 * 365 * 24 * time.Hour} {
		assert.Zero(t, c.from(time.Now().Add(set)).Clk, "%s: the two clocks are too far apart by now", name)
	}
	a := c.from(time.Now().Add(8 * time.Second))
	assert.InDelta(t, cluster.Add(maxClockLead).UnixMicro(), int64(a.Clk), float64(time.Second.Microseconds()/2), "it is never further ahead than that")
	b := c.from(time.Now().Add(-8 * time.Second))
	assert.Equal(t, b.Wall, b.Clk)
}

// What begins may go by the last reading of the clocks, where that is of just now; what is judged after an answer reads them anew.
func TestReadingOfWhatBegins(t *testing.T) {
	s := startStation(t, newCluster())
	k := keyOf("x")
	ref := s.held(k)
	s.put(k, ref) // the first one may wait
	shard := s.of(k)
	at := time.Now().Add(time.Hour) // it stays new for as long as the test takes
	shard.reading.at = at
	ended := shard.reading.now
	a := s.begin(k, ref, musiccore.Put)
	assert.Equal(t, ended, shard.reading.now, "the clocks were read just before")
	assert.Equal(t, musiccore.VerdictTell, s.verdict(a.Ticket, musiccore.OutcomeAcked))
	assert.NotEqual(t, at, shard.reading.at, "an End reads the clocks")
	assert.Greater(t, shard.reading.now.Boot, ended.Boot)
	ended = shard.reading.now
	shard.reading.at = at
	require.NoError(t, s.lock(k, musiccore.Request{Ref: ref}).Err)
	assert.Equal(t, ended, shard.reading.now, "LOCK goes by it, too")
	shard.reading.at = time.Now().Add(-readingLasts)
	s.begin(k, ref, musiccore.Put)
	assert.Greater(t, shard.reading.now.Boot, ended.Boot, "the last reading is old")
}

// An UNLOCK that gives a loan back reads the clocks anew: the lock is not counted as held any more, whenever that was.
func TestAnUnlockWithALoanIsCountedByOneReading(t *testing.T) {
	s := startStation(t, newCluster())
	k := keyOf("x")
	ref := s.held(k)
	ticket := s.begin(k, ref, musiccore.Put).Ticket
	shard := s.of(k)
	shard.mu.Lock()
	shard.reading.at = time.Now().Add(time.Hour) // it stays new for as long as the test takes …
	shard.reading.now.Boot -= 2 * ageStep        // … and is of before: so close to a step that the two are in different ones
	shard.mu.Unlock()
	a := local{s.locks}.Unlock(t.Context(), k, ref, anna(), musiccore.Return{Ticket: ticket, Outcome: musiccore.OutcomeAcked})
	require.NoError(t, a.Err)
	require.Equal(t, musiccore.StateReleased, a.Grant.State)
	assert.Zero(t, oldest(&s.metrics.sections.holdersSince), "nobody holds it")
}
