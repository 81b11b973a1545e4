package struck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"music/integration/evaluate/experiment"
	"music/integration/evaluate/ours"
	"music/integration/evaluate/service"
	"music/integration/evaluate/whole"
)

// Suite is what the command runs: both services under faults over each system, and what they do without.
type Suite struct {
	Settings
	Seed    uint64
	Command string // by which it is run, for the page
	Out     string // directory of services.json and the page services.md
	Log     io.Writer
}

// Settings say how much a run does.
type Settings struct {
	Strikes int           // of each service over each system
	Rounds  int           // of the systems without faults, in turns
	Span    time.Duration // of each
}

// suiteLimit is how long a run may take beside its faults and its span.
const suiteLimit = 3 * time.Minute

// tally is what came of a service over a system.
type tally struct {
	Service, Over string
	Struck        map[string]int
	Overtaken     int
	Found         []Find
	Fault         string    // it has not come to an end; "": it has
	Rates         []float64 // of the rounds without faults; 0 where one has failed, so that those of two systems are paired by their rounds
}

// report is what came of a run, as services.json has it.
type report struct {
	Settings
	Seed                        uint64
	Command, Commit, When, Load string // Load is that of the machine, before and after
	Cores                       int
	Tallies                     []*tally
}

// Run runs it on a stage of its own and writes the page, unless it is stopped before the end.
func (s Suite) Run(ctx context.Context) (err error) {
	stage, err := Start(ctx, s.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	r := &report{Settings: s.Settings, Seed: s.Seed, Command: s.Command, Commit: ours.Commit(), Load: experiment.MachineLoad(), Cores: runtime.NumCPU()}
	var all []*tally
	for _, over := range []string{service.OverOurs, service.OverMusic, service.OverPrinted, service.OverRepaired, service.OverNothing} {
		for _, what := range []string{homing, portal} {
			all = append(all, &tally{Service: what, Over: over})
		}
	}
	for pair := range slices.Chunk(all, 2) {
		var both sync.WaitGroup
		for _, t := range pair {
			both.Go(func() { s.strike(ctx, stage, t) })
		}
		both.Wait()
	}
	for range s.Rounds {
		for _, t := range all {
			if t.Over == service.OverOurs || t.Over == service.OverMusic {
				s.measure(ctx, stage, t)
			}
		}
	}
	r.Tallies, r.When = all, time.Now().UTC().Format(time.RFC3339)
	r.Load += ", " + experiment.MachineLoad()
	return s.keep(ctx, r)
}

// keep writes what came of a run, unless it was stopped: what would have come of the rest is not known, and that of an earlier run stays.
func (s Suite) keep(ctx context.Context, r *report) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(whole.Save(filepath.Join(s.Out, "services.json"), r), r.write(s.Out), broken(r.Tallies))
}

// write writes the page.
func (r *report) write(out string) error {
	return whole.Write(filepath.Join(out, "services.md"), r.page())
}

// load reads what an earlier run has left; nil if that is nothing.
func load(out string) (*report, error) {
	return whole.Load[report](filepath.Join(out, "services.json"))
}

// Rewrite writes the page anew, if a run has left what is in it.
func Rewrite(out string) error {
	r, err := load(out)
	if err != nil || r == nil {
		return err
	}
	return r.write(out)
}

// Kept says of when and of which commit what is that a run of the same settings has left; "" if there was none.
func (s Suite) Kept() (string, error) {
	r, err := load(s.Out)
	if err != nil || r == nil || r.Settings != s.Settings {
		return "", err
	}
	return fmt.Sprintf("of %s, at %s", r.When, r.Commit), nil
}

// strike runs a service under faults.
func (s Suite) strike(ctx context.Context, stage *Stage, t *tally) {
	_, _ = fmt.Fprintf(s.Log, "  %s over %s: %d faults\n", t.Service, t.Over, s.Strikes)
	ctx, end := context.WithTimeout(ctx, suiteLimit+time.Duration(s.Strikes)*6*lease)
	defer end()
	r, err := stage.Run(ctx, Options{Service: t.Service, Over: t.Over, Strikes: s.Strikes, Seed: s.Seed, Settle: lease / 3})
	if err != nil {
		t.Fault = err.Error()
	}
	t.Struck, t.Overtaken = r.Struck()
	t.Found = Found(r.Faults())
}

// measure runs a service without faults.
func (s Suite) measure(ctx context.Context, stage *Stage, t *tally) {
	_, _ = fmt.Fprintf(s.Log, "  %s over %s: without faults\n", t.Service, t.Over)
	ctx, end := context.WithTimeout(ctx, suiteLimit+s.Span)
	defer end()
	r, err := stage.Run(ctx, Options{Service: t.Service, Over: t.Over, Settle: s.Span, Bare: true})
	t.rate(r.Rate(), err)
}

// rate notes the rate of a round.
func (t *tally) rate(rate float64, err error) {
	if err != nil {
		rate = 0
	}
	t.Rates = append(t.Rates, rate)
}

// broken returns what was found over the product: it has to come to an end, without a fault.
func broken(all []*tally) error {
	var faults []error
	for _, t := range all {
		if t.Over != service.OverOurs {
			continue
		}
		for _, f := range t.Found {
			faults = append(faults, fmt.Errorf("%s: %s", t.Service, f.First))
		}
		if t.Fault != "" {
			faults = append(faults, fmt.Errorf("%s: %s", t.Service, t.Fault))
		}
	}
	return errors.Join(faults...)
}
