package experiment

import (
	"context"
	"sync"
	"time"

	"music/integration/evaluate/section"
)

// writers is how many clients write at one site where that is measured.
const writers = 64

// writes is what many clients at one site write, each on a key of its own.
func writes() Experiment {
	systems := []string{QuorumWrite, LWT, ZooKeeper, Etcd, Ours}
	return Experiment{
		Name: "writes", Title: "writes a second of 64 clients at the first site, each on a key of its own", Systems: systems,
		Profiles: []string{"IUs"}, Paxos: []string{"v2"}, Metrics: []Metric{{"puts", "a second"}},
		Claims: []Claim{
			{Of: ourStays, To: ZooKeeper, Metric: "puts", Least: 1},
			{Of: ourStays, To: Etcd, Metric: "puts"},
			{Of: ourStays, To: QuorumWrite, Metric: "puts"},
			{Of: ourStays, To: LWT, Metric: "puts"},
			{Of: Ours, To: QuorumWrite, Metric: "puts"},
		},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, "Values of 10 B. Each client enters once and puts one value after the other; what entering takes is not counted. "+
				"In the row of a key that stays, each put is entered and left by itself, with a key that the proxy keeps.")
			turns := r.turnsAt("", systems, r.heldTurn)
			if r.has(Ours) {
				turns = append(turns, turn{ourStays, "", r.staysTurn})
			}
			return r.takeTurns(ctx, turns)
		},
	}
}

// heldTurn is the puts of clients that each stay in a section.
func (r *Run) heldTurn(system string) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		var mu sync.Mutex
		rate := 0.0
		o := r.fleets[system].Run(ctx, Load{Workers: writers, Sites: []int{1}, Turns: 1, Span: r.Span, Key: fresh(name), Body: func(ctx context.Context, w Worker, held section.Held) error {
			began, n := time.Now(), 0
			for ; time.Since(began) < r.Span; n++ {
				if err := held.Put(ctx, value(10, w, n)); err != nil {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			rate += float64(n) / time.Since(began).Seconds()
			return nil
		}})
		if len(o.Sections) < writers { // what some wrote is not what all do
			return nil, cause(o.Last)
		}
		return map[string]float64{"puts": rate}, nil
	}
}

// staysTurn is one-put sections of clients whose keys the proxy keeps.
func (r *Run) staysTurn(ctx context.Context, name string) (map[string]float64, error) {
	l := Load{Workers: writers, Sites: []int{1}, Turns: 1, Span: time.Minute, Key: returning(name, 1), Body: puts(1, 10)}
	r.fleets[Ours].Run(ctx, l)
	l.Turns, l.Span = 0, r.Span
	o := r.fleets[Ours].Run(ctx, l)
	rates, err := o.rates()
	if err != nil {
		return nil, err
	}
	return map[string]float64{"puts": rates["sections"]}, nil
}
