// Package section is what all systems of the evaluation have in common: a critical section of one
// key. A system is set up by its own package; the experiments and the safety table use it as a
// Client.
package section

import (
	"context"
	"errors"
	"time"
)

// ErrLost is returned if the system itself reports that the section has ended, so that the
// operation was not executed, or if it cannot know any more whether the section is still held.
var ErrLost = errors.New("the section is lost")

// ErrNoValue is returned by Get for a key that has never had a put.
var ErrNoValue = errors.New("no value")

// Client is one process that uses a system. Its methods may be called from several goroutines.
type Client interface {
	// Enter waits until the key is held, or until ctx ends.
	Enter(ctx context.Context, key string) (Held, error)
	// Close closes the client's connections. It does not leave its sections: for a system it is
	// like the death of a process.
	Close()
}

// Held is a key held by one client. Only one goroutine may use it at a time.
type Held interface {
	// Get returns the value, or ErrNoValue.
	Get(ctx context.Context) ([]byte, error)
	// Put returns nil when the value has been written. After any error but ErrLost the value may
	// have been written, or may still be.
	Put(ctx context.Context, value []byte) error
	// Leave ends the section.
	Leave(ctx context.Context) error
}

// Trier is a Client that can report at once that a key is not free.
type Trier interface {
	// TryEnter returns false, and no error, if another client holds the key.
	TryEnter(ctx context.Context, key string) (Held, bool, error)
}

// Taker is a Client that can ask for several keys in one statement.
type Taker interface {
	// TakeFree enters those of the keys that nobody else holds, and returns them by name.
	TakeFree(ctx context.Context, keys []string) (map[string]Held, error)
}

// Forcer is a Client that can end the section of another client.
type Forcer interface {
	// Force ends the section of the present holder of the key.
	Force(ctx context.Context, key string) error
}

// Renewer is a Held that ends by itself unless it is renewed.
type Renewer interface {
	// Renew returns ErrLost if the section has ended.
	Renew(ctx context.Context) error
}

// Token is a Held whose fencing token rises with each section of its key.
type Token interface {
	Token() int64
}

// Pipeliner is a Held that can send a put before the one before it has been answered.
type Pipeliner interface {
	// PutMany puts all values, the last one last. After an error, any of them may have been
	// written.
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
