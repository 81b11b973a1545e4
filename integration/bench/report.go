package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// samples are the values of one measurement, one for each round.
type samples []float64

// quantile returns the value below which a part q of the values lies, the median at 0.5; 0 if there are no values.
func (s samples) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(s))[min(len(s)-1, int(q*float64(len(s))))]
}

// median returns the median; 0 if there are no values.
func (s samples) median() float64 { return s.quantile(0.5) }

// String returns the median with the quartiles, if there are any.
func (s samples) String() string {
	switch len(s) {
	case 0:
		return "-"
	case 1:
		return short(s[0])
	}
	return fmt.Sprintf("%s (%s–%s)", short(s.median()), short(s.quantile(0.25)), short(s.quantile(0.75)))
}

// short returns a number with three significant digits.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// report has all results of a run; it is saved and compared with later ones.
type report struct {
	When        string       `json:"when"`
	Machine     string       `json:"machine"`
	Comparisons []comparison `json:"comparisons"`
	Node        []comparison `json:"node"` // the ways to write a key on a real node
	Facts       []fact       `json:"facts"`
}

// fact is a single number, measured once or several times.
type fact struct {
	Name   string  `json:"name"`
	Values samples `json:"values"`
	Unit   string  `json:"unit"`
}

// save writes the report as JSON.
func (r report) save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("save the report: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil { //nolint:gosec // G306: a report is for everybody
		return fmt.Errorf("save the report: %w", err)
	}
	return nil
}

// load reads a saved report.
func load(path string) (report, error) {
	var r report
	text, err := os.ReadFile(path) //nolint:gosec // G304: the user names it
	if err != nil {
		return r, fmt.Errorf("earlier report: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("earlier report %s: %w", path, err)
	}
	return r, nil
}

// of returns the measurement of a target, nil if there is none.
func (c comparison) of(target string) *measured {
	i := slices.IndexFunc(c.Targets, func(m measured) bool { return m.Target == target })
	if i < 0 {
		return nil
	}
	return &c.Targets[i]
}

// row is one line of the table of ratios, each of the values of one round: only values of one run
// are compared.
type row struct {
	work                 string
	cpu, throughput, p50 samples // proxy against relay
	cpuProxy             float64 // microseconds a request
}

// rows returns the ratios of the proxy to the relay, one row for each workload.
func (r report) rows() []row {
	var all []row
	for _, c := range r.Comparisons {
		proxy, relay := c.of("proxy"), c.of("relay")
		if proxy == nil || relay == nil {
			continue
		}
		all = append(all, row{
			work: c.Work, cpu: ratios(proxy.CPU, relay.CPU), throughput: ratios(proxy.PerSecond, relay.PerSecond), p50: ratios(proxy.P50, relay.P50),
			cpuProxy: proxy.CPU.median(),
		})
	}
	return all
}

// ratios returns the ratios of each round. The two values of a round were measured on the same
// machine load; the medians over all rounds perhaps not.
func ratios(a, b samples) samples {
	var all samples
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			all = append(all, a[i]/b[i])
		}
	}
	return all
}

// markdown returns the report as docs/performance.md shows it; before may be nil.
func (r report) markdown(before *report) string {
	text := r.verdicts()
	text += "\n| work (clients x in flight) | CPU, proxy : relay | proxy's CPU a request | throughput, proxy : relay | p50, proxy : relay |\n|---|---|---|---|---|\n"
	for _, x := range r.rows() {
		text += fmt.Sprintf("| %s | %s%s | %s µs | %s | %s |\n", x.work, x.cpu, earlier(before, x.work), short(x.cpuProxy), x.throughput, x.p50)
	}
	for _, c := range r.Node {
		text += c.markdown(before)
	}
	if len(r.Facts) > 0 {
		text += "\n| | |\n|---|---|\n"
	}
	for _, f := range r.Facts {
		text += fmt.Sprintf("| %s | %s |\n", f.Name, strings.TrimSpace(f.Values.String()+" "+f.Unit))
	}
	return text
}

// markdown returns the measurements on a real node, each way compared with the plain write through
// the proxy.
func (c comparison) markdown(before *report) string {
	text := fmt.Sprintf("\n| %s | a second | of the plain write's, or of the LWT's | p50, µs | p99, µs | proxy's CPU, µs | node's CPU, µs | tried again |\n|---|---|---|---|---|---|---|---|\n", c.Work)
	for _, m := range c.Targets {
		share := c.share(m.Target)
		text += fmt.Sprintf("| %s | %s | %s%s | %s | %s | %s | %s | %d |\n", m.Target, m.PerSecond, share, before.earlierShare(c.Work, m.Target), m.P50, m.P99, m.CPU, m.Store, m.Again)
	}
	return text
}

// share returns the throughput of a way divided by that of the plain write through the proxy, or of
// the LWT at the node, for each round.
func (c comparison) share(name string) samples {
	m, plain := c.of(name), cmp.Or(c.of(plainWrite), c.of(bareLWT))
	if m == nil || plain == nil {
		return nil
	}
	var all samples
	for i := range min(len(m.PerSecond), len(plain.PerSecond)) {
		all = append(all, m.PerSecond[i]/plain.PerSecond[i])
	}
	return all
}

// earlierShare returns the share in an earlier run, as text; r may be nil.
func (r *report) earlierShare(work, name string) string {
	if r == nil {
		return ""
	}
	for _, c := range r.Node {
		if c.Work == work && c.of(name) != nil {
			return fmt.Sprintf(" (was %.2f)", c.share(name).median())
		}
	}
	return " (new)"
}

// earlier returns the ratio of CPU in an earlier run, as text.
func earlier(before *report, work string) string {
	if before == nil {
		return ""
	}
	for _, x := range before.rows() {
		if x.work == work {
			return fmt.Sprintf(" (was %.2f)", x.cpu.median())
		}
	}
	return " (new)"
}
