// Package music holds locks of MUSIC proxies in an ordinary gocql session. A lock is renewed in the background, reported as lost before
// its lease can be over, and always released in the end. docs/clients.md has the rules, which are the same in every language.
package music

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// Why a lock was not granted or is lost, or a statement is not sent.
var (
	ErrNotAcquired = errors.New("the lock was not acquired")
	ErrLost        = errors.New("the lock is lost")
	ErrNoProxy     = errors.New("what answers is no MUSIC proxy: connect to a proxy, not to Cassandra itself")
	errTaken       = fmt.Errorf("%w: it is held", ErrNotAcquired) // a proxy has said so
	errNoMarker    = errors.New("the statement has no USING LOCK ?")
)

// Parts of a lease, and times.
const (
	renewPart   = 3                // it is renewed after a third
	lostPart    = 5                // it is reported as lost when a fifth is left
	tickPart    = 20               // it is checked each twentieth
	longestPace = 30 * time.Second // a longer lease is renewed as often as this one: see pace
	defaultWait = 10 * time.Second
	longestAsk  = 1500 * time.Millisecond // the longest WAIT: no driver times out before, and every proxy allows it
	pause       = 200 * time.Millisecond  // between two LOCKs, and after an answer that the proxy cannot serve now
	giveUpTime  = 2 * time.Second         // for leaving the queue, and for UNLOCK
)

// Key gives a value to each column of the key to lock.
type Key map[string]any

// Ask says which lock to take, and how.
type Ask struct {
	Table string // keyspace.table
	Key   Key
	Wait  time.Duration // how long to wait at most; 0 = 10 s
	Lease time.Duration // the lock is lost after this time without a statement; 0 = the table's
	As    string        // a name for people to read
}

// Lock is held from Hold to Release. It may be used by several goroutines.
type Lock struct {
	Token     int64 // the lock reference: larger than that of every holder before
	OwnerDied bool  // the holder before did not release it: its work may be half done

	session *gocql.Session
	key     key
	end     context.CancelCauseFunc // of the section's context
	stop    chan struct{}           // closed by Release
	stopped chan struct{}           // closed by keep

	mu       sync.Mutex
	begun    time.Time // before the last grant or renewal was sent
	lease    time.Duration
	lost     bool
	release  sync.Once
	releases error
}

// Hold waits for a lock and returns it with a context for the work under it. That context ends with
// ctx and at Release, and with the cause ErrLost when the lock is lost, before its lease is over. The
// error is ErrNotAcquired if another client has the lock.
func Hold(ctx context.Context, s *gocql.Session, a Ask) (*Lock, context.Context, error) {
	return hold(ctx, s, a, false)
}

// TryHold is Hold for a lock that nobody holds or waits for; otherwise it returns ErrNotAcquired at
// once.
func TryHold(ctx context.Context, s *gocql.Session, a Ask) (*Lock, context.Context, error) {
	return hold(ctx, s, a, true)
}

// Do calls work under a lock and releases the lock afterwards, even if work panics. If the lock was
// lost and work returned no error, the error is ErrLost.
func Do(ctx context.Context, s *gocql.Session, a Ask, work func(context.Context, *Lock) error) error {
	lock, held, err := Hold(ctx, s, a)
	if err != nil {
		return err
	}
	return lock.during(held, work)
}

// Once calls work unless this run of name is done or under way, and reports in ran whether it did.
// The run is done when work has returned without an error.
func Once(ctx context.Context, s *gocql.Session, name, run string, work func(context.Context, *Lock) error) (ran bool, err error) {
	lock, held, err := TryHold(ctx, s, Ask{Table: "music.named", Key: Key{"name": name}})
	if errors.Is(err, errTaken) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	err = lock.during(held, func(ctx context.Context, lock *Lock) error {
		marked := func(ctx context.Context) (bool, error) {
			var last string
			err := s.Bind("SELECT value FROM music.named WHERE name = ? USING LOCK ?", lock.Bind(name)).ScanContext(ctx, &last)
			if errors.Is(err, gocql.ErrNotFound) {
				err = nil
			}
			return last == run, err
		}
		if done, err := marked(ctx); done || err != nil {
			return err
		}
		ran = true
		if err := work(ctx, lock); err != nil {
			return err
		}
		for {
			there, err := lock.Settle(ctx, func(ctx context.Context) error {
				return s.Bind("UPDATE music.named USING LOCK ? SET value = ? WHERE name = ?", lock.Bind(run, name)).ExecContext(ctx)
			}, marked)
			if there || err != nil {
				return err
			}
		}
	})
	return ran, err
}

// during runs a section from its grant to its end.
func (l *Lock) during(ctx context.Context, work func(context.Context, *Lock) error) (err error) {
	defer func() {
		if released := l.Release(); err == nil && errors.Is(released, ErrLost) {
			err = released
		}
	}()
	return work(ctx, l)
}

