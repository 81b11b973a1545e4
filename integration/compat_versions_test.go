//go:build compat

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/proxy/peer"
)

// versionBefore is the last commit of version 3, whose proxies do not say their version. It stands in for the release before until
// there is one.
const versionBefore = "51e880a953bb832c19952cc715552326059ddbc9"

// inTree runs a command in this tree and returns what it prints.
func inTree(t *testing.T, command string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir = ".."
	out, err := cmd.Output()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		err = fmt.Errorf("%w: %s", err, ended.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// releaseBefore builds the release before this one, by its tag, or else of versionBefore.
func releaseBefore(t *testing.T) (program string) {
	t.Helper()
	commit, err := inTree(t, "git", "describe", "--tags", "--abbrev=0", "HEAD^")
	if err != nil {
		commit = versionBefore
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "tree.tar")
	if _, err := inTree(t, "git", "archive", "--output", archive, commit); err != nil {
		t.Skipf("the release before cannot be built: this clone is shallow, or no clone at all: %v", err)
	}
	program = filepath.Join(dir, "music-before")
	for _, step := range [][]string{{"tar", "-C", dir, "-xf", archive}, {"go", "-C", dir, "build", "-o", program, "./cmd/music"}} {
		_, err := inTree(t, step[0], step[1:]...)
		require.NoError(t, err, step)
	}
	t.Logf("the release before is %s", commit)
	return program
}

// releaseOf builds this tree as if it were of another version.
func releaseOf(t *testing.T, version int) (program string) {
	t.Helper()
	const this = "../proxy/peer/wire.go"
	text, err := os.ReadFile(this)
	require.NoError(t, err)
	line := fmt.Sprintf("\nconst Version = %d\n", peer.Version)
	require.Contains(t, string(text), line)
	dir := t.TempDir()
	other, overlay := filepath.Join(dir, "wire.go"), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(other, []byte(strings.Replace(string(text), line, fmt.Sprintf("\nconst Version = %d\n", version), 1)), 0o600))
	path, err := filepath.Abs(this)
	require.NoError(t, err)
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: other}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))
	program = filepath.Join(dir, "music")
	_, err = inTree(t, "go", "build", "-overlay", overlay, "-o", program, "./cmd/music")
	require.NoError(t, err)
	return program
}

// restartAs restarts a proxy as another program.
func (r *rollingFixture) restartAs(k int, program string) {
	r.t.Helper()
	r.programs[k].program = program
	r.restart(k)
}

// refusesToRun starts a proxy as a program that does not fit the others, and then as it was.
func (r *rollingFixture) refusesToRun(k int, program string, theirs, own int) {
	t, p := r.t, r.programs[k]
	was := p.program
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	assert.Equal(t, 0, p.status(t))
	p.program = program
	p.begin(t)
	assert.Equal(t, 1, p.status(t))
	assert.Contains(t, p.log.String(), fmt.Sprintf("speaks version %d of what proxies say to each other, this one %d", theirs, own))
	r.goesOn(r.sections.Load(), "beside the one that has refused")
	p.program = was
	p.begin(t)
	p.listens(t)
}

// Under load, proxies of the release before become this one, one after the other, go back in the other order, come again, and become
// the next version: no section is lost. The version after the next refuses to run beside this one, which goes on.
func TestVersionsRollUnderLoad(t *testing.T) {
	before, next, afterNext := releaseBefore(t), releaseOf(t, peer.Version+1), releaseOf(t, peer.Version+2)
	const this = ""
	r := newRollingFixture(t, "versions", before)
	end := r.tell(6)
	for _, to := range []struct {
		program string
		order   [3]int
	}{
		{this, [3]int{0, 1, 2}}, {before, [3]int{2, 1, 0}}, {this, [3]int{1, 2, 0}}, {next, [3]int{0, 1, 2}}, {this, [3]int{2, 0, 1}},
	} {
		for _, k := range to.order {
			r.restartAs(k, to.program)
		}
	}
	r.refusesToRun(1, afterNext, peer.Version, peer.Version+2)
	end()
	r.noneLost()
}

// The next version refuses to run beside the release before this one.
func TestVersionsOverTwoRefuse(t *testing.T) {
	before, next := releaseBefore(t), releaseOf(t, peer.Version+1)
	r := newRollingFixture(t, "overtwo", before)
	end := r.tell(6)
	r.refusesToRun(2, next, peer.Version-1, peer.Version+1)
	end()
	r.noneLost()
}
