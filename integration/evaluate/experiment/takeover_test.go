package experiment

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/section"
)

// mortal is a system whose keys are free some time after the client that held them was closed.
type mortal struct {
	after time.Duration
	mu    sync.Mutex
	free  map[string]chan struct{}
	dead  chan struct{}
}

func (m *mortal) Close() { close(m.dead) }

func (m *mortal) Enter(ctx context.Context, key string) (section.Held, error) {
	m.mu.Lock()
	first := m.free[key] == nil
	if first {
		m.free[key] = make(chan struct{})
	}
	free := m.free[key]
	m.mu.Unlock()
	if !first {
		select {
		case <-free:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return &cell{&memory{values: map[string][]byte{}}, key}, nil
	}
	time.AfterFunc(m.after, func() { <-m.dead; close(free) })
	return &cell{&memory{values: map[string][]byte{}}, key}, nil
}

// Who waits is timed from the death on, and who waits in vain is counted.
func TestInherit(t *testing.T) {
	for after, inherited := range map[time.Duration]bool{10 * time.Second: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			m := &mortal{after: after, free: map[string]chan struct{}{}, dead: make(chan struct{})}
			f := &Fleet{clients: [Sites]section.Client{m, m, m}}
			end, err := f.hold(t.Context(), "name")
			require.NoError(t, err)
			m.Close()
			values := f.inherit(t.Context(), "name")
			end()
			if inherited {
				assert.InDelta(t, 10, values["p50"], 0.01)
				assert.Zero(t, values["had by nobody in 40 s"])
			} else {
				assert.InDelta(t, forgotten.Seconds(), values["p50"], 0.01)
				assert.InDelta(t, deaths, values["had by nobody in 40 s"], 0.01)
				time.Sleep(2 * time.Hour) // the timers of the system
			}
		})
	}
}

// A key that nobody gets is not passed over: the goal is for all of them.
func TestAKeyThatNobodyGetsIsNotPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mortal{after: 10 * time.Second, free: map[string]chan struct{}{}, dead: make(chan struct{})}
		f := &Fleet{clients: [Sites]section.Client{m, m, m}}
		end, err := f.hold(t.Context(), "name")
		require.NoError(t, err)
		m.free["name/7"] = make(chan struct{}) // nobody closes it
		m.Close()
		values := f.inherit(t.Context(), "name")
		end()
		assert.InDelta(t, 1, values["had by nobody in 40 s"], 0.01)
		assert.InDelta(t, 10, values["p50"], 0.01)
		assert.InDelta(t, forgotten.Seconds(), values["p99"], 0.01)
	})
}
