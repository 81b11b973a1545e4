package safety

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"music/integration/evaluate/judge"
)

// stage is where trials are played: a world.
type stage interface {
	// play carries out trials of one fault. After an error the stage may be broken.
	play(ctx context.Context, f Fault, all []*trial) error
	// has reports whether there are servers, or a program, of a name; there always is what has none.
	has(need string) bool
	close() error
}

// run is a Run under way.
type run struct {
	o       Options
	systems []System
	table   *table
	commit  string
	build   func(context.Context) (stage, error)
	stage   stage // nil: there is none yet, or it was broken
}

// all tries all cells of some faults, and returns which of them nothing could be told of.
func (r *run) all(ctx context.Context, faults []Fault) (err error) {
	defer func() { err = errors.Join(err, r.leave()) }()
	var void []error
	for _, f := range faults {
		r.prepare(f)
		if !r.wants(f) {
			_, _ = fmt.Fprintf(r.o.Log, "%s: each cell has its tries, or is violated; --again begins them anew\n", f.Name)
		}
		for r.wants(f) {
			if err := r.try(ctx, f); err != nil {
				return err
			}
		}
		for _, s := range r.systems {
			if c := r.table.of(s.Name, f.Name); c.void == mostVoid {
				void = append(void, fmt.Errorf("%s, %s: left after %d tries that told nothing, the last one: %s", s.Name, f.Name, mostVoid, c.Failed))
			}
		}
	}
	return errors.Join(void...)
}

// leave closes the stage, if there is one.
func (r *run) leave() error {
	if r.stage == nil {
		return nil
	}
	was := r.stage
	r.stage = nil
	return was.close()
}

// old reports whether a cell is of the system as it was tried before, or new.
func (c *Cell) old(s System) bool { return c.Settings != s.settings }

// prepare says how often the cells of a fault are to be tried.
func (r *run) prepare(f Fault) {
	for _, s := range r.systems {
		c := r.table.of(s.Name, f.Name)
		c.fresh = r.o.Again || r.o.Seed != 0 || c.old(s)
		switch {
		case c.fresh:
			c.left = max(1, r.o.Tries)
		case c.Verdict == Violated:
			c.left = 0
		case r.o.Tries == 0:
			c.left = 1
		default:
			c.left = max(0, r.o.Tries-c.Tries)
		}
	}
}

// wants reports whether a cell of a fault is still to be tried.
func (r *run) wants(f Fault) bool {
	for _, s := range r.systems {
		if r.table.of(s.Name, f.Name).left > 0 {
			return true
		}
	}
	return false
}

// try runs one trial of each system that is still to be tried, all of them at a time. Where a fault could not be struck or mended, as
// where a node does not start again, the try tells nothing, and the next one has a stage of its own.
func (r *run) try(ctx context.Context, f Fault) (err error) {
	if r.stage == nil {
		if r.stage, err = r.build(ctx); err != nil {
			r.stage = nil // not an interface around nothing
			return err
		}
	}
	all := r.trials(f)
	_, _ = fmt.Fprintf(r.o.Log, "%s: %d systems\n", f.Name, len(all))
	failed := r.stage.play(ctx, f, all)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, t := range all {
		if failed != nil && t.err == nil {
			t.err = failed
		}
		c := r.table.of(t.system.Name, f.Name)
		if err := c.judge(t, r.o.Out); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(r.o.Log, "  %-24s seed %d: %3d sections, blocked %v, %v %s\n", c.System, t.seed, t.history.Count(judge.Enter, judge.Done), t.blocked, c.Violations, c.Failed)
	}
	r.table.When, r.table.Cores, r.table.Load = time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), max(r.table.Load, wanting())
	if err := r.table.save(r.o.Out); err != nil || failed == nil {
		return err
	}
	return r.leave()
}

// trials returns those of the next try. A cell whose servers cannot be had is left.
func (r *run) trials(f Fault) (all []*trial) {
	for _, s := range r.systems {
		c := r.table.of(s.Name, f.Name)
		if c.left > 0 && !r.stage.has(s.need) {
			c.left = 0
			if c.Tries == 0 {
				c.Failed = errNoServer.Error()
			}
		}
		if c.left == 0 {
			continue
		}
		seed := max(1, r.o.Seed)
		if !c.fresh {
			seed += uint64(c.Tries) //nolint:gosec // a small number
		}
		key := fmt.Sprintf("%s %s %d %d", s.Name, f.Name, seed, time.Now().UnixNano())
		all = append(all, &trial{fault: f, system: s, seed: seed, key: key, commit: r.commit, clients: map[int]*process{}})
	}
	return all
}
