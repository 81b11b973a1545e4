package paper

import (
	"context"
	"errors"
	"time"

	"music/integration/evaluate/section"
)

// suspect is the first reference of a queue, and since when this client has seen it there.
type suspect struct {
	ref   int64
	since time.Time
}

// TryEnter is a worker's way (VII-a): CreateLockRef, AcquireLock once, and RemoveLockReference if
// that returns false. No client waits for the key then, so the clients that try must find out
// whether its first has failed.
func (c *Client) TryEnter(ctx context.Context, key string) (section.Held, bool, error) {
	if c.o.Variant == CassaEV {
		return &local{c, key}, true, nil
	}
	ref, err := c.CreateLockRef(ctx, key)
	if err != nil {
		return nil, false, err
	}
	in, err := c.AcquireLock(ctx, key, ref)
	if in && err == nil {
		return &Held{c, key, ref}, true, nil
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	if errors.Is(err, section.ErrLost) {
		err = nil // somebody was faster to find that we have failed
	}
	return nil, false, errors.Join(err, c.RemoveLockReference(after, key, ref), c.detect(ctx, key))
}

// detect releases the first reference of a queue by force if this client has seen it there for
// Options.Patience (IV-B).
func (c *Client) detect(ctx context.Context, key string) error {
	f, err := c.peek(ctx, key)
	if err != nil {
		return err
	}
	if !c.suspects(key, f.ref) {
		return nil
	}
	return c.ForcedRelease(ctx, key, f.ref)
}

// suspects reports whether a reference, unless it is 0, has been the first for too long.
func (c *Client) suspects(key string, ref int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.suspected[key]
	if ref == 0 {
		delete(c.suspected, key)
	} else if s.ref != ref {
		c.suspected[key] = suspect{ref, time.Now()}
	}
	return ref != 0 && s.ref == ref && time.Since(s.since) > c.o.Patience
}
