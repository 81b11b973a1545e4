package safety

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
)

// Verdict is the result of a system under a fault.
type Verdict string

// The verdicts, the worst first.
const (
	Violated Verdict = "violated" // entry consistency was broken
	Blocked  Verdict = "blocked"  // nobody got in
	Held     Verdict = "held"
)

// trial is one system under one fault, once. All trials of a fault run at the same time, each with
// a key and clients of its own.
type trial struct {
	world   *world
	fault   Fault
	system  System
	seed    uint64
	key     string
	commit  string // of the product
	history judge.History
	clients map[int]*process
	blocked bool
	err     error // it could not be carried out
}

// told returns why a trial tells nothing but the violations in its history: it could not be carried out, or a client had no
// connection, so that nobody knows whether it was the system that kept it out.
func (t *trial) told() error {
	if t.err != nil {
		return t.err
	}
	for _, k := range slices.Sorted(maps.Keys(t.clients)) {
		if absent := t.clients[k].absent; absent != "" {
			return fmt.Errorf("client %d %s", k, absent)
		}
	}
	return nil
}

// errLate is why a trial tells nothing whose clients were not connected in time.
var errLate = errors.New("a client was not connected within a minute")

// meet waits until all clients that were started have said whether they are connected.
func meet(ctx context.Context, all []*trial) {
	for _, t := range await(ctx, all, meeting, (*trial).met) {
		t.err = errLate
	}
}

// let lets clients begin that were started.
func (t *trial) let(clients ...int) error {
	for _, k := range clients {
		t.clients[k].tell("go")
	}
	return nil
}

// did reports whether a client has an acknowledged operation of a kind that was called after a
// time.
func (t *trial) did(k int, kind judge.Kind, after time.Duration) bool {
	for _, o := range t.history.Ops() {
		if o.Client == k && o.Kind == kind && o.Outcome == judge.Done && o.Called > after {
			return true
		}
	}
	return false
}

// each calls do for every trial that has not ended.
func each(all []*trial, do func(*trial) error) {
	for _, t := range all {
		if t.err == nil {
			t.err = do(t)
		}
	}
}

// await waits, within a limit, until a condition holds for every trial, and returns those for which
// it does not.
func await(ctx context.Context, all []*trial, limit time.Duration, holds func(*trial) bool) (rest []*trial) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for tick := time.Tick(100 * time.Millisecond); ; {
		rest = nil
		for _, t := range all {
			if t.err == nil && !holds(t) {
				rest = append(rest, t)
			}
		}
		if len(rest) == 0 {
			return nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return rest
		}
	}
}

// visitor is the client, beside site 2, that comes last.
const visitor = 5

// Spans of a trial.
const (
	meeting  = time.Minute      // until clients are connected, which is no part of what a system is judged by
	opening  = 40 * time.Second // until the first section is under way
	takeOver = 6 * Lease        // until another has entered after the holder is gone
	struck   = 8 * time.Second  // how long a fault that is not the holder's lasts
	settling = 5 * time.Second  // what is watched after a fault was mended
	lastLook = 30 * time.Second // until somebody new has entered
)

// play implements stage.
func (w *world) play(ctx context.Context, f Fault, all []*trial) error {
	for _, t := range all {
		t.world = w
	}
	script := takeAway
	if f.turns {
		script = takeTurns
	}
	defer func() {
		for _, t := range all {
			for _, p := range t.clients {
				p.end()
			}
		}
	}()
	if err := script(ctx, w, f, all); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	began := judge.Now()
	each(all, func(t *trial) error { return t.start(visitor, looks) })
	meet(ctx, all)
	each(all, func(t *trial) error { return t.let(visitor) })
	for _, t := range await(ctx, all, lastLook, func(t *trial) bool { return t.did(visitor, judge.Get, began) }) {
		t.blocked = true
	}
	return ctx.Err()
}

// takeAway has client 1 hold a key and two others wait for it when the fault begins.
func takeAway(ctx context.Context, w *world, f Fault, all []*trial) error {
	if f.first {
		if err := f.strike(ctx, w, all); err != nil {
			return err
		}
	}
	each(all, func(t *trial) error { return errors.Join(t.start(1, holds), t.start(2, takes), t.start(3, takes)) })
	meet(ctx, all)
	each(all, func(t *trial) error { return t.let(1) })
	for _, t := range await(ctx, all, opening, func(t *trial) bool { return t.did(1, judge.Put, 0) }) {
		t.blocked = true
	}
	began := judge.Now()
	each(all, func(t *trial) error { return t.let(2, 3) })
	section.Rest(ctx, instant(all)+time.Second) // others wait now
	if !f.first {
		if err := f.strike(ctx, w, all); err != nil {
			return err
		}
	}
	at := time.Now()
	if f.stays {
		section.Rest(ctx, Lease)
		each(all, func(t *trial) error { t.clients[1].tell("stop"); return nil })
	}
	for _, t := range await(ctx, all, takeOver, func(t *trial) bool { return t.did(2, judge.Get, began) || t.did(3, judge.Get, began) }) {
		t.blocked = true
	}
	section.Rest(ctx, f.after-time.Since(at))
	section.Rest(ctx, time.Second)
	if err := f.mend(ctx, w, all); err != nil {
		return err
	}
	section.Rest(ctx, settling)
	each(all, func(t *trial) error { t.clients[2].tell("work"); t.clients[3].tell("work"); return nil })
	section.Rest(ctx, settling)
	stop(ctx, all)
	return nil
}

// instant returns a time of up to a second that depends on the seed.
func instant(all []*trial) time.Duration {
	return time.Duration(random(all[0].seed).Int64N(int64(time.Second)))
}

// stop has all clients leave.
func stop(ctx context.Context, all []*trial) {
	each(all, func(t *trial) error {
		for _, p := range t.clients {
			p.tell("stop")
		}
		return nil
	})
	section.Rest(ctx, time.Second)
}

// takeTurns has three clients do section after section during the fault.
func takeTurns(ctx context.Context, w *world, f Fault, all []*trial) error {
	each(all, func(t *trial) error {
		for k := 1; k <= sites; k++ {
			if err := t.start(k, loops); err != nil {
				return err
			}
		}
		return nil
	})
	meet(ctx, all)
	each(all, func(t *trial) error { return t.let(1, 2, 3) })
	for _, t := range await(ctx, all, opening, func(t *trial) bool {
		return t.did(1, judge.Leave, 0) || t.did(2, judge.Leave, 0) || t.did(3, judge.Leave, 0)
	}) {
		t.blocked = true
	}
	section.Rest(ctx, instant(all))
	if err := f.strike(ctx, w, all); err != nil {
		return err
	}
	section.Rest(ctx, struck)
	if err := f.mend(ctx, w, all); err != nil {
		return err
	}
	section.Rest(ctx, settling)
	stop(ctx, all)
	return nil
}
