package experiment

import (
	"context"
	"fmt"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
)

// cost is what a section costs Cassandra: lightweight transactions, statements, and messages
// between nodes.
func cost() Experiment {
	return Experiment{
		Name: "cost", Title: "what a one-put section costs at Cassandra", Systems: onePutSystems(), Profiles: []string{"IUs"}, Paxos: []string{"v2"},
		Metrics: []Metric{{"LWTs", "a section"}, {"statements", "a section"}, {"messages", "between nodes, a section"}, {"kB", "between nodes, a section"}},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, "Sections of one client at each site, one after the other. LWTs are counted by the rows that they leave in system.paxos, over those of "+
				"lightweight transactions alone in the same run; SERIAL reads leave some, too. What idle nodes and proxies do is taken off. What 100,000 sections leave behind is in [performance](../performance.md#one-node).")
			unit, err := r.paxosRowsOfOne(ctx)
			if err != nil {
				return err
			}
			var turns []turn
			for _, k := range r.kinds() {
				turns = append(turns, turn{k.row, "", r.costTurn(k, unit)})
			}
			return r.takeTurns(ctx, turns)
		},
	}
}

// counters are sums over all nodes.
type counters struct {
	at                                time.Time
	paxos, statements, messages, sent float64
}

// count reads the counters of all nodes.
func (w *World) count(ctx context.Context) (c counters, err error) {
	c.at = time.Now()
	for k := 1; k <= w.Nodes; k++ {
		if err := w.countAt(ctx, w.node(k), &c); err != nil {
			return c, fmt.Errorf("counters of node %d: %w", k, err)
		}
	}
	return c, nil
}

// countAt adds the counters of the node at an address.
func (w *World) countAt(ctx context.Context, address string, c *counters) error {
	o := gocql.NewCluster(address)
	o.HostFilter, o.NumConns, o.Timeout = gocql.WhiteListHostFilter(address), 1, 10*time.Second
	o.Logger = gocql.NewLogger(gocql.LogLevelNone)
	s, err := o.CreateSession()
	if err != nil {
		return err
	}
	defer s.Close()
	var paxos int64
	if err := s.Query("SELECT count FROM system_views.local_write_latency WHERE keyspace_name = 'system' AND table_name = 'paxos'").
		ScanContext(ctx, &paxos); err != nil {
		return err
	}
	c.paxos += float64(paxos)
	sums := map[string]*float64{"SELECT request_count FROM system_views.clients": &c.statements}
	sums["SELECT sent_count FROM system_views.internode_outbound"] = &c.messages
	sums["SELECT sent_bytes FROM system_views.internode_outbound"] = &c.sent
	for cql, sum := range sums {
		var n int64
		all := s.Query(cql).IterContext(ctx)
		for all.Scan(&n) {
			*sum += float64(n)
		}
		if err := all.Close(); err != nil {
			return err
		}
	}
	return nil
}

// rest is for how long nodes and proxies are idle before they are counted: longer than a proxy
// keeps a key.
const rest = time.Second

// during counts what happens while do runs and until everything is idle again, less what happens in
// the same time while idle.
func (w *World) during(ctx context.Context, do func()) (c counters, err error) {
	section.Rest(ctx, rest)
	var all [3]counters
	if all[0], err = w.count(ctx); err != nil {
		return c, err
	}
	section.Rest(ctx, 2*rest)
	if all[1], err = w.count(ctx); err != nil {
		return c, err
	}
	do()
	section.Rest(ctx, rest)
	if all[2], err = w.count(ctx); err != nil {
		return c, err
	}
	idle := all[2].at.Sub(all[1].at).Seconds() / all[1].at.Sub(all[0].at).Seconds()
	less := func(a, b, c float64) float64 { return c - b - (b-a)*idle }
	return counters{
		paxos:      less(all[0].paxos, all[1].paxos, all[2].paxos),
		statements: less(all[0].statements, all[1].statements, all[2].statements),
		messages:   less(all[0].messages, all[1].messages, all[2].messages),
		sent:       less(all[0].sent, all[1].sent, all[2].sent),
	}, nil
}

// paxosRowsOfOne is how many writes to system.paxos an uncontended lightweight transaction makes.
func (r *Run) paxosRowsOfOne(ctx context.Context) (float64, error) {
	const many = 30
	if err := r.admin.Query("CREATE TABLE IF NOT EXISTS " + theKeyspace + ".counted (k text PRIMARY KEY, v int)").ExecContext(ctx); err != nil {
		return 0, err
	}
	name, fault := r.name("counted"), error(nil)
	c, err := r.during(ctx, func() {
		for i := range many {
			_, err := r.admin.Query("INSERT INTO "+theKeyspace+".counted (k, v) VALUES (?, 1) IF NOT EXISTS", fmt.Sprint(name, i)).
				SerialConsistency(gocql.Serial).MapScanCASContext(ctx, map[string]any{})
			if err != nil {
				fault = err
			}
		}
	})
	if err != nil || fault != nil {
		return 0, cause(firstOf(err, fault))
	}
	return c.paxos / many, nil
}

// firstOf returns the first error.
func firstOf(faults ...error) error {
	for _, err := range faults {
		if err != nil {
			return err
		}
	}
	return nil
}

// costTurn counts for sections of one kind.
func (r *Run) costTurn(k kind, unit float64) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		key := r.prepared(ctx, k, 1, name)
		var o Outcome
		c, err := r.during(ctx, func() {
			o = r.fleets[k.system].Run(ctx, Load{Workers: 1, Span: r.Span, Key: key, Body: puts(1, 10)})
		})
		if err != nil {
			return nil, err
		}
		if _, err := o.rates(); err != nil {
			return nil, err
		}
		n := float64(len(o.Sections))
		return map[string]float64{"section": o.mean(left), "LWTs": c.paxos / unit / n, "statements": c.statements / n, "messages": c.messages / n, "kB": c.sent / n / 1000}, nil
	}
}
