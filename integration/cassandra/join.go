package cassandra

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Joining says how a node comes to a cluster that runs. It gets a token of Cassandra's choice.
type Joining struct {
	DC        int   // it is in data centre dcDC
	Bootstrap bool  // it streams what it is a replica of before it joins; otherwise nodetool rebuild does, later
	Replaces  *Node // one that is dead, whose place it takes; nil for none
}

// properties are those that differ from a node that the cluster began with: it waits until it knows the ring.
func (j Joining) properties() map[string]string {
	all := map[string]string{"cassandra.ring_delay_ms": "5000", "cassandra.skip_wait_for_gossip_to_settle": "-1"}
	if j.Replaces != nil {
		all["cassandra.replace_address_first_boot"] = j.Replaces.Host()
	}
	return all
}

// Join starts the next node, and returns when it answers CQL, at which it is one of the ring. Nothing else may be asked of the
// cluster meanwhile; Wait is for the nodes that it began with.
func (c *Cluster) Join(ctx context.Context, j Joining) (*Node, error) {
	k := len(c.nodes) + 1
	if k > maxJoined {
		return nil, fmt.Errorf("node %d joins: there are at most %d", k, maxJoined)
	}
	n := &Node{layout: layoutOf(c.o, k), from: c.nodes[0].from}
	n.joining = &j
	if err := n.write(n.from.Lib); err != nil {
		return nil, err
	}
	c.nodes = append(c.nodes, n)
	return n, n.Start(ctx)
}

// Tool is the command line of nodetool at the node, for which there is Access.JMX; its words follow.
func (n *Node) Tool() ([]string, error) {
	quiet := n.path("quiet.xml")
	if err := os.WriteFile(quiet, []byte(`<configuration><root level="OFF"/></configuration>`), 0o600); err != nil {
		return nil, fmt.Errorf("nodetool: %w", err)
	}
	line := append([]string{
		n.from.Java, "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dcom.sun.jndi.rmiURLParsing=legacy",
		"-Duser.home=" + n.dir, "-Dlogback.configurationFile=" + quiet, "-Dcassandra.config=" + n.url("cassandra.yaml"),
		"-Dcassandra.storagedir=" + n.dir,
	}, moduleArgs()...)
	return append(line, "-cp", filepath.Join(n.from.Lib, "*"), "org.apache.cassandra.tools.NodeTool", "-h", "127.0.0.1", "-p", strconv.Itoa(n.o.Access.JMX+n.k)), nil
}

// File returns the path of one of the node's files, as cassandra.yaml.
func (n *Node) File(name string) string { return n.path(name) }
