package cassandra

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// script writes an executable shell script.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
	return path
}

// mavenScript is an mvn that notes its call in the file calls, and leaves the jars of the release that it is asked for behind.
func mavenScript(t *testing.T, calls string) string {
	t.Helper()
	return script(t, fmt.Sprintf(`echo call >> %s
for arg; do case $arg in -DoutputDirectory=*) out=${arg#*=};; -Dcassandra.release=*) release=${arg#*=};; esac; done
mkdir "$out" && touch "$out/cassandra-all-$release.jar" "$out/jamm-0.4.0.jar"
`, calls))
}

// entries returns the names in dir.
func entries(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// Processes that fetch at once call Maven once.
func TestFetchOnce(t *testing.T) {
	home, calls := filepath.Join(t.TempDir(), "cassandra"), filepath.Join(t.TempDir(), "calls")
	f := fetch{home: home, release: version, maven: mavenScript(t, calls)}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			assert.NoError(t, f.run(t.Context()))
		})
	}
	all.Wait()
	said, err := os.ReadFile(calls)
	must(t, err)
	assert.Equal(t, "call\n", string(said), "maven ran: %q", said)
	assert.Equal(t, "lib lock", entries(t, home), "in the cache")
}

// A failed fetch leaves nothing that a later one would take for complete.
func TestFetchFails(t *testing.T) {
	for why, c := range map[string]struct{ maven, want string }{
		"maven fails":      {script(t, "echo boom; exit 3"), "boom"},
		"a jar is missing": {script(t, `for arg; do case $arg in -DoutputDirectory=*) mkdir "${arg#*=}";; esac; done`), "left a jar out"},
		"no maven":         {"/nowhere/mvn", "no such file"},
	} {
		home := t.TempDir()
		err := fetch{home: home, release: version, maven: c.maven}.run(t.Context())
		assert.ErrorContains(t, err, c.want, why)
		assert.Equal(t, "lock", entries(t, home), why)
	}
}

// A fetch ends with its context.
func TestFetchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := fetch{home: t.TempDir(), release: version, maven: script(t, "exec sleep 1000")}.run(ctx)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

// What is there is not fetched: no Maven is asked for.
func TestFetchFindsTheCache(t *testing.T) {
	runDir, home := t.TempDir(), t.TempDir()
	lib := filepath.Join(runDir, "cassandra-"+version, "lib")
	must(t, os.MkdirAll(lib, 0o755))
	must(t, os.Mkdir(filepath.Join(home, "bin"), 0o755))
	java := filepath.Join(home, "bin", "java")
	must(t, os.Rename(script(t, `echo 'openjdk version "17.0.1"' >&2`), java))
	t.Setenv("JAVA_HOME", home)
	t.Setenv("PATH", "")
	d, err := Fetch(t.Context(), runDir, nil)
	must(t, err)
	assert.Equal(t, Distribution{Java: java, Lib: lib}, d)
}

// A lock that is taken is ErrInUse, and is free after its release.
func TestLockIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "lock")
	first, err := tryLock(path)
	must(t, err)
	_, err = tryLock(path)
	assert.ErrorIs(t, err, ErrInUse)
	assert.ErrorContains(t, err, path)
	first.release()
	second, err := tryLock(path)
	must(t, err)
	second.release()
}

// lock waits until the lock is released.
func TestLockWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := tryLock(path)
	must(t, err)
	got := make(chan error, 1)
	go func() {
		second, err := lock(t.Context(), path)
		second.release()
		got <- err
	}()
	first.release()
	must(t, <-got)
}

// lock gives up with its context, and tells the cause.
func TestLockHearsItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := tryLock(path)
	must(t, err)
	defer first.release()
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err = lock(ctx, path)
	assert.ErrorIs(t, err, cause)
	assert.ErrorIs(t, err, ErrInUse)
}

// lastLines returns at most so many lines, without the empty rest.
func TestLastLines(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"a\nb\nc\n", 2, "b\nc"},
		{"a\nb\nc", 3, "a\nb\nc"},
		{"a\nb\nc", 9, "a\nb\nc"},
		{"a", 1, "a"},
		{"\n\n", 3, ""},
		{"", 3, ""},
	} {
		got := lastLines([]byte(c.text), c.n)
		assert.Equal(t, c.want, string(got), "%d of %q: %q", c.n, c.text, got)
	}
}

// tail returns the last lines of a file of any size, and nothing of one that is not there.
func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	assert.Nil(t, tail(path, 3), "of nothing")
	must(t, os.WriteFile(path, []byte(strings.Repeat("line\n", 10_000)+"last\n"), 0o644))
	got := tail(path, 2)
	assert.Equal(t, "line\nlast", string(got), "%q", got)
}
