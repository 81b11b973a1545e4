package main

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkStart runs the program from its start to its end: what every command costs before it does anything.
func BenchmarkStart(b *testing.B) {
	path := filepath.Join(b.TempDir(), "music")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	require.NoError(b, err, "%s", out)
	var used time.Duration
	for b.Loop() {
		c := exec.Command(path, "version")
		require.NoError(b, c.Run())
		used += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	}
	b.ReportMetric(float64(used.Microseconds())/1e3/float64(b.N), "cpu-ms/op")
}
