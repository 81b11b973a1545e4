package cassandra

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readyVenv pretends an environment that is complete.
func readyVenv(t *testing.T) (runDir string, v Venv) {
	t.Helper()
	runDir = t.TempDir()
	dir := filepath.Join(runDir, "venv")
	v = Venv{Dir: dir, Python: filepath.Join(dir, "bin", "python"), Cqlsh: filepath.Join(dir, "bin", "cqlsh")}
	must(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
	path, text := v.marker()
	for file, text := range map[string]string{path: text, v.Python: "", v.Cqlsh: ""} {
		must(t, os.WriteFile(file, []byte(text), 0o755))
	}
	return runDir, v
}

// An environment that is complete is taken as it is, without any program.
func TestPythonFindsItsEnvironment(t *testing.T) {
	runDir, want := readyVenv(t)
	t.Setenv("PATH", "")
	got, err := Python(t.Context(), runDir, nil)
	must(t, err)
	assert.Equal(t, want, got)
}

// An environment that is half made, of other versions, moved or without its programs is not
// complete.
func TestStaleEnvironment(t *testing.T) {
	for why, spoil := range map[string]func(v Venv, marker string) error{
		"half made":        func(_ Venv, marker string) error { return os.Remove(marker) },
		"other pins":       func(v Venv, marker string) error { return os.WriteFile(marker, []byte("cqlsh==1\n"+v.Dir+"\n"), 0o644) },
		"moved":            func(_ Venv, marker string) error { return os.WriteFile(marker, []byte(pins+"\n/elsewhere\n"), 0o644) },
		"no cqlsh":         func(v Venv, _ string) error { return os.Remove(v.Cqlsh) },
		"interpreter gone": func(v Venv, _ string) error { return os.Rename(v.Python, v.Python+"3") },
	} {
		_, v := readyVenv(t)
		require.True(t, v.complete(), "not complete at first")
		marker, _ := v.marker()
		must(t, spoil(v, marker))
		assert.False(t, v.complete(), "%s: complete", why)
	}
}

// An installation that fails leaves an environment that is not complete, and tells what pip said.
func TestPipFails(t *testing.T) {
	_, v := readyVenv(t)
	err := v.fill(t.Context(), script(t, `mkdir -p "$3/bin"; printf '#!/bin/sh\necho no such version; exit 1\n' > "$3/bin/python"; chmod +x "$3/bin/python"`), nil)
	assert.ErrorContains(t, err, "no such version", "complete %v", v.complete())
	assert.False(t, v.complete(), "complete %v: %v", v.complete(), err)
}

// TestPython makes the real environment, where no earlier test run has, and starts what is in it.
func TestPython(t *testing.T) {
	ctx := slow(t)
	runDir, err := DefaultRunDir()
	must(t, err)
	v, err := Python(ctx, runDir, t.Output())
	must(t, err)
	began := time.Now()
	again, err := Python(ctx, runDir, t.Output())
	must(t, err)
	t.Logf("second time: %v", time.Since(began))
	assert.Equal(t, v, again)
	must(t, runQuietly(ctx, v.Python, "-c", "import cassandra, lz4; assert cassandra.__version__ == '3.30.1'"))
	must(t, runQuietly(ctx, v.Cqlsh, "--version"))
	script, err := os.ReadFile(v.Cqlsh)
	must(t, err)
	assert.Contains(t, string(script), v.Dir, "cqlsh is of another environment")
}
