package client

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// kept is a Keeper of a lease of 10 s, in a world of its own, and what it has done when.
type kept struct {
	*Keeper
	begun time.Time
	mu    sync.Mutex
	did   []string
}

// newKept renews as told.
func newKept(renew func(at time.Duration) (time.Duration, error)) *kept {
	k := &kept{begun: time.Now()}
	note := func(what string) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.did = append(k.did, what+" "+k.Clock().Round(100*time.Millisecond).String())
	}
	k.Keeper = &Keeper{
		Lease: 10 * time.Second, End: 10 * time.Second,
		Clock: func() time.Duration { return time.Since(k.begun) },
		Renew: func(context.Context) (time.Duration, error) {
			end, err := renew(k.Clock())
			if err == nil {
				note("renewed")
			}
			return end, err
		},
		Terminate: func(why error) { note("terminated: " + strings.ReplaceAll(why.Error(), "\n", "; ")) },
		Kill:      func() { note("killed") },
	}
	return k
}

// run runs a command of that length.
func (k *kept) run(t *testing.T, command time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), command)
	defer cancel()
	return k.Keep(ctx)
}

var errDown = errors.New("down")

func TestLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(func(at time.Duration) (time.Duration, error) { return at + 10*time.Second, nil })
		assert.NoError(t, k.run(t, 12*time.Second))
		assert.Equal(t, []string{"renewed 3.4s", "renewed 6.8s", "renewed 10.2s"}, k.did)
	})
}

// Where its proxy ends, a lock goes to the next client some seconds later, however long its lease
// is, unless its holder has spoken to another proxy.
func TestLongLeaseIsRenewedAsOneOfHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(func(at time.Duration) (time.Duration, error) {
			if at < 12*time.Second {
				return 0, errDown
			}
			return at + time.Hour, nil
		})
		k.Lease, k.End = time.Hour, time.Hour
		assert.NoError(t, k.run(t, 24*time.Second))
		assert.Equal(t, []string{"renewed 12s", "renewed 22.2s"}, k.did)
	})
}

// A command whose lease cannot be renewed is asked to end when a fifth of the lease is left, and
// killed before the lease ends.
func TestLeaseThatCannotBeRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(func(time.Duration) (time.Duration, error) { return 0, errDown })
		assert.NoError(t, k.run(t, 9900*time.Millisecond), "its lease has not ended")
		assert.Equal(t, []string{"terminated: the lease ends soon and could not be renewed; down 8s", "killed 9.6s"}, k.did)
	})
	synctest.Test(t, func(t *testing.T) {
		k := newKept(func(time.Duration) (time.Duration, error) { return 0, errDown })
		assert.ErrorIs(t, k.run(t, 11*time.Second), ErrLost, "whatever outlives its kill")
	})
}

// A renewal that hangs keeps nobody from the end.
func TestRenewalThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(nil)
		k.Renew = func(ctx context.Context) (time.Duration, error) {
			time.Sleep(30 * time.Second) // as a driver may that connects
			return 0, ctx.Err()
		}
		_ = k.run(t, 9900*time.Millisecond)
		assert.Equal(t, []string{"terminated: the lease ends soon and could not be renewed 8s", "killed 9.6s"}, k.did)
	})
}

// A renewal that gets through after the command was asked to end puts the kill off.
func TestLeaseThatIsRenewedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(func(at time.Duration) (time.Duration, error) {
			if at < 8500*time.Millisecond {
				return 0, errDown
			}
			return at + 10*time.Second, nil
		})
		assert.NoError(t, k.run(t, 12*time.Second))
		assert.Equal(t, []string{"terminated: the lease ends soon and could not be renewed; down 8s", "renewed 8.8s"}, k.did)
	})
}

// A lock that somebody has ended is told at once, and its command has a fifth of the lease to end by itself.
func TestLockThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(func(time.Duration) (time.Duration, error) { return 0, ErrLost })
		assert.ErrorIs(t, k.run(t, 20*time.Second), ErrLost)
		assert.Equal(t, []string{"terminated: " + ErrLost.Error() + " 3.4s", "killed 5s"}, k.did)
	})
}
