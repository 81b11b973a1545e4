package musiccore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// shrinkRuns is how many runs may be made to reduce a failing seed.
const shrinkRuns = 6000

// shrinker reduces a failing run: it leaves out faults, clients, sections and operations that the
// failure does not need.
type shrinker struct {
	seed  int
	setup func(*sim)
	rule  string
	cuts  map[cut]bool
	past  []cut // the events of the shortest failing run
	runs  int
}

// rule returns the first word of a failure, which identifies it.
func rule(err error) string {
	first, _, _ := strings.Cut(err.Error(), ":")
	return first
}

// told returns the story of a run that leaves some events out.
func told(seed int, setup func(*sim), cuts map[cut]bool) []string {
	var lines []string
	play(seed, setup, func(s *sim) { s.cuts, s.story = cuts, &lines })
	return lines
}

// fails tries a run with more left out, and keeps it if it still fails. For E8, "not served", no
// client is left out, since it fails trivially without requests.
func (h *shrinker) fails(more []cut) bool {
	h.runs++
	cuts := make(map[cut]bool, len(h.cuts)+len(more))
	for c := range h.cuts {
		cuts[c] = true
	}
	for _, c := range more {
		cuts[c] = true
	}
	s := play(h.seed, h.setup, func(s *sim) { s.cuts, s.recording = cuts, true })
	if h.rule == "E8" {
		s.struck = slices.DeleteFunc(s.struck, func(c cut) bool { return c.what >= aClient })
	}
	if s.failed == nil || rule(s.failed) != h.rule {
		return false
	}
	h.cuts, h.past = cuts, s.struck
	return true
}

// pass tries to leave out pieces of a size, and reports whether any could be left out.
func (h *shrinker) pass(size int) bool {
	cut := false
	for at := 0; at < len(h.past) && h.runs < shrinkRuns; {
		if h.fails(h.past[at:min(at+size, len(h.past))]) {
			cut = true
			continue
		}
		at += size
	}
	return cut
}

func (h *shrinker) shrink() {
	for again := true; again && h.runs < shrinkRuns; {
		again = false
		for size := len(h.past) / 2; size > 0; size /= 2 {
			again = h.pass(size) || again
		}
	}
}

// shrunk returns the report of a failing seed.
func shrunk(seed int, setup func(*sim)) string {
	h, err := shrink(seed, setup)
	if err == nil {
		return fmt.Sprintf("seed %d failed once and not again: the simulation is not deterministic", seed)
	}
	return fmt.Sprintf("seed %d: %v\nagain: go test ./musiccore -run '^TestSimulation$' -sim.first=%d -sim.seeds=1\n"+
		"cut down to %d faults and steps in %d runs:\n%s",
		seed, err, seed, len(h.past), h.runs, strings.Join(told(seed, setup, h.cuts), "\n"))
}

// shrink reduces a failing run, and also returns the first failure; nil if the run does not fail.
func shrink(seed int, setup func(*sim)) (*shrinker, error) {
	s := play(seed, setup, func(s *sim) { s.recording = true })
	if s.failed == nil {
		return nil, nil
	}
	h := &shrinker{seed: seed, setup: setup, rule: rule(s.failed), past: s.struck}
	h.fails(nil)
	h.shrink()
	return h, s.failed
}

// TestShrink: a failing run is reduced to the events that are needed to fail. How many are left
// differs from seed to seed; that none of them can be left out does not, nor that they are few in
// most runs.
func TestShrink(t *testing.T) {
	const runs = 8
	trap := func(s *sim) { s.trap = holderLost + 1 }
	var left []float64 // of the faults and steps of each run
	for seed := 0; len(left) < runs && seed < 100; seed++ {
		whole := play(seed, trap, func(s *sim) { s.recording = true })
		h, err := shrink(seed, trap)
		if err == nil {
			continue
		}
		story := strings.Join(told(seed, trap, h.cuts), "\n")
		if rule(err) != "trap" || !strings.Contains(story, "FAILED  trap") {
			t.Fatalf("seed %d: the story does not end as it must: %v\n%s", seed, err, story)
		}
		for _, c := range h.past {
			if h.fails([]cut{c}) {
				t.Errorf("seed %d: %v could have been left out", seed, c)
			}
		}
		left = append(left, float64(len(h.past))/float64(len(whole.struck)))
	}
	slices.Sort(left)
	if len(left) < runs || left[runs/2] > 1./3 {
		t.Errorf("what is left of the faults and steps of each run: %.2f", left)
	}
}
