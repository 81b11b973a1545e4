package main

import "fmt"

// The names of the ways to write with IF. The first is what the others are compared with.
const (
	bareLWT = "LWT, direct"
	relayed = "LWT through the proxy"
	autoLWT = "LWT with unlocked=auto"
)

// contest is how many clients write with IF at once, and which keys.
type contest struct {
	what    string
	clients int
	shared  bool // all one key
	fresh   bool // a key is written once only
	least   float64
}

// contests returns them with the throughput that unlocked=auto is to have of an LWT's at the node.
func contests() []contest {
	return []contest{
		{what: "one key, 1 client", clients: 1, shared: true, least: 1},
		{what: "one key, 16 clients", clients: 16, shared: true, least: 2},
		{what: "a key each, 4 clients", clients: 4, least: 0.9},
		{what: "a new key each time, 4 clients", clients: 4, fresh: true, least: 0.4},
	}
}

// work returns the name of the contest in the report.
func (c contest) work() string { return "conditional writes: " + c.what }

// ways returns the ways of a contest.
func (c contest) ways() []way {
	in := func(table string) func(*writer, []byte) error {
		return func(w *writer, value []byte) error {
			switch {
			case c.fresh:
				w.renew()
				_, err := w.applied("INSERT INTO "+table+" (v, k) VALUES (?, ?) IF NOT EXISTS", value, w.key)
				return err
			case c.shared:
				w.key = []byte(c.what)
			}
			return w.conditional(table, value)
		}
	}
	return []way{{name: bareLWT, direct: true, once: in("bench.plain")}, {name: relayed, once: in("bench.plain")}, {name: autoLWT, once: in("bench.auto")}}
}

// renew gives the writer a key that nobody has written.
func (w *writer) renew() {
	w.keys++
	w.key = fmt.Appendf(nil, "%s#%d", w.name, w.keys)
}

// contestShare returns the share of an LWT's throughput that unlocked=auto has.
func contestShare(of contest) func(report) samples {
	return func(r report) (all samples) {
		for _, c := range r.Node {
			if share := c.share(autoLWT); c.Work == of.work() && share != nil {
				all = append(all, share.median())
			}
		}
		return all
	}
}
