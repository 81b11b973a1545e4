package experiment

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"music/integration/evaluate/section"
)

// The names by which experiments know systems.
const (
	MUSIC       = "MUSIC"
	QuorumWrite = "QUORUM write"
	LWT         = "LWT"
	MSCP        = "MSCP"
	CassaEV     = "CassaEV"
	ZooKeeper   = "ZooKeeper"
	MUSICOnZK   = "MUSIC on ZooKeeper"
	Etcd        = "etcd"
	EtcdData    = "etcd, values in Cassandra"
	EachUpdate  = "transaction per update"
	Transaction = "BEGIN TRANSACTION"
	Racing      = "racing LWTs"
	LockTable   = "lock table, timeuuid"
	Bakery      = "Lamport's bakery"
	Lease       = "lease"
	Optimistic  = "optimistic lock"
	ShedLock    = "ShedLock"
	Heartbeat   = "LWT and heartbeat"
	Ours        = "ours"
	ForUpdate   = "ours, FOR UPDATE"
	Auto        = "ours, unlocked=auto"
	Strict      = "ours, strict"
)

// Further names of rows: the product with other kinds of keys.
const (
	newKey   = "ours, new key"
	knownKey = "ours, key of before"
	ourStays = "ours, key that stays"
)

// allProfiles are those of the paper.
func allProfiles() []string { return []string{"I1", "IUs", "IUsEu"} }

// bothPaxos is what the paper had, and what Cassandra has since.
func bothPaxos() []string { return []string{"v1", "v2"} }

// kind is a row of a one-put figure: a system, and the kind of keys that its clients use.
type kind struct {
	row, system string
	keys        func(name string) func(Worker) string
}

// kinds returns the rows of the one-put figures.
func (r *Run) kinds() (all []kind) {
	const known, stays = 20, 1
	for _, k := range []kind{
		{CassaEV, CassaEV, fresh},
		{QuorumWrite, QuorumWrite, fresh},
		{LWT, LWT, fresh},
		{MUSIC, MUSIC, fresh},
		{MSCP, MSCP, fresh},
		{newKey, Ours, fresh},
		{knownKey, Ours, func(name string) func(Worker) string { return returning(name, known) }},
		{ourStays, Ours, func(name string) func(Worker) string { return returning(name, stays) }},
		{ForUpdate, ForUpdate, fresh},
		{Auto, Auto, fresh},
		{Strict, Strict, fresh},
	} {
		if r.has(k.system) {
			all = append(all, k)
		}
	}
	return all
}

// onePutSystems returns the systems of the one-put figures.
func onePutSystems() []string {
	return []string{CassaEV, QuorumWrite, LWT, MUSIC, MSCP, Ours, ForUpdate, Auto, Strict}
}

// prepared returns the keys of a kind. A used key has had a section and was released by its proxy;
// a kept one has had a section and is still there.
func (r *Run) prepared(ctx context.Context, k kind, workers int, name string) func(Worker) string {
	key := k.keys(name)
	if k.row != knownKey && k.row != ourStays {
		return key
	}
	const known, settle = 20, 400 * time.Millisecond // longer than a key stays
	turns := 1
	if k.row == knownKey {
		turns = known
	}
	r.fleets[k.system].Run(ctx, Load{Workers: workers, Turns: turns, Span: time.Minute, Key: key, Body: puts(1, 10)})
	if k.row == knownKey {
		section.Rest(ctx, settle)
	}
	return key
}

// throughput is Fig. 4a: how many sections many clients with keys of their own do.
func throughput() Experiment {
	return Experiment{
		Name: "fig4a", Title: "one-put sections a second (paper, Fig. 4a)", Systems: onePutSystems(), Profiles: allProfiles(), Paxos: bothPaxos(),
		Metrics: []Metric{{"sections", "a second"}, {"lost", "sections"}, {"unknown", "sections"}},
		Claims: []Claim{
			{Of: MUSIC, To: MSCP, Metric: "sections", Paper: "1.3"},
			{Of: newKey, To: MUSIC, Metric: "sections", Least: 1.3},
			{Of: ourStays, To: MUSIC, Metric: "sections", Least: 4, Floor: [2]string{QuorumWrite}},
		},
		Run: func(ctx context.Context, r *Run) error {
			var turns []turn
			for _, k := range r.kinds() {
				turns = append(turns, turn{k.row, "", func(ctx context.Context, name string) (map[string]float64, error) {
					o := r.fleets[k.system].Run(ctx, Load{
						Workers: r.Workers, Span: r.Span, Key: r.prepared(ctx, k, r.Workers, name), Body: puts(1, 10),
					})
					return o.rates()
				}})
			}
			return r.takeTurns(ctx, turns)
		},
	}
}

