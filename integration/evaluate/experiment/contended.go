package experiment

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"music/integration/evaluate/section"
)

// contended is what no paper has measured: one key that clients of one site or of all of them want at once.
func contended() Experiment {
	systems := []string{MUSIC, MSCP, ZooKeeper, Racing, LockTable, Bakery, Lease, Optimistic, Heartbeat, Ours, ForUpdate, Auto}
	return Experiment{
		Name: "contended", Title: "one key that all want", Systems: systems, Profiles: []string{"IUs"}, Paxos: []string{"v2"},
		Metrics: []Metric{
			{"sections", "a second"}, {"fairness", "Jain's index of the sites"}, {"least share", "of a site's part"}, {"p50", "ms"}, {"p99", "ms"},
			{"unknown", "share of the tries"}, {"lost", "share of the tries"},
		},
		Claims: []Claim{{Of: Ours, To: MUSIC, Metric: "sections"}, {Of: Ours, To: Racing, Metric: "sections"}},
		Run: func(ctx context.Context, r *Run) error {
			var turns []turn
			for _, c := range crowds() {
				if c.long && !r.Full {
					continue
				}
				for _, s := range systems {
					if r.has(s) {
						turns = append(turns, turn{s, c.name, r.crowdTurn(s, c)})
					}
				}
			}
			return r.takeTurns(ctx, turns)
		},
	}
}

// crowd is a point of contended.
type crowd struct {
	name    string
	workers int // at each site
	sites   []int
	long    bool // for full runs only
}

// crowds are its points.
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

// standstill is how long somebody waits for a key that all want, at least, before it counts as not to be had.
const standstill = 10 * time.Second

// crowdTurn has all want one key.
func (r *Run) crowdTurn(system string, c crowd) func(context.Context, string) (map[string]float64, error) {
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

// fairness is Jain's index of the sections of some sites, and the part of its even share that the one with the fewest has had.
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

// takeover is how long the next client waits where a holder has died.
func takeover() Experiment {
	return Experiment{
		Name: "takeover", Title: "the holder dies: until another site has its key", Systems: []string{Ours}, Profiles: []string{"IUs"}, Paxos: []string{"v2"},
		Metrics: []Metric{{"p50", "s"}, {"p99", "s"}, {"not in 40 s", "keys"}},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, "Clients at site 2 wait for keys that clients at site 1 hold. The session lease of the proxies is 10 s, the lease of a client 30 s.")
			if !r.has(Ours) {
				return nil
			}
			return r.takeTurns(ctx, []turn{{"ours, the holder's proxy is killed", "", r.proxyDies}})
		},
	}
}

// proxyDies has many keys held at site 1, kills its proxy, and waits for them at site 2.
func (r *Run) proxyDies(ctx context.Context, name string) (map[string]float64, error) {
	const keys, limit = 50, 40 * time.Second
	f := r.fleets[Ours]
	never := make(chan struct{})
	var holding atomic.Int32
	holders, end := context.WithCancel(ctx)
	defer end()
	over := make(chan struct{})
	go func() {
		defer close(over)
		f.Run(holders, Load{Workers: keys, Sites: []int{1}, Turns: 1, Span: limit, Key: siteless(name), Body: func(ctx context.Context, _ Worker, _ section.Held) error {
			holding.Add(1)
			select {
			case <-never:
			case <-ctx.Done():
			}
			return ctx.Err()
		}})
	}()
	for tick := time.Tick(10 * time.Millisecond); holding.Load() < keys; {
		select {
		case <-tick:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	r.KillProxy(1)
	waited, stop := context.WithTimeout(ctx, limit)
	o := f.Run(waited, Load{Workers: keys, Sites: []int{2}, Turns: 1, Span: limit, Key: siteless(name), Body: puts(1, 10)})
	stop()
	if err := r.StartProxy(ctx, 1); err != nil {
		return nil, err
	}
	end()
	<-over
	all := Samples(o.spans(func(t Timing) time.Duration { return t.Entered / 1000 }))
	slices.Sort(all)
	return map[string]float64{"p50": all.Quantile(0.5), "p99": all.Quantile(0.99), "not in 40 s": float64(keys - len(all))}, nil
}

// siteless gives workers of the same number at different sites the same key.
func siteless(name string) func(Worker) string {
	return func(w Worker) string { return fmt.Sprintf("%s/%d", name, w.Number) }
}
