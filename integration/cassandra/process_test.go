package cassandra

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sleeper spawns a child that does nothing.
func sleeper(t *testing.T) *process {
	t.Helper()
	p, err := spawn(exec.Command("sleep", "1000"))
	must(t, err)
	t.Cleanup(func() { must(t, p.kill()) })
	return p
}

// stateOf returns the state letter of a process: S sleeps, T is stopped, Z is dead; "" if it is gone.
func stateOf(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // gone: empty
	_, after, _ := bytes.Cut(stat, []byte(") "))
	state, _, _ := strings.Cut(string(after), " ")
	return state
}

// A process that was killed is reaped, and can be killed again.
func TestKillReaps(t *testing.T) {
	p := sleeper(t)
	pid := p.Pid()
	assert.True(t, p.alive(), "not alive")
	must(t, p.kill())
	state := stateOf(pid)
	assert.False(t, p.alive(), "alive %v, state %q", p.alive(), state)
	assert.Empty(t, state, "alive %v", p.alive())
	must(t, p.kill()) // again
	for _, err := range []error{p.signal(syscall.SIGCONT), p.pause()} {
		assert.ErrorIs(t, err, ErrNotRunning)
	}
}

// When pause returns, the process has stopped.
func TestPauseHasStopped(t *testing.T) {
	p := sleeper(t)
	for range 100 {
		must(t, p.pause())
		must(t, p.pause()) // again
		require.Equal(t, "T", stateOf(p.Pid()), "paused, state")
		must(t, p.signal(syscall.SIGCONT))
	}
	must(t, p.pause())
	must(t, p.kill())
}

// A kill from elsewhere while somebody pauses must not hang either of them.
func TestPauseAgainstKill(t *testing.T) {
	for range 20 {
		p := sleeper(t)
		var both sync.WaitGroup
		both.Go(func() {
			err := p.pause()
			assert.True(t, err == nil || errors.Is(err, ErrNotRunning), "%v", err)
		})
		both.Go(func() {
			assert.NoError(t, p.kill())
		})
		both.Wait()
	}
}

// The error of a program that cannot be started names it.
func TestSpawnTellsWhatIsMissing(t *testing.T) {
	_, err := spawn(exec.Command("/nowhere/java"))
	require.Error(t, err)
	assert.True(t, strings.HasPrefix(err.Error(), "start /nowhere/java: "), "%v", err)
}

// A Ctrl-C goes to the group of the terminal, of which the child must not be.
func TestSpawnHasItsOwnGroup(t *testing.T) {
	pid := sleeper(t).Pid()
	group, err := syscall.Getpgid(pid)
	assert.NoError(t, err, "group %d", group)
	assert.Equal(t, pid, group, "group %d, %v", group, err)
}

// eventually waits until cond holds.
func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(10 * time.Second); !cond(); {
		select {
		case <-tick.C:
		case <-deadline:
			require.Fail(t, "not within 10 s")
		}
	}
}

// The thread that calls spawn ends with its goroutine, which stays locked to it. With the fork on that thread, the
// parent-death signal would come now, from a parent that lives.
func TestSpawnOutlivesTheThreadThatAsked(t *testing.T) {
	tid, spawned, end := make(chan int), make(chan *process), make(chan struct{})
	var all sync.WaitGroup
	var ask func()
	ask = func() {
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() {
			all.Go(ask) // for the main thread never ends; while this one holds it, the next cannot get it
			<-end
			return
		}
		tid <- syscall.Gettid()
		p, err := spawn(exec.Command("sleep", "1000"))
		assert.NoError(t, err)
		spawned <- p
	}
	all.Go(ask)
	task := fmt.Sprintf("/proc/self/task/%d", <-tid)
	p := <-spawned
	close(end)
	all.Wait()
	eventually(t, func() bool { _, err := os.Stat(task); return err != nil })
	must(t, p.pause()) // still there
	must(t, p.kill())
}

// TestChildOfAKilledParent is TestDiesWithItsParent in milliseconds.
func TestChildOfAKilledParent(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		fmt.Printf("pid=%d\n", sleeper(t).Pid())
		_, _ = io.Copy(io.Discard, os.Stdin)
		require.Fail(t, "nobody killed me")
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChildOfAKilledParent$")
	child.Env = append(os.Environ(), childEnv+"=1")
	gone(t, orphan(t, child), 10*time.Second)
}
