package cassandra

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// Node is one Cassandra of a Cluster. Its methods may be called by several goroutines.
type Node struct {
	layout
	from Distribution

	mu     sync.Mutex // guards what follows; never held while waiting for the node
	proc   *process   // the latest; nil before the first
	closed bool       // no further start
}

// Host returns the node's address, without a port.
func (n *Node) Host() string { return n.o.Address(n.k) }

// Addr returns address and port of CQL.
func (n *Node) Addr() string { return net.JoinHostPort(n.Host(), strconv.Itoa(n.o.Port)) }

// LogFile returns the path of the node's log, which restarts append to.
func (n *Node) LogFile() string { return n.path("system.log") }

// PID returns the process id of the running node, 0 if it is down.
func (n *Node) PID() int {
	p, err := n.running()
	if err != nil {
		return 0
	}
	return p.Pid()
}

// Start starts the node and returns when it answers CQL. Other nodes may need a moment more to see it: see
// Cluster.Wait. A node that runs already gives ErrRunning, and one that has run ErrOnce with the properties Once. If the node did not
// answer before ctx ended, it is left as it is.
func (n *Node) Start(ctx context.Context) error {
	if err := n.launch(); err != nil {
		return err
	}
	if err := poll(ctx, n.answers); err != nil {
		return fmt.Errorf("start node %d: %w", n.k, err)
	}
	return nil
}

// Restart is Kill, then Start: a crash and recovery. For a planned restart call Stop, then Start.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Kill(); err != nil {
		return err
	}
	return n.Start(ctx)
}

// Stop has the node drain and end, and returns when it is gone. A paused node is resumed for it; one that is down
// stays so. If ctx ends first, the node may still be ending.
func (n *Node) Stop(ctx context.Context) error {
	p, err := n.running()
	if err != nil {
		return nil
	}
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := p.signal(sig); err != nil && !errors.Is(err, ErrNotRunning) {
			return fmt.Errorf("stop node %d: %w", n.k, err)
		}
	}
	select {
	case <-p.Gone():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop node %d: %w", n.k, context.Cause(ctx))
	}
}

// Kill ends the node with SIGKILL and returns when it is gone. One that is down stays so. With the commit log in
// periodic mode, which is ours, the node forgets what it acknowledged in its last 100 ms, promises of Paxos included:
// the log marks what is to be replayed no more often. With Options.Yaml that is Durable it loses nothing.
func (n *Node) Kill() error {
	p, err := n.running()
	if err != nil {
		return nil
	}
	if err := p.kill(); err != nil {
		return fmt.Errorf("kill node %d: %w", n.k, err)
	}
	return nil
}

// Pause stops all threads of the node with SIGSTOP and returns when they stand still. Its sockets stay open.
func (n *Node) Pause() error {
	p, err := n.running()
	if err == nil {
		err = p.pause()
	}
	if err != nil {
		return fmt.Errorf("pause node %d: %w", n.k, err)
	}
	return nil
}

// Resume lets a paused node go on.
func (n *Node) Resume() error {
	p, err := n.running()
	if err == nil {
		err = p.signal(syscall.SIGCONT)
	}
	if err != nil {
		return fmt.Errorf("resume node %d: %w", n.k, err)
	}
	return nil
}

// running returns the node's process, or ErrNotRunning.
func (n *Node) running() (*process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil || !n.proc.alive() {
		return nil, ErrNotRunning
	}
	return n.proc, nil
}

// launch starts the node's process.
func (n *Node) launch() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fmt.Errorf("start node %d: %w", n.k, ErrClosed)
	}
	if n.proc != nil && n.proc.alive() {
		return fmt.Errorf("start node %d: %w", n.k, ErrRunning)
	}
	if n.proc != nil && n.o.Properties[flushSchema] == "false" {
		return fmt.Errorf("start node %d: %w", n.k, ErrOnce)
	}
	out, err := os.OpenFile(n.path("out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start node %d: %w", n.k, err)
	}
	defer func() { _ = out.Close() }() // the child has its own
	cmd := n.command()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = n.dir // where a JVM that crashes leaves its report
	if n.proc, err = spawn(cmd); err != nil {
		return fmt.Errorf("start node %d: %w", n.k, err)
	}
	return nil
}

// command is the node's process, in its namespace if it has one: there ip becomes java and keeps the process id.
func (n *Node) command() *exec.Cmd {
	line := []string{n.from.Java, "@" + n.path("args")}
	if n.o.Namespace != nil {
		line = append([]string{"ip", "netns", "exec", n.o.Namespace(n.k)}, line...)
	}
	return exec.Command(line[0], line[1:]...) //nolint:gosec,noctx // our own java and path; and it outlives the call
}

// close kills the node for good.
func (n *Node) close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	return n.Kill()
}

// downError returns nil for a node that runs, otherwise how it ended and the end of its log, wrapping ErrNotRunning.
func (n *Node) downError() error {
	n.mu.Lock()
	p := n.proc
	n.mu.Unlock()
	if p == nil {
		return fmt.Errorf("node %d: %w", n.k, ErrNotRunning)
	}
	if p.alive() {
		return nil
	}
	return fmt.Errorf("node %d: %w: %v\n%s: %s\n%s: %s", n.k, ErrNotRunning, p.Wait(), //nolint:errorlint // nil where it ended with status 0
		n.path("out"), tail(n.path("out"), 10), n.LogFile(), tail(n.LogFile(), 10))
}

// dial opens a connection to this node.
func (n *Node) dial(ctx context.Context) (*cqlConn, error) {
	by := dialer(new(net.Dialer))
	if n.o.Access.TLS != nil {
		by = &tls.Dialer{Config: n.o.Access.TLS}
	}
	return dialCQL(ctx, by, n.Addr(), n.o.Access.Username, n.o.Access.Password)
}
