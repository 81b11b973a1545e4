package cassandra

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// oneFake starts a cluster of one pretended node.
func oneFake(t *testing.T) (*Cluster, *Node) {
	t.Helper()
	c, err := startFakes(t.Context(), t, pretend(t, 1), &fake{schema: "s"})
	must(t, err)
	return c, c.Nodes()[0]
}

// Restart ends the process and starts another; Start of a running node is ErrRunning.
func TestRestartIsAnotherProcess(t *testing.T) {
	_, n := oneFake(t)
	before := n.PID()
	must(t, n.Restart(t.Context()))
	after := n.PID()
	assert.NotZero(t, after, "%d, then %d; state of the first %q", before, after, stateOf(before))
	assert.NotEqual(t, before, after, "%d, then %d; state of the first %q", before, after, stateOf(before))
	assert.Empty(t, stateOf(before), "%d, then %d; state of the first", before, after)
	assert.ErrorIs(t, n.Start(t.Context()), ErrRunning, "start of a running one")
}

// A node that starts once is not started again.
func TestOnceIsOnce(t *testing.T) {
	o := pretend(t, 1)
	o.Properties = Once()
	c, err := startFakes(t.Context(), t, o, &fake{schema: "s"})
	must(t, err)
	assert.ErrorIs(t, c.Nodes()[0].Restart(t.Context()), ErrOnce)
}

// A paused node can be stopped, and started again.
func TestStopResumesAPausedNode(t *testing.T) {
	_, n := oneFake(t)
	must(t, n.Pause())
	must(t, n.Stop(t.Context()))
	assert.Zero(t, n.PID())
	must(t, n.Stop(t.Context())) // again
	must(t, n.Start(t.Context()))
}

// Stop of a node that ignores SIGTERM ends with the context.
func TestStopHearsItsContext(t *testing.T) {
	n := &Node{layout: nodeOf(t, pretend(t, 1), 1), from: Distribution{Java: script(t, "trap '' TERM; echo ready; exec sleep 1000")}}
	must(t, n.write("/jars"))
	must(t, n.launch())
	defer func() { must(t, n.close()) }()
	eventually(t, func() bool { return len(tail(n.path("out"), 1)) > 0 }) // deaf from here on
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := n.Stop(ctx)
	assert.ErrorIs(t, err, context.DeadlineExceeded, "pid %d", n.PID())
	assert.NotZero(t, n.PID(), "pid %d: %v", n.PID(), err)
}

// What needs a running node is ErrNotRunning on one that was killed, and says how it ended.
func TestDownNode(t *testing.T) {
	c, n := oneFake(t)
	must(t, n.Kill())
	must(t, n.Kill()) // again
	for what, err := range map[string]error{"pause node 1": n.Pause(), "resume node 1": n.Resume(), "wait for cassandra: node 1": c.Wait(t.Context())} {
		require.ErrorIs(t, err, ErrNotRunning, what)
		assert.True(t, strings.HasPrefix(err.Error(), what+": "), "%s: %v", what, err)
	}
	assert.Contains(t, c.Wait(t.Context()).Error(), "signal: killed", "does not say how it ended")
}

// A cluster that was closed stays closed.
func TestClosedForGood(t *testing.T) {
	c, n := oneFake(t)
	must(t, c.Close())
	must(t, c.Close())
	err := n.Start(t.Context())
	assert.ErrorIs(t, err, ErrClosed, "start: %v, pid %d", err, n.PID())
	assert.Zero(t, n.PID(), "start: %v", err)
}

// Whatever a node's users do at once, nothing runs after Close.
func TestCloseAgainstEverything(t *testing.T) {
	c, n := oneFake(t)
	var all sync.WaitGroup
	for _, do := range []func() error{n.Kill, n.Pause, n.Resume, func() error { return n.Restart(t.Context()) }, func() error { return n.Stop(t.Context()) }} {
		all.Go(func() {
			for range 20 {
				_ = do() // each may find the node up, down or closed
				_ = n.PID()
			}
		})
	}
	must(t, c.Close())
	all.Wait()
	assert.Empty(t, processesOf(t, c.o.Dir), "still there")
}

// A node that does not answer is not waited for longer than the context allows.
func TestStartHearsItsContext(t *testing.T) {
	f := &fake{schema: "s", auth: true}
	o := pretend(t, 1)
	o.Access.Username, o.Access.Password = "ann", "secret"
	c, err := startFakes(t.Context(), t, o, f)
	must(t, err)
	const refusals = 1 << 20
	f.refused.Store(refusals)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := c.Nodes()[0]
	ended := make(chan error, 1)
	go func() { ended <- n.Restart(ctx) }()
	require.Eventually(t, func() bool { return f.refused.Load() < refusals-1 }, time.Minute, time.Millisecond, "not asked twice")
	cancel()
	err = <-ended
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "start node 1: ")
	assert.ErrorContains(t, err, "log in as ann")
	assert.NotZero(t, n.PID(), "the node is gone")
}

// What a try said that the deadline cut short does not hide why it was tried again, though the try hears of the
// deadline before its context does.
func TestPollTellsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			tries := 0
			err := poll(ctx, func(ctx context.Context) error {
				if tries++; tries == 1 {
					return errors.New("not yet")
				}
				end, _ := ctx.Deadline()
				time.Sleep(time.Until(end))
				return errors.New("i/o timeout")
			})
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "last: not yet")
		}
	})
}
