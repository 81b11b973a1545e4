package model

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Limits of one search: memory in MB, and how long it may take on a machine with other work.
const (
	smallMemory, largeMemory = 1000, 4000
	smallTime, largeTime     = 5 * time.Minute, 60 * time.Minute

	vastBits, vastTime = 35, 20 * time.Minute // a table of 2^35 bits, 4 GB; then the search is stopped
)

// verdict is what a search found.
type verdict struct {
	broken    string // the property, "" if all hold in every state of the scope
	states    int
	depth     int
	took      time.Duration // processor time, with the compilation
	megabytes float64
	story     string // the counter-example in words, a step a line
	stopped   bool   // a vast scope, when its time was over
}

// check makes a run: Spin writes the verifier, gcc compiles it, it searches. The test fails if the search is not complete, unless
// its scope is vast.
func check(t *testing.T, r run) verdict {
	t.Helper()
	limit := largeTime
	if r.scope == smallScope {
		limit = smallTime
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	dir := t.TempDir()
	copyModels(t, dir)
	_, writing := command(ctx, t, dir, "spin", append(r.defines(), "-a", r.file)...)
	_, compiling := command(ctx, t, dir, "gcc", r.compilation()...)
	report, searching, stopped := search(ctx, t, r, dir)
	v := parse(t, report)
	v.stopped = stopped
	v.took = writing + compiling + searching
	if v.broken != "" {
		replay, _ := command(ctx, t, dir, "spin", append(r.defines(), "-k", r.file+".trail", "-t", "-T", r.file)...)
		v.story = story(replay)
	}
	return v
}

// search runs the verifier in dir. That of a vast scope is told to end when its time is over, and reports how far it has come.
func search(ctx context.Context, t *testing.T, r run, dir string) (report string, took time.Duration, stopped bool) {
	t.Helper()
	if r.scope != vastScope {
		report, took = command(ctx, t, dir, "./pan", "-E", "-n", "-m100000", "-w23")
		return report, took, false
	}
	enough, cancel := context.WithTimeout(ctx, vastTime)
	defer cancel()
	cmd := program(enough, dir, "./pan", "-E", "-n", "-m100000", fmt.Sprintf("-w%d", vastBits), "-k3")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	stopped = enough.Err() != nil
	require.True(t, err == nil || stopped, "%v\n%s", err, out)
	return string(out), cmd.ProcessState.UserTime(), stopped
}

// copyModels copies the models to dir. That the test itself reads them tells `go test` when a cached result is old.
func copyModels(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob("*.pml")
	require.NoError(t, err, "no models")
	require.NotEmpty(t, files, "no models: %v", err)
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // G304: what the pattern found
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), text, 0o600) //nolint:gosec // G306, G703: a copy in the test's own directory
		}
		require.NoError(t, err)
	}
}

// defines returns the run's flags for Spin.
func (r run) defines() []string { return strings.Fields(r.flags) }

// compilation returns gcc's arguments. A search for a counter-example goes breadth first, so that it finds a shortest one, and is
// short enough to need no optimisation.
func (r run) compilation() []string {
	memory, optimise := smallMemory, "-O1"
	if r.scope != smallScope {
		memory, optimise = largeMemory, "-O2"
	}
	args := []string{"-w", "-DSAFETY", "-DNOREDUCE", "-DVECTORSZ=1024"}
	if r.scope == vastScope {
		return append(args, "-DBITSTATE", optimise, "-o", "pan", "pan.c")
	}
	args = append(args, fmt.Sprintf("-DMEMLIM=%d", memory))
	if r.breaks != "" {
		args = append(args, "-DBFS")
		if r.scope == smallScope {
			optimise = "-O0"
		}
	}
	return append(args, optimise, "-o", "pan", "pan.c")
}

// command runs a program in dir and returns what it says, and its processor time; the test fails if the program does.
func command(ctx context.Context, t *testing.T, dir, name string, args ...string) (string, time.Duration) {
	t.Helper()
	cmd := program(ctx, dir, name, args...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	return string(out), cmd.ProcessState.UserTime()
}

// program is one to be run in dir.
func program(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // G204: our own list of runs
	cmd.Dir = dir
	return cmd
}

// parse reads a verifier's report. One that did not search everything, or broke on something that is no property, fails the test.
func parse(t *testing.T, report string) verdict {
	t.Helper()
	find := func(pattern string) string {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(report); found != nil {
			return found[1]
		}
		return ""
	}
	v := verdict{broken: find(`assertion violated (\w+) \(at depth`)}
	states, _ := strconv.ParseFloat(find(`([\d.e+]+) states, stored`), 64) // 0 if the report has none
	v.states = int(states)
	v.depth, _ = strconv.Atoi(find(`depth reached (\d+)`))
	v.megabytes, _ = strconv.ParseFloat(find(`([\d.]+)\s+total actual memory usage`), 64)
	finished := find(`(errors: \d+)`)
	cut := strings.Contains(report, "max search depth too small") || strings.Contains(report, "out of memory") || strings.Contains(report, "-DMEMLIM bound")
	require.False(t, cut, "no verdict:\n%s", report)
	require.NotEmpty(t, finished, "no verdict:\n%s", report)
	require.NotZero(t, v.states, "no verdict:\n%s", report)
	require.Equal(t, finished == "errors: 0", v.broken == "", "no verdict:\n%s", report)
	return v
}

// story turns Spin's replay of a trail into numbered steps.
func story(replay string) string {
	var b strings.Builder
	step := 0
	for line := range strings.Lines(replay) {
		if strings.HasPrefix(line, "spin:") {
			break
		}
		step++
		fmt.Fprintf(&b, "%2d. %s", step, line)
	}
	return b.String()
}

// keep writes a counter-example to testdata, with -record.
func keep(t *testing.T, r run, v verdict) {
	t.Helper()
	if !*record || v.broken == "" || v.broken != r.breaks || r.scope != smallScope {
		return
	}
	err := os.WriteFile(filepath.Join("testdata", r.name+".txt"), []byte(heading(r)+"\n"+v.story), 0o600)
	require.NoError(t, err)
}

// heading is what a kept counter-example begins with.
func heading(r run) string {
	return fmt.Sprintf("%s: %s\nspin %s %s\nbreaks %s\n", r.name, r.what, r.flags, r.file, r.breaks)
}
