package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// target is a server to measure: the server itself, or a relay or proxy in front of it.
type target struct {
	name    string
	address string
	cpu     func() time.Duration // of the process in between; nil: there is none of ours
	store   func() time.Duration // of the node; nil: there is none
}

// dialects returns the dialects that are measured.
func dialects() []dialect {
	return []dialect{
		{version: primitive.ProtocolVersion3},
		{version: primitive.ProtocolVersion4},
		{version: primitive.ProtocolVersion4, lz4: true},
		{version: primitive.ProtocolVersion5},
		{version: primitive.ProtocolVersion5, lz4: true},
		{version: primitive.ProtocolVersion5, tls: true},
	}
}

// forwarded returns the work that is on no critical table: small and large, text and prepared, many
// requests in flight and one at a time.
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
	return append(all, grown()...)
}

// grown returns the work by which one sees that no curve bends: answers from small to large, and
// few to many clients.
func grown() []work {
	v4 := dialect{version: primitive.ProtocolVersion4}
	all := []work{
		{name: "EXECUTE read 10 B", dialect: v4, value: 16, rows: 10, clients: 4, depth: 64},
		{name: "EXECUTE read 1 KiB", dialect: v4, value: 16, rows: 1 << 10, clients: 4, depth: 64},
		{name: "EXECUTE read 64 KiB", dialect: v4, value: 16, rows: 64 << 10, clients: 4, depth: 4},
		{name: "EXECUTE read 1 MiB", dialect: v4, value: 16, rows: 1 << 20, clients: 4, depth: 1},
	}
	for _, clients := range []int{10, 100, 1000, 5000} {
		all = append(all, work{name: "EXECUTE read", dialect: v4, value: 16, rows: 100, clients: clients, depth: 1})
	}
	return all
}

// measured is the result of one target for one work: a value for each round.
type measured struct {
	Target    string  `json:"target"`
	PerSecond samples `json:"per_second"`
	CPU       samples `json:"cpu_us"`             // of the process in between, microseconds a request; empty without one
	Store     samples `json:"store_us,omitempty"` // of the node, likewise
	P50       samples `json:"p50_us"`             // of a window, microseconds
	P99       samples `json:"p99_us"`
	Again     int     `json:"tried_again"` // answers that were errors, in all rounds, after which a client has tried again
}

// comparison is one work with all its targets, measured in turn.
type comparison struct {
	Work    string     `json:"work"`
	Targets []measured `json:"targets"`
}

// lane is a target with the clients that work at it.
type lane struct {
	target
	gather func() (crowd, error)
}

// at returns a work at each target.
func (w work) at(targets []target) []lane {
	var all []lane
	for _, t := range targets {
		dial := func(int) (*client, error) { return dialClient(t.address, w) }
		all = append(all, lane{target: t, gather: func() (crowd, error) { return gather(w.clients, dial) }})
	}
	return all
}

// compare has the lanes work in turns, so that whatever else the machine does affects all of them;
// each round begins with another lane. Each lane is warmed up first. A lane that fails is left out
// from then on.
func compare(name string, lanes []lane, rounds int, span time.Duration) (comparison, error) {
	c := comparison{Work: name, Targets: make([]measured, len(lanes))}
	crowds, faults := make([]crowd, len(lanes)), make([]error, len(lanes))
	for i, l := range lanes {
		c.Targets[i].Target = l.name
		if crowds[i], faults[i] = l.gather(); faults[i] == nil {
			defer crowds[i].leave()
			_, faults[i] = crowds[i].run(2 * span)
		}
	}
	for round := range rounds {
		for k := range lanes {
			i := (round + k) % len(lanes)
			if faults[i] == nil {
				faults[i] = c.Targets[i].add(lanes[i].target, crowds[i], span)
			}
		}
	}
	for i, fault := range faults {
		if fault != nil {
			faults[i] = fmt.Errorf("%s, %s: %w", name, lanes[i].name, fault)
		}
	}
	return c, errors.Join(faults...)
}

// add measures one round.
func (m *measured) add(t target, all crowd, span time.Duration) error {
	cpu, store := sinceNow(t.cpu), sinceNow(t.store)
	o, err := all.run(span)
	if err != nil {
		return err
	}
	m.CPU, m.Store = append(m.CPU, cpu(o.requests)...), append(m.Store, store(o.requests)...)
	m.Again += o.again
	m.PerSecond = append(m.PerSecond, o.perSecond())
	m.P50 = append(m.P50, float64(o.quantile(0.5).Nanoseconds())/1000)
	m.P99 = append(m.P99, float64(o.quantile(0.99).Nanoseconds())/1000)
	return nil
}

