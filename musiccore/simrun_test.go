package musiccore

import (
	"flag"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The flags of the simulation; see `make soak`.
var (
	simFirst   = flag.Int("sim.first", 1, "the first seed")
	simSeeds   = flag.Int("sim.seeds", 0, "how many seeds the simulation runs; 0: 2000, or a tenth with -short or -race")
	simFor     = flag.Duration("sim.for", 0, "run seeds for so long instead")
	simWorkers = flag.Int("sim.workers", 0, "how many seeds run at a time; 0: one a core")
	simBrief   = flag.Bool("sim.brief", false, "do not cut a failing seed down")
	simStory   = flag.Bool("sim.story", false, "print the story of the first seed")
)

// fullRun is how many seeds a run has. From allMet seeds on, every fault and landmark must have
// occurred: the rarest occurs once in four thousand seeds.
const (
	fullRun = 2000
	allMet  = 20_000
)

// seeds returns how many seeds this run plays: fewer under the race detector, which makes a
// simulation ten times as slow and finds little in a single goroutine. `make test` plays many more
// without it.
func seeds() int {
	info, ok := debug.ReadBuildInfo()
	raced := ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	switch {
	case *simSeeds > 0:
		return *simSeeds
	case raced || testing.Short():
		return fullRun / 10
	}
	return fullRun
}

// play runs one seed.
func play(seed int, setup ...func(*sim)) *sim {
	s := newSim(seed, setup...)
	s.survive(s.play)
	s.tally.runs, s.tally.time = 1, s.now-simStart
	return s
}

// survive turns a panic into a failure of the run.
func (s *sim) survive(do func()) {
	defer func() {
		if r := recover(); r != nil {
			s.failed = nil
			s.fail("panic: %v", r)
		}
	}()
	do()
}

// campaign plays many seeds on some workers. Each simulation is single-threaded; the lowest seed
// that fails is found in whatever order the workers run.
type campaign struct {
	mu     sync.Mutex
	next   int
	end    int
	until  time.Time
	lowest int
	total  tally
	log    func(format string, args ...any)
}

func (c *campaign) seed() (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.next
	if n >= min(c.end, c.lowest) || (!c.until.IsZero() && time.Now().After(c.until)) {
		return 0, false
	}
	c.next++
	return n, true
}

func (c *campaign) done(s *sim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total.add(&s.tally)
	if c.total.runs%100_000 == 0 {
		c.log("%d seeds, the last %d", c.total.runs, s.seed)
	}
	if s.failed != nil {
		c.total.failed++
		c.lowest = min(c.lowest, s.seed)
	}
}

// run plays seeds on so many workers. It collects garbage seldom, since a simulation allocates much
// and keeps nothing.
func (c *campaign) run(workers int) {
	defer debug.SetGCPercent(debug.SetGCPercent(1600))
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for n, ok := c.seed(); ok; n, ok = c.seed() {
				c.done(play(n))
			}
		})
	}
	wg.Wait()
}

// TestSimulation runs seeds. The first seed that fails is reduced to a short story.
func TestSimulation(t *testing.T) {
	c := &campaign{next: *simFirst, end: *simFirst + seeds(), lowest: math.MaxInt, log: t.Logf}
	if *simFor > 0 {
		c.end, c.until = math.MaxInt, time.Now().Add(*simFor)
	}
	workers := *simWorkers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	if *simStory {
		t.Logf("%s", strings.Join(told(*simFirst, nil, nil), "\n"))
		return
	}
	c.run(workers)
	switch {
	case c.lowest != math.MaxInt && *simBrief:
		t.Fatalf("seed %d: %v", c.lowest, play(c.lowest).failed)
	case c.lowest != math.MaxInt:
		t.Fatal(shrunk(c.lowest, nil))
	}
	t.Logf("%v", &c.total)
	if never := c.total.never(); c.total.runs >= allMet && len(never) > 0 {
		t.Fatalf("never met in %d seeds:\n  %s", c.total.runs, strings.Join(never, "\n  "))
	}
}

// TestSameSeedSameRun: equal seeds give equal runs, to the last effect.
func TestSameSeedSameRun(t *testing.T) {
	hashes := map[uint64]int{}
	for seed := range 60 {
		once, again := play(seed), play(seed)
		if once.hash != again.hash || once.now != again.now {
			t.Fatalf("seed %d: two runs of it differ: %x and %x", seed, once.hash, again.hash)
		}
		if other, same := hashes[once.hash]; same {
			t.Fatalf("seeds %d and %d have the same hash", seed, other)
		}
		hashes[once.hash] = seed
	}
}

// TestWhoIsGoneHearsNothing: a process that is gone for ever takes no request of a client that still goes
// there, and does nothing any more. If it answered, its core would rightly serve gets beside a put of which
// the checker says that it ended with the process (C9).
func TestWhoIsGoneHearsNothing(t *testing.T) {
	s := newSim(1)
	p, x, heard := s.proxies[0], s.newChance(), false
	p.quit = true
	p.life++ // as heal does
	s.call(&x, p, func(*proxy, func(Answer)) { heard = true }, func(*proxy, Answer) {})
	p.after(0, func() { heard = true })
	s.run(s.now)
	if heard {
		t.Fatal("a process that is gone for ever goes on")
	}
}
