package music_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// citation is a reference to a section of the two pages that code cites, as "docs/protocol.md 3.11, Release".
var citation = regexp.MustCompile(`docs/(protocol|design)\.md (\d(?:\.\d{1,2})?)(?:, (\w+))?`)

// mark is a reference to an invariant or a known error of docs/protocol.md, as "I7" or "C12".
var mark = regexp.MustCompile(`\b[CHIM][1-9]\d?\b`)

// sections returns the headings of a page by their numbers; an item of a numbered list counts as a section below its heading.
func sections(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	found := map[string]string{}
	var heading string
	for line := range strings.Lines(string(text)) {
		if m := regexp.MustCompile(`^##+ (\d(?:\.\d+)?)\.? (.*)`).FindStringSubmatch(line); m != nil {
			heading = m[1]
			found[heading] = m[2]
		} else if m := regexp.MustCompile(`^(?:(\d+)\. |\*\*(\d\.\d) )(.*)`).FindStringSubmatch(line); m != nil && m[1] != "" {
			found[heading+"."+m[1]] = m[3]
		} else if m != nil {
			found[m[2]] = m[3]
		}
	}
	return found
}

// marks returns the invariants and known errors that docs/protocol.md lists.
func marks(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("docs/protocol.md")
	require.NoError(t, err)
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([CHIM]\d+)[ *]*\|`).FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = true
	}
	return found
}

// commentsOf returns the comments of a Go file, each on one line; other files are one comment.
func commentsOf(t *testing.T, name string) []string {
	t.Helper()
	source, err := os.ReadFile(name)
	require.NoError(t, err)
	if !strings.HasSuffix(name, ".go") {
		return []string{string(source)}
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments)
	require.NoError(t, err)
	var all []string
	for _, group := range file.Comments {
		all = append(all, strings.Join(strings.Fields((&ast.CommentGroup{List: group.List}).Text()), " "))
	}
	return all
}

// citing returns the files whose citations are checked.
func citing(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*/*.go", "*/*/*.go", "*.go", "*.md", "docs/*.md", "model/*.pml", "musiccore/testdata/variants/*.txt"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	return files
}

func TestCitationsResolve(t *testing.T) {
	pages := map[string]map[string]string{"protocol": sections(t, "docs/protocol.md"), "design": sections(t, "docs/design.md")}
	known, seen := marks(t), 0
	for _, name := range citing(t) {
		for _, comment := range commentsOf(t, name) {
			assert.NotRegexp(t, `\b(PROTOCOL|DESIGN)\.md|\bfacts/`, comment, "%s cites what a reader does not have", name)
			for _, m := range citation.FindAllStringSubmatch(comment, -1) {
				seen++
				heading, ok := pages[m[1]][m[2]]
				assert.True(t, ok, "%s cites %q: there is no such section", name, m[0])
				if m[1] == "protocol" && strings.Contains(m[2], ".") && m[3] != "" && !mark.MatchString(m[3]) {
					assert.Contains(t, strings.ToLower(heading), strings.ToLower(m[3]), "%s cites %q", name, m[0])
				}
			}
			if strings.HasPrefix(name, "musiccore") || strings.HasPrefix(name, "proxy") || strings.HasPrefix(name, "frontend") {
				for _, m := range mark.FindAllString(comment, -1) {
					assert.True(t, known[m], "%s names %s, which docs/protocol.md does not have", name, m)
				}
			}
		}
	}
	assert.Greater(t, seen, 100, "citations are not found any more")
}
