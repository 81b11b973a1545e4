package experiment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	batching "music/integration/evaluate/batch"
	"music/integration/evaluate/section"
)

// conflicts is the plot of the ScyllaDB post: by how much batches are slower if a share of their keys is wanted by another worker, too.
func conflicts() Experiment {
	systems := []string{Heartbeat, MUSIC, Ours}
	return Experiment{
		Name: "conflicts", Title: "two workers process batches of which a share is the same (ScyllaDB post)", Systems: systems,
		Profiles: []string{"IUs"}, Paxos: []string{"v2"},
		Metrics: []Metric{
			{"no conflict", "s"},
			{"half", "s"},
			{"all", "s"},
			{"slowdown, half", "share of the time without conflict"},
			{"slowdown, all", "share of the time without conflict"},
		},
		Claims: []Claim{
			{Of: Ours, To: Heartbeat, Metric: "slowdown, half", Paper: "its plot", Most: 0.5, Why: sameNap},
			{Of: Ours, To: Heartbeat, Metric: "slowdown, all", Paper: "its plot", Most: 0.5, Why: sameNap},
			{Of: Ours, To: Heartbeat, Metric: "no conflict"},
			{Of: Ours, To: Heartbeat, Metric: "all"},
		},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, fmt.Sprintf("A worker at each of the two nearest sites tries to lock each key of its batch, puts under those that it has got, leaves them, and goes on with "+
				"the rest; only where it has got none it sleeps, for at most %v. What is told is the slower of the two. The post's text gives no numbers, and its plot was not at hand.", nap))
			var turns []turn
			for _, size := range []int{1, 10, 30, 100} {
				if !r.Full && size != 1 && size != 10 {
					continue
				}
				turns = append(turns, r.turnsAt(fmt.Sprintf("batches of %d", size), systems, func(s string) turnFunc { return r.conflictsTurn(s, size) })...)
			}
			return r.takeTurns(ctx, turns)
		},
	}
}

// nap is the longest sleep of a worker.
const nap = time.Second

// sameNap is why a faster system is slowed down by more.
const sameNap = "both sleep for as long between two tries, which is the larger share for the one whose batch takes less time without conflict"

// conflictsTurn measures batches with each share.
func (r *Run) conflictsTurn(system string, size int) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		var took [3]float64
		for i, common := range []int{0, (size + 1) / 2, size} {
			var err error
			if took[i], err = r.fleets[system].processBoth(ctx, fmt.Sprint(name, "/", i), size, common); err != nil {
				return nil, err
			}
		}
		return map[string]float64{
			"no conflict": took[0], "half": took[1], "all": took[2], "slowdown, half": took[1]/took[0] - 1, "slowdown, all": took[2]/took[0] - 1,
		}, nil
	}
}

// errTries is returned for a system that cannot try.
var errTries = errors.New("it cannot try to enter")

// processBoth has workers at the second and third site process a batch each, and returns how many seconds the slower one took.
func (f *Fleet) processBoth(ctx context.Context, name string, size, common int) (float64, error) {
	ctx, end := context.WithTimeout(ctx, 5*sectionLimit)
	defer end()
	var took [2]time.Duration
	var faults [2]error
	var group sync.WaitGroup
	for i := range took {
		lock, is := f.clients[1+i].(section.Trier)
		if !is {
			return 0, errTries
		}
		group.Go(func() {
			var keys []string
			for n := range size {
				owner := i
				if n < common {
					owner = len(took)
				}
				keys = append(keys, fmt.Sprint(name, "/", owner, "/", n))
			}
			began := time.Now()
			faults[i] = batching.Process(ctx, lock, keys, nap, func(h section.Held, _ string) error { return h.Put(ctx, []byte(name)) })
			took[i] = time.Since(began)
		})
	}
	group.Wait()
	return max(took[0], took[1]).Seconds(), errors.Join(faults[:]...)
}
