package music

import (
	"context"
	"errors"

	"github.com/gocql/gocql"
)

// Locker is a lock as a sync.Locker, for code that takes one. It is one holder among others: a second Lock waits for its Unlock, like another
// process. Where errors can be told, use Hold.
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

// Lock waits for the lock for as long as it takes. It panics where waiting does not help, as at an address that is no proxy's: it never
// returns without the lock.
func (l *Locker) Lock() {
	for {
		_, err := l.LockContext(context.Background())
		if err == nil {
			return
		}
		if !errors.Is(err, ErrNotHad) {
			panic(err)
		}
	}
}

// LockContext is Lock until ctx ends, or the Ask's Wait is over. The context that it returns is that of Hold.
func (l *Locker) LockContext(ctx context.Context) (context.Context, error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.Join(ErrNotHad, context.Cause(ctx))
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

// Unlock gives the lock back. It panics where the lock was lost before: what was done under it was perhaps not done alone.
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
