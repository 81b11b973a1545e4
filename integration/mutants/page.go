package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// page is docs/mutants.md: the known survivors, each with its reason, by their names.
type page struct {
	path    string
	reasons map[string]string
}

// unexplained is the reason of a survivor that has none yet.
const unexplained = "unexplained"

// name identifies a mutant on the page, also when lines move.
func (m mutant) name() string { return fmt.Sprintf("| %s | %s | %s |", m.file, m.function, m.what()) }

// readPage reads the reasons of the last runs.
func readPage(path string) (*page, error) {
	p := &page{path: path, reasons: map[string]string{}}
	text, err := os.ReadFile(path)
	if err != nil && path != "" && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the survivors that are known: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		row := strings.TrimSuffix(strings.TrimSpace(line), " |")
		at := strings.LastIndex(row, " | ")
		if at > 0 && strings.Count(row, " | ") == 3 && strings.Contains(row, ".go | ") {
			p.reasons[row[:at]+" |"] = row[at+3:]
		}
	}
	return p, nil
}

// report prints the result, and updates the page: what survived now, and what survived before and
// was not judged again.
func (p *page) report(all []tried, o options) error {
	var dead, known, open int
	for _, t := range all {
		switch reason := p.reasons[t.name()]; {
		case t.fate == killed:
			dead++
			delete(p.reasons, t.name())
		case reason == "" || reason == unexplained:
			open++
			p.reasons[t.name()] = unexplained
		default:
			known++
		}
	}
	summary := fmt.Sprintf("%d mutants, seed %d: %d found by tests, %d harmless or left for the reason given, %d unexplained (%.1f %%)",
		len(all), o.seed, dead, known, open, 100*float64(open)/float64(max(1, len(all))))
	fmt.Println(summary)
	if p.path != "" {
		if err := os.WriteFile(p.path, []byte(p.text(summary)), 0o600); err != nil {
			return fmt.Errorf("write the survivors: %w", err)
		}
	}
	const goal = 5 // percent
	if open*100 > goal*len(all) {
		return fmt.Errorf("more than %d %% survive unexplained: %d of %d", goal, open, len(all))
	}
	return nil
}

// text returns the page.
func (p *page) text(summary string) string {
	var rows []string
	for name, reason := range p.reasons {
		rows = append(rows, name+" "+reason+" |\n")
	}
	slices.Sort(rows)
	return fmt.Sprintf(pageHead, summary) + strings.Join(rows, "")
}

const pageHead = `# Mutants that no test finds

` + "`make mutants`" + ` changes the product in one place at a time: a condition turned round, a side of it left out, a statement, a case or a copy left out,
another level, outcome or verdict. All mutants of a package are built into one test binary (` + "`go test -overlay`" + `), and each is judged by the tests
that reach its line: those that need no Cassandra, and those of ` + "`proxy`" + ` that do, beside one node. Verdicts are kept in ` + "`.run/mutants.jsonl`" + `:
a run that was ended goes on where it was. It tries 320 of them, ` + "`SEED=n`" + ` others, ` + "`MUTANTS=all`" + ` all (a night), ` + "`ONLY=frontend/fence.go`" + ` all of one file; more than 5 %% unexplained
survivors fail. The protocol's own known-bad variants, each with the rule it breaks, are in [variants.md](variants.md).

Last run: %s.

Each row is one that survived, with the reason why that is left so: *harmless* ones change nothing that anybody can see, those that *Cassandra*
or *load* judges are found by the tests in ` + "`integration`" + ` or by none that is quick. *Unexplained* ones wait for somebody to look: a test is
missing, or the line is.

| file | function | change | reason |
|---|---|---|---|
`
