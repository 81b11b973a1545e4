// Command evaluate runs the systems of the evaluation beside each other and writes docs/evaluation. `make evaluate` calls it;
// `evaluate --help` tells the flags.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"music/integration/evaluate/experiment"
	"music/integration/evaluate/safety"
	"music/integration/evaluate/service/struck"
)

func main() {
	safety.Client()
	struck.Child()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "evaluate:", err)
		os.Exit(1)
	}
}

// settings are what the command line says.
type settings struct {
	experiment.Settings
	only    []string
	profile []string
	paxos   []string
	systems []string
	local   bool
	pages   bool
	again   bool
	tries   int
	out     string
	against string
	given   []given
}

// given is a flag of the command line.
type given struct{ name, value string }

// command is the command line.
func command() *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use: "evaluate", Short: "Runs the systems of the evaluation beside each other, and writes what comes of it",
		Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error {
			c.Flags().Visit(func(f *pflag.Flag) {
				if f.Name != "out" && f.Name != "against" {
					s.given = append(s.given, given{f.Name, strings.Trim(f.Value.String(), "[]")})
				}
			})
			if err := s.complete(); err != nil {
				return err
			}
			return s.run(c.Context())
		},
	}
	f := c.Flags()
	f.BoolVar(&s.Full, "full", false, "all profiles, both kinds of Paxos and all points of each figure: hours; goes on where it was stopped, whatever the product was then")
	f.BoolVar(&s.again, "again", false, "measure also the figures and services that a full run would keep, and begin the cells of the safety table anew: for when the product or this suite has changed")
	f.StringSliceVar(&s.only, "only", nil, "these parts: "+strings.Join(names(), ", "))
	f.StringSliceVar(&s.profile, "profile", nil, "these profiles of those that would be measured: I1, IUs, IUsEu")
	f.StringSliceVar(&s.paxos, "paxos", nil, "these kinds of Paxos of those that would be measured: v1, v2")
	f.StringArrayVar(&s.systems, "system", nil, "a system, several times for several; default all")
	f.BoolVar(&s.local, "local", false, "the local profile, as where no network can be emulated")
	f.BoolVar(&s.Try, "try", false, "one short round of each, on nodes that start fast: it shows that everything runs, and measures nothing")
	f.BoolVar(&s.pages, "pages", false, "measure nothing, and write the pages anew from evaluation.json, safety.json and services.json")
	f.StringVar(&s.out, "out", "docs/evaluation", "directory of the report")
	f.StringVar(&s.against, "against", "", "an earlier evaluation.json: what has moved by more than its spread is marked")
	f.IntVar(&s.Rounds, "rounds", 0, "turns of each system in a figure; default 5 in a full run, 3 in a short one")
	f.DurationVar(&s.Span, "span", 0, "length of a turn; default 15s in a full run, 3s in a short one")
	f.IntVar(&s.tries, "tries", 0, "of each cell of the safety table in all, those of earlier runs among them; default 5 in a full run, in a short one one more than it has")
	f.IntVar(&s.Workers, "workers", 16, "clients at each site where the most that a system can do is measured")
	return c
}

// names are the parts that --only can name.
func names() (all []string) {
	for _, e := range experiment.All() {
		all = append(all, e.Name)
	}
	for _, p := range parts() {
		all = append(all, p.name)
	}
	return all
}

// complete fills in defaults, and refuses what nobody knows.
func (s *settings) complete() error {
	rounds, span := 3, 3*time.Second
	if s.Full {
		rounds, span = 5, 15*time.Second
	}
	if s.Try {
		rounds, span = 1, time.Second
	}
	if s.Rounds == 0 {
		s.Rounds = rounds
	}
	if s.Span == 0 {
		s.Span = span
	}
	if s.Full && s.tries == 0 {
		s.tries = 5
	}
	for _, name := range s.only {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("there is no part %q: there are %s", name, strings.Join(names(), ", "))
		}
	}
	for _, name := range s.systems {
		if !slices.ContainsFunc(systems(), func(x experiment.System) bool { return x.Name == name }) {
			return fmt.Errorf("there is no system %q", name)
		}
	}
	for _, name := range s.profile {
		if !slices.ContainsFunc(experiment.Profiles(), func(p experiment.Profile) bool { return p.Name == name }) {
			return fmt.Errorf("there is no profile %q", name)
		}
	}
	for _, name := range s.paxos {
		if name != "v1" && name != "v2" {
			return fmt.Errorf("there is no Paxos %q", name)
		}
	}
	s.Systems = strings.Join(slices.Sorted(slices.Values(s.systems)), "; ")
	if s.Rounds < 1 || s.Span < 0 || s.Workers < 1 || s.tries < 0 {
		return fmt.Errorf("%d rounds of %v with %d clients, or %d tries, measure nothing", s.Rounds, s.Span, s.Workers, s.tries)
	}
	return nil
}

// wants reports whether a part is to be run.
func (s *settings) wants(name string) bool { return len(s.only) == 0 || slices.Contains(s.only, name) }
