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
	"music/integration/evaluate/ours"
	"music/integration/evaluate/whole"
)

// Options say which part of the table to fill. The zero value fills all of it.
type Options struct {
	Systems, Faults []string // by name; none: all
	Tries           int      // of each cell at most, until the first violation; default 3
	Seed            uint64   // of the first try, the next one's is one more; with it cells begin anew. Default: they go on
	Out             string   // directory of the page, of its JSON and of the histories
	Log             io.Writer
}

// Cell is the result of a system under a fault, over the trials of all runs.
type Cell struct {
	System, Fault string
	Verdict       Verdict
	Tries         int
	Sections      int      // entered in all tries
	Blocked       int      // tries in which nobody got in
	Failed        string   `json:",omitempty"` // why a try tells nothing
	Seed          uint64   `json:",omitempty"` // of the first violation
	Violations    []string `json:",omitempty"` // of that try, by name
	History       string   `json:",omitempty"` // its file
	Commit        string   `json:",omitempty"` // of the last try
}

// table is the content of safety.json.
type table struct {
	When  string
	Load  float64 // the greatest after a try: processes that wanted a core in the last minute
	Cells []Cell
}

// Run runs trials and writes the table to safety.json and safety.md in o.Out. Results of earlier
// runs stay, and their trials count: a cell with a violation is not tried again.
func Run(ctx context.Context, o Options) (err error) {
	o.Tries = cmp.Or(o.Tries, 3)
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
	r := run{w, o, systems, &kept, ours.Commit()}
	for _, f := range faults {
		for number := range o.Tries {
			if err := r.try(ctx, f, number); err != nil {
				return err
			}
		}
	}
	return kept.broken()
}

// broken returns where the product was violated: a table with that is no success.
func (t *table) broken() error {
	var all []error
	for _, c := range t.Cells {
		if s, known := find(c.System); known && s.ours && c.Verdict == Violated {
			all = append(all, fmt.Errorf("%s, %s: %s", c.System, c.Fault, strings.Join(c.Violations, "; ")))
		}
	}
	return errors.Join(all...)
}

// run is a Run under way.
type run struct {
	world   *world
	o       Options
	systems []System
	table   *table
	commit  string
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

// try runs one trial of each system that the fault has not broken yet, all of them at a time.
func (r *run) try(ctx context.Context, f Fault, number int) error {
	var all []*trial
	for _, s := range r.systems {
		c := r.table.of(s.Name, f.Name)
		seed := uint64(c.Tries) + 1 //nolint:gosec // a small number
		if r.o.Seed != 0 {
			seed = r.o.Seed + uint64(number) //nolint:gosec // likewise
		}
		if r.o.Seed != 0 && number == 0 {
			*c = Cell{System: s.Name, Fault: f.Name, Verdict: Held}
		}
		if c.Verdict != Violated {
			key := fmt.Sprintf("%s %s %d %d", s.Name, f.Name, seed, time.Now().UnixNano())
			t := &trial{world: r.world, fault: f, system: s, seed: seed, key: key, commit: r.commit, clients: map[int]*process{}}
			if s.need != "" && r.world.others[s.need] == nil {
				t.err = errNoServer
			}
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return nil
	}
	_, _ = fmt.Fprintf(r.o.Log, "%s: %d systems\n", f.Name, len(all))
	if err := play(ctx, r.world, f, all); err != nil {
		return err
	}
	for _, t := range all {
		c := r.table.of(t.system.Name, f.Name)
		if err := c.judge(t, r.o.Out); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(r.o.Log, "  %-24s seed %d: %3d sections, blocked %v, %v %s\n", c.System, t.seed, t.history.Count(judge.Enter, judge.Done), t.blocked, c.Violations, c.Failed)
	}
	r.table.When, r.table.Load = time.Now().UTC().Format(time.DateOnly), max(r.table.Load, wanting())
	return r.table.save(r.o.Out)
}

// wanting returns the machine's load average of the last minute; 0 if it is unknown.
func wanting() (n float64) {
	text, _ := os.ReadFile("/proc/loadavg") // see above
	_, _ = fmt.Sscan(string(text), &n)
	return n
}

// of returns the cell of a system under a fault, and makes it if it is not there yet.
func (t *table) of(system, fault string) *Cell {
	i := slices.IndexFunc(t.Cells, func(c Cell) bool { return c.System == system && c.Fault == fault })
	if i < 0 {
		i = len(t.Cells)
		t.Cells = append(t.Cells, Cell{System: system, Fault: fault, Verdict: Held})
	}
	return &t.Cells[i]
}

// judge adds a trial to the cell. The history of a violation is kept.
func (c *Cell) judge(t *trial, out string) error {
	if t.err != nil {
		c.Failed = t.err.Error()
		return nil
	}
	c.Tries++
	c.Commit = t.commit
	c.Sections += t.history.Count(judge.Enter, judge.Done)
	if t.blocked {
		c.Blocked++
		c.Verdict = Blocked
	}
	violations := slices.DeleteFunc(t.history.Check(), func(v judge.Violation) bool {
		if v.Fault == judge.Undecided {
			c.Failed = string(v.Fault)
		}
		return v.Fault == judge.Undecided
	})
	if len(violations) == 0 {
		return nil
	}
	c.Verdict, c.Seed = Violated, t.seed
	for _, v := range violations {
		if !slices.Contains(c.Violations, string(v.Fault)) {
			c.Violations = append(c.Violations, string(v.Fault))
		}
	}
	c.History = "safety/" + strings.NewReplacer(" ", "-", ",", "").Replace(c.System+" "+c.Fault) + ".txt"
	return whole.Write(filepath.Join(out, c.History), story(t.history.Ops(), violations))
}

// before is how many operations a story has up to the last of its first violation.
const before = 40

// story returns the first violation of each fault, and what came before the first of all.
func story(ops []judge.Op, violations []judge.Violation) string {
	var b strings.Builder
	told := map[judge.Fault]bool{}
	for _, v := range violations {
		if !told[v.Fault] {
			b.WriteString(v.String() + "\n")
		}
		told[v.Fault] = true
	}
	last := violations[0].Ops[len(violations[0].Ops)-1]
	end := 1 + slices.IndexFunc(ops, func(o judge.Op) bool { return o.Client == last.Client && o.Serial == last.Serial })
	start := max(0, end-before)
	fmt.Fprintf(&b, "\nUp to there, %d earlier operations left out:\n", start)
	for _, o := range ops[start:end] {
		b.WriteString("\t" + o.String() + "\n")
	}
	return b.String()
}

// Rewrite writes the page anew, if there is a table.
func Rewrite(out string) error {
	t, err := load(out)
	if err != nil || len(t.Cells) == 0 {
		return err
	}
	return t.save(out)
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

// save writes the table and its page.
func (t *table) save(out string) error {
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return fmt.Errorf("save the table: %w", err)
	}
	return errors.Join(whole.Write(filepath.Join(out, "safety.json"), string(text)+"\n"), whole.Write(filepath.Join(out, "safety.md"), t.page()))
}
