package gotest

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each test has its verdict and all that it said, also where the command fails; what is said of the whole is left out.
func TestVerdicts(t *testing.T) {
	const lines = `{"Action":"start"}
{"Action":"output","Test":"TestA","Output":"one "}
{"Action":"output","Test":"TestA","Output":"two"}
{"Action":"fail","Test":"TestA"}
{"Action":"pass","Test":"TestB"}
{"Action":"fail"}`
	all, err := Run(exec.CommandContext(t.Context(), "sh", "-c", "cat <<'E'\n"+lines+"\nE\nexit 1"), filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	assert.Equal(t, map[string]Verdict{"TestA": {"fail", "one two"}, "TestB": {Action: "pass"}}, all)
}

// What is no list of verdicts, or cannot be run, is an error.
func TestNoVerdicts(t *testing.T) {
	for _, words := range [][]string{{"echo", "# build failed"}, {"/nowhere/no-program"}} {
		_, err := Run(exec.CommandContext(t.Context(), words[0], words[1:]...), filepath.Join(t.TempDir(), "log")) //nolint:gosec // our own words
		require.Error(t, err, words)
	}
}
