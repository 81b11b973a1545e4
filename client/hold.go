package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"golang.org/x/sys/unix"
)

// Why a lock was not acquired, or is not held any more.
var (
	ErrNotAcquired = errors.New("the lock was not acquired")
	ErrLost        = errors.New("the lock is lost: it has expired, was ended with FORCE, or its proxy died before it could be handed on")
)

// Asking is how a lock is requested.
type Asking struct {
	Lease   time.Duration // 0 = the table's
	Wait    time.Duration // at most so long; 0 = not at all
	Forever bool          // for as long as it takes, whatever Wait says
	As      string        // who asks, for people
	Waiting func(Grant)   // told each time that somebody else still has it; may be nil
}

// Pace of the requests. A proxy answers sooner if the driver would not wait so long.
const (
	leastWait   = 1500 * time.Millisecond // a LOCK without WAIT may take so long, where the proxy is not configured otherwise
	askPause    = 200 * time.Millisecond  // after an answer that it cannot be told now
	connectPart = 6                       // of a lease: connecting to another proxy takes no longer
	giveUpTime  = 2 * time.Second         // to leave the queue
)

// Held is a lock that was granted. It is not safe for concurrent use.
type Held struct {
	session *Session
	key     Key
	Ref     int64
	Lease   time.Duration // as it was granted
	End     time.Duration // of the lease, by Boottime, counted from before it was asked for
	Grant   Grant
	silent  bool // the proxy did not answer last time
}

// Table is the table of the lock.
func (h *Held) Table() string { return h.key.Table }

// Boottime returns a clock that goes on while the machine is suspended, as a lease does, and Go's
// own clock does not.
func Boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // Linux has had it since 2.6.39
	}
	return time.Duration(ts.Nano())
}

// asking is one Acquire that is under way.
type asking struct {
	Asking
	session *Session
	key     Key
	ref     int64 // 0 = none yet
	queued  bool  // the token has a place, or may have one, or the lock: an answer is missing
	token   string
	until   time.Duration // by Boottime
}

// Acquire sends LOCK until the lock is granted, or its wait is over: then the error is an
// ErrNotAcquired, and the place in the queue has been released.
func (s *Session) Acquire(ctx context.Context, k Key, a Asking) (*Held, error) {
	q := &asking{Asking: a, session: s, key: k, token: gocql.MustRandomUUID().String(), until: Boottime() + a.Wait}
	for {
		begun := Boottime()
		g, err := s.ask(ctx, q.statement())
		q.heard(g, err)
		switch {
		case ctx.Err() != nil:
			q.leave()
			return nil, fmt.Errorf("%w: %w", ErrNotAcquired, context.Cause(ctx))
		case err != nil:
			if err := q.again(ctx, err); err != nil {
				q.leave()
				return nil, fmt.Errorf("%w: %w", ErrNotAcquired, err)
			}
			continue
		case g.State == "HELD":
			s.options.Timeout = min(s.options.Timeout, g.Lease/connectPart)
			return &Held{session: s, key: k, Ref: g.Ref, Lease: g.Lease, End: begun + g.Lease, Grant: g}, nil
		case g.State == "LOST":
			q.ref, q.queued, q.token = 0, false, gocql.MustRandomUUID().String()
		}
		if g.State == "BUSY" || q.over() {
			q.leave()
			return nil, fmt.Errorf("%w: %s", ErrNotAcquired, q.ahead(g))
		}
		if a.Waiting != nil {
			a.Waiting(g)
		}
	}
}

// heard records what the answer to a LOCK, or none, says about the reference.
func (q *asking) heard(g Grant, err error) {
	if g.Ref != 0 {
		q.ref = g.Ref
	}
	q.queued = q.queued || g.State == "QUEUED" || err != nil && !Answered(err)
}

// over reports whether the wait is over.
func (q *asking) over() bool { return !q.Forever && Boottime() >= q.until }

// ahead returns the holder of the lock as text.
func (q *asking) ahead(g Grant) string {
	if g.Holder != "" {
		return "it is held by " + g.Holder
	}
	return "somebody else holds it"
}