// Bind gives a statement its values: session.Bind(statement, lock.Bind(70, "x")), and the same in a
// batch. It adds the token for USING LOCK ?. A statement without that clause is refused, and so is
// every statement once the lock is lost.
func (l *Lock) Bind(values ...any) func(*gocql.QueryInfo) ([]any, error) {
	return func(q *gocql.QueryInfo) ([]any, error) {
		if l.Lost() {
			return nil, ErrLost
		}
		for i, marker := range q.Args {
			if marker.Name == "[lock]" && i <= len(values) {
				return append(append(append([]any{}, values[:i]...), l.Token), values[i:]...), nil
			}
		}
		return nil, errNoMarker
	}
}

// Lost reports whether the lock is lost, or may be so soon.
func (l *Lock) Lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost || l.left() <= 0
}

// left returns what is left of the lease by the client's own clocks. l.mu must be held.
func (l *Lock) left() time.Duration { return l.lease - elapsed(l.begun) }

// pace returns the lease by which renewals are timed. Where the proxy of a lock ends, others give the
// lock to the next client some seconds later, unless its holder has spoken to one of them.
func (l *Lock) pace() time.Duration { return min(l.lease, longestPace) }

// elapsed returns the time since a moment: by the monotonic clock or by the wall clock, which goes
// on while the machine sleeps, whichever shows more.
func elapsed(since time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// Settle calls write. If the outcome of the write is unknown, it calls landed, which reads under
// the lock: what that read shows is final, if the write had come to a proxy. If the lock is lost or ctx ends
// before that is known, the error says which (ErrLost, or the cause of ctx).
func (l *Lock) Settle(ctx context.Context, write func(context.Context) error, landed func(context.Context) (bool, error)) (bool, error) {
	err := write(ctx)
	if err == nil || !Uncertain(err) {
		return err == nil, err
	}
	why := ErrLost
	for !l.Lost() {
		there, failed := landed(ctx)
		if says(failed, "MUSIC_LOST") {
			break
		}
		if failed == nil || certain(failed) {
			return there, failed
		}
		if ctx.Err() != nil {
			why = context.Cause(ctx)
			break
		}
		rest(ctx)
	}
	return false, fmt.Errorf("%w, and whether this was written is unknown: %w", why, err)
}

// Release releases the lock, and returns ErrLost if it was lost before. After another error the
// lock stays until its lease ends. Release may be called again.
func (l *Lock) Release() error {
	l.release.Do(func() {
		close(l.stop)
		<-l.stopped
		l.end(context.Canceled)
		ctx, cancel := context.WithTimeout(context.Background(), giveUpTime)
		defer cancel()
		l.releases = l.key.unlock(ctx, l.session, l.Token)
		if l.releases != nil && l.Lost() {
			l.releases = ErrLost
		}
	})
	return l.releases
}

// keep renews the lease until Release, or until it cannot.
func (l *Lock) keep(ctx context.Context) {
	defer close(l.stopped)
	renewed := make(chan error, 1)
	renewing, next := false, l.begun.Add(l.pace()/renewPart)
	tick := time.NewTicker(max(l.pace()/tickPart, time.Millisecond))
	defer tick.Stop()
	limited, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		if renewing {
			<-renewed //nolint:errcheck // the lock is over, whatever it says
		}
	}()
	for {
		select {
		case <-l.stop:
			return
		case err := <-renewed:
			renewing = false
			l.mu.Lock()
			next = time.Now().Add(l.pace() / tickPart)
			if err == nil {
				next = l.begun.Add(l.pace() / renewPart)
			}
			l.mu.Unlock()
			if errors.Is(err, ErrLost) {
				l.lose()
			}
		case <-tick.C:
			l.mu.Lock()
			lost, over := l.lost, l.left() <= l.lease/lostPart
			l.mu.Unlock()
			switch {
			case lost:
			case over:
				l.lose()
			case !renewing && time.Now().After(next) && ctx.Err() == nil:
				renewing = true
				go func() { renewed <- l.renew(limited) }()
			}
		}
	}
}

// lose marks the lock as lost, and ends the section's context.
func (l *Lock) lose() {
	l.mu.Lock()
	l.lost = true
	l.mu.Unlock()
	l.end(ErrLost)
}

// renew renews the lease. ErrLost is final; after any other error it may be tried again.
func (l *Lock) renew(ctx context.Context) error {
	limit := l.pace() / 4
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begun := time.Now()
	got, err := l.key.again(ctx, l.session, l.Token, min(longestAsk, limit))
	switch {
	case err == nil && got.state == "HELD":
		l.mu.Lock()
		defer l.mu.Unlock()
		l.begun, l.lease = begun, got.lease
		return nil
	case err == nil && got.state == "LOST", says(err, "MUSIC_LOST"), says(err, "MUSIC_NOT_HELD"):
		return ErrLost
	case err == nil:
		return errors.New(got.state)
	}
	return err
}
