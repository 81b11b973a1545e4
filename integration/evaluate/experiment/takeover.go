package experiment

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"music/integration/evaluate/section"
)

// takeover is how long the next client waits after the death of a holder.
func takeover() Experiment {
	leased := []string{Leased(Ours, TTLs()[0]), MUSIC, Leased(Lease, TTLs()[0])}
	return Experiment{
		Name: "takeover", Title: "the holder dies: until another site has its keys", Profiles: []string{"IUs"}, Paxos: []string{"v2"},
		Systems: append([]string{Ours, Heartbeat, LockTable, Bakery}, leased...),
		Claims:  []Claim{{Of: leased[0], Metric: "p99", Most: TTLs()[0].Seconds() + 1}},
		Metrics: []Metric{{"p50", "s"}, {"p99", "s"}, {"had by nobody in 40 s", "keys"}},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, fmt.Sprintf("A client at site 1 holds %d keys and dies; as many clients at site 2 want them from then on. The session lease of the "+
				"proxies is 10 s. Waiters of MUSIC bear for 10 s that nothing changes. The housekeeper of LWT and heartbeat runs at site 1, with a grace period of 10 s. A key that nobody has had counts with 40 s. All rows but that of the proxy's death wait at the same time.", deaths))
			var turns []turn
			for _, s := range leased {
				if r.has(s) {
					turns = append(turns, turn{s, "", r.clientDies(s)})
				}
			}
			for _, s := range []string{Heartbeat, LockTable, Bakery} {
				if r.has(s) && r.Full {
					turns = append(turns, turn{s, "", r.clientDies(s)})
				}
			}
			groups := [][]turn{turns}
			if r.has(Ours) { // by itself: the death of a proxy ends the sections of other rows
				groups = append(groups, []turn{{"ours, the holder's proxy is killed", "", r.proxyDies}})
			}
			return r.takeTurnsTogether(ctx, groups)
		},
	}
}

// deaths is how many keys a holder has, and forgotten is after how long waiting for them counts as
// in vain.
const (
	deaths    = 30
	forgotten = 40 * time.Second
)

// clientDies closes a client that holds keys.
func (r *Run) clientDies(system string) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		f := r.fleets[system]
		c, err := f.Open(r.Place(1))
		if err != nil {
			return nil, err
		}
		doomed := &Fleet{System: f.System, clients: [Sites]section.Client{c}}
		end, err := doomed.hold(ctx, name)
		c.Close()
		if err != nil {
			end()
			return nil, err
		}
		values := f.inherit(ctx, name)
		end()
		return values, nil
	}
}

// proxyDies kills the proxy of a client that holds keys, and starts another one afterwards.
func (r *Run) proxyDies(ctx context.Context, name string) (map[string]float64, error) {
	f := r.fleets[Ours]
	end, err := f.hold(ctx, name)
	if err != nil {
		end()
		return nil, err
	}
	r.KillProxy(1)
	values := f.inherit(ctx, name)
	end()
	return values, r.StartProxy(ctx, 1)
}

// hold has the client at site 1 hold the keys of a name until end is called, which may be called in
// any case.
func (f *Fleet) hold(ctx context.Context, name string) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var holding atomic.Int32
	all, over := make(chan struct{}), make(chan struct{})
	var o Outcome
	go func() {
		defer close(over)
		o = f.Run(ctx, Load{Workers: deaths, Sites: []int{1}, Turns: 1, Span: 2 * forgotten, Key: siteless(name), Body: func(ctx context.Context, _ Worker, _ section.Held) error {
			if holding.Add(1) == deaths {
				close(all)
			}
			<-ctx.Done()
			return ctx.Err()
		}})
	}()
	end = func() { cancel(); <-over }
	select {
	case <-all:
		return end, nil
	case <-over:
		return end, fmt.Errorf("%d of %d keys are held: %w", holding.Load(), deaths, cause(o.Last))
	case <-time.After(forgotten):
		return end, fmt.Errorf("%d of %d keys are held: %w", holding.Load(), deaths, context.DeadlineExceeded)
	}
}

// inherit has clients at site 2 enter the keys of a name. Who has waited in vain counts with as long as he waited.
func (f *Fleet) inherit(ctx context.Context, name string) map[string]float64 {
	o := f.Run(ctx, Load{Workers: deaths, Sites: []int{2}, Turns: 1, Span: forgotten, Limit: forgotten, Key: siteless(name), Body: puts(1, 10)})
	all := Samples(o.spans(func(t Timing) time.Duration { return t.Entered / 1000 })) // seconds
	vain := deaths - len(all)
	all = append(all, slices.Repeat(Samples{forgotten.Seconds()}, vain)...)
	return map[string]float64{"had by nobody in 40 s": float64(vain), "p50": all.Quantile(0.5), "p99": all.Quantile(0.99)}
}

// siteless returns the same key to workers of the same number at different sites.
func siteless(name string) func(Worker) string {
	return func(w Worker) string { return fmt.Sprintf("%s/%d", name, w.Number) }
}
