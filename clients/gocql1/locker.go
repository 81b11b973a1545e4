package music

import (
	"context"
	"errors"

	"github.com/gocql/gocql"
)

// Locker is a lock as a sync.Locker, for code that takes one. It is one client of the lock: a
// second Lock waits for its Unlock, as it would for another process. Use Hold where errors can be
// returned.
type Locker struct {
	session *gocql.Session
	ask     Ask
	turn    chan struct{} // full while it is locked here
	lock    *Lock
}

// NewLocker returns a Locker that is not locked.
func NewLocker(s *gocql.Session, a Ask) *Locker {
	return &Locker{session: s, ask: a, turn: make(chan struct{}, 1)}
}

// Lock waits for the lock as long as it takes. It never returns without the lock: it panics if
// waiting cannot help, for example at an address that is not a proxy's.
func (l *Locker) Lock() {
	for {
		_, err := l.LockContext(context.Background())
		if err == nil {
			return
		}
		if !errors.Is(err, ErrNotAcquired) {
			panic(err)
		}
	}
}

// LockContext is Lock until ctx ends, or until the Wait of the Ask is over. It returns the context
// that Hold returns.
func (l *Locker) LockContext(ctx context.Context) (context.Context, error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.Join(ErrNotAcquired, context.Cause(ctx))
	}
	lock, held, err := Hold(ctx, l.session, l.ask)
	if err != nil {
		<-l.turn
		return nil, err
	}
	l.lock = lock
	return held, nil
}

// Held returns the lock between Lock and Unlock.
func (l *Locker) Held() *Lock { return l.lock }

// Unlock releases the lock. It panics if the lock was lost before: another client may have worked
// at the same time.
func (l *Locker) Unlock() {
	lock := l.lock
	if lock == nil {
		panic("music: Unlock of a Locker that is not locked")
	}
	err := lock.Release()
	l.lock = nil
	<-l.turn
	if errors.Is(err, ErrLost) {
		panic(err)
	}
}
