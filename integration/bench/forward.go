package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// target is something that serves the work: the server itself, or what stands in front of it.
type target struct {
	name    string
	address string
	cpu     func() time.Duration // nil: not a process of ours in between
}

// dialects are those that are measured.
func dialects() []dialect {
	return []dialect{
		{version: primitive.ProtocolVersion3},
		{version: primitive.ProtocolVersion4},
		{version: primitive.ProtocolVersion4, lz4: true},
		{version: primitive.ProtocolVersion5},
		{version: primitive.ProtocolVersion5, lz4: true},
	}
}

// forwarded is the work that concerns no critical table: small and large, text and prepared, many in flight and one at a time.
func forwarded() []work {
	const small, large = 100, 8 << 10
	var all []work
	for _, d := range dialects() {
		all = append(all,
			work{name: "EXECUTE read", dialect: d, value: 16, rows: small, clients: 4, depth: 64},
			work{name: "EXECUTE write", dialect: d, value: small, clients: 4, depth: 64},
			work{name: "QUERY read", dialect: d, query: true, value: 16, rows: small, clients: 4, depth: 64},
			work{name: "EXECUTE read 8 KiB", dialect: d, value: 16, rows: large, clients: 4, depth: 8},
			work{name: "EXECUTE write 8 KiB", dialect: d, value: large, clients: 4, depth: 8},
			work{name: "EXECUTE read", dialect: d, value: 16, rows: small, clients: 1, depth: 1},
		)
	}
	v4 := dialect{version: primitive.ProtocolVersion4}
	return append(all, work{name: "EXECUTE read", dialect: v4, value: 16, rows: small, clients: 1000, depth: 1})
}

// measured is what one target made of one work: a number for each round.
type measured struct {
	Target    string  `json:"target"`
	PerSecond samples `json:"per_second"`
	CPU       samples `json:"cpu_us"` // of the process in between, microseconds a request; empty without one
	P50       samples `json:"p50_us"` // of a window, microseconds
	P99       samples `json:"p99_us"`
}

// comparison is one work with all its targets, measured in turn.
type comparison struct {
	Work    string     `json:"work"`
	Targets []measured `json:"targets"`
}

// compare has the targets do the work in turns, so that whatever else the machine does hits all of them alike.
func compare(w work, targets []target, rounds int, span time.Duration) (comparison, error) {
	c := comparison{Work: w.String(), Targets: make([]measured, len(targets))}
	crowds := make([]crowd, len(targets))
	for i, t := range targets {
		c.Targets[i].Target = t.name
		all, err := gather(t.address, w)
		if err != nil {
			return c, fmt.Errorf("%s at %s: %w", w, t.name, err)
		}
		defer all.leave()
		crowds[i] = all
		if _, err := all.run(span / 4); err != nil { // warm
			return c, fmt.Errorf("%s at %s: %w", w, t.name, err)
		}
	}
	for range rounds {
		for i, t := range targets {
			if err := c.Targets[i].add(t, crowds[i], span); err != nil {
				return c, fmt.Errorf("%s at %s: %w", w, t.name, err)
			}
		}
	}
	return c, nil
}

// add measures one round.
func (m *measured) add(t target, all crowd, span time.Duration) error {
	var before time.Duration
	if t.cpu != nil {
		before = t.cpu()
	}
	o, err := all.run(span)
	if err != nil {
		return err
	}
	if t.cpu != nil {
		m.CPU = append(m.CPU, float64((t.cpu()-before).Nanoseconds())/1000/float64(o.requests))
	}
	m.PerSecond = append(m.PerSecond, o.perSecond())
	m.P50 = append(m.P50, float64(o.quantile(0.5).Nanoseconds())/1000)
	m.P99 = append(m.P99, float64(o.quantile(0.99).Nanoseconds())/1000)
	return nil
}

// tell prints a comparison as one line a target.
func (c comparison) tell(out io.Writer) {
	_, _ = fmt.Fprintf(out, "%s\n", c.Work)
	for _, m := range c.Targets {
		cpu := ""
		if len(m.CPU) > 0 {
			cpu = fmt.Sprintf("  CPU %s µs", m.CPU)
		}
		_, _ = fmt.Fprintf(out, "    %-8s %s/s  p50 %s µs  p99 %s µs%s\n", m.Target, m.PerSecond, m.P50, m.P99, cpu)
	}
}

// forward measures what is forwarded, with a server that costs next to nothing.
func (s settings) forward(r *report, server *child) error {
	targets := []target{{name: "direct", address: server.address}}
	for _, role := range []string{"relay", "proxy"} {
		c, err := startChild(role, server.address)
		if err != nil {
			return err
		}
		defer c.stop()
		targets = append(targets, target{name: role, address: c.address, cpu: c.cpu})
		if role == "proxy" {
			defer func() { r.pauses(c) }()
		}
	}
	if s.also != "" {
		name, address, _ := strings.Cut(s.also, "=")
		targets = append(targets, target{name: name, address: address})
	}
	for _, w := range forwarded() {
		if !s.only.MatchString(w.String()) {
			continue
		}
		c, err := compare(w, targets, s.rounds, s.span)
		if err != nil {
			return err
		}
		c.tell(os.Stdout)
		r.Comparisons = append(r.Comparisons, c)
	}
	return nil
}

// pauses notes how long the garbage collector has ever stopped the proxy.
func (r *report) pauses(proxy *child) {
	if longest, err := proxy.pause(); err == nil {
		r.Facts = append(r.Facts, fact{"longest pause of the garbage collector in all of it", float64(longest.Microseconds()), "µs at most"})
	}
}