// sinceNow returns what a clock has advanced since, in microseconds for each of some requests; nothing
// if there is no clock.
func sinceNow(clock func() time.Duration) func(requests int) samples {
	if clock == nil {
		return func(int) samples { return nil }
	}
	began := clock()
	return func(requests int) samples {
		return samples{float64((clock() - began).Nanoseconds()) / 1000 / float64(requests)}
	}
}

// tell prints a comparison, a line for each target.
func (c comparison) tell(out io.Writer) {
	_, _ = fmt.Fprintf(out, "%s\n", c.Work)
	for _, m := range c.Targets {
		cpu := ""
		if len(m.CPU) > 0 {
			cpu = fmt.Sprintf("  CPU %s µs", m.CPU)
		}
		if len(m.Store) > 0 {
			cpu += fmt.Sprintf("  node %s µs", m.Store)
		}
		if m.Again > 0 {
			cpu += fmt.Sprintf("  tried again %d times", m.Again)
		}
		_, _ = fmt.Fprintf(out, "    %-34s %s/s  p50 %s µs  p99 %s µs%s\n", m.Target, m.PerSecond, m.P50, m.P99, cpu)
	}
}

// forward measures what is forwarded, with a server that costs next to nothing. With TLS, all three
// terminate it towards the clients, and relay and proxy use plain text towards the server behind
// them.
func (s settings) forward(r *report, server *child) error {
	return errors.Join(s.forwardOver(r, server, false), s.forwardOver(r, server, true))
}

// forwardOver measures with TLS or without.
func (s settings) forwardOver(r *report, server *child, secure bool) error {
	var all []work
	for _, w := range forwarded() {
		if w.dialect.tls == secure && s.only.MatchString(w.String()) {
			all = append(all, w)
		}
	}
	if len(all) == 0 {
		return nil
	}
	children, err := inBetween(server, secure)
	if err != nil {
		return err
	}
	defer children.stop()
	direct, relay, proxy := server, children[0], children[1]
	if secure {
		direct = children[2]
	}
	targets := []target{{name: "direct", address: direct.address}, relay.target("relay"), proxy.target("proxy")}
	if name, address, found := strings.Cut(s.also, "="); found && !secure {
		targets = append(targets, target{name: name, address: address})
	}
	var faults []error
	for _, w := range all {
		rounds, span := s.rounds, s.span
		if w.clients > 100 { // one window of all clients takes longer than a round
			rounds, span = fewer(rounds), 10*span
		}
		c, err := compare(w.String(), w.at(targets), rounds, span)
		faults = append(faults, err)
		c.tell(os.Stdout)
		r.Comparisons = append(r.Comparisons, c)
	}
	return errors.Join(append(faults, r.pauses(proxy, secure))...)
}

// children are some that are stopped together.
type children []*child

// stop ends them all.
func (all children) stop() {
	for _, c := range all {
		c.stop()
	}
}

// inBetween starts a relay and a proxy in front of the server and, for clients with TLS, a server
// with TLS, too.
func inBetween(server *child, secure bool) (children, error) {
	roles := []string{"relay", "proxy"}
	if secure {
		roles = []string{"relay" + overTLS, "proxy" + overTLS, "mock" + overTLS}
	}
	var all children
	for _, role := range roles {
		c, err := startChild(role, server.address)
		if err != nil {
			all.stop()
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// pauseName begins the facts of pauses.
const pauseName = "longest pause by the garbage collector of the proxy in all of that"

// pauses records the longest pauses of the proxy by its garbage collector.
func (r *report) pauses(proxy *child, secure bool) error {
	p, err := proxy.pauses()
	if err != nil {
		return fmt.Errorf("pauses of the proxy: %w", err)
	}
	name := pauseName
	if secure {
		name += ", TLS"
	}
	name = fmt.Sprintf("%s; of %d, longer than %v: %d", name, p.all, longPause, p.long)
	r.Facts = append(r.Facts, fact{name, samples{float64(p.longest.Microseconds())}, "µs at most"})
	return nil
}
