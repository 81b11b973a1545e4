package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"music/integration/evaluate/section"
)

// Experiment is something that is measured in a world.
type Experiment struct {
	Name     string
	Title    string
	Systems  []string // that it times, those of them that there are
	Profiles []string // of a full run; a short one has IUs only
	Nodes    int      // of Cassandra, with small heaps; 0: one at each site, with larger ones
	Release  string   // of Cassandra, with transactions; "": the one that all others run on, without
	Paxos    []string // likewise; a short one has v2 only
	Long     bool     // of a full run, or by its name
	Metrics  []Metric
	Claims   []Claim
	Run      func(context.Context, *Run) error
}

// Settings are those of all experiments.
type Settings struct {
	Rounds  int           `json:"rounds"`
	Span    time.Duration `json:"span"`              // of one system's turn in a round
	Workers int           `json:"workers"`           // at each site, where the most that a system can do is measured
	Full    bool          `json:"full"`              // all points of each figure
	Try     bool          `json:"try,omitempty"`     // it measures nothing
	Systems string        `json:"systems,omitempty"` // that were asked for; none: all
}

// Run is a run of an experiment.
type Run struct {
	Settings
	*World
	*Figure
	Log    io.Writer
	fleets map[string]*Fleet // of the systems that passed their own test
	wanted []string
	warmed map[string]bool // rows that have had a turn in this world
}

// Say prints the progress of a run.
func Say(log io.Writer, format string, values ...any) {
	_, _ = fmt.Fprintf(log, format+"\n", values...) // nobody may read it
}

// Company is the systems that have clients in a world, and the errors of the others.
type Company struct {
	fleets map[string]*Fleet
	faults map[string]error
	warmed map[string]bool // rows of figures that have had a turn
}

// Gather opens all systems in a world, and tests each once.
func Gather(ctx context.Context, w *World, systems []System) *Company {
	c := &Company{fleets: map[string]*Fleet{}, faults: map[string]error{}, warmed: map[string]bool{}}
	for _, s := range systems {
		Say(w.Log, "  %s passes its own test, or not", s.Name)
		f, err := Muster(w, s)
		if err != nil {
			c.faults[s.Name] = fmt.Errorf("not timed: it cannot be had here: %w", err)
			continue
		}
		if err := f.verifyAgain(ctx); err != nil {
			f.Close()
			c.faults[s.Name] = fmt.Errorf("not timed: it failed its own test: %w", err)
			continue
		}
		c.fleets[s.Name] = f
	}
	return c
}

// Close closes the clients.
func (c *Company) Close() {
	for _, f := range c.fleets {
		f.Close()
	}
}

// Measure runs an experiment. The network is tested before and after; an error that wraps
// ErrNetwork means that the measurements are worthless.
func (e Experiment) Measure(ctx context.Context, w *World, c *Company, s Settings, log io.Writer) (*Figure, error) {
	f := &Figure{
		Name: e.Name, Title: e.Title, Profile: w.Profile.Name, Paxos: w.Paxos, Sync: w.Sync, When: time.Now().UTC().Format(time.RFC3339),
		Metrics: e.Metrics, Claims: e.Claims, Load: MachineLoad(), Settings: s,
	}
	r := &Run{Settings: s, World: w, Figure: f, Log: log, fleets: map[string]*Fleet{}, wanted: e.Systems, warmed: c.warmed}
	for _, name := range e.Systems {
		if x := c.fleets[name]; x != nil {
			r.fleets[name] = x
		} else if fault := c.faults[name]; fault != nil {
			f.row(name, "").Note = fault.Error()
		}
	}
	if err := f.checkNetwork(ctx, w, "before", log); err != nil {
		return nil, err
	}
	f.Notes = append(f.Notes, w.leaders(ctx)...)
	if err := e.Run(ctx, r); err != nil {
		return nil, err
	}
	f.Load += ", " + MachineLoad()
	return f, f.checkNetwork(ctx, w, "after", log)
}

// checkNetwork tests the network, and records and prints the result.
func (f *Figure) checkNetwork(ctx context.Context, w *World, when string, log io.Writer) error {
	trips, err := w.TestNetwork(ctx)
	for _, t := range trips {
		Say(log, "  network %s: sites %d and %d are %.2f ms apart, wanted %.2f", when, t.A, t.B, t.Got, t.Wanted)
	}
	if trips != nil {
		f.Network = append(f.Network, Check{When: when, Trips: trips})
	}
	return err
}

// MachineLoad returns the machine's load average of the last minute.
func MachineLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// turnFunc does a turn and returns the values by metric. name is one that no key has had before.
type turnFunc func(ctx context.Context, name string) (map[string]float64, error)

// turn is what a system does in a round.
type turn struct {
	system, x string
	do        turnFunc
}

// row identifies the row of a turn.
func (t turn) row() [2]string { return [2]string{t.system, t.x} }

// turnsAt returns a turn at x for each of some systems that takes part.
func (r *Run) turnsAt(x string, systems []string, turnOf func(system string) turnFunc) (turns []turn) {
	for _, s := range systems {
		if r.has(s) {
			turns = append(turns, turn{s, x, turnOf(s)})
		}
	}
	return turns
}

// warming is the length of a turn that is not counted.
const warming = 3 * time.Second

