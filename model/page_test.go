package model

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// page is where the table of results stands.
const page = "../docs/model.md"

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
