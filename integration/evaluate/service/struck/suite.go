package struck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"music/integration/evaluate/experiment"
	"music/integration/evaluate/ours"
	"music/integration/evaluate/service"
	"music/integration/evaluate/whole"
)

// Suite is what the command runs: both services under faults over each system, and what they do without.
type Suite struct {
	Strikes int           // of each service over each system
	Rounds  int           // of the systems without faults, in turns
	Span    time.Duration // of each
	Seed    uint64
	Command string // by which it is run, for the page
	Out     string // directory of the page services.md
	Log     io.Writer
}

// suiteLimit is how long a run may take beside its faults and its span.
const suiteLimit = 3 * time.Minute

// tally is what came of a service over a system.
type tally struct {
	service, over string
	struck        map[string]int
	overtaken     int
	found         []Find
	fault         error // it has not come to an end
	rates         []float64
}

// Run runs it on a stage of its own and writes the page, unless it is stopped before the end.
func (s Suite) Run(ctx context.Context) (err error) {
	stage, err := Start(ctx, s.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	load, commit := experiment.MachineLoad(), ours.Commit()
	var all []*tally
	for _, over := range []string{service.OverOurs, service.OverMusic, service.OverPrinted, service.OverRepaired, service.OverNothing} {
		for _, what := range []string{homing, portal} {
			all = append(all, &tally{service: what, over: over})
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
			if t.over == service.OverOurs || t.over == service.OverMusic {
				s.measure(ctx, stage, t)
			}
		}
	}
	return s.keep(ctx, all, commit, load+", "+experiment.MachineLoad())
}

// keep writes the page, unless the run was stopped: what came of the rest of it is not known, and the page of an earlier run stays.
func (s Suite) keep(ctx context.Context, all []*tally, commit, load string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(whole.Write(filepath.Join(s.Out, "services.md"), s.page(all, commit, load)), broken(all))
}

// strike runs a service under faults.
func (s Suite) strike(ctx context.Context, stage *Stage, t *tally) {
	_, _ = fmt.Fprintf(s.Log, "  %s over %s: %d faults\n", t.service, t.over, s.Strikes)
	ctx, end := context.WithTimeout(ctx, suiteLimit+time.Duration(s.Strikes)*6*lease)
	defer end()
	var r *Result
	r, t.fault = stage.Run(ctx, Options{Service: t.service, Over: t.over, Strikes: s.Strikes, Seed: s.Seed, Settle: lease / 3})
	t.struck, t.overtaken = r.Struck()
	t.found = Found(r.Faults())
}

// measure runs a service without faults.
func (s Suite) measure(ctx context.Context, stage *Stage, t *tally) {
	_, _ = fmt.Fprintf(s.Log, "  %s over %s: without faults\n", t.service, t.over)
	ctx, end := context.WithTimeout(ctx, suiteLimit+s.Span)
	defer end()
	r, err := stage.Run(ctx, Options{Service: t.service, Over: t.over, Settle: s.Span, Bare: true})
	t.rate(r.Rate(), err)
}

// rate notes the rate of a round: none where it has failed, so that those of two systems are paired by their rounds.
func (t *tally) rate(rate float64, err error) {
	if err != nil || rate == 0 {
		rate = math.NaN()
	}
	t.rates = append(t.rates, rate)
}

// broken returns what was found over the product: it has to come to an end, without a fault.
func broken(all []*tally) error {
	var faults []error
	for _, t := range all {
		if t.over != service.OverOurs {
			continue
		}
		for _, f := range t.found {
			faults = append(faults, fmt.Errorf("%s: %s", t.service, f.First))
		}
		if t.fault != nil {
			faults = append(faults, fmt.Errorf("%s: %w", t.service, t.fault))
		}
	}
	return errors.Join(faults...)
}

// preface is what stands above the tables.
const preface = `# The services of the MUSIC paper

VNF homing and the portal, the two production services of the MUSIC paper (VII), as programs, over: *ours*, this product; *music*, the paper's
algorithms, with the misprint in forcedRelease mended; *printed*, the same with that line as it is printed; *repaired*, MUSIC as it was repaired
here; and *nothing*, no lock at all. Workers of homing and back ends of the portal are killed, stand still, or are cut off from their store while
they are in a section, for longer than the lease of 1 s; what was kept back arrives late. One Cassandra node, on one machine; the two
services over one system are struck at the same time.

The columns *killed*, *paused* and *cut off* count the faults that struck a process in a section, and **overtaken** those of them in which another
process had entered that section before the fault was mended. The faults found, with how often each was, are those of entry consistency on a
job's or user's key; jobs that two workers were at (executed at once), states or changes that were carried out twice, jobs that are not DONE or are
there again, acknowledged changes that are lost. MUSIC tells its holders of no lease, so that one which wakes up works on until its next put is refused.

| service | over | killed | paused | cut off | overtaken | what was found |
|---|---|---|---|---|---|---|
`

// page returns the page. commit is the product's, load that of the machine before and after.
func (s Suite) page(all []*tally, commit, load string) string {
	var b strings.Builder
	b.WriteString(preface)
	for _, t := range all {
		var found []string
		for _, f := range t.found {
			found = append(found, fmt.Sprintf("%s (%d)", f.Name, f.Times))
		}
		if t.fault != nil {
			found = append(found, "it has not come to an end: "+t.fault.Error())
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %s |\n", t.service, t.over, t.struck[Killed], t.struck[Paused], t.struck[Cut], t.overtaken, strings.Join(found, "; "))
	}
	b.WriteString("\n## Without faults\n\nJobs (homing), and changes of roles (portal), a second, where a job's states take no time: the median of the rounds, with the least and the greatest.\nA ratio is the median of those of the same rounds, so that it is not that of the medians.\n\n" +
		"| service | ours | MUSIC | ours : MUSIC |\n|---|---|---|---|\n")
	for _, what := range []string{homing, portal} {
		mine, music := ratesOf(all, what, service.OverOurs), ratesOf(all, what, service.OverMusic)
		var ratios []float64
		for i := range min(len(mine), len(music)) {
			if ratio := mine[i] / music[i]; !math.IsNaN(ratio) {
				ratios = append(ratios, ratio)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", what, spread(mine), spread(music), spread(ratios))
	}
	b.WriteString("\n## The first of each fault\n")
	for _, t := range all {
		for _, f := range t.found {
			fmt.Fprintf(&b, "\n%s over %s:\n```\n%s\n```\n", t.service, t.over, f.First)
		}
	}
	fmt.Fprintf(&b, "\n`%s`, the product %s, %s, load (processes that wanted a core, before and after) %s, on %d cores. Seed %d: what strikes when depends on it, what meets what also on the machine.\n",
		s.Command, commit, time.Now().UTC().Format(time.RFC3339), load, runtime.NumCPU(), s.Seed)
	return b.String()
}

// ratesOf are those of a service over a system.
func ratesOf(all []*tally, what, over string) []float64 {
	i := slices.IndexFunc(all, func(t *tally) bool { return t.service == what && t.over == over })
	return all[i].rates
}

// spread is the median with the least and the greatest, and how many rounds are without.
func spread(all []float64) string {
	v := slices.DeleteFunc(slices.Sorted(slices.Values(all)), math.IsNaN)
	text := "–"
	if len(v) > 0 {
		text = fmt.Sprintf("%.2f (%.2f–%.2f)", v[len(v)/2], v[0], v[len(v)-1])
	}
	if failed := len(all) - len(v); failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	return text
}
