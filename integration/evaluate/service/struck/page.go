package struck

import (
	"fmt"
	"slices"
	"strings"

	"music/integration/evaluate/service"
)

// preface is what stands above the tables.
const preface = `# The services of the MUSIC paper

VNF homing and the portal, the two production services of the MUSIC paper (VII), as programs, over: *ours*, this product; *music*, the paper's
algorithms, with the misprint in forcedRelease mended; *printed*, the same with that line as it is printed; *repaired*, MUSIC as it was repaired
here; and *nothing*, no lock at all. Workers of homing and back ends of the portal are killed, stand still, or are cut off from their store while
they are in a section, for longer than the lease of 1 s; what was kept back arrives late. One Cassandra node, on one machine; the two
services over one system are struck at the same time.

The columns *killed*, *paused* and *cut off* count the faults that struck a process in a section, and **overtaken** those of them in which another
process had entered that section before the fault was mended. The faults found, with how often each was, are those of entry consistency on a
job's or user's key; jobs that two workers were at (executed at once), states or changes that were carried out twice, jobs that are not DONE or are
there again, acknowledged changes that are lost. MUSIC tells its holders of no lease, so that one which wakes up works on until its next put is refused.

| service | over | killed | paused | cut off | overtaken | what was found |
|---|---|---|---|---|---|---|
`

// page returns the page.
func (r *report) page() string {
	var b strings.Builder
	b.WriteString(preface)
	for _, t := range r.Tallies {
		var found []string
		for _, f := range t.Found {
			found = append(found, fmt.Sprintf("%s (%d)", f.Name, f.Times))
		}
		if t.Fault != "" {
			found = append(found, "it has not come to an end: "+t.Fault)
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %s |\n", t.Service, t.Over, t.Struck[Killed], t.Struck[Paused], t.Struck[Cut], t.Overtaken, strings.Join(found, "; "))
	}
	b.WriteString("\n## Without faults\n\nJobs (homing), and changes of roles (portal), a second, where a job's states take no time: the median of the rounds, with the least and the greatest.\nA ratio is the median of those of the same rounds, so that it is not that of the medians.\n\n" +
		"| service | ours | MUSIC | ours : MUSIC |\n|---|---|---|---|\n")
	for _, what := range []string{homing, portal} {
		mine, music := r.rates(what, service.OverOurs), r.rates(what, service.OverMusic)
		var ratios []float64
		for i := range min(len(mine), len(music)) {
			if mine[i] > 0 && music[i] > 0 {
				ratios = append(ratios, mine[i]/music[i])
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", what, spread(mine), spread(music), spread(ratios))
	}
	b.WriteString("\n## The first of each fault\n")
	for _, t := range r.Tallies {
		for _, f := range t.Found {
			fmt.Fprintf(&b, "\n%s over %s:\n```\n%s\n```\n", t.Service, t.Over, f.First)
		}
	}
	fmt.Fprintf(&b, "\n`%s`, the product %s, %s, load (processes that wanted a core, before and after) %s, on %d cores; `evaluate` is `.run/bin/evaluate`, which `make evaluate` builds. Seed %d: what strikes when depends on it, what meets what also on the machine.\n",
		r.Command, r.Commit, r.When, r.Load, r.Cores, r.Seed)
	return b.String()
}

// rates are those of a service over a system.
func (r *report) rates(what, over string) []float64 {
	i := slices.IndexFunc(r.Tallies, func(t *tally) bool { return t.Service == what && t.Over == over })
	return r.Tallies[i].Rates
}

// spread is the median with the least and the greatest, and how many rounds are without.
func spread(all []float64) string {
	v := slices.DeleteFunc(slices.Sorted(slices.Values(all)), func(rate float64) bool { return rate == 0 })
	text := "–"
	if len(v) > 0 {
		text = fmt.Sprintf("%.2f (%.2f–%.2f)", v[len(v)/2], v[0], v[len(v)-1])
	}
	if failed := len(all) - len(v); failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	return text
}
