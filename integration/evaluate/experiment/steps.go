package experiment

import (
	"context"
	"fmt"
	"time"

	"music/integration/evaluate/section"
)

// steps is Fig. 5b and the table of the slides: what each step of a section takes at the first site, where nobody else wants the key.
func steps() Experiment {
	systems := []string{MUSIC, MSCP, ZooKeeper, MUSICOnZK, Etcd, Racing, LockTable, Bakery, Lease, Heartbeat, ShedLock, Ours, Strict}
	return Experiment{
		Name: "fig5b", Title: "the steps of a section at the first site (paper, Fig. 5b)", Systems: systems,
		Profiles: []string{"IUs"}, Paxos: bothPaxos(),
		Metrics: []Metric{
			{"enter", "RTT"},
			{"reference", "RTT"},
			{"acquire", "RTT"},
			{"put", "RTT"},
			{"get", "RTT"},
			{"next put", "RTT"},
			{"next get", "RTT"},
			{"leave", "RTT"},
			{"enter ms", ""},
			{"reference ms", ""},
			{"acquire ms", ""},
			{"put ms", ""},
			{"get ms", ""},
			{"next put ms", ""},
			{"next get ms", ""},
			{"leave ms", ""},
		},
		Claims: []Claim{ // what the paper has in ms, over the same round trip; the slides have round trips
			{Of: MUSIC, Metric: "enter", Paper: "5.1–5.3, v1 (274–286 ms)"},
			{Of: MUSIC, Metric: "put", Paper: "1.7 (93 ms, to the farther site)"},
			{Of: MSCP, Metric: "put", Paper: "5.0, v1 (270 ms)"},
			{Of: MUSIC, Metric: "leave", Paper: "4.1–4.3, v1 (219–230 ms)"},
			{Of: LockTable, Metric: "enter", Paper: "4 (slides)"},
			{Of: LockTable, Metric: "leave", Paper: "4 (slides)"},
			{Of: MUSICOnZK, Metric: "enter", Paper: "4 (slides)"},
			{Of: MUSICOnZK, Metric: "leave", Paper: "4 (slides)"},
		},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, fmt.Sprintf("A round trip (RTT) is that from site 1 to the nearest other site, %v. The paper has, with Paxos v1: "+
				"createLockRef 219–230 ms (4 RTT), peek 0.67 ms, grant 55 ms (1), put 93 ms (1, to the farther site), LWT put 270 ms (4), release 219–230 ms (4); "+
				"enter is createLockRef (reference), peek and grant (acquire).", r.World.Profile.Nearest(1)))
			return r.takeTurns(ctx, r.turnsAt("", systems, r.stepsTurn))
		},
	}
}

// stepper is a client of the paper's systems, whose operations can be timed one by one.
type stepper interface {
	CreateLockRef(ctx context.Context, key string) (int64, error)
	AcquireLock(ctx context.Context, key string, ref int64) (bool, error)
	ReleaseLock(ctx context.Context, key string, ref int64) error
}

// stepsTurn does sections one after another at the first site, and gives the median of each step.
func (r *Run) stepsTurn(system string) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		f, c := r.fleets[system], clock{}
		o := f.Run(ctx, Load{Workers: 1, Sites: []int{1}, Span: r.Span, Key: fresh(name), Body: func(ctx context.Context, w Worker, h section.Held) error {
			for i, which := range []string{"", "next "} {
				if err := c.time(which+"put", func() error { return h.Put(ctx, value(10, w, i)) }); err != nil {
					return err
				}
				if err := c.time(which+"get", func() error { _, err := h.Get(ctx); return err }); err != nil {
					return err
				}
			}
			return nil
		}})
		if _, err := o.rates(); err != nil {
			return nil, err
		}
		for _, t := range o.Sections {
			c["enter"], c["leave"] = append(c["enter"], inMS(t.Entered)), append(c["leave"], inMS(t.Left-t.Done))
		}
		if s, is := f.clients[0].(stepper); is {
			if err := c.references(ctx, s, name, len(o.Sections)); err != nil {
				return nil, err
			}
		}
		return c.medians(inMS(r.World.Profile.Nearest(1))), nil
	}
}

// clock has what steps took, in milliseconds, by their names.
type clock map[string]Samples

// time does a step.
func (c clock) time(step string, do func() error) error {
	began := time.Now()
	err := do()
	c[step] = append(c[step], inMS(time.Since(began)))
	return err
}

// references creates some, acquires and releases them.
func (c clock) references(ctx context.Context, s stepper, name string, n int) error {
	for i := range n {
		key, ref := fmt.Sprint(name, "-", i), int64(0)
		err := c.time("reference", func() (err error) { ref, err = s.CreateLockRef(ctx, key); return err })
		if err != nil {
			return err
		}
		err = c.time("acquire", func() error { _, err := s.AcquireLock(ctx, key, ref); return err })
		if err != nil {
			return err
		}
		if err := s.ReleaseLock(ctx, key, ref); err != nil {
			return err
		}
	}
	return nil
}

// medians are those of each step, in milliseconds and in round trips.
func (c clock) medians(rtt float64) map[string]float64 {
	values := map[string]float64{}
	for step, s := range c {
		values[step+" ms"] = s.Median()
		if rtt > 0 {
			values[step] = s.Median() / rtt
		}
	}
	return values
}
