//go:build compat

package integration

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nodeProgram returns a command that runs a Node.js program and records every address that it
// connects to.
func nodeProgram(t *testing.T, name string, args ...string) (out string, dialled []string) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("compat", "node"))
	require.NoError(t, err)
	cmd, connects := program(t, "node", append([]string{"-r", filepath.Join(dir, "record.js"), filepath.Join(dir, name)}, args...)...)
	cmd.Env = append(cmd.Env, "NODE_PATH="+filepath.Join(needEnvironment(t).runDir, "node", "node_modules"))
	return output(t, cmd, false), connected(t, connects)
}

// A program with the Node.js driver prints the same through the proxy as at the node, and dials the
// proxy alone.
func TestNodeDriverShowsTheSame(t *testing.T) {
	proxy, direct := needProxy(t), needEnvironment(t).direct()
	tell := func(address string) string {
		out, dialled := nodeProgram(t, "compat.js", hostOf(t, address), "node")
		assert.Equal(t, []string{address}, dialled)
		return out
	}
	want, got := tell(direct), tell(proxy)
	assert.Equal(t, want, got)
	assert.Greater(t, strings.Count(want, "\n"), 30, "the program did what it is for")
}

// The Node.js driver locks, writes and unlocks, with prepared statements.
func TestNodeDriverLocks(t *testing.T) {
	s := readyTable(t, "compat_node")
	out, dialled := nodeProgram(t, "locks.js", hostOf(t, s.address), s.keyspace)
	assert.Equal(t, "done\n", out)
	assert.Equal(t, []string{s.address}, dialled)
}
