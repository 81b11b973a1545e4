package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// foreign are the flags of other programs that the documents name.
var foreign = strings.Fields("--file --force --full --install-links --paxos-only")

// Each flag that a page for users names is one of a command, and each command has its lines in command-line.md.
func TestDocsNameFlagsThatExist(t *testing.T) {
	var known strings.Builder
	flag := regexp.MustCompile(`--[a-z][a-z-]+`)
	commandLine, err := os.ReadFile("../../docs/command-line.md")
	require.NoError(t, err)
	commands := regexp.MustCompile(`(?m)^  ([a-z]+) {2,}`).FindAllStringSubmatch(run(done, nil, "--help").stdout, -1)
	require.Len(t, commands, 7)
	for _, c := range commands {
		known.WriteString(run(done, nil, c[1], "--help").stdout)
		if c[1] != "help" {
			assert.Contains(t, string(commandLine), "music "+c[1])
		}
	}
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "../../README.md", "../../SECURITY.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, name := range flag.FindAllString(string(text), -1) {
			assert.True(t, strings.Contains(known.String(), name+" ") || strings.Contains(strings.Join(foreign, " "), name), "%s: %s", page, name)
		}
	}
}
