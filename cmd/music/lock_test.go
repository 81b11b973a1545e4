package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/client"
)

// playedVariable has a test start this program as `music lock`.
const playedVariable = "MUSIC_TEST_PLAYED"

// TestMain is `music lock` where a test asks for it, and else runs the tests.
func TestMain(m *testing.M) {
	p := program{environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr}
	switch os.Getenv(playedVariable) {
	case "":
		os.Exit(m.Run())
	case "music":
		os.Exit(p.run(os.Args[1:]))
	}
	os.Exit(underALock(p, os.Args[1:])) // the lock is held already
}

// underALock runs a command as `music lock` does under a lock that is held for a minute.
func underALock(p program, args []string) int {
	r := &lockRun{program: p, path: args[0], args: args}
	signals, stop := r.signals()
	defer stop()
	status, err := r.under(&client.Held{Ref: 7, Lease: time.Minute, End: client.Boottime() + time.Minute}, signals)
	if err != nil {
		return statusNotAcquired
	}
	return status
}

// played returns this program, as the environment variable makes it.
func played(t *testing.T, as string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	for i, arg := range cmd.Args {
		cmd.Args[i] = strings.ReplaceAll(arg, "SELF", self)
	}
	if args[0] == "SELF" {
		cmd.Path, cmd.Err = self, nil
	}
	cmd.Env = append(os.Environ(), playedVariable+"="+as)
	return cmd
}

// What nohup has a program ignore does not end the wait for a lock, nor the command under it.
func TestLockKeepsIgnoringWhatItWasStartedToIgnore(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed below
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	cmd := played(t, "music", "sh", "-c", `trap "" HUP; exec "SELF" lock x --proxy `+silent.Addr().String()+" -- true")
	var told bytes.Buffer
	cmd.Stderr = &told
	require.NoError(t, cmd.Start())
	asked, err := silent.Accept() // it waits for the proxy's answer
	require.NoError(t, err)
	defer func() { _ = asked.Close() }()
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	assert.Equal(t, statusNotAcquired, cmd.ProcessState.ExitCode())
	assert.Contains(t, told.String(), "signal terminated")
}

// waitFor reads lines until one has a text.
func waitFor(t *testing.T, lines *bufio.Scanner, text string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	require.Fail(t, "it never says "+text)
}

// Ctrl-Z reaches the command alone: nothing could ever resume it, and its lock would be renewed for
// ever.
func TestLockResumesACommandThatIsStoppedAtTheTerminal(t *testing.T) {
	cmd := played(t, "under", "SELF", "/bin/sh", "-c", `echo ready; read line; echo "got $line"; exit 3`)
	look, err := pty.Start(cmd)
	require.NoError(t, err)
	defer func() { _ = look.Close() }()
	late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(look)
	waitFor(t, lines, "ready")
	_, err = fmt.Fprint(look, "\x1a")
	require.NoError(t, err)
	waitFor(t, lines, "goes on")
	_, err = fmt.Fprint(look, "hello\n")
	require.NoError(t, err)
	waitFor(t, lines, "got hello")
	_ = cmd.Wait()
	assert.Equal(t, 3, cmd.ProcessState.ExitCode())
}

// A command that stands still does not keep its lock from a SIGTERM.
func TestLockEndsACommandThatStandsStill(t *testing.T) {
	cmd := played(t, "under", "SELF", "/bin/sh", "-c", `echo ready; kill -STOP $$; echo resumed; read line`)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	require.NoError(t, cmd.Start())
	late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	waitFor(t, bufio.NewScanner(out), "ready")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	assert.Equal(t, statusBySignal+int(syscall.SIGTERM), cmd.ProcessState.ExitCode())
}
