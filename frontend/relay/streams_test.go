package relay

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Streams of one page are opened by more than one goroutine.
func TestStreamsAreOpenedByAnyGoroutine(t *testing.T) {
	for range 2000 {
		var s Streams
		var wg sync.WaitGroup
		for stream := range int16(3) {
			wg.Go(func() { s.Begin(stream, stream == 1) })
		}
		wg.Wait()
		var open []int16
		s.Each(func(stream int16) { open = append(open, stream) })
		require.Equal(t, []int16{0, 1, 2}, open)
		require.True(t, s.Watched(1))
		s.End(1)
		require.False(t, s.Open(1) || s.Watched(1) || s.Watched(0))
		require.True(t, s.Any())
	}
}

// Every stream id that the protocol allows can be opened; those below zero are the server's and
// never open.
func TestStreamsCoverAllIds(t *testing.T) {
	var s Streams
	for stream := int16(0); stream >= 0; stream++ {
		require.False(t, s.Open(stream))
		s.Begin(stream, stream%2 == 0)
	}
	n := int16(0)
	s.Each(func(stream int16) {
		require.Equal(t, n, stream)
		require.True(t, s.Open(stream))
		require.Equal(t, stream%2 == 0, s.Watched(stream))
		n++
	})
	require.Equal(t, int16(-32768), n)
	for stream := int16(0); stream >= 0; stream++ {
		s.End(stream)
	}
	require.False(t, s.Any())
	for _, below := range []int16{-1, -32768} {
		s.Begin(below, true)
		s.End(below)
		require.False(t, s.Open(below) || s.Watched(below))
	}
}

// What was marked is overdue at the second call that finds it without an answer; a later request on its stream is not.
func TestOverdueStreams(t *testing.T) {
	var s Streams
	s.Begin(1, false)
	s.Begin(700, false)
	require.False(t, s.Overdue(), "not marked")
	require.False(t, s.Overdue(), "not marked")
	s.Mark()
	require.False(t, s.Overdue(), "only just")
	s.End(1)
	s.Begin(1, false)
	s.Mark()
	require.True(t, s.Overdue(), "700")
	s.End(700)
	require.True(t, s.Overdue(), "1 is, by now")
	s.End(1)
	s.Begin(1, false)
	require.False(t, s.Overdue())
	require.False(t, s.Overdue())
}
