// Package section is what all systems of the evaluation have in common: a critical section over one
// key. A system is set up by its own package; the experiments and the safety table know it as a
// Client.
package section

import (
	"context"
	"errors"
	"time"
)

// ErrLost is the answer where a system itself says that the section has ended, so that the
// operation was not carried out, or where it cannot tell any more whether it is still held.
var ErrLost = errors.New("the section is lost")

// ErrNoValue is the answer of Get to a key that nothing was ever put under.
var ErrNoValue = errors.New("no value")

// Client is one process that uses a system. Its methods may be called from several goroutines.
type Client interface {
	// Enter waits until the key is held, or until ctx ends.
	Enter(ctx context.Context, key string) (Held, error)
	// Close gives back what the client holds open. It does not leave the sections that it has
	// entered: for a system it is the death of a process.
	Close()
}

// Held is a key in the hands of one client. It is used by one goroutine at a time.
type Held interface {
	// Get returns the value, or ErrNoValue.
	Get(ctx context.Context) ([]byte, error)
	// Put returns nil once the value has been written. Any other error than ErrLost leaves open
	// whether it was, or will be.
	Put(ctx context.Context, value []byte) error
	// Leave ends the section.
	Leave(ctx context.Context) error
}

// Trier is a Client that can say at once that a key is not free.
type Trier interface {
	// TryEnter returns false, and no error, where another holds the key.
	TryEnter(ctx context.Context, key string) (Held, bool, error)
}

// Forcer is a Client that can end the section of another.
type Forcer interface {
	// Force ends the section of whoever holds the key now.
	Force(ctx context.Context, key string) error
}

// Renewer is a Held that ends by itself unless it is renewed.
type Renewer interface {
	// Renew returns ErrLost where the section has ended.
	Renew(ctx context.Context) error
}

// Token is a Held whose fencing token rises with each section of its key.
type Token interface {
	Token() int64
}

// Pipeliner is a Held that can send a put before the one before it has been answered.
type Pipeliner interface {
	// PutMany puts all values, the last one last. An error leaves open which of them were written.
	PutMany(ctx context.Context, values [][]byte) error
}

// Rest waits for d, or until ctx ends.
func Rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
