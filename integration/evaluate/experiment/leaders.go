package experiment

import (
	"context"
	"errors"
	"fmt"
)

// led is a one-put section of one client at each site, with the leaders of ZooKeeper and etcd at each site in turn.
func led() Experiment {
	systems := []string{QuorumWrite, LWT, ZooKeeper, Etcd, Ours}
	return Experiment{
		Name: "leaders", Title: "latency of a one-put section by where the leader of ZooKeeper and of etcd is", Systems: systems, Long: true,
		Profiles: []string{"IUs"}, Paxos: []string{"v2"},
		Metrics: []Metric{{"section", "ms (mean)"}, {"to the put's answer", "ms (mean)"}, {"sum", "ms, of the sites' medians to the put's answer"}, {"unknown", "sections"}},
		Claims: []Claim{
			{Of: newKey, To: ZooKeeper, Metric: "sum"},
			{Of: newKey, To: Etcd, Metric: "sum"},
			{Of: ourStays, To: ZooKeeper, Metric: "sum"},
			{Of: ourStays, To: Etcd, Metric: "sum"},
		},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, "The leaders that were measured are those of the rows. What has no leader is measured beside each.")
			var turns []turn
			for site := 1; site <= Sites; site++ {
				x := fmt.Sprintf("leader at site %d", site)
				for _, k := range r.kinds() {
					turns = append(turns, turn{k.row, x, r.sumTurn(k)})
				}
				turns = append(turns, r.turnsAt(x, []string{ZooKeeper, Etcd}, func(s string) turnFunc { return r.ledTurn(s, site) })...)
			}
			return r.takeTurns(ctx, turns)
		},
	}
}

// sumTurn is sections of one client at each site.
func (r *Run) sumTurn(k kind) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		o, err := r.alone(ctx, k, name)
		if err != nil {
			return nil, err
		}
		values := o.waits()
		for site := 1; site <= Sites; site++ {
			values["sum"] += o.at(site).Median()
		}
		return values, nil
	}
}

// at returns how long those of a site took to the put's answer, in milliseconds.
func (o Outcome) at(site int) (all Samples) {
	for _, t := range o.Sections {
		if t.Site == site {
			all = append(all, inMS(t.Done))
		}
	}
	return all
}

// ledTurn is the same with the leader at a site. The clients are new ones, since their servers were killed.
func (r *Run) ledTurn(system string, site int) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		s := r.fleets[system].System
		if err := r.lead(ctx, s, site); err != nil {
			return nil, err
		}
		f, err := Muster(r.World, s)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		f.Run(ctx, Load{Workers: 1, Turns: 1, Span: sectionLimit, Key: fresh(name + "first"), Body: puts(1, 10)})
		one := Run{Settings: r.Settings, fleets: map[string]*Fleet{system: f}}
		return one.sumTurn(kind{system, system, fresh})(ctx, name)
	}
}

// lead has the server of a site lead the ensemble of a system.
func (r *Run) lead(ctx context.Context, s System, site int) error {
	ctx, end := context.WithTimeout(ctx, 2*sectionLimit)
	defer end()
	c, err := s.Open(r.Place(site))
	if err != nil {
		return err
	}
	defer c.Close()
	return r.others[s.Needs].Lead(ctx, site-1, func(ctx context.Context) error {
		held, err := c.Enter(ctx, r.name(s.Name))
		if err != nil {
			return err
		}
		return errors.Join(held.Put(ctx, []byte(s.Name)), held.Leave(ctx))
	})
}
