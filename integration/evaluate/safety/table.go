package safety

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"music/integration/evaluate/judge"
	"music/integration/evaluate/ours"
	"music/integration/evaluate/whole"
)

// Options say which part of the table to fill. The zero value tries each cell of it once more.
type Options struct {
	Systems, Faults []string // by name; none: all
	Tries           int      // of each cell in all, those of earlier runs among them; 0: one more than it has
	Again           bool     // cells begin anew: what earlier runs have found goes
	Seed            uint64   // of the first try, the next one's is one more; with it cells begin anew, too. Default: they go on
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
	Failed        string   `json:",omitempty"` // why the last try told nothing, or one was not decided
	Seed          uint64   `json:",omitempty"` // of the first violation
	Violations    []string `json:",omitempty"` // of that try, by name
	History       string   `json:",omitempty"` // its file
	Commit        string   `json:",omitempty"` // of the last try
	Settings      string   `json:",omitempty"` // of the system, see System

	left  int  // tries of this run that are still to be done
	void  int  // tries of this run that told nothing
	fresh bool // the next try that tells something is the first
}

// table is the content of safety.json.
type table struct {
	When  string
	Cores int     `json:",omitempty"` // of the machine
	Load  float64 // the greatest after a try: processes that wanted a core in the last minute
	Cells []Cell
}

// Run runs trials and writes the table to safety.json and safety.md in o.Out, after each try of a fault. Results of earlier runs
// stay, and their tries count, so that a run that was stopped goes on where it was: a cell that is violated, or has its tries, is not
// tried again.
func Run(ctx context.Context, o Options) error {
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
	r := run{o: o, systems: systems, table: kept, commit: ours.Commit(), build: func(ctx context.Context) (stage, error) { return build(ctx, o.Log) }}
	return errors.Join(r.all(ctx, faults), kept.broken())
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

// judge adds a trial to the cell. The history of a violation is kept, also of a trial that did not come to its end; of any other such
// trial nothing counts but that it was.
func (c *Cell) judge(t *trial, out string) error {
	undecided := false
	violations := slices.DeleteFunc(t.history.Check(), func(v judge.Violation) bool {
		undecided = undecided || v.Fault == judge.Undecided
		return v.Fault == judge.Undecided
	})
	if why := t.told(); why != nil && len(violations) == 0 {
		c.failed(why)
		return nil
	}
	c.count(t)
	if undecided {
		c.Failed = string(judge.Undecided)
	}
	if len(violations) == 0 {
		return nil
	}
	c.Verdict, c.Seed, c.left = Violated, t.seed, 0
	for _, v := range violations {
		if !slices.Contains(c.Violations, string(v.Fault)) {
			c.Violations = append(c.Violations, string(v.Fault))
		}
	}
	c.History = "safety/" + strings.NewReplacer(" ", "-", ",", "").Replace(c.System+" "+c.Fault) + ".txt"
	return whole.Write(filepath.Join(out, c.History), story(t.history.Ops(), violations))
}

// mostVoid is how many tries of a cell may tell nothing until a run leaves it.
const mostVoid = 3

// failed notes a try that told nothing.
func (c *Cell) failed(why error) {
	c.Failed = why.Error()
	if c.void++; c.void == mostVoid {
		c.left = 0
	}
}

// count adds a try that told something.
func (c *Cell) count(t *trial) {
	if c.fresh {
		*c = Cell{System: c.System, Fault: c.Fault, Verdict: Held, Settings: t.system.settings, left: c.left, void: c.void}
	}
	c.Failed, c.Commit = "", t.commit
	c.Tries++
	c.left--
	c.Sections += t.history.Count(judge.Enter, judge.Done)
	if t.blocked {
		c.Blocked++
		c.Verdict = Blocked
	}
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

// load reads the table that an earlier run has left; an empty one if there is none.
func load(out string) (*table, error) {
	t, err := whole.Load[table](filepath.Join(out, "safety.json"))
	if t == nil {
		t = new(table)
	}
	return t, err
}

// save writes the table and its page, and removes the histories of cells that have begun anew since.
func (t *table) save(out string) error {
	return errors.Join(whole.Save(filepath.Join(out, "safety.json"), t), whole.Write(filepath.Join(out, "safety.md"), t.page()), t.sweep(out))
}

// sweep removes the histories that no cell names.
func (t *table) sweep(out string) error {
	files, err := filepath.Glob(filepath.Join(out, "safety", "*.txt"))
	for _, f := range files {
		if !slices.ContainsFunc(t.Cells, func(c Cell) bool { return filepath.Join(out, c.History) == f }) {
			err = errors.Join(err, os.Remove(f))
		}
	}
	return err
}