// warm does a short turn for the first row of each name in this world, for compilers and caches.
func (r *Run) warm(ctx context.Context, turns []turn) {
	span := r.Span
	r.Span = min(span, warming)
	defer func() { r.Span = span }()
	for _, t := range turns {
		if r.warmed[t.system] || ctx.Err() != nil {
			continue
		}
		Say(r.Log, "  warming up: %s %s", t.system, t.x)
		_, _ = t.do(ctx, r.name(t.system)) // what fails here fails again
		r.warmed[t.system] = true
	}
}

// takeTurns has all rows take their turns in each round, which begins with another one each time. A
// row that fails twice is left out.
func (r *Run) takeTurns(ctx context.Context, turns []turn) error {
	return r.takeTurnsTogether(ctx, slices.Collect(slices.Chunk(turns, 1)))
}

// takeTurnsTogether does the same with groups of rows that have their turns at the same time: they
// wait, and what one does costs the others nothing.
func (r *Run) takeTurnsTogether(ctx context.Context, groups [][]turn) error {
	r.warm(ctx, slices.Concat(groups...))
	faults := map[[2]string]int{}
	for round := range r.Rounds {
		for i := range groups {
			r.takeTurn(ctx, round, groups[(i+round)%len(groups)], faults)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// takeTurn has the rows of a group take their turns of a round, but for those that have failed twice.
// faults counts that, by system and point; the row keeps the rounds of them, so that ratios are of the same rounds.
func (r *Run) takeTurn(ctx context.Context, round int, group []turn, faults map[[2]string]int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	group = slices.DeleteFunc(slices.Clone(group), func(t turn) bool { return faults[t.row()] > 1 })
	for _, t := range group {
		Say(r.Log, "  round %d of %d: %s %s", round+1, r.Rounds, t.system, t.x)
		r.row(t.system, t.x) // in the order of the group, whoever is first
	}
	for _, t := range group {
		all.Go(func() {
			values, err := t.do(ctx, r.name(t.system))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				faults[t.row()]++
				row := r.row(t.system, t.x)
				row.Note, row.Missed = err.Error(), append(row.Missed, round)
				return
			}
			r.add(t.system, t.x, values)
		})
	}
	all.Wait()
}

// name returns a name that no key has had before.
func (r *Run) name(system string) string {
	return strings.ReplaceAll(system, " ", "") + strconv.FormatInt(time.Now().UnixNano(), 36)
}

// has reports whether a system can be timed.
func (r *Run) has(name string) bool { return slices.Contains(r.wanted, name) && r.fleets[name] != nil }

// ErrTest is returned if a system does not do what it promises.
var ErrTest = errors.New("the answer is wrong")

// errBlocked is returned if nobody got into a system's sections in time, which where clients race is no
// wrong answer yet.
var errBlocked = errors.New("nobody gets in any more")

// verifyAgain is verify, with another key where nobody got in.
func (f *Fleet) verifyAgain(ctx context.Context) (err error) {
	const most = 3
	for range most {
		if err = f.verify(ctx); !errors.Is(err, errBlocked) {
			return err
		}
	}
	return err
}

// verify tests a system in a world before it is timed: what is put is read, and, if its sections
// exclude each other, a number that clients of all sites raise by one in sections is the number of
// sections. Unknown outcomes leave a margin.
func (f *Fleet) verify(ctx context.Context) error {
	const limit, workers, turns = time.Minute, 2, 2
	ctx, end := context.WithTimeout(ctx, limit)
	defer end()
	name := "verify" + strconv.FormatInt(time.Now().UnixNano(), 36)
	kept := f.Run(ctx, Load{Workers: 1, Turns: 1, Span: limit, Key: fresh(name), Body: putAndGet})
	if len(kept.Sections) != Sites {
		return errors.Join(fmt.Errorf("%w: %d of %d values were kept", ErrTest, len(kept.Sections), Sites), kept.Last)
	}
	if !f.Exclusive {
		return nil
	}
	raised := f.Run(ctx, Load{Workers: workers, Turns: turns, Span: limit, Key: common(name), Body: raise})
	got := 0
	reading, stop := context.WithTimeout(context.WithoutCancel(ctx), limit) // also where time was up
	defer stop()
	read := f.Run(reading, Load{Workers: 1, Sites: []int{1}, Turns: 1, Span: limit, Key: common(name), Body: func(ctx context.Context, _ Worker, h section.Held) error {
		v, err := h.Get(ctx)
		got, _ = strconv.Atoi(string(v))
		return err
	}})
	if len(read.Sections) != 1 {
		return errors.Join(errBlocked, raised.Last, read.Last)
	}
	if n := len(raised.Sections); got < n || got > n+raised.Unknown {
		return errors.Join(fmt.Errorf("%w: %d sections raised a number by one, %d more may have: it is %d", ErrTest, n, raised.Unknown, got),
			raised.Last, read.Last)
	}
	return nil
}

// putAndGet puts a value and checks that it is read.
func putAndGet(ctx context.Context, w Worker, h section.Held) error {
	want := value(32, w, rand.Int()) //nolint:gosec // G404: chance, not secrets
	if err := h.Put(ctx, want); err != nil {
		return err
	}
	got, err := h.Get(ctx)
	if err == nil && !bytes.Equal(got, want) {
		return fmt.Errorf("%w: put %q, got %q", ErrTest, want, got)
	}
	return err
}

// raise raises a number by one.
func raise(ctx context.Context, _ Worker, h section.Held) error {
	v, err := h.Get(ctx)
	if err != nil && !errors.Is(err, section.ErrNoValue) {
		return err
	}
	n, _ := strconv.Atoi(string(v)) // nothing is nought
	return h.Put(ctx, []byte(strconv.Itoa(n+1)))
}
