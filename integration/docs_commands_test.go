package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// commands types the lines of a part that begin with $ at a shell, and compares what they print. Commands that ask a proxy ask that of
// the player.
func (p *docPlayer) commands(part docPart) {
	p.t.Helper()
	var line string
	var printed []string
	first := 0
	check := func(at int) {
		if line == "" {
			return
		}
		got := p.command(line)
		assert.Equal(p.t, tidyCommand(p.say(strings.Join(printed, "\n"))), tidyCommand(got), "%s:%d: %s\nprinted:\n%s", p.page.path, first, line, got)
		first, printed = at, nil
	}
	for i, text := range part.lines {
		typed, is := strings.CutPrefix(text, "$ ")
		if !is {
			printed = append(printed, text)
			continue
		}
		check(part.first + i + 1)
		line, first = typed, part.first+i+1
	}
	check(0)
}

// command runs a line at a shell that finds the program.
func (p *docPlayer) command(line string) string {
	p.t.Helper()
	binary, err := needEnvironment(p.t).binary()
	require.NoError(p.t, err)
	asked := regexp.MustCompile(`\bmusic (locks|lock|unlock|check)\b`).ReplaceAllString(p.say(line), "music $1 --proxy "+p.proxy)
	cmd := exec.Command("sh", "-c", asked)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(p.t, err, "%s\n%s", line, out)
	return string(out)
}

// tidyCommand returns what a command printed without what differs from run to run.
func tidyCommand(printed string) string {
	text := strings.Join(strings.Fields(printed), " ")
	for what, form := range map[string]string{
		"<time>": `\b\d+(\.\d+)?m?s\b`, "<ref>": references.String(), "at <host>, process <n>": `at \S+, process \d+`,
	} {
		text = regexp.MustCompile(form).ReplaceAllString(text, what)
	}
	return text
}
