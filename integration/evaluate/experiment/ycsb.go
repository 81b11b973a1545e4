package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"music/integration/evaluate/section"
)

// ycsb is Fig. 9: reads and updates of keys that are drawn as YCSB draws them, so that some are wanted by several clients.
func ycsb() Experiment {
	systems := []string{MUSIC, MSCP, Ours, Auto, ForUpdate}
	return Experiment{
		Name: "fig9", Title: "YCSB: reads and updates of keys drawn by a Zipfian distribution (paper, Fig. 9)", Systems: systems,
		Profiles: []string{"IUs"}, Paxos: []string{"v2"},
		Metrics: []Metric{{"operations", "a second"}, {"mean", "ms"}, {"unknown", "operations"}},
		Claims: []Claim{
			{Of: MUSIC, To: MSCP, Metric: "operations", Paper: "1.06–1.2"}, {Of: Ours, To: MUSIC, Metric: "operations", Least: 1},
		},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, fmt.Sprintf("%d clients at each site, so that about one operation in twenty wants a key that another one has, as in the paper; of its %d operations "+
				"those that a turn has time for.", ycsbClients, operations))
			var turns []turn
			for _, w := range []struct {
				name    string
				updates float64
			}{{"R", 0}, {"UR", 0.5}, {"U", 1}} {
				turns = append(turns, r.turnsAt(w.name, systems, func(s string) turnFunc { return r.ycsbTurn(s, w.updates) })...)
			}
			return r.takeTurns(ctx, turns)
		},
	}
}

// operations are those of a workload, and ycsbClients those that do them at each site.
const operations, ycsbClients = 10_000, 2

// ycsbTurn does operations of which a part are updates, each a section of its own.
func (r *Run) ycsbTurn(system string, updates float64) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		o := r.fleets[system].Run(ctx, Load{
			Workers: ycsbClients, Span: r.Span, Turns: operations / Sites / ycsbClients, Key: zipf(name),
			Body: func(ctx context.Context, w Worker, h section.Held) error {
				if rand.Float64() < updates { //nolint:gosec // G404: chance, not secrets
					return h.Put(ctx, value(10, w, 0))
				}
				if _, err := h.Get(ctx); err != nil && !errors.Is(err, section.ErrNoValue) {
					return err
				}
				return nil
			},
		})
		rates, err := o.rates()
		if err != nil {
			return nil, err
		}
		return map[string]float64{"operations": rates["sections"], "mean": o.mean(left), "unknown": rates["unknown"]}, nil
	}
}

// zipf draws keys as YCSB does: of a hundred thousand, the first of them far more often than the last.
func zipf(name string) func(Worker) string {
	const keys, skew, seed = 100_000, 1.01, 1
	var mu sync.Mutex
	z := rand.NewZipf(rand.New(rand.NewPCG(seed, seed)), skew, 1, keys-1) //nolint:gosec // G404: chance, not secrets
	return func(Worker) string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("%s/%d", name, z.Uint64())
	}
}
