package music

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Whoever gives up while the fate of a write is unknown is not told that the lock is lost.
func TestSettleIsGivenUp(t *testing.T) {
	lock := &Lock{begun: time.Now(), lease: time.Hour}
	ctx, cancel := context.WithCancel(context.Background())
	silence := errors.New("no answer")
	landed, err := lock.Settle(ctx, func(context.Context) error {
		cancel()
		return silence
	}, func(ctx context.Context) (bool, error) { return false, ctx.Err() })
	if landed || errors.Is(err, ErrLost) || !errors.Is(err, context.Canceled) || !errors.Is(err, silence) || !Uncertain(err) {
		t.Errorf("%v, %v", landed, err)
	}
}
