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
			{Of: queued, To: Heartbeat, Metric: "slowdown, half", Paper: "a plot, no numbers", Most: 0.5, Why: shareOfLess},
			{Of: queued, To: Heartbeat, Metric: "slowdown, all", Paper: "a plot, no numbers", Most: 0.5, Why: shareOfLess},
			{Of: queued, To: Heartbeat, Metric: "no conflict"},
			{Of: queued, To: Heartbeat, Metric: "all"},
			{Of: Ours, To: Heartbeat, Metric: "slowdown, half"},
			{Of: Ours, To: Heartbeat, Metric: "slowdown, all"},
		},
		Run: func(ctx context.Context, r *Run) error {
			r.Notes = append(r.Notes, fmt.Sprintf("A worker at each of the two nearest sites tries to lock each key of its batch, puts under those that it has got, leaves them, and goes on with "+
				"the rest; only where it has got none it sleeps, for at most %v. In the row of the queue, it takes what is free in one statement (SKIP LOCKED), and waits for one of the rest where "+
				"nothing is. What is told is the slower of the two. The post's text gives no numbers, and its plot was not at hand.", nap))
			var turns []turn
			for _, size := range []int{1, 10, 30, 100} {
				if !r.Full && size != 1 && size != 10 {
					continue
				}
				x := fmt.Sprintf("batches of %d", size)
				turns = append(turns, r.turnsAt(x, systems, func(s string) turnFunc { return r.conflictsTurn(size, r.fleets[s].trying) })...)
				if r.has(Ours) {
					turns = append(turns, turn{queued, x, r.conflictsTurn(size, r.fleets[Ours].queueing)})
				}
			}
			return r.takeTurns(ctx, turns)
		},
	}
}

// shareOfLess is why a slowdown that is short may be a large share.
const shareOfLess = "it is a share of the time without conflict, of which the queue needs less (rows no conflict, all)"

// nap is the longest sleep of a worker.
const nap = time.Second

// queued is the row of the product whose workers wait in its queue instead of sleeping.
const queued = "ours, queued"

// process has the worker at a site process a batch.
type process func(ctx context.Context, site int, keys []string, work func(section.Held, string) error) error

// trying processes a batch as the post has it.
func (f *Fleet) trying(ctx context.Context, site int, keys []string, work func(section.Held, string) error) error {
	lock, is := f.clients[site-1].(section.Trier)
	if !is {
		return errTries
	}
	return batching.Process(ctx, lock, keys, nap, work)
}

// queueing processes it with a lock that has queues.
func (f *Fleet) queueing(ctx context.Context, site int, keys []string, work func(section.Held, string) error) error {
	lock, is := f.clients[site-1].(batching.Queue)
	if !is {
		return errTries
	}
	return batching.ProcessQueued(ctx, lock, keys, work)
}

// conflictsTurn measures batches with each share.
func (r *Run) conflictsTurn(size int, do process) turnFunc {
	return func(ctx context.Context, name string) (map[string]float64, error) {
		var took [3]float64
		for i, common := range []int{0, (size + 1) / 2, size} {
			var err error
			if took[i], err = processBoth(ctx, do, fmt.Sprint(name, "/", i), size, common); err != nil {
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
func processBoth(ctx context.Context, do process, name string, size, common int) (float64, error) {
	ctx, end := context.WithTimeout(ctx, 5*sectionLimit)
	defer end()
	var took [2]time.Duration
	var faults [2]error
	var group sync.WaitGroup
	for i := range took {
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
			faults[i] = do(ctx, 2+i, keys, func(h section.Held, _ string) error { return h.Put(ctx, []byte(name)) })
			took[i] = time.Since(began)
		})
	}
	group.Wait()
	return max(took[0], took[1]).Seconds(), errors.Join(faults[:]...)
}
