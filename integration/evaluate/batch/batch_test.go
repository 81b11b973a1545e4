package batch

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/section"
)

// shelf is a Queue whose busy keys are free once somebody waits for them.
type shelf struct {
	busy   map[string]bool
	asked  [][]string
	waited []string
	held   int
}

func (s *shelf) Close() {}

func (s *shelf) TakeFree(_ context.Context, keys []string) (map[string]section.Held, error) {
	s.asked = append(s.asked, append([]string{}, keys...))
	free := map[string]section.Held{}
	for _, key := range keys {
		if !s.busy[key] {
			s.held++
			free[key] = book{s}
		}
	}
	return free, nil
}

func (s *shelf) Enter(_ context.Context, key string) (section.Held, error) {
	s.waited = append(s.waited, key)
	delete(s.busy, key)
	s.held++
	return book{s}, nil
}

// book is a key of a shelf, held.
type book struct{ *shelf }

func (b book) Get(context.Context) ([]byte, error) { return nil, section.ErrNoValue }
func (b book) Put(context.Context, []byte) error   { return nil }
func (b book) Leave(context.Context) error         { b.held--; return nil }

// All that is free is taken at once; where nothing is, one of the rest is waited for. Each key is worked on once, and left.
func TestQueued(t *testing.T) {
	s := &shelf{busy: map[string]bool{"b": true, "d": true}}
	var done []string
	require.NoError(t, ProcessQueued(t.Context(), s, []string{"a", "b", "c", "d"}, func(_ section.Held, key string) error {
		done = append(done, key)
		return nil
	}))
	assert.Equal(t, [][]string{{"a", "b", "c", "d"}, {"b", "d"}}, s.asked[:2])
	assert.Equal(t, []string{"a", "c"}, done[:2])
	assert.ElementsMatch(t, []string{"b", "d"}, done[2:])
	assert.Equal(t, done[2:], s.waited)
	assert.Zero(t, s.held)
}

// The first error of the work ends it, and what was taken is left.
func TestQueuedLeaves(t *testing.T) {
	s := &shelf{}
	require.ErrorIs(t, ProcessQueued(t.Context(), s, []string{"a", "b"}, func(section.Held, string) error { return section.ErrLost }), section.ErrLost)
	assert.Zero(t, s.held)
}
