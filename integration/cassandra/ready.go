package cassandra

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// startLimit is how long a start may take, whatever its context allows: twenty times what it takes on a busy machine.
const startLimit = 4 * time.Minute

// view is what one node says about the cluster.
type view struct {
	peers  int
	schema string
}

// look asks the node for its view.
func (n *Node) look(ctx context.Context) (view, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := n.dial(ctx)
	if err != nil {
		return view{}, err
	}
	defer func() { _ = c.close() }()
	peers, err := c.query(ctx, "SELECT peer FROM system.peers_v2", primitive.ConsistencyLevelOne)
	if err != nil {
		return view{}, err
	}
	schema, err := c.query(ctx, "SELECT schema_version FROM system.local WHERE key='local'", primitive.ConsistencyLevelOne)
	if err != nil {
		return view{}, err
	}
	if len(schema) != 1 || len(schema[0]) != 1 {
		return view{}, errors.New("no schema version yet")
	}
	// The keyspace has replication factor 3 from birth on whatever the number of nodes, so this asks every node; of more than
	// three it asks three, and that each knows all others has to do.
	_, err = c.query(ctx, "SELECT * FROM system_distributed.view_build_status WHERE keyspace_name='' AND view_name=''", everyOf(n.o.Nodes))
	return view{peers: len(peers), schema: string(schema[0][0])}, err
}

// everyOf returns the level at which a read needs n of three replicas, or all three.
func everyOf(n int) primitive.ConsistencyLevel {
	return [...]primitive.ConsistencyLevel{
		1: primitive.ConsistencyLevelOne, 2: primitive.ConsistencyLevelTwo, 3: primitive.ConsistencyLevelAll,
	}[min(n, 3)]
}

// answers returns why the node does not answer queries yet; nil if it does.
func (n *Node) answers(ctx context.Context) error {
	if err := n.downError(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := n.dial(ctx)
	if err != nil {
		return err
	}
	return c.close()
}

// usable returns why the cluster cannot be used yet; nil if it can.
func (c *Cluster) usable(ctx context.Context) error {
	// First of all, so that the death of the last node is seen before the first one answers.
	for _, n := range c.nodes {
		if err := n.downError(); err != nil {
			return err
		}
	}
	schema := ""
	for _, n := range c.nodes {
		v, err := n.look(ctx)
		if err != nil {
			return fmt.Errorf("node %d: %w", n.k, err)
		}
		if v.peers != len(c.nodes)-1 {
			return fmt.Errorf("node %d knows %d of %d peers", n.k, v.peers, len(c.nodes)-1)
		}
		if schema != "" && v.schema != schema {
			return errors.New("the nodes' schema versions differ")
		}
		schema = v.schema
	}
	return nil
}

// poll calls try until it returns nil, or an error that waiting cannot mend. When the time is over the error holds
// why, and what try said last.
func poll(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not usable after %v", startLimit))
	defer cancel()
	end, _ := ctx.Deadline()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for why := error(nil); ; {
		err := try(ctx)
		if err == nil || errors.Is(err, ErrNotRunning) {
			return err
		}
		// And not of a try that was cut short: a dial can end at the deadline before the context does.
		if why == nil || ctx.Err() == nil && time.Now().Before(end) {
			why = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), why)
		}
	}
}
