package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"music/integration/evaluate/experiment"
	"music/integration/evaluate/ours"
	"music/integration/evaluate/safety"
	"music/integration/evaluate/service/struck"
	"music/integration/evaluate/transaction"
	"music/integration/evaluate/whole"
)

// stage is a world, and the experiments that are made in it.
type stage struct {
	profile experiment.Profile
	paxos   string
	nodes   int    // of Cassandra, as in experiment.Experiment
	release string // likewise
	beside  bool   // with servers beside Cassandra: what nodes acknowledge is on disk there
	play    []experiment.Experiment
}

// evaluation is a run under way.
type evaluation struct {
	*settings
	report, before *experiment.Report // before may be nil
	program        string             // of the product
	log            io.Writer
}

// run runs what was asked for, and writes the report after each figure: what was measured is kept, however the run ends.
func (s *settings) run(ctx context.Context) error {
	e := &evaluation{settings: s, log: os.Stderr}
	var err error
	if e.before, err = s.earlier(); err != nil {
		return err
	}
	if e.report, err = s.resume(); err != nil {
		return err
	}
	if s.pages {
		return errors.Join(safety.Rewrite(s.out), struck.Rewrite(s.out), e.write())
	}
	stages := s.stages(e.log)
	if len(stages) == 0 && !slices.ContainsFunc(parts(), func(p part) bool { return s.wants(p.name) }) {
		return errors.New("with these flags there is nothing to measure")
	}
	if err := e.spare(stages); err != nil {
		return err
	}
	var faults []error
	for _, p := range parts() {
		if s.wants(p.name) && ctx.Err() == nil {
			faults = append(faults, p.run(ctx, s, e.log))
		}
	}
	if len(stages) > 0 && ctx.Err() == nil {
		e.program, err = ours.Build(ctx)
		faults = append(faults, err)
	}
	for _, st := range stages {
		if ctx.Err() == nil && e.program != "" {
			faults = append(faults, e.perform(ctx, st))
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopped; what was measured is in %s", s.out)
	}
	return errors.Join(append(faults, e.write())...)
}

// errPart is returned where what a run is to measure is less than what it would replace.
var errPart = errors.New("is of a whole run, which a part must not replace: give another directory by --out")

// spare returns an error where a try, or a run of some systems, would replace what a whole run has left.
func (e *evaluation) spare(stages []stage) error {
	if !e.Try && e.Systems == "" {
		return nil
	}
	for _, st := range stages {
		for _, x := range st.play {
			if f := e.report.Figure(x.Name, st.profile.Name, st.paxos); f != nil && !f.Settings.Try && f.Settings.Systems == "" {
				return fmt.Errorf("%s %w", f.Key(), errPart)
			}
		}
	}
	services := filepath.Join(e.out, "services.md")
	if _, err := os.Stat(services); e.Try && e.wants("services") && err == nil {
		return fmt.Errorf("%s %w", services, errPart)
	}
	return nil
}

// stages are the worlds that are needed, with what is played in each.
func (s *settings) stages(log io.Writer) (all []stage) {
	profiles := experiment.Profiles()
	why := experiment.Emulates()
	if s.local {
		why = errors.New("as asked for")
	}
	if why != nil {
		experiment.Say(log, "%v: everything is measured in the profile local", why)
		profiles = []experiment.Profile{experiment.Local()}
	}
	for _, p := range profiles {
		for _, st := range worlds() {
			st.profile = p
			st.play = slices.DeleteFunc(experiment.All(), func(e experiment.Experiment) bool {
				return e.Nodes != st.nodes || e.Release != st.release || s.beside(e) != st.beside || !s.plays(e, p, st.paxos)
			})
			if len(st.play) > 0 {
				all = append(all, st)
			}
		}
	}
	return all
}

// worlds are those of each profile.
func worlds() (all []stage) {
	for _, paxos := range []string{"v2", "v1"} {
		for _, nodes := range []int{0, experiment.Sites, experiment.Sites * experiment.Sites} {
			all = append(all, stage{paxos: paxos, nodes: nodes}, stage{paxos: paxos, nodes: nodes, beside: true})
		}
	}
	newest := stage{paxos: "v2", release: transaction.Release}
	all = append(all, newest)
	newest.beside = true
	return append(all, newest)
}

// beside reports whether an experiment is made beside the servers of other systems. In a full run those that need none are not; in a
// short one all share a world.
func (s *settings) beside(e experiment.Experiment) bool {
	return !s.Full || slices.ContainsFunc(s.needed([]experiment.Experiment{e}), func(x experiment.System) bool { return x.Needs != "" })
}

// plays reports whether an experiment is to be made in a world.
func (s *settings) plays(e experiment.Experiment, p experiment.Profile, paxos string) bool {
	profiles, variants := e.Profiles, e.Paxos
	if !s.Full {
		profiles, variants = []string{"IUs"}, []string{"v2"}
	}
	if len(s.paxos) > 0 {
		variants = slices.DeleteFunc(slices.Clone(e.Paxos), func(name string) bool { return !slices.Contains(s.paxos, name) })
	}
	if len(s.profile) > 0 {
		profiles = slices.DeleteFunc(slices.Clone(e.Profiles), func(name string) bool { return !slices.Contains(s.profile, name) })
	}
	if e.Long && !s.Full && !slices.Contains(s.only, e.Name) {
		return false
	}
	return s.wants(e.Name) && slices.Contains(variants, paxos) && (!p.Emulated() || slices.Contains(profiles, p.Name))
}

// perform builds a world and makes its experiments there, but for those that an earlier run of the same kind has made.
func (e *evaluation) perform(ctx context.Context, st stage) error {
	st.play = slices.DeleteFunc(st.play, func(x experiment.Experiment) bool {
		kept := e.kept(x, st)
		if kept != nil {
			experiment.Say(e.log, "%s: of %s, at %s; --again measures it anew", kept.Key(), kept.When, kept.Version)
		}
		return kept != nil
	})
	if len(st.play) == 0 {
		return nil
	}
	experiment.Say(e.log, "profile %s, Paxos %s", st.profile.Name, st.paxos)
	needed := e.needed(st.play)
	setup := experiment.Setup{Profile: st.profile, Paxos: st.paxos, Nodes: st.nodes, Release: st.release, Try: e.Try, Program: e.program, Log: e.log}
	if st.nodes != 0 {
		setup.Heap = "192m"
	}
	setup.Servers, setup.Sync = servers(ctx, needed, e.log)
	for name, kind := range setup.Servers {
		e.report.Versions[name] = kind.Version(ctx)
	}
	w, err := experiment.Build(ctx, setup)
	if err != nil {
		return err
	}
	return errors.Join(e.measure(ctx, st, w, needed), w.Close())
}

// keeps reports whether what an earlier run of the same settings has measured stays.
func (s *settings) keeps() bool { return s.Full && !s.again }

// kept is the figure of an experiment that this run does not make again, since an earlier one of the same settings has; nil: it does.
func (e *evaluation) kept(x experiment.Experiment, st stage) *experiment.Figure {
	if !e.keeps() {
		return nil
	}
	return e.report.Kept(x.Name, st.profile.Name, st.paxos, e.Settings)
}

// measure makes the experiments of a stage.
func (e *evaluation) measure(ctx context.Context, st stage, w *experiment.World, systems []experiment.System) error {
	company := experiment.Gather(ctx, w, systems)
	defer company.Close()
	e.report.Versions[strings.TrimSpace("Cassandra "+st.release)] = w.Version(ctx)
	var faults []error
	for _, x := range st.play {
		experiment.Say(e.log, "%s: %s", x.Name, x.Title)
		f, err := x.Measure(ctx, w, company, e.Settings, e.log)
		switch {
		case ctx.Err() != nil:
			return errors.Join(faults...)
		case errors.Is(err, experiment.ErrNetwork):
			experiment.Say(e.log, "%s is refused: %v", x.Name, err)
			faults = append(faults, fmt.Errorf("%s is refused: %w", x.Name, err)) // the next one tests the network anew
		case err != nil:
			faults = append(faults, fmt.Errorf("%s: %w", x.Name, err))
		default:
			f.Version, f.Command = e.report.Versions["the product"], e.report.Command
			e.report.Put(f)
			faults = append(faults, e.write())
		}
	}
	return errors.Join(faults...)
}

// needed are the systems of some experiments, of those that were asked for.
func (s *settings) needed(play []experiment.Experiment) []experiment.System {
	return slices.DeleteFunc(systems(), func(x experiment.System) bool {
		asked := len(s.systems) == 0 || slices.Contains(s.systems, x.Name)
		return !asked || !slices.ContainsFunc(play, func(e experiment.Experiment) bool { return slices.Contains(e.Systems, x.Name) })
	})
}

// earlier reads the report to compare with.
func (s *settings) earlier() (*experiment.Report, error) {
	if s.against == "" {
		return nil, nil
	}
	before, err := experiment.Read(s.against)
	if err == nil && before == nil {
		err = fmt.Errorf("there is no report %s", s.against)
	}
	return before, err
}

// resume reads what earlier runs have left.
func (s *settings) resume() (*experiment.Report, error) {
	r, err := experiment.Read(s.path())
	if err != nil {
		return nil, err
	}
	if r == nil {
		r = new(experiment.Report)
	}
	r.Define()
	if s.pages {
		return r, nil
	}
	r.When, r.Command = time.Now().UTC().Format(time.RFC3339), s.line()
	r.Machine = fmt.Sprintf("%d cores of %s", runtime.NumCPU(), processor())
	if r.Versions == nil {
		r.Versions = map[string]string{}
	}
	r.Versions["Go"], r.Versions["the product"] = runtime.Version(), ours.Commit()
	return r, nil
}

// path is that of the report as JSON.
func (s *settings) path() string { return filepath.Join(s.out, "evaluation.json") }

// line is the command as a person types it, but for where the report goes.
func (s *settings) line() string {
	line := "evaluate"
	for _, f := range s.given {
		line += " --" + f.name
		if strings.ContainsAny(f.value, " ,") {
			line += "=" + strconv.Quote(f.value)
		} else if f.value != "true" {
			line += "=" + f.value
		}
	}
	return line
}

// write writes the report: JSON, plots and the page.
func (e *evaluation) write() error {
	if err := e.report.Save(e.path()); err != nil {
		return err
	}
	plots := map[string]string{}
	var faults []error
	for _, f := range e.report.Figures {
		name, err := f.Plot(e.out)
		faults = append(faults, err)
		plots[f.Key()] = name
	}
	others, err := e.others()
	faults = append(faults, err)
	return errors.Join(append(faults, whole.Write(filepath.Join(e.out, "README.md"), e.report.Markdown(e.before, plots, others...)))...)
}

// others are the pages that parts have written.
func (e *evaluation) others() ([]string, error) {
	all, err := filepath.Glob(filepath.Join(e.out, "*.md"))
	for i, path := range all {
		all[i] = filepath.Base(path)
	}
	return slices.DeleteFunc(all, func(name string) bool { return name == "README.md" }), err
}

// processor is what the machine calls its own.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // where there is none, it has no name
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
