package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
)

// Job is what a job's key holds: its execution state and its description.
type Job struct {
	State       int    `json:"state"` // an index of States
	Description string `json:"description"`
	By          string `json:"by"` // who put it, so that no value is put twice
}

// States are those of a job, in their order; the last is DONE.
func States() []string { return []string{"template", "translated", "solved", "reserved", "DONE"} }

// done reports whether nothing is left to do.
func (j Job) done() bool { return j.State >= len(States())-1 }

// String returns the job as it is stored.
func (j Job) String() string {
	b, _ := json.Marshal(j) // text and a number
	return string(b)
}

// jobOf reads a value.
func jobOf(value []byte) (j Job, err error) {
	if err := json.Unmarshal(value, &j); err != nil {
		return j, fmt.Errorf("a job's value %q: %w", value, err)
	}
	return j, nil
}

// Worker executes jobs.
type Worker struct {
	*client
	Work  time.Duration // that each state takes
	Pause time.Duration // between two looks at the pool

	puts int
}

// NewWorker returns the worker with a number that no other process has.
func NewWorker(s System, id int, t Tell, work, pause time.Duration) *Worker {
	return &Worker{client: newClient(s, id, t), Work: work, Pause: pause}
}

// Run looks after the pool until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	for ctx.Err() == nil {
		keys, _ := w.Plain.Keys(ctx) // none this time
		for _, key := range keys {
			w.visit(ctx, key)
		}
		section.Rest(ctx, w.Pause)
	}
}

// visit executes a job if it is not done, and nobody else is at it. What fails is left to whoever comes next.
func (w *Worker) visit(ctx context.Context, key string) {
	value, err := w.Plain.Get(ctx, key)
	if err != nil {
		return
	}
	if job, err := jobOf(value); err != nil || job.done() {
		return
	}
	h, err := w.try(ctx, key)
	if err != nil || h == nil {
		return
	}
	if w.execute(ctx, key, h) == nil {
		_ = h.Leave(ctx) // otherwise its lease ends it
	}
}

// execute leads a job from its latest state to the last.
func (w *Worker) execute(ctx context.Context, key string, h *held) error {
	value, err := h.Get(ctx)
	if err != nil || value == nil { // deleted meanwhile
		return err
	}
	job, err := jobOf(value)
	if err != nil {
		return err
	}
	for !job.done() {
		if err := w.perform(ctx, h, Event{What: Executed, Client: w.id, Section: h.token(), Key: key, Number: job.State}); err != nil {
			return err
		}
		w.puts++
		job.State, job.By = job.State+1, fmt.Sprintf("%d.%d", w.id, w.puts)
		if err := h.Put(ctx, []byte(job.String())); err != nil {
			return err
		}
	}
	return nil
}

// piece is how long a worker works before it looks up.
const piece = 5 * time.Millisecond

// perform works on a state. What it tells as executed was done while the section was held as far as the worker can know.
func (w *Worker) perform(ctx context.Context, h *held, e Event) error {
	began := judge.Now()
	renewed := began
	for judge.Now()-began < w.Work {
		e.From = judge.Now()
		if !h.at(e.From) {
			return section.ErrLost
		}
		section.Rest(ctx, min(piece, w.Work))
		if e.To = judge.Now(); !h.at(e.To) || ctx.Err() != nil {
			return errors.Join(section.ErrLost, ctx.Err())
		}
		w.tell.event(e)
		if h.lease == 0 || e.To-renewed < h.lease/3 {
			continue
		}
		if err := h.renew(ctx); err != nil {
			return err
		}
		renewed = judge.Now()
	}
	return nil
}
