package experiment

import (
	"context"
	"fmt"

	"music/integration/evaluate/section"
)

// batches is Fig. 6: what is put in a second where a section has many puts, or large ones. The paper's
// ratio of MUSIC to ZooKeeper is given; that to MSCP is the same "in both experiments" (VIII-c). A section of one put is not in the
// paper's Fig. 6, and its numbers for that are others.
func batches(name, title, overZooKeeper string, points []batch) Experiment {
	return Experiment{
		Name: name, Title: title, Systems: []string{MUSIC, MSCP, ZooKeeper, Etcd, Ours}, Profiles: []string{"IUs"}, Paxos: []string{"v2"},
		Metrics: []Metric{{"puts", "a second"}, {"unknown", "sections"}},
		Claims: []Claim{
			{Of: MUSIC, To: ZooKeeper, Metric: "puts", Paper: overZooKeeper, PaperAt: [2]string{onePut, "0.3 (885 to ~3,000 a second)"}},
			{Of: MUSIC, To: MSCP, Metric: "puts", Paper: "2–3.5", PaperAt: [2]string{onePut, "1.3 (Fig. 4a)"}},
			{Of: Ours, To: MUSIC, Metric: "puts", Least: 1, Why: "a put is one QUORUM write for both, and the other steps are a small part of a hundred"},
			{Of: Ours, To: ZooKeeper, Metric: "puts", Least: 1},
			{Of: pipelined, To: Ours, Metric: "puts"},
		},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, fmt.Sprintf("%d clients at each site: this is what they get, and not the peak of the paper's figure, for which servers were saturated.",
				min(batchClients, r.Workers)))
			var turns []turn
			for _, b := range points {
				if b.long && !r.Full {
					continue
				}
				turns = append(turns, r.turnsAt(b.name, []string{MUSIC, MSCP, ZooKeeper, Etcd, Ours}, func(s string) turnFunc { return r.batchTurn(s, b, puts(b.puts, b.size)) })...)
				if r.has(Ours) {
					turns = append(turns, turn{pipelined, b.name, r.batchTurn(Ours, b, pipeline(b.puts, b.size))})
				}
			}
			return r.takeTurns(ctx, turns)
		},
	}
}

// onePut is the point at which a section has one put.
const onePut = "1 put"

// pipelined is the row of the product whose clients do not wait for each answer.
const pipelined = "ours, pipelined"

// batch is a point of Fig. 6.
type batch struct {
	name       string
	puts, size int
	long       bool // for full runs only
}

// batchClients is how many clients a site has at most, since a section of theirs may be long.
const batchClients = 4

// batchTurn is a section or more of each client, of so many puts.
func (r *Run) batchTurn(system string, b batch, body func(context.Context, Worker, section.Held) error) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		o := r.fleets[system].Run(ctx, Load{Workers: min(batchClients, r.Workers), Span: r.Span, Limit: longLimit, Key: fresh(name), Body: body})
		if _, err := o.rates(); err != nil {
			return nil, err
		}
		return map[string]float64{"puts": float64(len(o.Sections)*b.puts) / o.Took.Seconds(), "unknown": float64(o.Unknown)}, nil
	}
}

// pipeline is a body of puts of which none waits for the one before.
func pipeline(n, size int) func(context.Context, Worker, section.Held) error {
	return func(ctx context.Context, w Worker, held section.Held) error {
		var values [][]byte
		for i := range n {
			values = append(values, value(size, w, i))
		}
		many, is := held.(section.Pipeliner)
		if !is {
			return fmt.Errorf("%w: it cannot put many", ErrTest)
		}
		return many.PutMany(ctx, values)
	}
}
