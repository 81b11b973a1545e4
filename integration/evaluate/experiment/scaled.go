package experiment

import (
	"context"
	"fmt"
)

// scaled is Fig. 4b: one-put sections over 3 or 9 nodes with 3 replicas.
func scaled(nodes int) Experiment {
	return Experiment{
		Name: fmt.Sprintf("fig4b-%d", nodes), Title: fmt.Sprintf("one-put sections over %d nodes with small heaps, 3 replicas (paper, Fig. 4b)", nodes),
		Systems: []string{MUSIC, MSCP, Ours}, Profiles: []string{"IUs"}, Paxos: []string{"v2"}, Nodes: nodes,
		Metrics: []Metric{{"section", "ms (mean), one client a site"}, {"sections", "a second, many clients"}, {"LWTs", "a section"}},
		Claims: []Claim{
			{Of: MUSIC, To: MSCP, Metric: "sections", Paper: "1.30–1.36"},
			{Of: newKey, To: MUSIC, Metric: "section"},
			{Of: newKey, To: MUSIC, Metric: "sections"},
		},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, "Heaps of 192 MB. All nodes share the cores of one machine, so that the throughput is what these give and not what more nodes would; "+
				"clients of a site use the first of its nodes.")
			unit, err := r.paxosRowsOfOne(ctx)
			if err != nil {
				return err
			}
			var turns []turn
			for _, k := range r.kinds() {
				if k.row == knownKey || k.row == ourStays {
					continue
				}
				turns = append(turns, turn{k.row, "", r.scaledTurn(k, unit)})
			}
			return r.takeTurns(ctx, turns)
		},
	}
}

// scaledTurn has one client at each site, whose LWTs are counted, and then many.
func (r *Run) scaledTurn(k kind, unit float64) turnFunc {
	count := r.costTurn(k, unit)
	return func(ctx context.Context, name string) (map[string]float64, error) {
		values, err := count(ctx, name)
		if err != nil {
			return nil, err
		}
		o := r.fleets[k.system].Run(ctx, Load{Workers: r.Workers, Span: r.Span, Key: k.keys(name + "many"), Body: puts(1, 10)})
		rates, err := o.rates()
		if err != nil {
			return nil, err
		}
		return map[string]float64{"section": values["section"], "LWTs": values["LWTs"], "sections": rates["sections"]}, nil
	}
}
