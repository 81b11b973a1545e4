package paper

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra"
	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
)

var long = flag.Bool("evaluate.long", false, "run what needs three nodes")

// threeNodes starts three nodes whose messages can be lost, without anything that would send them again, and makes a keyspace on
// all of them.
func threeNodes(t *testing.T) []*cassandra.Node {
	t.Helper()
	if !*long {
		t.Skip("needs three nodes: -evaluate.long")
	}
	c, err := cassandra.Start(t.Context(), cassandra.Options{
		Dir: t.TempDir(), Nodes: 3, FastJIT: true, Faults: true, Log: t.Output(),
		Address: func(k int) string { return fmt.Sprintf("127.0.31.%d", k) },
		Yaml:    map[string]string{"hinted_handoff_enabled": "false"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	cluster := gocql.NewCluster(c.ContactPoints()...)
	cluster.Timeout, cluster.ConnectTimeout = time.Minute, time.Minute
	s, err := cluster.CreateSession()
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Query("CREATE KEYSPACE three WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}").Exec())
	return c.Nodes()
}

// moving is a client that enqueues at one MUSIC replica and does the rest at another, as III-A allows it. It acquires once, when
// the node of the other has got the enqueue.
type moving struct {
	first, then *Client
	node        *Client // of the other, and peeks at ONE
}

func (m *moving) Close() {}

func (m *moving) Enter(ctx context.Context, key string) (section.Held, error) {
	ref, err := m.first.CreateLockRef(ctx, key)
	if err != nil {
		return nil, err
	}
	for {
		if f, err := m.node.peek(ctx, key); err != nil || f.guard >= ref {
			break
		}
		if err := m.node.pause(ctx); err != nil {
			return nil, err
		}
	}
	in, err := m.then.AcquireLock(ctx, key, ref)
	if err == nil && !in {
		err = errNack
	}
	return &Held{m.then, key, ref}, err
}

// A replica that holds an enqueue and has missed the one before grants the later one while the earlier one is inside (VI: "an
// eventual read query that reads from one replica"): the commit of an LWT reaches each replica by itself. What the first one puts
// then is acknowledged and lost. A peek at QUORUM finds the earlier one.
func TestTwoHoldersAtAReplicaThatMissedAnEnqueue(t *testing.T) {
	nodes := threeNodes(t)
	ctx := t.Context()
	for name, repaired := range map[string]bool{"as printed": false, "repaired": true} {
		t.Run(name, func(t *testing.T) {
			var replicas [4]*Client
			for i, n := range []*cassandra.Node{nodes[0], nodes[1], nodes[2], nodes[2]} {
				c, err := New(Options{Hosts: []string{n.Addr()}, Keyspace: "three", Repaired: repaired && i < 3, Timeout: time.Minute})
				require.NoError(t, err)
				defer c.Close()
				replicas[i] = c
			}
			defer lose(t, nodes[0], nodes[2])()
			h := new(judge.History)
			first, err := judge.Record(replicas[0], 1, h.Add).Enter(ctx, name)
			require.NoError(t, err)
			require.NoError(t, first.Put(ctx, []byte("of the first")))
			heard := lose(t, nodes[1], nodes[2], "PAXOS2_PREPARE_REQ") // and so does not hear of the first one's either
			second, err := judge.Record(&moving{replicas[1], replicas[2], replicas[3]}, 2, h.Add).Enter(ctx, name)
			heard()
			if repaired {
				require.ErrorIs(t, err, errNack)
				return
			}
			require.NoError(t, err)
			require.NoError(t, second.Put(ctx, []byte("of the second")))
			require.NoError(t, first.Put(ctx, []byte("again of the first")))
			_, err = first.Get(ctx)
			require.NoError(t, err)
			require.Equal(t, []judge.Fault{judge.TwoHolders, judge.LostPut}, faults(h))
		})
	}
}

// lose loses messages from a node to another, those of the verbs or commits, until the function that it returns is called.
func lose(t *testing.T, from, to *cassandra.Node, verbs ...string) func() {
	t.Helper()
	if len(verbs) == 0 {
		verbs = []string{"PAXOS_COMMIT_REQ", "PAXOS2_PREPARE_REQ", "MUTATION_REQ"} // startTime, too, would tell of the reference
	}
	for _, verb := range verbs {
		_, err := from.Fault(t.Context(), "drop "+verb+" "+to.Host())
		require.NoError(t, err)
	}
	return func() {
		_, err := from.Fault(context.WithoutCancel(t.Context()), "heal")
		require.NoError(t, err)
	}
}
