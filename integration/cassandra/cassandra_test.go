package cassandra

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// childEnv makes the test binary a process that starts a cluster in the directory it names; see TestDiesWithItsParent.
const childEnv = "MUSIC_CASSANDRA_CHILD"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slow skips a test that needs the real programs and their time, and bounds it.
func slow(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// address9 keeps the nodes of this package away from those of others.
func address9(k int) string { return fmt.Sprintf("127.0.9.%d", k) }

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	require.NoError(t, err)
}

// timed says how long a step took.
func timed(t *testing.T, step string, do func() error) {
	t.Helper()
	began := time.Now()
	require.NoError(t, do(), step)
	t.Logf("%s: %v", step, time.Since(began).Round(time.Millisecond))
}

// processesOf returns the pids that work below dir, as nodes do.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	var pids []string
	paths, err := filepath.Glob("/proc/[0-9]*/cwd")
	must(t, err)
	for _, path := range paths {
		cwd, err := os.Readlink(path)
		if err == nil && strings.HasPrefix(cwd, dir) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// gone waits until the process, of whatever parent, has ended.
func gone(t *testing.T, pid int, limit time.Duration) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	must(t, err)
	defer func() { must(t, unix.Close(fd)) }()
	for deadline := time.Now().Add(limit); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		must(t, err)
		require.NotZero(t, n, "process %d still runs after %v", pid, limit)
		return
	}
}

// ask runs a query on the node within limit.
func ask(ctx context.Context, n *Node, cql string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := n.dial(ctx)
	if err != nil {
		return err
	}
	_, err = c.query(ctx, cql, primitive.ConsistencyLevelOne)
	return errors.Join(err, c.close())
}

// TestLifeOfANode takes one real node, with a login, through everything that can be done to it.
func TestLifeOfANode(t *testing.T) {
	ctx := slow(t)
	dir := t.TempDir()
	var log bytes.Buffer
	var c *Cluster
	timed(t, "start", func() (err error) {
		c, err = Start(ctx, Options{
			Dir: dir, Address: address9, FastJIT: true, Log: io.MultiWriter(&log, t.Output()),
			Yaml: Durable(map[string]string{"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}),
		})
		return err
	})
	t.Cleanup(func() { must(t, c.Close()) })
	assert.Contains(t, log.String(), "usable after")
	got := c.ContactPoints()
	assert.Equal(t, []string{"127.0.9.1:9042"}, got, "contact points")
	assert.Len(t, processesOf(t, dir), 1)
	n := c.Nodes()[0]
	t.Run("crash", func(t *testing.T) { crash(ctx, t, n) })
	t.Run("pause", func(t *testing.T) { pause(ctx, t, c, n) })
	t.Run("stop", func(t *testing.T) { stop(ctx, t, c, n) })
	t.Run("close", func(t *testing.T) {
		timed(t, "close", c.Close)
		assert.Empty(t, processesOf(t, dir), "still there")
		assert.ErrorIs(t, n.Start(ctx), ErrClosed, "start after close")
	})
}

// crash: what was acknowledged outlives SIGKILL, and a killed node is another process afterwards.
func crash(ctx context.Context, t *testing.T, n *Node) {
	for _, cql := range []string{
		"CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE k.t (k int PRIMARY KEY, v int)", "INSERT INTO k.t (k, v) VALUES (1, 2)",
	} {
		must(t, ask(ctx, n, cql, time.Minute))
	}
	before := n.PID()
	timed(t, "restart after SIGKILL", func() error { return n.Restart(ctx) })
	after := n.PID()
	assert.NotEqual(t, before, after)
	assert.NotZero(t, after, "pid %d", before)
	assert.ErrorIs(t, n.Start(ctx), ErrRunning, "second start")
	c, err := n.dial(ctx)
	must(t, err)
	rows, err := c.query(ctx, "SELECT v FROM k.t WHERE k = 1", primitive.ConsistencyLevelOne)
	must(t, errors.Join(err, c.close()))
	assert.True(t, len(rows) == 1 && bytes.Equal(rows[0][0], []byte{0, 0, 0, 2}), "rows: %v", rows)
}

// pause: a paused node keeps its port and is silent; resumed, it answers.
func pause(ctx context.Context, t *testing.T, c *Cluster, n *Node) {
	timed(t, "pause", n.Pause)
	err := ask(ctx, n, "SELECT key FROM system.local", 300*time.Millisecond)
	var netErr net.Error
	require.ErrorAs(t, err, &netErr, "paused node")
	assert.True(t, netErr.Timeout(), "paused node: %v", err)
	must(t, n.Resume())
	timed(t, "wait after resume", func() error { return c.Wait(ctx) })
}

// stop: a node drains, even from a pause; down, it can be neither waited for nor paused, and it comes back.
func stop(ctx context.Context, t *testing.T, c *Cluster, n *Node) {
	must(t, n.Pause())
	timed(t, "stop", func() error { return n.Stop(ctx) })
	log := tail(n.LogFile(), 5)
	assert.Contains(t, string(log), "Cassandra shutdown complete", "did not drain")
	must(t, errors.Join(n.Stop(ctx), n.Kill()))
	err := errors.Join(n.Pause(), n.Resume(), c.Wait(ctx))
	assert.Equal(t, 3, strings.Count(err.Error(), ErrNotRunning.Error()), "while down: %v", err)
	assert.Zero(t, n.PID())
	timed(t, "start again", func() error { return n.Start(ctx) })
	timed(t, "wait", func() error { return c.Wait(ctx) })
}

// TestDiesWithItsParent: a SIGKILL of the process that started a node, which runs no deferred call, takes the node along.
func TestDiesWithItsParent(t *testing.T) {
	ctx := slow(t)
	if dir := os.Getenv(childEnv); dir != "" {
		beChild(ctx, t, dir)
	}
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestDiesWithItsParent$")
	dir := t.TempDir()
	child.Env = append(os.Environ(), childEnv+"="+dir)
	pid := orphan(t, child)
	gone(t, pid, 10*time.Second)
	assert.Empty(t, processesOf(t, dir), "still there")
}

// beChild starts a node, prints its pid and waits to be killed.
func beChild(ctx context.Context, t *testing.T, dir string) {
	t.Helper()
	c, err := Start(ctx, Options{Dir: dir, Address: address9, FastJIT: true})
	must(t, err)
	fmt.Printf("pid=%d\n", c.Nodes()[0].PID())
	_, _ = io.Copy(io.Discard, os.Stdin) // its end is the parent's: never before the kill
	require.Fail(t, "nobody killed me")
}

// orphan runs child until it prints pid=N, kills it with SIGKILL, and returns N of a process that ran until then.
func orphan(t *testing.T, child *exec.Cmd) int {
	t.Helper()
	_, err := child.StdinPipe()
	must(t, err)
	child.Stderr = child.Stdout
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	var said strings.Builder
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if word, ok := strings.CutPrefix(lines.Text(), "pid="); ok {
			pid, err = strconv.Atoi(word)
			must(t, err)
		}
	}
	if pid != 0 {
		must(t, syscall.Kill(pid, 0))
	}
	must(t, child.Process.Kill())
	_ = child.Wait() // "signal: killed", as it should
	require.NotZero(t, pid, "the child said no pid:\n%s", said.String())
	return pid
}
