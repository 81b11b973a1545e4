package experiment

import (
	"context"
	"time"
)

// contended is not in any paper: one key that clients of one site, or of all sites, lock at once.
func contended() Experiment {
	systems := []string{MUSIC, MSCP, ZooKeeper, MUSICOnZK, Etcd, Racing, LockTable, Bakery, Lease, Optimistic, Heartbeat, ShedLock, Ours, ForUpdate, Auto}
	return Experiment{
		Name: "contended", Title: "one key that all want", Systems: systems, Profiles: []string{"IUs"}, Paxos: []string{"v2"},
		Metrics: []Metric{
			{"sections", "a second"},
			{"fairness", "Jain's index of the sites"},
			{"least share", "of a site's part"},
			{"p50", "ms"},
			{"p99", "ms"},
			{"unknown", "share of the tries"},
			{"lost", "share of the tries"},
		},
		Claims: []Claim{
			{Of: Ours, To: MUSIC, Metric: "sections"},
			{Of: Ours, To: Racing, Metric: "sections"},
			{Of: Ours, To: ZooKeeper, Metric: "sections"},
			{Of: Ours, Metric: "least share", Least: 0.8, Why: "each turn begins with a new key, whose clients have no place at one site yet (in 25 s, make contend, each site has its third)"},
		},
		Run: func(ctx context.Context, r *Run) error {
			var turns []turn
			for _, c := range crowds() {
				if c.long && !r.Full {
					continue
				}
				turns = append(turns, r.turnsAt(c.name, systems, func(s string) turnFunc { return r.crowdTurn(s, c) })...)
			}
			return r.takeTurns(ctx, turns)
		},
	}
}

// crowd is one point of contended.
type crowd struct {
	name    string
	workers int // at each site
	sites   []int
	long    bool // for full runs only
}

// crowds returns its points.
func crowds() []crowd {
	one, all := []int{1}, []int{1, 2, 3}
	return []crowd{
		{"1 client at 1 site", 1, one, true},
		{"10 clients at 1 site", 10, one, false},
		{"100 clients at 1 site", 100, one, true},
		{"1 client at each of 3 sites", 1, all, true},
		{"3 clients at each of 3 sites", 3, all, false},
		{"10 clients at each of 3 sites", 10, all, true},
		{"33 clients at each of 3 sites", 33, all, true},
	}
}

// standstill is how long a client waits for the key at least before the key counts as blocked.
const standstill = 10 * time.Second

// crowdTurn has all clients lock one key.
func (r *Run) crowdTurn(system string, c crowd) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		o := r.fleets[system].Run(ctx, Load{
			Workers: c.workers, Sites: c.sites, Span: r.Span, Limit: max(standstill, r.Span), Key: common(name), Body: puts(1, 10),
		})
		rates, err := o.rates()
		if err != nil {
			return nil, err
		}
		index, least := o.fairness(c.sites)
		waits, tries := o.waits(), float64(len(o.Sections)+o.Lost+o.Unknown)
		return map[string]float64{
			"sections": rates["sections"], "fairness": index, "least share": least, "p50": waits["p50"], "p99": waits["p99"],
			"unknown": float64(o.Unknown) / tries, "lost": float64(o.Lost) / tries,
		}, nil
	}
}

// fairness returns Jain's index of the sections of the sites, and the share of the site with the
// fewest sections relative to an even share.
func (o Outcome) fairness(sites []int) (index, least float64) {
	counts := map[int]float64{}
	for _, t := range o.Sections {
		counts[t.Site]++
	}
	sum, squares, fewest := 0.0, 0.0, float64(len(o.Sections))
	for _, site := range sites {
		n := counts[site]
		sum, squares, fewest = sum+n, squares+n*n, min(fewest, n)
	}
	parts := float64(len(sites))
	return sum * sum / (parts * squares), fewest * parts / sum
}
