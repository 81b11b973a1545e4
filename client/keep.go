package client

import (
	"context"
	"errors"
	"time"
)

// The parts of a lease after which something is done.
const (
	renewPart     = 3  // a third after it began: renew
	terminatePart = 5  // a fifth before its end: ask the command to end
	killPart      = 20 // a twentieth before its end: end it
	lookPart      = 50 // between two looks
)

// longestPace is the longest lease by which renewals are timed.
const longestPace = 30 * time.Second

// Keeper renews a lease while a command runs under it, and ends the command before the lease does.
type Keeper struct {
	Lease     time.Duration
	End       time.Duration                                // by Clock
	Clock     func() time.Duration                         // Boottime
	Renew     func(context.Context) (time.Duration, error) // returns the new End
	Terminate func(why error)                              // asks the command to end; called once
	Kill      func()                                       // ends it; called once

	terminated, killed bool
	lost               error
}

// errUnrenewed is the reason for asking a command to end whose lock is still held.
var errUnrenewed = errors.New("the lease ends soon and could not be renewed")

// renewal is the result of one attempt to renew.
type renewal struct {
	end time.Duration
	err error
}

// Keep returns when ctx ends, which it does with the command: nil, or why the lock was lost,
// certainly or perhaps, before that. No renewal is under way then.
func (k *Keeper) Keep(ctx context.Context) error {
	done := make(chan renewal, 1)
	trying := false
	next := k.End - k.Lease + k.pace()/renewPart
	tick := time.NewTicker(max(k.pace()/lookPart, time.Millisecond))
	defer tick.Stop()
	last := error(nil)
	for {
		now := k.Clock()
		if !trying && k.lost == nil && now >= next {
			trying = true
			go func() {
				limited, cancel := context.WithTimeout(ctx, k.pace()/4)
				defer cancel()
				end, err := k.Renew(limited)
				done <- renewal{end, err}
			}()
		}
		k.look(now, last)
		select {
		case <-ctx.Done():
			if trying {
				<-done
			}
			return k.verdict()
		case r := <-done:
			trying = false
			now, last = k.Clock(), r.err
			next = k.heard(now, r)
		case <-tick.C:
		}
	}
}

// heard processes the result of a renewal, and returns when the next one is due.
func (k *Keeper) heard(now time.Duration, r renewal) time.Duration {
	switch {
	case r.err == nil:
		k.End = r.end
		return r.end - k.Lease + k.pace()/renewPart
	case errors.Is(r.err, ErrLost):
		k.lost = r.err
		k.End = min(k.End, now+k.Lease/terminatePart)
	}
	return now + k.pace()/killPart
}

// pace returns the lease by which renewals are timed. Where the proxy of a lock ends, others give the
// lock to the next client some seconds later, unless its holder has spoken to one of them.
func (k *Keeper) pace() time.Duration { return min(k.Lease, longestPace) }

// look ends the command if it is time.
func (k *Keeper) look(now time.Duration, last error) {
	left := k.End - now
	if !k.terminated && (k.lost != nil || left <= k.Lease/terminatePart) {
		k.terminated = true
		why := k.lost
		if why == nil {
			why = errors.Join(errUnrenewed, last)
		}
		k.Terminate(why)
	}
	if !k.killed && left <= k.Lease/killPart {
		k.killed = true
		k.Kill()
	}
}

// verdict returns why the command did not have the lock to its end, or nil if it did.
func (k *Keeper) verdict() error {
	if k.lost == nil && k.Clock() >= k.End {
		return ErrLost
	}
	return k.lost
}
