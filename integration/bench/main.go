// Command bench measures what the proxy costs compared with a bare TCP relay and with nothing in
// between, and what locks cost on a real node compared with plain writes. All of it is measured in
// turns within one run: only such ratios mean something on a machine that does other things, too.
// `make bench` calls it; `bench -help` lists the flags.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "role" {
		exit(beRole(os.Args[2], os.Args[3]))
	}
	exit(run())
}

// exit ends the program: with status 1 on an error, which it prints.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// settings are the values of the flags.
type settings struct {
	rounds  int
	span    time.Duration
	only    *regexp.Regexp
	out     string
	against string
	also    string
	mock    string
	pace    time.Duration
	idle    int
	node    bool
	keys    int
	waiters int
}

// parse reads the command line.
func parse() (settings, error) {
	var s settings
	only := ""
	flag.IntVar(&s.rounds, "rounds", 50, "rounds of each comparison; the median is told, and that of the ratios in each round")
	flag.DurationVar(&s.span, "span", 50*time.Millisecond, "length of a round at one target")
	flag.StringVar(&only, "only", "", "measure the work that matches this expression only")
	flag.StringVar(&s.out, "out", "bench.json", "where to save the report; plots go beside it")
	flag.StringVar(&s.against, "against", "", "an earlier report to compare with")
	flag.StringVar(&s.also, "also", "", "NAME=HOST:PORT of a further proxy to compare with, in front of the server at -mock")
	flag.StringVar(&s.mock, "mock", "127.0.0.1:0", "where the server listens that stands in for Cassandra")
	flag.DurationVar(&s.pace, "pace", 20*time.Second, "length of the load at a stated rate; 0: leave it out")
	flag.IntVar(&s.idle, "idle", 10_000, "idle clients; 0: leave them out")
	flag.BoolVar(&s.node, "node", true, "measure locks on a real Cassandra too, which is fetched and started")
	flag.IntVar(&s.keys, "keys", 1_000_000, "locks held at once")
	flag.IntVar(&s.waiters, "waiters", 100_000, "waiters for one lock at once")
	flag.Parse()
	var err error
	s.only, err = regexp.Compile(only)
	return s, err
}

// run makes the measurements that the flags name, prints the results and saves them.
func run() error {
	s, err := parse()
	if err != nil {
		return err
	}
	s.idle = min(s.idle, (raiseLimits()-100)/2)
	r := report{When: time.Now().Format(time.RFC3339), Machine: fmt.Sprintf("%d cores, %s", runtime.NumCPU(), runtime.Version())}
	var before *report
	if s.against != "" {
		old, err := load(s.against)
		if err != nil {
			return err
		}
		before = &old
	}
	server, err := startChild("mock", s.mock)
	if err != nil {
		return err
	}
	defer server.stop()
	var faults []error
	for _, part := range []func(*report, *child) error{s.forward, s.paced, s.idleClients, s.scale, s.locks} {
		faults = append(faults, part(&r, server)) // after an error, all else is still measured and reported
	}
	fmt.Println()
	fmt.Print(r.markdown(before))
	return errors.Join(append(faults, r.save(s.out), r.plots(s.beside("")))...)
}

// beside returns the path of another file of the report.
func (s settings) beside(suffix string) string {
	return strings.TrimSuffix(s.out, filepath.Ext(s.out)) + suffix
}