// statement returns the next LOCK. Without WAIT the proxy decides how long it waits, unless the answer would
// come too late for this client.
func (q *asking) statement() string {
	wait, left := "", leastWait
	if !q.Forever {
		left = min(left, q.until-Boottime())
	}
	if timeout := q.session.options.Timeout; timeout > 0 {
		left = min(left, timeout/2)
	}
	if left < leastWait {
		wait = fmt.Sprintf(" WAIT %dms", max(0, left.Milliseconds()))
	}
	if q.ref != 0 {
		return fmt.Sprintf("LOCK %s WHERE %s USING LOCK %d%s", q.key.Table, q.key.Where, q.ref, wait)
	}
	if q.Wait <= 0 && !q.Forever && !q.queued {
		wait = " NOWAIT"
	}
	text := fmt.Sprintf("LOCK %s WHERE %s%s TOKEN %s", q.key.Table, q.key.Where, wait, q.token)
	if q.Lease > 0 {
		text += fmt.Sprintf(" LEASE %dms", q.Lease.Milliseconds())
	}
	if q.As != "" {
		text += " AS " + Quote(q.As)
	}
	return text
}

// again returns nil if LOCK should be sent once more, at another proxy if this one does not answer.
func (q *asking) again(ctx context.Context, err error) error {
	if q.over() {
		return err
	}
	if Answered(err) {
		if !passing(err) {
			return err
		}
		Pause(ctx, askPause)
		return nil
	}
	if err := q.session.Next(ctx); err != nil {
		if errors.Is(err, ErrLogin) {
			return err
		}
		Pause(ctx, askPause)
	}
	return nil
}

// passing reports whether the proxy's answer is about a temporary state.
func passing(err error) bool {
	return strings.Contains(err.Error(), "MUSIC_UNAVAILABLE") || code(err) == gocql.ErrCodeOverloaded
}

// leave releases the place in the queue. If its reference is not known, it requests that first.
func (q *asking) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), giveUpTime)
	defer cancel()
	q.Forever, q.until = false, 0
	for q.queued && q.ref == 0 && ctx.Err() == nil {
		g, err := q.session.ask(ctx, q.statement())
		if err != nil && !passing(err) {
			return
		}
		q.ref = g.Ref
		Pause(ctx, askPause/10)
	}
	if q.ref != 0 {
		_, _ = q.session.ask(ctx, unlockText(q.key, q.ref)) // a place of which it does not hear is passed over
	}
}

// unlockText returns the UNLOCK of a reference.
func unlockText(k Key, ref int64) string {
	return fmt.Sprintf("UNLOCK %s WHERE %s USING LOCK %d", k.Table, k.Where, ref)
}

// Renew renews the lease, at another proxy if this one does not answer. An ErrLost is final; after
// any other error it may be called again.
func (h *Held) Renew(ctx context.Context) (end time.Duration, err error) {
	if h.silent {
		if err := h.session.Next(ctx); err != nil {
			return 0, err
		}
	}
	begun := Boottime()
	g, err := h.session.ask(ctx, fmt.Sprintf("LOCK %s WHERE %s USING LOCK %d NOWAIT", h.key.Table, h.key.Where, h.Ref))
	h.silent = err != nil && !Answered(err)
	if err = renewed(g, err); err != nil {
		return 0, err
	}
	h.End = begun + g.Lease
	return h.End, nil
}

// errNotYet is the error of a renewal at a proxy that does not have the lock yet.
var errNotYet = errors.New("this proxy does not have the lock yet")

// renewed returns why an answer to LOCK with a reference is not a renewal, or nil. QUEUED is the
// answer if this proxy is taking the lock over from a dead session: the reference stays valid.
func renewed(g Grant, err error) error {
	switch {
	case err == nil && g.State == "HELD":
		return nil
	case err == nil && g.State == "QUEUED":
		return errNotYet
	case err == nil, lostBy(err):
		return ErrLost
	}
	return err
}

// lostBy reports whether the proxy says that a reference does not hold its lock.
func lostBy(err error) bool {
	return strings.Contains(err.Error(), "MUSIC_NOT_HELD") || strings.Contains(err.Error(), "MUSIC_LOST")
}

// released returns why an answer to UNLOCK is no release, or nil.
func released(g Grant, err error) error {
	switch {
	case err == nil && g.Applied:
		return nil
	case err == nil, lostBy(err):
		return ErrLost
	}
	return err
}

// Release unlocks, at another proxy if this one does not answer. It returns an ErrLost if the lock
// was lost before.
func (h *Held) Release(ctx context.Context) error {
	for {
		g, err := h.session.ask(ctx, unlockText(h.key, h.Ref))
		err = released(g, err)
		switch {
		case err == nil, errors.Is(err, ErrLost):
			return err
		case ctx.Err() != nil, Answered(err) && !passing(err):
			return err
		case !Answered(err):
			_ = h.session.Next(ctx) // the next UNLOCK tells
		}
		if !Pause(ctx, askPause) {
			return err
		}
	}
}

// Pause waits, and returns false if ctx has ended.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
