package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"music/integration/evaluate/whole"
)

// Report is all results so far; it is saved, continued by later runs, and compared with them.
type Report struct {
	When     string            `json:"when"`
	Command  string            `json:"command"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Figures  []*Figure         `json:"figures"`
}

// Kept returns the figure of a run with the same settings, whatever the product was then; nil if there is none.
func (r *Report) Kept(name, profile, paxos string, s Settings) *Figure {
	f := r.Figure(name, profile, paxos)
	if f == nil || f.Settings != s {
		return nil
	}
	return f
}

// Figure returns the figure of an experiment in a world; nil if there is none.
func (r *Report) Figure(name, profile, paxos string) *Figure {
	return r.figure((&Figure{Name: name, Profile: profile, Paxos: paxos}).Key())
}

// figure returns a figure; nil if there is none.
func (r *Report) figure(key string) *Figure {
	i := slices.IndexFunc(r.Figures, func(f *Figure) bool { return f.Key() == key })
	if i < 0 {
		return nil
	}
	return r.Figures[i]
}

// Put adds a figure, and replaces an earlier one of the same name and world.
func (r *Report) Put(f *Figure) {
	r.Figures = slices.DeleteFunc(r.Figures, func(x *Figure) bool { return x.Key() == f.Key() })
	r.Figures = append(r.Figures, f)
	r.arrange()
}

// arrange puts the figures into the order of the experiments, whenever each was made: first those of
// the profile that a short run has, and of today's Paxos.
func (r *Report) arrange() {
	place := map[string]int{}
	for i, e := range All() {
		place[e.Name] = i - len(All()) // what is no more comes last
	}
	profile := func(f *Figure) string { return strings.TrimPrefix(f.Profile, "IUs") } // "" comes first
	slices.SortStableFunc(r.Figures, func(a, b *Figure) int {
		return cmp.Or(place[a.Name]-place[b.Name], strings.Compare(profile(a), profile(b)), strings.Compare(b.Paxos, a.Paxos))
	})
}

// Define arranges the figures, and gives them the claims that their experiments have now: what was measured stays, and what is aimed at may change.
func (r *Report) Define() {
	for _, f := range r.Figures {
		for _, e := range All() {
			if e.Name == f.Name {
				f.Claims = e.Claims
			}
		}
	}
	r.arrange()
}

// Save writes the report as JSON. The file is replaced as a whole.
func (r *Report) Save(path string) error { return whole.Save(path, r) }

// Read reads a report; nil if there is no such file.
func Read(path string) (*Report, error) {
	r, err := whole.Load[Report](path)
	if err != nil {
		return nil, fmt.Errorf("earlier report: %w", err)
	}
	return r, nil
}

// moved returns how a measurement lies outside of the range of an earlier one; "" if it does not,
// or there is none.
func moved(now, before Samples) string {
	if len(now) == 0 || len(before) == 0 {
		return ""
	}
	m := now.Median()
	if m >= before.Quantile(0) && m <= before.Quantile(1) {
		return ""
	}
	return fmt.Sprintf(" **was %s**", before)
}
