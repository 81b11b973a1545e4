package service

import (
	"context"
	"time"

	"music/integration/evaluate/section"
)

// Sections are what the services do under a lock.
type Sections interface {
	section.Client
	section.Trier
	// Preempt ends the section with a token: MUSIC's forcedRelease. It does nothing where that section has ended, and
	// leaves every other as it is.
	Preempt(ctx context.Context, key string, token int64) error
}

// Plain is what the services do without a lock.
type Plain interface {
	// Keys returns all keys in their order; it may miss what is new.
	Keys(ctx context.Context) ([]string, error)
	// Get returns a value, which may be stale, or section.ErrNoValue.
	Get(ctx context.Context, key string) ([]byte, error)
	// Put writes. It never lands on top of what a section has put: there it does nothing.
	Put(ctx context.Context, key string, value []byte) error
	// Delete takes a key away.
	Delete(ctx context.Context, key string) error
}

// System is a store as the services use it.
type System struct {
	Sections Sections
	Plain    Plain
	// Lease is how long a section is kept for a holder that is silent, counted from when it called the last
	// operation that was acknowledged. 0: the system promises nothing.
	Lease time.Duration
	Close func()
}
