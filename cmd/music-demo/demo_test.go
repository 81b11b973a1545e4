package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// built is the demo and the proxy, as `make demo` builds them.
type built struct {
	dir string // of the programs
	env []string
}

// build builds both into one directory.
func build(t *testing.T) built {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real Cassandra")
	}
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "music/cmd/music", "music/cmd/music-demo").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return built{dir: dir, env: append(os.Environ(), "NODES=")}
}

// command is a run of the demo, away from the addresses of others. Whatever it leaves behind, the test ends it.
func (b built) command(t *testing.T) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(b.dir, "music-demo"),
		"--node=127.0.3.1", "--listen=127.0.3.254:9042", "--dir="+filepath.Join(b.dir, "cluster"))
	cmd.Env = b.env
	return cmd
}

// processes returns a file descriptor of each process whose command line names the directory of the programs: the demo,
// the proxy and Cassandra.
func (b built) processes(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte(b.dir)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		require.NoError(t, err)
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			t.Cleanup(func() { assert.NoError(t, unix.Close(fd)) })
			found[strings.ReplaceAll(string(text), "\x00", " ")] = fd
		}
	}
	return found
}

// gone makes sure that a process ends in time.
func gone(t *testing.T, name string, fd int, limit time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		left := max(0, time.Until(deadline))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, 1, n, "still runs: %s", name)
		return
	}
}

func TestDemo(t *testing.T) {
	b := build(t)
	t.Run("is told to its end", func(t *testing.T) { toldToItsEnd(t, b, "it lies in it") })
	t.Run("is told with three proxies", func(t *testing.T) {
		three := b
		three.env = append(slices.Clip(b.env), "NODES=3")
		toldToItsEnd(t, three, "A crash of a proxy has cost a few seconds")
	})
	t.Run("SIGTERM while Cassandra starts", func(t *testing.T) { ended(t, b, "starting Cassandra", syscall.SIGTERM, 1) })
	t.Run("SIGINT in the middle", func(t *testing.T) { ended(t, b, "2. ", syscall.SIGINT, 3) })
	t.Run("SIGKILL in the middle", func(t *testing.T) { ended(t, b, "2. ", syscall.SIGKILL, 3) })
}

// toldToItsEnd plays the whole story.
func toldToItsEnd(t *testing.T, b built, also string) {
	cmd := b.command(t)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	text := string(out)
	t.Logf("%s", text)
	require.NoError(t, err, "%s", complaints.String())
	assert.True(t, strings.HasSuffix(text, "\ndemo: ok\n"))
	assert.Empty(t, complaints.String())
	assert.NotContains(t, text, "\x1b", "no colours where nobody looks")
	for _, want := range []string{"MUSIC_LOST: ", "MUSIC_UNLOCKED: ", "owner_died", "to the last coin", also} {
		assert.Contains(t, strings.Join(strings.Fields(text), " "), strings.TrimSpace(want), "wherever its lines break")
	}
	assert.Empty(t, b.processes(t))
}

// ended plays the story until a line begins as given and least processes run, sends a signal, and makes sure that nothing
// is left behind.
func ended(t *testing.T, b built, from string, sig syscall.Signal, least int) {
	cmd := b.command(t)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), from) {
	}
	require.True(t, strings.HasPrefix(lines.Text(), from))
	running := b.processes(t)
	assert.GreaterOrEqual(t, len(running), least)
	require.NoError(t, cmd.Process.Signal(sig))
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait() // its status is looked at below
	limit := time.Duration(0)
	if sig == syscall.SIGKILL {
		limit = 10 * time.Second // the kernel ends the children; nobody has waited for them
	} else {
		assert.Equal(t, statusInterrupted, cmd.ProcessState.ExitCode())
	}
	for name, fd := range running {
		gone(t, name, fd, limit)
	}
	assert.Empty(t, b.processes(t))
}
