package eachupdate

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/battery"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store/storetest"
)

func TestMain(m *testing.M) { battery.Main(m) }

// opened returns a client that is closed at the end of the test.
func opened(t *testing.T, o Options) section.Client {
	t.Helper()
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// Updates of several clients are all carried out, one after the other, and the last one is read.
func TestUpdates(t *testing.T) {
	o := Options{Options: storetest.Options(t)}
	var group sync.WaitGroup
	var values []string
	for i := range 3 {
		h := storetest.Enter(t, opened(t, o), "k")
		value := fmt.Sprint("of client ", i)
		values = append(values, value)
		group.Go(func() {
			for range 3 {
				assert.NoError(t, h.Put(t.Context(), []byte(value)))
			}
		})
	}
	group.Wait()
	h := storetest.Enter(t, opened(t, o), "k")
	assert.Contains(t, values, storetest.Get(t, h))
	_, err := storetest.Enter(t, opened(t, o), "another").Get(t.Context())
	require.ErrorIs(t, err, section.ErrNoValue)
}

// Who dies between the two steps of an update leaves the key locked for ever.
func TestDeadHolder(t *testing.T) {
	o := Options{Options: storetest.Options(t)}
	dying, gate := o, storetest.NewGate(putStatement)
	dying.Hook = gate.Hook
	first := storetest.Enter(t, opened(t, dying), "k")
	put := make(chan error, 1)
	go func() { put <- first.Put(t.Context(), []byte("of the dead")) }()
	<-gate.Reached
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, storetest.Enter(t, opened(t, o), "k").Put(ctx, []byte("of the next")), context.DeadlineExceeded)
	gate.Open()
	require.NoError(t, <-put, "it was not dead")
}
