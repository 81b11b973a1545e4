package service

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
)

// client is a process that uses a system, with its operations told.
type client struct {
	System
	id       int
	tell     Tell
	recorder *judge.Recorder
}

// newClient returns the client with a number that no other process has.
func newClient(s System, id int, t Tell) *client {
	return &client{System: s, id: id, tell: t, recorder: judge.Record(s.Sections, id, t.op)}
}

// held is a section with the time until which it is surely held. One goroutine uses it, another may renew it.
type held struct {
	section.Held
	lease time.Duration
	until atomic.Int64 // of judge.Now; without a lease nobody knows
}

// enter waits for a section.
func (c *client) enter(ctx context.Context, key string) (*held, error) {
	at := judge.Now()
	h, err := c.recorder.Enter(ctx, key)
	if err != nil {
		return nil, err
	}
	return c.hold(h, at), nil
}

// try enters where that is possible at once; nil where it is not.
func (c *client) try(ctx context.Context, key string) (*held, error) {
	at := judge.Now()
	h, free, err := c.recorder.TryEnter(ctx, key)
	if err != nil || !free {
		return nil, err
	}
	return c.hold(h, at), nil
}

func (c *client) hold(h section.Held, at time.Duration) *held {
	mine := &held{Held: h, lease: c.Lease}
	mine.renewed(at)
	return mine
}

// renewed notes that the holder was heard of after a time.
func (h *held) renewed(at time.Duration) { h.until.Store(int64(at + h.lease)) }

// at reports whether the section is held at a time as far as its holder can know.
func (h *held) at(now time.Duration) bool { return h.lease == 0 || int64(now) < h.until.Load() }

// token is the fencing token.
func (h *held) token() int64 {
	t, ok := h.Held.(section.Token)
	if !ok {
		return 0
	}
	return t.Token()
}

// Get returns nil where there is no value.
func (h *held) Get(ctx context.Context) ([]byte, error) {
	at := judge.Now()
	v, err := h.Held.Get(ctx)
	if errors.Is(err, section.ErrNoValue) {
		v, err = nil, nil
	}
	if err == nil {
		h.renewed(at)
	}
	return v, err
}

// Put puts.
func (h *held) Put(ctx context.Context, v []byte) error {
	at := judge.Now()
	err := h.Held.Put(ctx, v)
	if err == nil {
		h.renewed(at)
	}
	return err
}

// renew keeps the section where it would end otherwise.
func (h *held) renew(ctx context.Context) error {
	r, ok := h.Held.(section.Renewer)
	if !ok || h.lease == 0 {
		return nil
	}
	at := judge.Now()
	err := r.Renew(ctx)
	if err == nil {
		h.renewed(at)
	}
	return err
}
