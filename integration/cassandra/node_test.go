package cassandra

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
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
	if after := n.PID(); after == 0 || after == before || stateOf(before) != "" {
		t.Errorf("%d, then %d; state of the first %q", before, after, stateOf(before))
	}
	if err := n.Start(t.Context()); !errors.Is(err, ErrRunning) {
		t.Errorf("start of a running one: %v", err)
	}
}

// A paused node can be stopped, and started again.
func TestStopResumesAPausedNode(t *testing.T) {
	_, n := oneFake(t)
	must(t, n.Pause())
	must(t, n.Stop(t.Context()))
	if n.PID() != 0 {
		t.Errorf("pid %d", n.PID())
	}
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
	if err := n.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) || n.PID() == 0 {
		t.Errorf("pid %d: %v", n.PID(), err)
	}
}

// What needs a running node is ErrNotRunning on one that was killed, and says how it ended.
func TestDownNode(t *testing.T) {
	c, n := oneFake(t)
	must(t, n.Kill())
	must(t, n.Kill()) // again
	for what, err := range map[string]error{"pause node 1": n.Pause(), "resume node 1": n.Resume(), "wait for cassandra: node 1": c.Wait(t.Context())} {
		if !errors.Is(err, ErrNotRunning) || !strings.HasPrefix(err.Error(), what+": ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := c.Wait(t.Context()); !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("does not say how it ended: %v", err)
	}
}

// A cluster that was closed stays closed.
func TestClosedForGood(t *testing.T) {
	c, n := oneFake(t)
	must(t, c.Close())
	must(t, c.Close())
	if err := n.Start(t.Context()); !errors.Is(err, ErrClosed) || n.PID() != 0 {
		t.Errorf("start: %v, pid %d", err, n.PID())
	}
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
	if pids := processesOf(t, c.o.Dir); len(pids) > 0 {
		t.Errorf("still there: %v", pids)
	}
}

// A node that does not answer is not waited for longer than the context allows.
func TestStartHearsItsContext(t *testing.T) {
	f := &fake{schema: "s", auth: true}
	o := pretend(t, 1)
	o.Access.Username, o.Access.Password = "ann", "secret"
	c, err := startFakes(t.Context(), t, o, f)
	must(t, err)
	f.refused.Store(1 << 20)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	n := c.Nodes()[0]
	if err := n.Restart(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "start node 1: ") || !strings.Contains(err.Error(), "log in as ann") {
		t.Error(err)
	}
	if n.PID() == 0 {
		t.Error("the node is gone")
	}
}
