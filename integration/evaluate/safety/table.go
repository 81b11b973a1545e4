package safety

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"music/integration/evaluate/judge"
)

// Options say which part of the table to fill. The zero value fills all of it.
type Options struct {
	Systems, Faults []string // by name; none: all
	Tries           int      // of each cell at most, until the first violation; default 3
	Seed            uint64   // of the first try, the next one's is one more; default 1
	Out             string   // directory of the page, of its JSON and of the histories
	Log             io.Writer
}

// Cell is what has come of a system under a fault, with the tries of all runs.
type Cell struct {
	System, Fault string
	Verdict       Verdict
	Tries         int
	Sections      int      // entered in all tries
	Blocked       int      // tries in which nobody got in
	Failed        string   `json:",omitempty"` // why a try could not be carried out
	Seed          uint64   `json:",omitempty"` // of the first violation
	Violations    []string `json:",omitempty"` // of that try, by name
	History       string   `json:",omitempty"` // its file
}

// table is what is kept.
type table struct {
	When  string
	Cells []Cell
}

// Run carries out trials and writes the table to safety.json and safety.md in o.Out. Cells of other
// systems and faults that are there stay.
func Run(ctx context.Context, o Options) (err error) {
	o.Tries, o.Seed = cmp.Or(o.Tries, 3), cmp.Or(o.Seed, 1)
	if o.Log == nil {
		o.Log = io.Discard
	}
	systems, err := chosen(Systems(), o.Systems, func(s System) string { return s.Name })
	if err != nil {
		return err
	}
	faults, err := chosen(Faults(), o.Faults, func(f Fault) string { return f.Name })
	if err != nil {
		return err
	}
	kept, err := load(o.Out)
	if err != nil {
		return err
	}
	w, err := build(ctx, o.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for _, f := range faults {
		cells, err := tries(ctx, w, f, systems, o)
		if err != nil {
			return err
		}
		kept.put(cells)
		kept.When = time.Now().UTC().Format(time.DateOnly)
		if err := kept.save(o.Out); err != nil {
			return err
		}
	}
	return nil
}

// chosen returns those of a name, or all.
func chosen[T any](all []T, names []string, name func(T) string) (some []T, err error) {
	if len(names) == 0 {
		return all, nil
	}
	for _, n := range names {
		i := slices.IndexFunc(all, func(x T) bool { return name(x) == n })
		if i < 0 {
			return nil, fmt.Errorf("nothing is called %q", n)
		}
		some = append(some, all[i])
	}
	return some, nil
}

// tries carries out a fault's trials, of all systems at a time that it has not broken yet.
func tries(ctx context.Context, w *world, f Fault, systems []System, o Options) ([]Cell, error) {
	cells := make([]Cell, len(systems))
	for i, s := range systems {
		cells[i] = Cell{System: s.Name, Fault: f.Name, Verdict: Held}
	}
	for try := range o.Tries {
		seed := o.Seed + uint64(try)
		var all []*trial
		var of []*Cell
		for i, s := range systems {
			if cells[i].Verdict != Violated {
				key := fmt.Sprintf("%s %s %d %d", s.Name, f.Name, seed, time.Now().UnixNano())
				all = append(all, &trial{world: w, fault: f, system: s, seed: seed, key: key, clients: map[int]*process{}})
				of = append(of, &cells[i])
			}
		}
		if len(all) == 0 {
			break
		}
		fmt.Fprintf(o.Log, "%s, seed %d: %d systems\n", f.Name, seed, len(all))
		if err := play(ctx, w, f, all); err != nil {
			return nil, err
		}
		for i, t := range all {
			if err := of[i].judge(t, o.Out); err != nil {
				return nil, err
			}
			fmt.Fprintf(o.Log, "  %-24s %-8s %3d sections %v %s\n", t.system.Name, of[i].Verdict, t.history.Count(judge.Enter, judge.Done), of[i].Violations, of[i].Failed)
		}
	}
	return cells, nil
}

// judge adds a trial to the cell. The history of a violation is kept.
func (c *Cell) judge(t *trial, out string) error {
	if t.err != nil {
		c.Failed = t.err.Error()
		return nil
	}
	c.Tries++
	c.Sections += t.history.Count(judge.Enter, judge.Done)
	if t.blocked {
		c.Blocked++
		c.Verdict = Blocked
	}
	violations := t.history.Check()
	if len(violations) == 0 {
		return nil
	}
	c.Verdict, c.Seed = Violated, t.seed
	var story strings.Builder
	for _, v := range violations {
		if !slices.Contains(c.Violations, string(v.Fault)) {
			c.Violations = append(c.Violations, string(v.Fault))
		}
		story.WriteString(v.String() + "\n")
	}
	story.WriteString("\nAll of the history:\n")
	for _, o := range t.history.Ops() {
		story.WriteString("\t" + o.String() + "\n")
	}
	c.History = "safety/" + strings.NewReplacer(" ", "-", ",", "").Replace(c.System+" "+c.Fault) + ".txt"
	if err := os.MkdirAll(filepath.Join(out, "safety"), 0o755); err != nil { //nolint:gosec // a report is for everybody
		return fmt.Errorf("keep a history: %w", err)
	}
	return os.WriteFile(filepath.Join(out, c.History), []byte(story.String()), 0o644) //nolint:gosec // a report is for everybody
}

// load reads the table that an earlier run has left.
func load(out string) (t table, err error) {
	text, err := os.ReadFile(filepath.Join(out, "safety.json"))
	if errors.Is(err, os.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err != nil {
		return t, fmt.Errorf("read the table: %w", err)
	}
	return t, nil
}

// put replaces cells.
func (t *table) put(cells []Cell) {
	for _, c := range cells {
		i := slices.IndexFunc(t.Cells, func(old Cell) bool { return old.System == c.System && old.Fault == c.Fault })
		if i < 0 {
			t.Cells = append(t.Cells, c)
		} else {
			t.Cells[i] = c
		}
	}
}

// save writes the table and its page.
func (t *table) save(out string) error {
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return fmt.Errorf("save the table: %w", err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil { //nolint:gosec // a report is for everybody
		return fmt.Errorf("save the table: %w", err)
	}
	for name, text := range map[string]string{"safety.json": string(text) + "\n", "safety.md": t.page()} {
		if err := os.WriteFile(filepath.Join(out, name), []byte(text), 0o644); err != nil { //nolint:gosec // a report is for everybody
			return fmt.Errorf("save the table: %w", err)
		}
	}
	return nil
}
