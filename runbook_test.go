package music_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// logged gives, for each function whose argument becomes the message of a log line, which argument that is.
var logged = map[string]int{"Msg": 0, "until": 1, "alarm": 2, "invariantBroken": 2, "rowLost": 1}

// textOf returns a text as it stands in the code: a literal, several that are joined, the form of a Sprintf, or a constant.
func textOf(e ast.Expr, constants map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.BinaryExpr:
		return textOf(e.X, constants) + textOf(e.Y, constants)
	case *ast.Ident:
		return constants[e.Name]
	case *ast.CallExpr:
		if f, is := e.Fun.(*ast.SelectorExpr); is && f.Sel.Name == "Sprintf" {
			return textOf(e.Args[0], constants)
		}
	}
	return ""
}

// below reports whether the chain of calls that ends in a line's message names a level that the runbook leaves out.
func below(e ast.Expr) bool {
	for {
		switch now := e.(type) {
		case *ast.CallExpr:
			e = now.Fun
		case *ast.SelectorExpr:
			if slices.Contains([]string{"Info", "Debug", "Trace"}, now.Sel.Name) {
				return true
			}
			e = now.X
		default:
			return false
		}
	}
}

// messages returns what a Go file logs, without the lines of levels that the runbook leaves out.
func messages(file *ast.File) (all []string) {
	constants := map[string]string{}
	add := func(e ast.Expr) {
		if text := textOf(e, constants); text != "" {
			all = append(all, text)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if len(n.Values) == 1 {
				constants[n.Names[0].Name] = textOf(n.Values[0], constants)
			}
		case *ast.AssignStmt: // dataTable.ignored is logged by its table
			if to, is := n.Lhs[0].(*ast.SelectorExpr); is && to.Sel.Name == "ignored" {
				add(n.Rhs[0])
			}
		case *ast.CallExpr:
			f, is := n.Fun.(*ast.SelectorExpr)
			if !is {
				break
			}
			if i, is := logged[f.Sel.Name]; is && i < len(n.Args) && !below(f.X) {
				add(n.Args[i])
			}
		}
		return true
	})
	return all
}

// Each line that a proxy logs at level warn or error stands in the runbook, or, if it is one of the audit, on that page; and each
// line there is logged.
func TestTheRunbookHasEachLineOfTheLog(t *testing.T) {
	var all []string
	for _, folder := range []string{"cmd/music", "frontend", "musiccore", "proxy"} {
		require.NoError(t, filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err == nil {
				all = append(all, messages(file)...)
			}
			return err
		}))
	}
	require.Greater(t, len(all), 50, "lines are not found any more")
	audit, err := os.ReadFile("docs/audit.md")
	require.NoError(t, err)
	runbook, err := os.ReadFile("docs/runbook.md")
	require.NoError(t, err)
	_, page, _ := strings.Cut(string(runbook), "\n## Lines of the log")
	page, _, _ = strings.Cut(page, "\n## ")
	rows := map[string]*regexp.Regexp{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]*\pL[^|]*) \|`).FindAllStringSubmatch(page, -1) {
		if m[1] != "the line" {
			rows[m[1]] = regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(m[1]), "…", ".*"))
		}
	}
	told := map[string]bool{}
	for _, text := range all {
		found := strings.Contains(string(audit), "| `"+text+"` |")
		for row, line := range rows {
			if line.MatchString(text) {
				found, told[row] = true, true
			}
		}
		assert.True(t, found, "no line of the runbook is for %q", text)
	}
	for row := range rows {
		assert.True(t, told[row], "nothing logs %q", row)
	}
}
