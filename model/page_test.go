package model

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// page is where the table of results stands.
const page = "../docs/model.md"

// TestPageTellsEveryRun: the page is written by hand where -record is forgotten.
func TestPageTellsEveryRun(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs() {
		begin := fmt.Sprintf("| %s | %s | `%s` | %s | ", r.name, r.what, r.flags, orNone(r.breaks))
		if !strings.Contains(string(text), begin) {
			t.Errorf("%s has no line that begins with %q", page, begin)
		}
	}
}

// TestStoriesAreKept: each counter-example of the small scopes stands in testdata, and is of the property that the list says.
func TestStoriesAreKept(t *testing.T) {
	for _, r := range runs() {
		if r.breaks == "" || r.large {
			continue
		}
		text, err := os.ReadFile(filepath.Join("testdata", r.name+".txt"))
		if err != nil {
			t.Error(err)
			continue
		}
		if head := heading(r); !strings.HasPrefix(string(text), head) {
			t.Errorf("%s.txt does not begin with %q", r.name, head)
		}
	}
}

// writePage writes the table of docs/model.md anew, between its marks.
func writePage(t *testing.T, l *ledger) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- runs -->\n", "<!-- /runs -->"
	before, rest, ok1 := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no marks", page)
	}
	if err := os.WriteFile(page, []byte(before+begin+table(l)+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// table returns the results as Markdown.
func table(l *ledger) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	b.WriteString("| run | what | flags | result | states | depth | s | MB |\n|---|---|---|---|--:|--:|--:|--:|\n")
	for _, r := range runs() {
		if v, ok := l.verdicts[r.name]; ok {
			fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %d | %d | %.0f | %.0f |\n",
				r.name, r.what, r.flags, orNone(v.broken), v.states, v.depth, v.took.Seconds(), v.megabytes)
		}
	}
	return b.String()
}
