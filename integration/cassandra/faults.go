package cassandra

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ErrNoFaults says that a node was not started with Options.Faults.
var ErrNoFaults = errors.New("started without Options.Faults")

// classes is where the compiled launcher of a cluster with faults lies.
func (o Options) classes() string { return filepath.Join(o.Dir, "classes") }

// faultSocket is where a node takes the commands of Fault, in its directory.
const faultSocket = "fault"

// faultProperties are the system properties of a node that can be tampered with: what Paxos sends to itself goes the same way as
// what it sends to others, and no repair of its own hides what a fault has left.
func (l layout) faultProperties() map[string]string {
	return map[string]string{
		"fault.socket":                             l.path(faultSocket),
		"cassandra.clock":                          "SkewedClock",
		"cassandra.paxos.use_self_execution":       "false",
		"cassandra.disable_paxos_auto_repairs":     "true",
		"cassandra.config.allow_system_properties": "true",
	}
}

// compileFaults compiles the launcher into dir.
func compileFaults(ctx context.Context, d Distribution, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("compile the launcher: %w", err)
	}
	args := []string{"--release", "17", "-cp", filepath.Join(d.Lib, "*"), "-d", dir}
	for _, name := range []string{"FaultyCassandra.java", "SkewedClock.java"} {
		text, err := embedded.ReadFile("java/" + name)
		if err != nil {
			return fmt.Errorf("compile the launcher: %w", err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return fmt.Errorf("compile the launcher: %w", err)
		}
		args = append(args, path)
	}
	if err := runQuietly(ctx, filepath.Join(filepath.Dir(d.Java), "javac"), args...); err != nil {
		return fmt.Errorf("compile the launcher: %w", err)
	}
	return nil
}

// Fault tampers with the messages that the node sends, or with its clock, and returns what the node said. Commands:
//
//	drop VERB ADDRESS [COUNT]        lose messages; VERB as in Cassandra's class Verb, or *; ADDRESS without a port, or *
//	delay VERB ADDRESS MS [COUNT]    keep them that long
//	hold VERB ADDRESS [COUNT]        keep them until release
//	release                          send what is held
//	heal                             the same, and forget all rules
//	list                             the rules, and how often each has struck
//	skew MS                          move the wall clock
//
// What a node writes to itself does not pass here, but for Paxos.
func (n *Node) Fault(ctx context.Context, command string) (string, error) {
	answer, err := n.tamper(ctx, command)
	if err == nil && strings.HasPrefix(answer, "error") {
		err = errors.New(answer)
	}
	if err != nil {
		return "", fmt.Errorf("node %d: fault %q: %w", n.k, command, err)
	}
	return answer, nil
}

// tamper sends one command and reads one line.
func (n *Node) tamper(ctx context.Context, command string) (string, error) {
	if !n.o.Faults {
		return "", ErrNoFaults
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", n.path(faultSocket))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := fmt.Fprintln(c, command); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}
