package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
)

// API is the Client API of the homing service, as far as it is about jobs: it keeps a pool of them full.
type API struct {
	*client
	Pending int           // jobs that are not done at a time
	Pause   time.Duration // between two looks at them

	jobs int
}

// NewAPI returns the API with a number that no other process has.
func NewAPI(s System, id int, t Tell, pending int, pause time.Duration) *API {
	return &API{client: newClient(s, id, t), Pending: pending, Pause: pause}
}

// pending is a job that was submitted.
type pending struct {
	key      string
	at       time.Duration
	deleting bool // it was DONE
}

// Run submits jobs until ctx ends, and returns when all of them are done and deleted.
func (a *API) Run(ctx context.Context) {
	var pool []*pending
	late := context.WithoutCancel(ctx)
	for ctx.Err() == nil || len(pool) > 0 {
		for ctx.Err() == nil && len(pool) < a.Pending {
			pool = append(pool, a.submit(late))
		}
		pool = slices.DeleteFunc(pool, func(p *pending) bool { return a.complete(late, p) })
		section.Rest(late, a.Pause)
	}
}

// submit makes a key, and returns when that is certain.
func (a *API) submit(ctx context.Context) *pending {
	a.jobs++
	p := &pending{at: judge.Now(), key: fmt.Sprintf("%s-%d-%d", time.Now().UTC().Format("20060102T150405.000000000"), a.id, a.jobs)}
	job := Job{Description: fmt.Sprintf("service chain %d: 100 km, 1 Gbit/s", a.jobs), By: fmt.Sprintf("%d.%d", a.id, a.jobs)}
	value := job.String()
	for a.recorder.Outside(p.key, value, func() error { return a.Plain.Put(ctx, p.key, []byte(value)) }) != nil {
		section.Rest(ctx, a.Pause)
	}
	return p
}

// complete deletes a job that is done, and reports whether it is gone.
func (a *API) complete(ctx context.Context, p *pending) bool {
	value, err := a.Plain.Get(ctx, p.key)
	switch job, bad := jobOf(value); {
	case p.deleting && errors.Is(err, section.ErrNoValue): // its answer did not come
	case err != nil || bad != nil || !job.done():
		return false
	default:
		p.deleting = true
		if a.recorder.Outside(p.key, "", func() error { return a.Plain.Delete(ctx, p.key) }) != nil {
			return false
		}
	}
	a.tell.event(Event{What: Completed, Client: a.id, Key: p.key, From: p.at, To: judge.Now()})
	return true
}
