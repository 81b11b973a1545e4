package experiment

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/section"
)

// leasing is a system in this process: whoever enters has the lease for ten seconds, and gives it to the next a second after it left.
type leasing struct{ free chan struct{} }

func newLeasing() *leasing {
	l := &leasing{free: make(chan struct{}, 1)}
	l.free <- struct{}{}
	return l
}

func (l *leasing) Close() {}

func (l *leasing) Enter(ctx context.Context, _ string) (section.Held, error) {
	select {
	case <-l.free:
		h := &leased{leasing: l}
		h.expiry = time.AfterFunc(10*time.Second, func() { l.free <- struct{}{} })
		return h, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// leased is the lease of one.
type leased struct {
	*leasing
	expiry *time.Timer
}

func (h *leased) Get(context.Context) ([]byte, error) { return nil, section.ErrNoValue }
func (h *leased) Put(context.Context, []byte) error   { return nil }

func (h *leased) Leave(context.Context) error {
	if h.expiry.Stop() {
		time.AfterFunc(time.Second, func() { h.free <- struct{}{} })
	}
	return nil
}

// fleetOf is one whose clients share a system.
func fleetOf(c section.Client) *Fleet { return &Fleet{clients: [Sites]section.Client{c, c, c}} }

// A leader that dies keeps the next one waiting for its lease, one that resigns does not.
func TestSuccession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dies, resigns, err := fleetOf(newLeasing()).succeed(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, dies)
		assert.Equal(t, time.Second, resigns)
		short, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		_, _, err = fleetOf(newLeasing()).succeed(short, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// Of processes that want a key at once, each waits for those before it.
func TestEnteringAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits, err := fleetOf(newLeasing()).enterAtOnce(t.Context(), "k", 4)
		require.NoError(t, err)
		assert.Equal(t, Samples{0, 1, 2, 3}, waits)
		time.Sleep(time.Second) // of the bubble: the last has left
	})
}
