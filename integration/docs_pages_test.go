package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docPage is a document of the repository.
type docPage struct {
	path  string // from the root of the repository
	lines []string
	parts []docPart
}

// docPart is the text of a fence or of a set-up comment.
type docPart struct {
	kind  string   // the word behind the fence, or setup
	first int      // index of its first line in the page
	lines []string // without the fence
}

// Kinds of parts that the tests execute. Other kinds are not executed.
const (
	kindSetup   = "setup"         // in a comment: statements, and the words that are made fresh
	kindSession = "cql-session"   // statements typed at cqlsh, and what it prints
	kindMarkers = "cql-markers"   // statements, each with what PREPARE declares of its bind markers
	kindPython  = "python"        // a program that finds a session
	kindGrants  = "cql-grants"    // played by TestRights
	kindShell   = "shell"         // typed by TestDocsSetUpOfSeveralProxies
	kindConsole = "console"       // lines typed at several machines: see operator
	kindLines   = "shell-session" // lines typed at a system's shell, and what they print
	kindGo      = "go"            // a part of docs_gocql_test.go
)

// docRoot is the path from this package to the root of the repository.
const docRoot = ".."

// docPages returns the documents whose examples and links are checked.
func docPages(t testing.TB) []*docPage {
	t.Helper()
	var all []*docPage
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		paths, err := filepath.Glob(filepath.Join(docRoot, pattern))
		require.NoError(t, err)
		for _, path := range paths {
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			rel, err := filepath.Rel(docRoot, path)
			require.NoError(t, err)
			all = append(all, readPage(rel, string(raw)))
		}
	}
	require.NotEmpty(t, all)
	return all
}

// readPage finds the parts of a page.
func readPage(path, text string) *docPage {
	p := &docPage{path: path, lines: strings.Split(text, "\n")}
	for i := 0; i < len(p.lines); i++ {
		kind, end := opening(p.lines[i])
		if end == "" {
			continue
		}
		first := i + 1
		for i++; i < len(p.lines) && p.lines[i] != end; i++ {
		}
		p.parts = append(p.parts, docPart{kind: kind, first: first, lines: p.lines[first:min(i, len(p.lines))]})
	}
	return p
}

// opening returns the kind of part that a line begins, and the line that ends it; "" if it begins
// none.
func opening(line string) (kind, end string) {
	if line == "<!-- setup" {
		return kindSetup, "-->"
	}
	if kind, ok := strings.CutPrefix(line, "```"); ok {
		return kind, "```"
	}
	return "", ""
}

// of returns the parts of these kinds.
func (p *docPage) of(kinds ...string) []docPart {
	var found []docPart
	for _, part := range p.parts {
		if slices.Contains(kinds, part.kind) {
			found = append(found, part)
		}
	}
	return found
}

// prose returns the page without its parts.
func (p *docPage) prose() string {
	lines := slices.Clone(p.lines)
	for _, part := range p.parts {
		for i := range part.lines {
			lines[part.first+i] = ""
		}
	}
	return strings.Join(lines, "\n")
}

// docExchange is a statement typed at cqlsh and what it prints.
type docExchange struct {
	line    int // of the page, from 1
	typed   string
	printed []string
	from    int // index of the first printed line in the part
}

// exchanges returns the exchanges of a session, without lines of a system's shell, which begin with
// $.
func (p docPart) exchanges() []docExchange {
	prompt, more := regexp.MustCompile(`^cqlsh(?::\w+)?> (.*)$`), regexp.MustCompile(`^ {3,}\.\.\. (.*)$`)
	var all []docExchange
	for i, line := range p.lines {
		typed, last := prompt.FindStringSubmatch(line), len(all)-1
		switch goesOn := more.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "$ "):
		case typed != nil:
			all = append(all, docExchange{line: p.first + i + 1, typed: typed[1], from: i + 1})
		case last < 0:
		case goesOn != nil && len(all[last].printed) == 0:
			all[last].typed += " " + goesOn[1]
			all[last].from = i + 1
		default:
			all[last].printed = append(all[last].printed, line)
		}
	}
	return all
}

// The reader of pages finds fences, comments of set-up and exchanges, with their line numbers.
func TestDocsPagesAreReadWhole(t *testing.T) {
	p := readPage("x.md", "one\n<!-- setup\nfresh: bank\n-->\n```cql-session\n$ cqlsh\ncqlsh> SELECT a\n   ... FROM b;\n\n a\n---\n 1\n\ncqlsh:ks> USE c;\n```\n[two](y.md)\n```go\nx := 1\n```\n")
	require.Len(t, p.parts, 3)
	require.Equal(t, []string{"fresh: bank"}, p.of(kindSetup)[0].lines)
	require.Equal(t, []docExchange{
		{line: 7, typed: "SELECT a FROM b;", printed: []string{"", " a", "---", " 1", ""}, from: 3},
		{line: 14, typed: "USE c;", from: 9},
	}, p.of(kindSession)[0].exchanges())
	require.Contains(t, p.prose(), "[two]")
	require.NotContains(t, p.prose(), "x := 1")
}