// rates returns an outcome's throughput.
func (o Outcome) rates() (map[string]float64, error) {
	if len(o.Sections) == 0 {
		return nil, fmt.Errorf("no section in %v: %w", o.Took.Round(time.Millisecond), cause(o.Last))
	}
	return map[string]float64{
		"sections": float64(len(o.Sections)) / o.Took.Seconds(), "lost": float64(o.Lost), "unknown": float64(o.Unknown),
	}, nil
}

// cause returns the first error.
func cause(err error) error {
	if err == nil {
		return context.DeadlineExceeded
	}
	return err
}

// latency is Fig. 5a and 8: how long one client at each site waits.
func latency() Experiment {
	return Experiment{
		Name: "fig5a", Title: "latency of a one-put section (paper, Fig. 5a and 8)", Systems: onePutSystems(), Profiles: allProfiles(), Paxos: bothPaxos(),
		Metrics: []Metric{{"section", "ms (mean)"}, {"to the put's answer", "ms (mean)"}, {"p50", "ms"}, {"p99", "ms"}, {"unknown", "sections"}},
		Claims: []Claim{
			{Of: MSCP, To: MUSIC, Metric: "section", Paper: "1.3 by Fig. 5b, 1.4 by the text (IUs, IUsEu)"},
			{Of: newKey, To: MUSIC, Metric: "to the put's answer", Most: 0.7, Floor: [2]string{LWT, QuorumWrite}, Why: busy},
			{Of: knownKey, To: MUSIC, Metric: "to the put's answer", Most: 0.55, Floor: [2]string{LWT, QuorumWrite}, Why: busy},
			{Of: ourStays, To: MUSIC, Metric: "to the put's answer", Most: 0.15, Floor: [2]string{QuorumWrite}, Why: nowAndThen},
			{Of: newKey, To: LWT, Metric: "section"},
			{Of: ourStays, To: QuorumWrite, Metric: "section"},
		},
		Run: func(ctx context.Context, r *Run) error {
			var turns []turn
			var mu sync.Mutex
			pooled := map[string][]float64{}
			for _, k := range r.kinds() {
				turns = append(turns, turn{k.row, "", func(ctx context.Context, name string) (map[string]float64, error) {
					o, err := r.alone(ctx, k, name)
					if err != nil {
						return nil, err
					}
					mu.Lock()
					defer mu.Unlock()
					pooled[k.row] = append(pooled[k.row], o.spans(left)...)
					return o.waits(), nil
				}})
			}
			err := r.takeTurns(ctx, turns)
			for row, all := range pooled {
				r.row(row, "").CDF = quantiles(all)
			}
			return err
		},
	}
}

// Why a section takes longer than what it consists of.
const (
	busy       = "what is left is the work of proxy and client, which weighs where sites are near and the machine has much else to do (load)"
	nowAndThen = "some of its sections take an LWT after all (p99; LWTs a section in cost), and they are in the mean"
)

// alone has one client at each site do one-put sections, one after the other; there is an error if none was done.
func (r *Run) alone(ctx context.Context, k kind, name string) (Outcome, error) {
	o := r.fleets[k.system].Run(ctx, Load{Workers: 1, Span: r.Span, Key: r.prepared(ctx, k, 1, name), Body: puts(1, 10)})
	_, err := o.rates()
	return o, err
}

// left returns when a section was left.
func left(t Timing) time.Duration { return t.Left }

// done returns when its put was answered.
func done(t Timing) time.Duration { return t.Done }

// waits returns an outcome's latency. The means are means of the sites' means, since a site whose
// sections are short does more of them.
func (o Outcome) waits() map[string]float64 {
	all := Samples(o.spans(left))
	return map[string]float64{
		"section": o.mean(left), "to the put's answer": o.mean(done), "p50": all.Quantile(0.5), "p99": all.Quantile(0.99),
		"unknown": float64(o.Unknown),
	}
}

// spans returns the durations until a moment, in milliseconds.
func (o Outcome) spans(moment func(Timing) time.Duration) (all []float64) {
	for _, t := range o.Sections {
		all = append(all, inMS(moment(t)))
	}
	return all
}

// mean returns the mean of the sites' means.
func (o Outcome) mean(moment func(Timing) time.Duration) float64 {
	sum, n := map[int]float64{}, map[int]float64{}
	for _, t := range o.Sections {
		sum[t.Site] += inMS(moment(t))
		n[t.Site]++
	}
	mean := 0.0
	for site := range n {
		mean += sum[site] / n[site] / float64(len(n))
	}
	return mean
}

// quantiles returns a hundred and one of them.
func quantiles(all []float64) (q []float64) {
	slices.Sort(all)
	for i := range 101 {
		q = append(q, all[i*(len(all)-1)/100])
	}
	return q
}
