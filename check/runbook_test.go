package check

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// formats returns the texts of the findings as they stand in the code.
func formats(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob("judge*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is || len(call.Args) < 3 {
				return true
			}
			if f, is := call.Fun.(*ast.SelectorExpr); !is || f.Sel.Name != "add" {
				return true
			}
			literal, is := call.Args[2].(*ast.BasicLit)
			require.True(t, is, "a finding's text is a literal: %s", name)
			text, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			all = append(all, text)
			return true
		})
	}
	return all
}

// Each topic has a section in the runbook, and each finding a line there that stands for its text.
func TestTheRunbookHasEachFinding(t *testing.T) {
	page, err := os.ReadFile("../docs/runbook.md")
	require.NoError(t, err)
	_, findings, _ := strings.Cut(string(page), "\n## Findings of")
	for _, f := range Judge(healthy()) {
		assert.Contains(t, findings, "\n### "+f.Topic+"\n")
	}
	assert.Contains(t, findings, "\n### unseen\n")
	assert.Contains(t, findings, "| not seen with this login |")
	var lines []*regexp.Regexp
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]*\pL[^|]*|…: …) \|`).FindAllStringSubmatch(findings, -1) {
		if m[1] != "the line" {
			lines = append(lines, regexp.MustCompile("^(.*[^\\pL])?"+strings.ReplaceAll(regexp.QuoteMeta(m[1]), "…", ".*")+"([^\\pL].*)?$"))
		}
	}
	told := make([]bool, len(lines))
	all := append(formats(t), "not seen with this login")
	require.Greater(t, len(all), 20)
	verb := regexp.MustCompile(`%[a-z]`)
	for _, text := range all {
		found := false
		for i, line := range lines {
			if line.String() != `^(.*[^\pL])?.*: .*([^\pL].*)?$` || text == "%s: %v" {
				if line.MatchString(verb.ReplaceAllString(text, "…")) {
					found, told[i] = true, true
				}
			}
		}
		assert.True(t, found, "no line of the runbook is for %q", text)
	}
	for i, line := range lines {
		assert.True(t, told[i], "no finding is meant by %v", line)
	}
}
