package experiment

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Markdown is the report as docs/evaluation shows it; before may be nil, plots are the names of files that were drawn, by figure, and
// others those of further pages.
func (r *Report) Markdown(before *Report, plots map[string]string, others ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The evaluation\n\nThe systems that this product stands on, and the product, beside each other: written by `make evaluate`%s.\nNodes, proxies, clients and the emulated network share one machine, last %s, with whatever else runs there: each\nfigure tells how loaded it was, by which command it was measured, and at which commit. A full run keeps a figure that is here with the same settings,\nwhatever the product was then; `--again` measures it anew. The `evaluate` of the commands is `.run/bin/evaluate`, which `make evaluate` builds;\nit runs in the root of the checkout.\n",
		r.span(), r.Machine)
	b.WriteString("\n**Ratios are the result**: both systems of a ratio have had their turns in the same run, round by round. A number is the median of the rounds, with\nthe least and the greatest in brackets. Absolute numbers are those of the machine. The load is how many processes wanted a core in the last minute,\nbefore and after.\n\n| | |\n|---|---|\n")
	versions := maps.Clone(r.Versions)
	if commits := r.commits(); commits != "" {
		versions["the product"] = commits
	}
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, versions[name])
	}
	if len(others) > 0 {
		b.WriteString("\nBeside this page:")
		for _, name := range others {
			fmt.Fprintf(&b, " [%s](%s)", strings.TrimSuffix(name, ".md"), name)
		}
		b.WriteString("\n")
	}
	r.markdownWords(&b)
	r.markdownSummary(&b)
	for _, f := range r.Figures {
		f.markdown(&b, before, plots[f.Key()])
	}
	return b.String()
}

// span says between which times the figures were measured; "" if there are none.
func (r *Report) span() string {
	if len(r.Figures) == 0 {
		return ""
	}
	earlier := func(a, b *Figure) int { return strings.Compare(a.When, b.When) }
	return fmt.Sprintf(", its figures from\n%s to %s", slices.MinFunc(r.Figures, earlier).When, slices.MaxFunc(r.Figures, earlier).When)
}

// commits returns those at which the figures were measured, each once, the earliest first.
func (r *Report) commits() string {
	var all []string
	for _, f := range slices.SortedFunc(slices.Values(r.Figures), func(a, b *Figure) int { return strings.Compare(a.When, b.When) }) {
		if f.Version != "" && !slices.Contains(all, f.Version) {
			all = append(all, f.Version)
		}
	}
	return strings.Join(all, ", ")
}

// markdownSummary is the table of what the papers have or the product aims at.
func (r *Report) markdownSummary(b *strings.Builder) {
	b.WriteString("\n## In short\n\nWhat the paper, a post or the slides have a number for, or the product a goal. Where a goal is missed, what was measured beside it says why, or that it is not that.\n\n" +
		"| figure | profile, Paxos | ratio | at | of | measured | paper, post or slides | aimed at | |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, f := range r.Figures {
		for _, q := range f.ratios() {
			if q.paper != "" || q.goal() != "" {
				fmt.Fprintf(b, "| [%s](#%s) | %s, %s | %s | %s | %s | %s | %s | %s | %s |\n", f.Name, f.anchor(), f.Profile, f.Paxos, q.name(), q.X, q.Metric, q.Values,
					q.paper, q.goal(), q.verdict())
			}
		}
	}
}

// anchor is what a link to the figure names.
func (f *Figure) anchor() string { return strings.ReplaceAll(f.Key(), "/", "-") }

// markdown is a figure: its ratios, its numbers, and how its network was.
func (f *Figure) markdown(b *strings.Builder, before *Report, plot string) {
	var old *Figure
	if before != nil {
		old = before.figure(f.Key())
	}
	fmt.Fprintf(b, "\n<a id=\"%s\"></a>\n\n## %s: %s\n\n%s\n", f.anchor(), f.Name, f.heading(), f.under())
	if plot != "" {
		fmt.Fprintf(b, "\n![%s](%s)\n", f.Title, plot)
	}
	f.markdownRatios(b, old)
	f.markdownRows(b, old)
	for _, n := range f.Notes {
		fmt.Fprintf(b, "\n%s\n", n)
	}
	for _, c := range f.Network {
		var trips []string
		for _, t := range c.Trips {
			trips = append(trips, fmt.Sprintf("%d–%d %.2f (wanted %.2f)", t.A, t.B, t.Got, t.Wanted))
		}
		fmt.Fprintf(b, "\nThe network's own test %s, ms: %s.\n", c.When, strings.Join(trips, ", "))
	}
}

// heading is the column's.
func (m Metric) heading() string {
	if m.Unit == "" {
		return m.Name
	}
	return m.Name + ", " + m.Unit
}

// heading is the title, which says where there was no network.
func (f *Figure) heading() string {
	if f.Profile == Local().Name {
		return f.Title + ", LOCAL PROFILE"
	}
	return f.Title
}

// under is the line below the title of a figure.
func (f *Figure) under() string {
	log := "periodic"
	if f.Sync {
		log = "batch"
	}
	where := "profile " + f.Profile
	if f.Profile == Local().Name {
		where = "three nodes on loopback, no distance between them"
	}
	s := f.Settings
	text := fmt.Sprintf("%s, Paxos %s, commit log %s, %d rounds of %v a system, %d clients a site where it is about throughput and nothing else is said.\n`%s`, the product %s, %s, load %s.",
		where, f.Paxos, log, s.Rounds, s.Span, s.Workers, f.Command, f.Version, f.When, f.Load)
	if s.Try {
		text += "\n**This was a try on nodes that start fast and are slow then: its numbers say nothing.**"
	}
	return text
}

// markdownRatios is the table of the claims.
func (f *Figure) markdownRatios(b *strings.Builder, old *Figure) {
	all := f.ratios()
	if len(all) == 0 {
		return
	}
	b.WriteString("\n| ratio | at | of | measured | paper, post or slides | aimed at | |\n|---|---|---|---|---|---|---|\n")
	for _, r := range all {
		was := ""
		if old != nil {
			was = moved(r.Values, old.ratioAt(r.Claim, r.X))
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s%s | %s | %s | %s |\n", r.name(), r.X, r.Metric, r.Values, was, r.paper, r.goal(), r.verdict())
	}
}

// markdownRows is the table of the numbers.
func (f *Figure) markdownRows(b *strings.Builder, old *Figure) {
	b.WriteString("\n| system | at |")
	for _, m := range f.Metrics {
		fmt.Fprintf(b, " %s |", m.heading())
	}
	b.WriteString(" |\n|---|---|" + strings.Repeat("---|", len(f.Metrics)) + "---|\n")
	for _, r := range f.Rows {
		fmt.Fprintf(b, "| %s | %s |", r.System, r.X)
		for _, m := range f.Metrics {
			was := ""
			if old != nil {
				was = moved(r.Values[m.Name], old.values(r.System, r.X, m.Name))
			}
			fmt.Fprintf(b, " %s%s |", r.Values[m.Name], was)
		}
		fmt.Fprintf(b, " %s |\n", strings.NewReplacer("\n", " ", "|", "/").Replace(r.Note))
	}
}
