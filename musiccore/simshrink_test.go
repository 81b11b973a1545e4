package musiccore

import (
	"fmt"
	"slices"
	"strings"
)

// shrinkRuns bounds the runs that a failing seed is cut down with.
const shrinkRuns = 6000

// shrinker leaves out of a failing run whatever it fails without: faults,
// clients, sections, operations.
type shrinker struct {
	seed int
	rule string
	cuts map[cut]bool
	past []cut // what still strikes in the shortest run
	runs int
}

// rule is the first word of a failure: the same failure says the same.
func rule(err error) string {
	first, _, _ := strings.Cut(err.Error(), ":")
	return first
}

// told is the story of a run that leaves some things out.
func told(seed int, cuts map[cut]bool) []string {
	var lines []string
	play(seed, func(s *sim) { s.cuts, s.story = cuts, &lines })
	return lines
}

// fails tries a run with more left out, and keeps it if it still fails. Who
// is not served must have asked: there no client is left out.
func (h *shrinker) fails(more []cut) bool {
	h.runs++
	cuts := make(map[cut]bool, len(h.cuts)+len(more))
	for c := range h.cuts {
		cuts[c] = true
	}
	for _, c := range more {
		cuts[c] = true
	}
	s := play(h.seed, func(s *sim) { s.cuts, s.recording = cuts, true })
	if h.rule == "E8" {
		s.struck = slices.DeleteFunc(s.struck, func(c cut) bool { return c.what >= aClient })
	}
	if s.failed == nil || rule(s.failed) != h.rule {
		return false
	}
	h.cuts, h.past = cuts, s.struck
	return true
}

// pass tries to leave out pieces of a size, and reports whether it could.
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

// shrunk is the report of a failing seed.
func shrunk(seed int) string {
	s := play(seed, func(s *sim) { s.recording = true })
	if s.failed == nil {
		return fmt.Sprintf("seed %d failed once and not again: the simulation is not deterministic", seed)
	}
	h := &shrinker{seed: seed, rule: rule(s.failed), past: s.struck}
	all := len(h.past)
	h.fails(nil)
	h.shrink()
	story := told(seed, h.cuts)
	return fmt.Sprintf("seed %d: %v\nagain: go test ./musiccore -run '^TestSimulation$' -sim.first=%d -sim.seeds=1\n"+
		"cut down from %d faults and steps to %d in %d runs:\n%s",
		seed, s.failed, seed, all, len(h.past), h.runs, strings.Join(story, "\n"))
}
