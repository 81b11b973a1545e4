package recipes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/section"
)

// A leader stops leading when its lease has passed since the last renewal was sent that was answered, whether the next ones fail or
// are never answered; and for no other reason, but that it is told so or resigns.
func TestALeaderStopsWithItsLease(t *testing.T) {
	const lease = 3 * time.Second
	silent := func(context.Context) error { time.Sleep(15 * time.Second); return errors.New("no answer") }
	failing := func(context.Context) error { return errors.New("MUSIC_UNAVAILABLE") }
	lost := func(context.Context) error { return section.ErrLost }
	slow := func(context.Context) error { time.Sleep(lease / 4); return nil }
	for name, c := range map[string]struct {
		renewals []func(context.Context) error // the last one again and again
		leads    time.Duration
	}{
		"silent": {[]func(context.Context) error{slow, silent}, time.Second + lease}, "failing": {[]func(context.Context) error{failing}, lease},
		"lost": {[]func(context.Context) error{lost}, lease / 3}, "slow": {[]func(context.Context) error{slow}, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, resign := context.WithTimeout(t.Context(), time.Hour)
			defer resign()
			began, n := time.Now(), -1
			err := keep(ctx, lease, began, func(ctx context.Context) error {
				n = min(n+1, len(c.renewals)-1)
				return c.renewals[n](ctx)
			})
			assert.Equal(t, c.leads, time.Since(began), name)
			if name == "slow" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, section.ErrLost, name)
			}
			time.Sleep(time.Minute) // what has no answer yet
		})
	}
}
