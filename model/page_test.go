package model

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// page is the page with the table of results.
const page = "../docs/model.md"

// TestPageTellsEveryRun: docs/model.md has the result of each run of the small scopes, and no wrong result of any run.
func TestPageTellsEveryRun(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, r := range runs() {
		assert.True(t, strings.Contains(string(text), result(r)) || (r.scope != smallScope && !strings.Contains(string(text), "| "+r.name+" |")), "%s has no line that begins with %q", page, result(r))
	}
}

// result is how the line of a run begins in which what must break breaks.
func result(r run) string {
	return fmt.Sprintf("\n| %s | %s | `%s` | %s | ", r.name, r.what, r.flags, r.said(r.breaks))
}

// TestStoriesAreKept: each counter-example of the small scopes is in testdata, and breaks the property that the list names.
func TestStoriesAreKept(t *testing.T) {
	for _, r := range runs() {
		if r.breaks == "" || r.scope != smallScope {
			continue
		}
		text, err := os.ReadFile(filepath.Join("testdata", r.name+".txt"))
		if err != nil {
			assert.NoError(t, err)
			continue
		}
		head := heading(r)
		assert.True(t, strings.HasPrefix(string(text), head), "%s.txt does not begin with %q", r.name, head)
	}
}

// writePage writes the table of docs/model.md anew, between its marks. Runs that were not made keep their lines.
func writePage(t *testing.T, l *ledger) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	const begin, end = "<!-- runs -->\n", "<!-- /runs -->"
	before, rest, ok1 := strings.Cut(string(text), begin)
	old, after, ok2 := strings.Cut(rest, end)
	require.True(t, ok1, "%s has no marks", page)
	require.True(t, ok2, "%s has no marks", page)
	require.NoError(t, os.WriteFile(page, []byte(before+begin+table(l, old)+end+after), 0o600))
}

// table returns the results as Markdown, those that are not in the ledger out of the old table.
func table(l *ledger, old string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	b.WriteString("| run | what | flags | result | states | depth | s | MB |\n|---|---|---|---|--:|--:|--:|--:|\n")
	for _, r := range runs() {
		if v, ok := l.verdicts[r.name]; ok {
			fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s | %d | %.0f | %.0f |\n",
				r.name, r.what, r.flags, r.said(v.broken), v.counted(), v.depth, v.took.Seconds(), v.megabytes)
			continue
		}
		if _, line, ok := strings.Cut("\n"+old, result(r)); ok {
			line, _, _ = strings.Cut(line, "\n")
			b.WriteString(strings.TrimPrefix(result(r), "\n") + line + "\n")
		}
	}
	return b.String()
}
