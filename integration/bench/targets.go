package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// goal is a number that the product promises: the worst value that was measured for it must be
// within the bound.
type goal struct {
	name  string
	bound float64
	least bool // the bound is the least, not the most
	unit  string
	of    func(r report) samples // one for each work
}

// goals returns those of docs/design.md 9 that one machine can show.
func goals() []goal {
	all := proxyGoals()
	for _, c := range contests() {
		all = append(all, goal{"write with IF and unlocked=auto, " + c.what + ": throughput of an LWT at the node", c.least, true, "", contestShare(c)})
	}
	return all
}

// proxyGoals returns the goals for what the proxy forwards, and for locks.
func proxyGoals() []goal {
	cpu, p50 := func(x row) samples { return x.cpu }, func(x row) samples { return x.p50 }
	return []goal{
		{"pipelined EXECUTE, small: CPU, proxy : relay", 2, false, "", ratiosOf(`^v\d(\+lz4)? EXECUTE (read|write), 4 x`, cpu)},
		{"pipelined EXECUTE, 8 KiB: CPU, proxy : relay", 2, false, "", ratiosOf(`^v\d(\+lz4)? EXECUTE (read|write) 8 KiB, 4 x`, cpu)},
		{"pipelined QUERY: CPU, proxy : relay", 2.5, false, "", ratiosOf(`^v\d(\+lz4)? QUERY read, 4 x`, cpu)},
		{"one at a time: p50, proxy : relay", 1.2, false, "", ratiosOf(`^v\d(\+lz4)? .*, 1 x 1$`, p50)},
		{"pipelined EXECUTE over TLS: CPU, proxy : TLS relay", 2, false, "", ratiosOf(`TLS EXECUTE .*, 4 x`, cpu)},
		{"pipelined QUERY over TLS: CPU, proxy : TLS relay", 2.5, false, "", ratiosOf(`TLS QUERY .*, 4 x`, cpu)},
		{"one at a time over TLS: p50, proxy : TLS relay", 1.2, false, "", ratiosOf(`TLS .*, 1 x 1$`, p50)},
		{"memory of an idle client", 16, false, "KiB", factsOf(`^memory of an idle client, proxy`)},
		{"put under a held lock: throughput of a plain QUORUM write through the proxy", 0.95, true, "", heldPut},
		{"start to the first forwarded query", 300, false, "ms", factsOf("^" + startName)},
		{fmt.Sprintf("longest stop by the garbage collector, at %d requests a second", paceRate), 1000, false, "µs", factsOf("^" + longestStop)},
	}
}

// ratiosOf returns the medians of a ratio for the works that match.
func ratiosOf(works string, ratio func(row) samples) func(report) samples {
	matches := regexp.MustCompile(works)
	return func(r report) (all samples) {
		for _, x := range r.rows() {
			if matches.MatchString(x.work) {
				all = append(all, ratio(x).median())
			}
		}
		return all
	}
}

// factsOf returns the medians of the facts that match.
func factsOf(names string) func(report) samples {
	matches := regexp.MustCompile(names)
	return func(r report) (all samples) {
		for _, f := range r.Facts {
			if matches.MatchString(f.Name) {
				all = append(all, f.Values.median())
			}
		}
		return all
	}
}

// heldPut returns the share of a put under a held lock, for each number of clients.
func heldPut(r report) (all samples) {
	for _, c := range r.Node {
		if share := c.share(put); share != nil {
			all = append(all, share.median())
		}
	}
	return all
}

// met reports whether all values are within the bound.
func (g goal) met(measured samples) bool {
	if g.least {
		return slices.Min(measured) >= g.bound
	}
	return slices.Max(measured) <= g.bound
}

// verdicts returns a table of the goals for which there are values, each with the range over its
// works. docs/performance.md has the same table.
func (r report) verdicts() string {
	text := "| target | | measured | |\n|---|---|---|---|\n"
	for _, g := range goals() {
		measured := g.of(r)
		if len(measured) == 0 {
			continue
		}
		verdict := "missed"
		if g.met(measured) {
			verdict = "met"
		}
		span := short(slices.Min(measured))
		if most := short(slices.Max(measured)); most != span {
			span += "–" + most
		}
		text += fmt.Sprintf("%s %s | %s |\n", g.row(), strings.TrimSpace(span+" "+g.unit), verdict)
	}
	return text
}

// row returns the beginning of the goal's row in a table: what is promised.
func (g goal) row() string {
	sign := "≤"
	if g.least {
		sign = "≥"
	}
	return fmt.Sprintf("| %s | %s |", g.name, strings.TrimSpace(fmt.Sprintf("%s %v %s", sign, g.bound, g.unit)))
}
