package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// The stated rate: a number of clients, each sending windows of requests at fixed intervals,
// whether or not the window before was answered. The clients' windows are spread over the interval.
const (
	paceClients = 100
	paceDepth   = 10
	paceEvery   = 10 * time.Millisecond

	paceRate = paceClients * paceDepth * int(time.Second/paceEvery) // requests a second
)

// arrival is a window of requests and its scheduled time.
type arrival struct {
	due  time.Time
	took time.Duration // from then to the last answer
}

// keepPace sends a client's windows at their times until a moment.
func (c *client) keepPace(first, end time.Time) (all []arrival, err error) {
	for due := first; due.Before(end); due = due.Add(paceEvery) {
		time.Sleep(time.Until(due))
		if err := c.round(); err != nil {
			return all, err
		}
		all = append(all, arrival{due, time.Since(due)})
	}
	return all, nil
}

// keepPace has all clients keep their pace for some time, and returns what they met and how long they took.
func (all crowd) keepPace(span time.Duration) (met []arrival, took time.Duration, err error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	began := time.Now()
	for i, c := range all {
		group.Go(func() {
			first := began.Add(paceEvery * time.Duration(i) / time.Duration(len(all)))
			own, fault := c.keepPace(first, began.Add(span))
			mu.Lock()
			defer mu.Unlock()
			met, err = append(met, own...), errors.Join(err, fault)
		})
	}
	group.Wait()
	return met, time.Since(began), err
}

// cycle is one garbage collection, from beginning to end.
type cycle struct{ began, ended time.Time }

// hit reports whether a window was open during a cycle.
func (a arrival) hit(cycles []cycle) bool {
	return slices.ContainsFunc(cycles, func(c cycle) bool { return a.due.Before(c.ended) && a.due.Add(a.took).After(c.began) })
}

// collectEvery is the time between two requested collections. The proxy by itself hardly collects,
// since forwarding does not allocate.
const collectEvery = 100 * time.Millisecond

// collect has the proxy collect garbage repeatedly for a time.
func (c *child) collect(span time.Duration) (all []cycle, err error) {
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(collectEvery) {
		text, err := c.ask(askCollect)
		if err != nil {
			return all, err
		}
		var began, ended int64
		if _, err := fmt.Sscan(text, &began, &ended); err != nil {
			return all, fmt.Errorf("%s is answered by %q: %w", askCollect, text, err)
		}
		all = append(all, cycle{time.Unix(0, began), time.Unix(0, ended)})
	}
	return all, nil
}

// paced measures what garbage collection does to clients at the stated rate: half of the time the
// proxy is left alone, half of it it collects all the time. The collector's trace is kept with the
// report. A witness measures what the machine itself does meanwhile.
func (s settings) paced(r *report, server *child) error {
	if s.pace == 0 {
		return nil
	}
	trace, err := os.Create(s.beside("-gc.txt"))
	if err != nil {
		return err
	}
	defer func() { _ = trace.Close() }()
	proxy, err := startChild("proxy", server.address, traced(trace))
	if err != nil {
		return err
	}
	defer proxy.stop()
	sleeper, err := startChild("witness", "")
	if err != nil {
		return err
	}
	p, fault := keepPaceAt(proxy, trace.Name(), s.pace/2)
	if p.lateOften, p.lateMost, err = sleeper.end(); err == nil && fault == nil {
		r.Facts = append(r.Facts, p.facts()...)
	}
	return errors.Join(err, fault)
}

// pacing is the result at the stated rate.
type pacing struct {
	quiet, met          []arrival // while the proxy was left alone, and while it collected
	took                time.Duration
	cycles              []cycle
	alone, stops        samples // by the garbage collector, µs
	lateOften, lateMost float64 // what the witness saw
}

// keepPaceAt runs both halves at a proxy, which writes its trace to a file.
func keepPaceAt(proxy *child, trace string, span time.Duration) (p pacing, err error) {
	w := work{name: "EXECUTE read", dialect: dialect{version: primitive.ProtocolVersion4}, value: 16, rows: 100, depth: paceDepth}
	all, err := gather(paceClients, func(int) (*client, error) { return dialClient(proxy.address, w) })
	if err != nil {
		return p, err
	}
	defer all.leave()
	if p.quiet, _, err = all.keepPace(span); err != nil {
		return p, err
	}
	if p.alone, err = stopsIn(trace); err != nil {
		return p, err
	}
	var fault error
	var collecting sync.WaitGroup
	collecting.Go(func() { p.cycles, fault = proxy.collect(span) })
	p.met, p.took, err = all.keepPace(span)
	collecting.Wait()
	if err = errors.Join(err, fault); err == nil {
		p.stops, err = stopsIn(trace)
	}
	return p, err
}

// longestStop is the fact of the longest stop at the stated rate.
const longestStop = "longest stop by the garbage collector, at a stated rate"

// facts returns the result as facts.
func (p pacing) facts() []fact {
	var during, outside, quiet samples
	for _, a := range p.met {
		if us := micro(a.took); a.hit(p.cycles) {
			during = append(during, us)
		} else {
			outside = append(outside, us)
		}
	}
	for _, a := range p.quiet {
		quiet = append(quiet, micro(a.took))
	}
	long := 0
	for _, us := range p.stops {
		if us > micro(longPause) {
			long++
		}
	}
	return []fact{
		{fmt.Sprintf("requests at a stated rate, %d clients: of %d a second", paceClients, paceRate), samples{float64(len(p.met)*paceDepth) / p.took.Seconds()}, "a second"},
		{fmt.Sprintf("collections of garbage in %d such requests, but for those asked for", len(p.quiet)*paceDepth), samples{float64(len(p.alone) / stopsOfCycle)}, ""},
		{fmt.Sprintf("stops by the garbage collector then, in %d collections that were asked for; longer than %v: %d", len(p.cycles), longPause, long), p.stops, "µs"},
		{longestStop, samples{p.stops.quantile(1)}, "µs"},
		{"99.9 % of the windows then within, while nothing was collected", samples{quiet.quantile(0.999)}, "µs"},
		{"… between collections", samples{outside.quantile(0.999)}, "µs"},
		{"… during collections", samples{during.quantile(0.999)}, "µs"},
		{"how late a process is woken then that only sleeps: 99.9 % of the times within", samples{p.lateOften}, "µs"},
		{"… and at most", samples{p.lateMost}, "µs"},
	}
}

// micro returns a duration in microseconds.
func micro(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// stopsOfCycle is how often a collection stops the world: before marking, and after it.
const stopsOfCycle = 2

// stopsIn reads the trace that GODEBUG=gctrace=1 writes. Of the three wall-clock times of each
// collection, the first and the last are those for which the world was stopped, including the wait
// for that. It returns microseconds.
func stopsIn(path string) (samples, error) {
	text, err := os.ReadFile(path) //nolint:gosec // G304: our own
	if err != nil {
		return nil, err
	}
	var all samples
	for _, m := range regexp.MustCompile(`(?m)^gc \d+ .*: ([\d.]+)\+[\d.]+\+([\d.]+) ms clock`).FindAllSubmatch(text, -1) {
		for _, stop := range m[1:] {
			ms, err := strconv.ParseFloat(string(stop), 64)
			if err != nil {
				return nil, fmt.Errorf("trace of the garbage collector: %w", err)
			}
			all = append(all, ms*1000)
		}
	}
	return all, nil
}

// collected collects garbage now, and returns when that began and ended, in nanoseconds of the wall
// clock.
func collected() string {
	began := time.Now()
	runtime.GC()
	return fmt.Sprintln(began.UnixNano(), time.Now().UnixNano())
}
