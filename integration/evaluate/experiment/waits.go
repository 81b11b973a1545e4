package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"music/integration/evaluate/section"
)

// TTLs are those of the lease post's experiment; a short run has the first.
func TTLs() []time.Duration {
	return []time.Duration{10 * time.Second, 30 * time.Second, 180 * time.Second}
}

// Leased returns the name of a system whose leases have a length.
func Leased(system string, ttl time.Duration) string { return fmt.Sprintf("%s, lease %v", system, ttl) }

// succession is the lease post's leader, which dies or resigns, and the next one.
func succession() Experiment {
	var systems []string
	for _, ttl := range TTLs() {
		systems = append(systems, Leased(Lease, ttl), Leased(Ours, ttl))
	}
	return Experiment{
		Name: "lease", Title: "the leader dies, or resigns: until another site has the lead (lease post)", Systems: systems,
		Profiles: []string{"IUs"}, Paxos: []string{"v2"},
		Metrics: []Metric{{"dies", "s"}, {"dies, longest", "s"}, {"beyond its lease", "s"}, {"resigns", "ms"}, {"resigns in", "RTT"}},
		Claims: []Claim{
			{Of: Ours, To: Lease, Metric: "dies"},
			{Of: Ours, To: Lease, Metric: "resigns"},
			{Of: Ours, Metric: "beyond its lease", Most: 1},
			{Of: Ours, Metric: "resigns in", Most: 2, Why: "a resignation is an LWT, which alone takes three (fig5b, v2: leave of the lease), and then the next one has to hear of it"},
		},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, fmt.Sprintf("All rows wait at the same time. A leader at site 1 is silent once it leads; one at site 2 waits for it, and resigns when one at site 3 waits. Aimed at: "+
				"at most 1 s beyond the lease, and 2 RTT where the leader resigns. A round trip (RTT) is that from site 2 to the nearest other site, %v.", r.World.Profile.Nearest(2)))
			var turns []turn
			for _, ttl := range TTLs() {
				for _, s := range []string{Lease, Ours} {
					if r.has(Leased(s, ttl)) && (r.Full || ttl == TTLs()[0]) {
						turns = append(turns, turn{s, fmt.Sprintf("lease %v", ttl), r.successionTurn(Leased(s, ttl), ttl)})
					}
				}
			}
			return r.takeTurnsTogether(ctx, [][]turn{turns})
		},
	}
}

// elections is how many elections run at a time, each over a key of its own.
const elections = 8

// successionTurn has leaders die and resign.
func (r *Run) successionTurn(system string, ttl time.Duration) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		ctx, end := context.WithTimeout(ctx, ttl+sectionLimit)
		defer end()
		var mu sync.Mutex
		var dies, resigns Samples
		var faults []error
		var group sync.WaitGroup
		for i := range elections {
			group.Go(func() {
				died, resigned, err := r.fleets[system].succeed(ctx, fmt.Sprint(name, "/", i))
				mu.Lock()
				defer mu.Unlock()
				dies, resigns, faults = append(dies, died.Seconds()), append(resigns, inMS(resigned)), append(faults, err)
			})
		}
		group.Wait()
		if err := errors.Join(faults...); err != nil {
			return nil, err
		}
		values := map[string]float64{
			"dies": dies.Median(), "dies, longest": dies.Quantile(1), "beyond its lease": dies.Quantile(1) - ttl.Seconds(), "resigns": resigns.Median(),
		}
		if rtt := inMS(r.World.Profile.Nearest(2)); rtt > 0 {
			values["resigns in"] = resigns.Median() / rtt
		}
		return values, nil
	}
}

// queueing is after how long a client surely waits for a key.
const queueing = 2 * time.Second

// succeed has a leader at site 1 die and one at site 2 resign, and returns how long it took until
// site 2, and then site 3, led.
func (f *Fleet) succeed(ctx context.Context, key string) (dies, resigns time.Duration, err error) {
	if _, err := f.clients[0].Enter(ctx, key); err != nil {
		return 0, 0, fmt.Errorf("the first: %w", err)
	}
	died := time.Now()
	second, err := f.clients[1].Enter(ctx, key)
	if err != nil {
		return 0, 0, fmt.Errorf("the second: %w", err)
	}
	dies = time.Since(died)
	third := make(chan error)
	var left, entered time.Time
	go func() {
		held, err := f.clients[2].Enter(ctx, key)
		entered = time.Now()
		if err == nil {
			err = held.Leave(ctx)
		}
		third <- err
	}()
	time.Sleep(queueing)
	left = time.Now()
	err = errors.Join(second.Leave(ctx), <-third)
	return dies, entered.Sub(left), err
}

// crowding is the bakery post's question: how long it takes to enter for so many processes at once.
func crowding() Experiment {
	systems := []string{Bakery, MUSIC, Ours}
	return Experiment{
		Name: "bakery", Title: "some processes want one key at once, each for a moment: until they have entered (bakery post)", Systems: systems,
		Profiles: []string{"IUs"}, Paxos: []string{"v2"},
		Metrics: []Metric{{"first", "s"}, {"median", "s"}, {"last", "s"}, {"each further", "ms"}},
		Claims:  []Claim{{Of: Ours, To: Bakery, Metric: "last"}, {Of: Ours, To: MUSIC, Metric: "last"}},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, "The processes are spread over the sites in turn.")
			var turns []turn
			for _, n := range []int{1, 2, 4, 8, 16, 32} {
				if !r.Full && n != 1 && n != 4 && n != 16 {
					continue
				}
				turns = append(turns, r.turnsAt(fmt.Sprintf("%d processes", n), systems, func(s string) turnFunc { return r.crowdingTurn(s, n) })...)
			}
			return r.takeTurns(ctx, turns)
		},
	}
}

// crowdingTurn has processes enter and leave.
func (r *Run) crowdingTurn(system string, n int) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		ctx, end := context.WithTimeout(ctx, 2*sectionLimit)
		defer end()
		waits, err := r.fleets[system].enterAtOnce(ctx, name, n)
		if err != nil {
			return nil, err
		}
		values := map[string]float64{"first": waits[0], "median": waits.Median(), "last": waits[n-1]}
		if n > 1 {
			values["each further"] = 1000 * (waits[n-1] - waits[0]) / float64(n-1)
		}
		return values, nil
	}
}

// enterAtOnce has processes enter a key and leave it, and returns for how many seconds each has
// waited, sorted.
func (f *Fleet) enterAtOnce(ctx context.Context, key string, n int) (Samples, error) {
	var group sync.WaitGroup
	waits, faults := make(Samples, n), make([]error, n)
	began := time.Now()
	for i := range n {
		group.Go(func() {
			var held section.Held
			if held, faults[i] = f.clients[i%Sites].Enter(ctx, key); faults[i] == nil {
				waits[i] = time.Since(began).Seconds()
				faults[i] = held.Leave(ctx)
			}
		})
	}
	group.Wait()
	slices.Sort(waits)
	return waits, errors.Join(faults...)
}
