package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Samples are the values of one measurement, one for each round.
type Samples []float64

// Quantile returns the value below which a part q of the values are; 0 if there are none.
func (s Samples) Quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(s))[min(len(s)-1, int(q*float64(len(s))))]
}

// Median returns the median.
func (s Samples) Median() float64 { return s.Quantile(0.5) }

// String returns the median, with the minimum and maximum in brackets.
func (s Samples) String() string {
	switch len(s) {
	case 0:
		return "–"
	case 1:
		return short(s[0])
	}
	return fmt.Sprintf("%s (%s–%s)", short(s.Median()), short(s.Quantile(0)), short(s.Quantile(1)))
}

// short returns a number with three significant digits.
func short(v float64) string {
	switch {
	case v >= 100 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Row is the measurements of a system at one point of a figure.
type Row struct {
	System string             `json:"system"`
	X      string             `json:"x,omitempty"` // the point, as "10 puts"; none where a figure has only one
	Values map[string]Samples `json:"values"`      // by metric, one of each round
	CDF    []float64          `json:"cdf,omitempty"`
	Missed []int              `json:"missed,omitempty"` // rounds, from 0, whose turn failed: they have no values
	Note   string             `json:"note,omitempty"`   // why it is not timed, or what else is to be known
}

// Claim is a ratio of two systems of a figure, or the value of one, with the paper's and the product's goal.
type Claim struct {
	Of, To  string // To is "" where it is no ratio
	Metric  string
	Paper   string    // "" : nothing
	PaperAt [2]string // a point, and what the paper has there instead
	Least   float64   // what is aimed at; 0: there is no such bound
	Most    float64
	Floor   [2]string // systems that do only what any protocol needs, one or both, for the reason of a claim that is missed
	Why     string    // the reason, where there are none or these do not explain it
}

// Ratio is a claim as measured at one point.
type Ratio struct {
	Claim
	X      string
	Values Samples
	floor  Samples // the ratio that Floor alone has
	paper  string  // what the paper has at X

	unmeasured string // why there are no values
}

// paperAt returns what the paper has at a point.
func (c Claim) paperAt(x string) string {
	if c.PaperAt[0] == x && c.PaperAt[1] != "" {
		return c.PaperAt[1]
	}
	return c.Paper
}

// goal returns the goal as text.
func (c Claim) goal() string {
	switch {
	case c.Least != 0:
		return fmt.Sprintf("≥ %g", c.Least)
	case c.Most != 0:
		return fmt.Sprintf("≤ %g", c.Most)
	}
	return ""
}

// verdict returns whether the median meets the goal, or why nobody can say.
func (r Ratio) verdict() string {
	m := r.Values.Median()
	switch {
	case len(r.Values) == 0:
		return "not measured: " + r.unmeasured
	case r.goal() == "":
		return ""
	case r.Least != 0 && m < r.Least, r.Most != 0 && m > r.Most:
		return "missed" + r.reason()
	}
	return "met"
}

// reason returns why a claim is missed, as far as that was measured or is known.
func (r Ratio) reason() string {
	if len(r.floor) > 0 {
		names := r.Floor[0]
		if r.Floor[1] != "" {
			names = fmt.Sprintf("one %s and one %s", names, r.Floor[1])
		}
		if m := r.floor.Median(); r.Most != 0 && m <= r.Most || r.Least != 0 && m >= r.Least {
			return fmt.Sprintf(", and would not be by %s alone, %s in the same rounds%s", names, r.floor, r.why())
		}
		return fmt.Sprintf(", as it would be by %s alone, %s in the same rounds", names, r.floor)
	}
	return r.why()
}

// why returns the reason that is known, to be put behind something; "" if there is none.
func (c Claim) why() string {
	if c.Why == "" {
		return ""
	}
	return ": " + c.Why
}

// name returns what a claim is about.
func (c Claim) name() string {
	if c.To == "" {
		return c.Of
	}
	return c.Of + " : " + c.To
}

// Figure is the result of an experiment in one world.
type Figure struct {
	Name     string   `json:"name"`
	Title    string   `json:"title"`
	Profile  string   `json:"profile"`
	Paxos    string   `json:"paxos"`
	Sync     bool     `json:"sync,omitempty"` // the nodes acknowledged what was on disk
	When     string   `json:"when"`
	Version  string   `json:"version"` // of the product
	Command  string   `json:"command"`
	Settings Settings `json:"settings"`
	Load     string   `json:"load"` // of the machine, when it began and when it ended
	Network  []Check  `json:"network,omitempty"`
	Metrics  []Metric `json:"metrics"`
	Rows     []Row    `json:"rows"`
	Claims   []Claim  `json:"claims,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// Check is a test of the network, before a figure was measured or after it.
type Check struct {
	When  string `json:"when"`
	Trips []Trip `json:"trips"`
}

// Metric is a column of a figure.
type Metric struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
}

// Key identifies a figure of a report.
func (f *Figure) Key() string { return f.Name + "/" + f.Profile + "/" + f.Paxos }

// find returns the index of a system's row at a point; negative if there is none.
func (f *Figure) find(system, x string) int {
	return slices.IndexFunc(f.Rows, func(r Row) bool { return r.System == system && r.X == x })
}

// values returns the values of a metric of a system at a point; nil if there are none.
func (f *Figure) values(system, x, metric string) Samples {
	if i := f.find(system, x); i >= 0 {
		return f.Rows[i].Values[metric]
	}
	return nil
}

// row returns a system's row at a point, and makes it if there is none.
func (f *Figure) row(system, x string) *Row {
	i := f.find(system, x)
	if i < 0 {
		f.Rows = append(f.Rows, Row{System: system, X: x, Values: map[string]Samples{}})
		i = len(f.Rows) - 1
	}
	return &f.Rows[i]
}

// add adds the values of a round.
func (f *Figure) add(system, x string, values map[string]float64) {
	r := f.row(system, x)
	for metric, v := range values {
		r.Values[metric] = append(r.Values[metric], v)
	}
}

// points returns the values of X, in the order of the rows.
func (f *Figure) points() (all []string) {
	for _, r := range f.Rows {
		if !slices.Contains(all, r.X) {
			all = append(all, r.X)
		}
	}
	return all
}

// ratios returns the claims at each point at which they were measured, and, where a paper has a number or the product a goal, also those
// at which only one system was.
func (f *Figure) ratios() (all []Ratio) {
	for _, c := range f.Claims {
		for _, x := range f.points() {
			r := Ratio{Claim: c, X: x, Values: f.ratioAt(c, x), floor: f.floorAt(c, x), paper: c.paperAt(x)}
			if r.Values == nil && (r.paper != "" || c.goal() != "") {
				r.unmeasured = f.noteOf(c, x)
			}
			if r.Values != nil || r.unmeasured != "" {
				all = append(all, r)
			}
		}
	}
	return all
}

// noteOf returns why a claim has no values at a point, in short, for the rows tell all; "" where that is no point of its systems.
func (f *Figure) noteOf(c Claim, x string) string {
	here, note, absent := false, "", ""
	for _, system := range []string{c.Of, c.To} {
		if i := f.find(system, x); i >= 0 {
			here = true
			if first, _, _ := strings.Cut(f.Rows[i].Note, ":"); first != "" {
				note = cmp.Or(note, system+": "+first)
			}
		} else if system != "" {
			absent = cmp.Or(absent, system+" was not timed")
		}
	}
	if !here {
		return ""
	}
	if c.To == "" {
		return cmp.Or(note, "there are no values")
	}
	return cmp.Or(note, absent, "some round is not of both, or the other one is not above nothing")
}

// leftOut reports whether a row has failed so often that it was left out of further rounds: what it did before says nothing.
func (r Row) leftOut() bool { return len(r.Missed) > 1 }

// quotients returns the sum of some systems over another one at a point, round by round; nil if one of them
// has missed a round, which another has not, or there is nothing above zero to divide by.
func (f *Figure) quotients(of []string, c Claim, x string) Samples {
	to := f.find(c.To, x)
	if to < 0 {
		return nil
	}
	below, missed := f.Rows[to].Values[c.Metric], f.Rows[to].Missed
	if len(below) == 0 || f.Rows[to].leftOut() || slices.ContainsFunc(below, func(v float64) bool { return v <= 0 }) {
		return nil
	}
	q := make(Samples, len(below))
	for _, system := range of {
		above := f.values(system, x, c.Metric)
		if len(above) != len(below) || !slices.Equal(f.Rows[f.find(system, x)].Missed, missed) {
			return nil
		}
		for i, v := range above {
			q[i] += v / below[i]
		}
	}
	return q
}

// ratioAt returns the ratio of a claim at a point.
func (f *Figure) ratioAt(c Claim, x string) Samples {
	if c.To == "" {
		if i := f.find(c.Of, x); i < 0 || f.Rows[i].leftOut() {
			return nil
		}
		return f.values(c.Of, x, c.Metric)
	}
	return f.quotients([]string{c.Of}, c, x)
}

// floorAt returns the ratio of what any protocol needs at a point; nil if it was not measured.
func (f *Figure) floorAt(c Claim, x string) Samples {
	if c.Floor[1] == "" {
		return f.quotients(c.Floor[:1], c, x)
	}
	return f.quotients(c.Floor[:], c, x)
}
