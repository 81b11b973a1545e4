package experiment

import (
	"context"

	"music/integration/evaluate/transaction"
)

// updates is Fig. 7: one section of many updates, beside an exclusive transaction for each update.
func updates() Experiment {
	systems := []string{MUSIC, EachUpdate, Ours}
	return Experiment{
		Name: "fig7", Title: "one section of many updates beside a transaction for each (paper, Fig. 7)", Systems: systems,
		Profiles: []string{"IUs"}, Paxos: []string{"v2"},
		Metrics: []Metric{{"section", "ms (mean)"}, {"an update", "ms"}},
		Claims: []Claim{
			{Of: EachUpdate, To: MUSIC, Metric: "section", Paper: "2–4, by CockroachDB"},
			{
				Of: EachUpdate, To: Ours, Metric: "section", Least: 2,
				Why: "that transaction is two LWTs, and a section of one update is one and a QUORUM write, by the rows more than half as much",
			},
		},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, "One client at the first site, as in the paper. A transaction for each update is here two LWTs, a check of the lock row in each; "+
				"by BEGIN TRANSACTION of Cassandra 6, which is nearer to CockroachDB's, it is in the figure after this.")
			return r.updates(ctx, systems, []batch{
				{"1 update", 1, 10, false},
				{"10 updates", 10, 10, false},
				{"100 updates", 100, 10, false},
				{"1000 updates", 1000, 10, true},
				{"100 updates of 16 kB", 100, 16 << 10, true},
				{"100 updates of 256 kB", 100, 256 << 10, true},
			})
		},
	}
}

// transactions is Fig. 7 with transactions of Cassandra 6, all systems on nodes of that.
func transactions() Experiment {
	systems := []string{MUSIC, EachUpdate, Transaction, Ours}
	return Experiment{
		Name: "fig7-6", Title: "the same on Cassandra " + transaction.Release + ", with its transactions (paper, Fig. 7)", Systems: systems,
		Profiles: []string{"IUs"}, Paxos: []string{"v2"}, Release: transaction.Release, Long: true,
		Metrics: []Metric{{"section", "ms (mean)"}, {"an update", "ms"}},
		Claims: []Claim{
			{Of: Transaction, To: MUSIC, Metric: "section", Paper: "2–4, by CockroachDB"},
			{
				Of: Transaction, To: Ours, Metric: "section", Least: 2,
				Why: "such a transaction takes the round trip to a quorum that a put takes, too, by the rows; a section has its LOCK besides, and keeps the key between its updates",
			},
		},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, "One client at the first site, as in the paper. The release is an alpha, for which its transactions are not tuned.")
			return r.updates(ctx, systems, []batch{{"1 update", 1, 10, false}, {"10 updates", 10, 10, false}, {"100 updates", 100, 10, false}})
		},
	}
}

// updates times sections of these batches.
func (r *Run) updates(ctx context.Context, systems []string, batches []batch) error {
	var turns []turn
	for _, b := range batches {
		if b.long && !r.Full {
			continue
		}
		turns = append(turns, r.turnsAt(b.name, systems, func(s string) turnFunc { return r.updatesTurn(s, b) })...)
	}
	return r.takeTurns(ctx, turns)
}

// updatesTurn is sections of one client.
func (r *Run) updatesTurn(system string, b batch) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		o := r.fleets[system].Run(ctx, Load{Workers: 1, Sites: []int{1}, Span: r.Span, Limit: longLimit, Key: fresh(name), Body: puts(b.puts, b.size)})
		if _, err := o.rates(); err != nil {
			return nil, err
		}
		mean := o.mean(left)
		return map[string]float64{"section": mean, "an update": mean / float64(b.puts)}, nil
	}
}
