package cassandra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Cluster is a running Cassandra. The caller must call Close.
type Cluster struct {
	o     Options
	nodes []*Node
	lock  fileLock // on o.Dir
}

// fetcher is FetchRelease.
type fetcher func(ctx context.Context, runDir, release string, log io.Writer) (Distribution, error)

// Start fetches Cassandra if need be, starts a cluster and returns when it can be used, as Wait says. What an earlier
// cluster left in o.Dir is removed unless o.Keep. On an error nothing runs. ctx covers the start only.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	return start(ctx, o, FetchRelease)
}

// start is Start with a source of Cassandra.
func start(ctx context.Context, o Options, fetch fetcher) (*Cluster, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("start cassandra: %w", err)
	}
	// Before anything is removed: Dir may be that of a cluster that runs.
	l, err := tryLock(filepath.Join(o.Dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("start cassandra: %w", err)
	}
	c := &Cluster{o: o, lock: l}
	if err := c.boot(ctx, fetch); err != nil {
		return nil, errors.Join(fmt.Errorf("start cassandra: %w", err), c.Close())
	}
	return c, nil
}

// boot gets all nodes going and waits for them.
func (c *Cluster) boot(ctx context.Context, fetch fetcher) error {
	if err := c.checkPorts(ctx); err != nil {
		return err
	}
	d, err := fetch(ctx, c.o.RunDir, c.o.Release, c.o.Log)
	if err != nil {
		return err
	}
	if !c.o.Keep {
		if err := c.removeNodes(); err != nil {
			return err
		}
	}
	if c.o.Faults {
		if err := compileFaults(ctx, d, c.o.classes()); err != nil {
			return err
		}
	}
	began := time.Now()
	say(c.o.Log, "starting Cassandra %s on %s", c.o.Release, c.o.Address(1))
	for k := 1; k <= c.o.Nodes; k++ {
		n := &Node{layout: layoutOf(c.o, k), from: d}
		if err := n.write(d.Lib); err != nil {
			return err
		}
		if err := n.launch(); err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	if err := c.Wait(ctx); err != nil {
		return err
	}
	say(c.o.Log, "Cassandra is usable after %.1f s", time.Since(began).Seconds())
	return nil
}

// checkPorts makes sure that every port of every node is free: a node that finds one taken says so late and at length.
// In a namespace nothing else listens that is not ours.
func (c *Cluster) checkPorts(ctx context.Context) error {
	if c.o.Namespace != nil {
		return nil
	}
	var faults []error
	for k := 1; k <= c.o.Nodes; k++ {
		for _, port := range []int{c.o.Port, storagePort} {
			addr := net.JoinHostPort(c.o.Address(k), strconv.Itoa(port))
			faults = append(faults, checkPort(ctx, addr))
		}
	}
	return errors.Join(faults...)
}

// checkPort returns an error if a server cannot listen on addr.
func checkPort(ctx context.Context, addr string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %s: %w: does another Cassandra run here?", addr, ErrInUse)
	}
	if err != nil {
		return fmt.Errorf("port %s: %w", addr, err)
	}
	return l.Close()
}

// removeNodes removes what an earlier cluster, perhaps of more nodes, left.
func (c *Cluster) removeNodes() error {
	for k := 1; k <= maxJoined; k++ {
		if err := os.RemoveAll(layoutOf(c.o, k).dir); err != nil {
			return fmt.Errorf("remove node %d: %w", k, err)
		}
	}
	return nil
}

// Nodes returns the nodes in order: node k is the element k-1.
func (c *Cluster) Nodes() []*Node { return slices.Clone(c.nodes) }

// ContactPoints returns address and port of every node, as drivers take them.
func (c *Cluster) ContactPoints() []string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// Wait returns nil as soon as every node answers CQL, knows all others, has the same schema version, and reads from
// all. A node that is down gives an error wrapping ErrNotRunning, with the end of its log, at once; a paused one is waited for.
func (c *Cluster) Wait(ctx context.Context) error {
	if err := poll(ctx, c.usable); err != nil {
		return fmt.Errorf("wait for cassandra: %w", err)
	}
	return nil
}

// Close kills all nodes and returns when they are gone. Their files stay. It may be called again.
func (c *Cluster) Close() error {
	defer c.lock.release()
	return c.closeNodes()
}

// Wipe is Close that removes the nodes' files too.
func (c *Cluster) Wipe() error {
	defer c.lock.release()
	return errors.Join(c.closeNodes(), c.removeNodes())
}

// closeNodes kills all nodes for good.
func (c *Cluster) closeNodes() error {
	var faults []error
	for _, n := range c.nodes {
		faults = append(faults, n.close())
	}
	return errors.Join(faults...)
}
