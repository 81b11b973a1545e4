package paper

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra"
)

var long = flag.Bool("evaluate.long", false, "start three nodes")

// The third node hears nothing while two references are enqueued and the first is granted. As the coordinator of the next one it
// learns what Paxos tells it, the latest commit: it has the row of the second reference, and not that of the first. So the second
// one, whose client has gone on from the first node to the third, peeks at itself as the first: there are two holders. With the peek
// at QUORUM, the repair, it waits.
func TestPeekAtAReplicaThatHasMissedAnEnqueue(t *testing.T) {
	if !*long {
		t.Skip("three nodes: -evaluate.long")
	}
	ctx, c := t.Context(), threeNodes(t)
	first, third := c.Nodes()[0], c.Nodes()[2]
	tamper := func(command string) {
		for _, n := range c.Nodes()[:2] {
			_, err := n.Fault(ctx, command)
			require.NoError(t, err)
		}
	}
	for key, o := range map[string]Options{"printed": {}, "repaired": {Repaired: true}} {
		t.Run(key, func(t *testing.T) {
			o.Keyspace = "peek"
			open := func(n *cassandra.Node) *Client {
				mine := o
				mine.Hosts = []string{n.Addr()}
				client, err := New(mine)
				require.NoError(t, err)
				t.Cleanup(client.Close)
				return client
			}
			near, far := open(first), open(third)
			for _, verb := range []string{"PAXOS_COMMIT_REQ", "PAXOS2_PREPARE_REQ", "MUTATION_REQ"} {
				tamper("drop " + verb + " " + third.Host())
			}
			holder, err := near.Enter(ctx, key)
			require.NoError(t, err)
			ref, err := near.CreateLockRef(ctx, key)
			require.NoError(t, err)
			tamper("heal")
			_, err = far.CreateLockRef(ctx, key)
			require.NoError(t, err)
			in, err := far.AcquireLock(ctx, key, ref)
			require.NoError(t, err)
			assert.Equal(t, !o.Repaired, in)
			require.NoError(t, holder.Put(ctx, []byte("of the first holder")))
			if in {
				require.NoError(t, far.CriticalPut(ctx, key, ref, []byte("of the second")))
				require.NoError(t, holder.Put(ctx, []byte("of the first, acknowledged and lost")))
				value, err := holder.Get(ctx)
				require.NoError(t, err)
				assert.Equal(t, "of the second", string(value))
			}
		})
	}
}

// threeNodes starts three nodes whose messages can be lost, with the keyspace peek.
func threeNodes(t *testing.T) *cassandra.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, err := cassandra.Start(ctx, cassandra.Options{
		Dir: t.TempDir(), Nodes: 3, Address: func(k int) string { return fmt.Sprintf("127.0.33.%d", k) }, FastJIT: true, Faults: true, Log: t.Output(),
		Yaml: map[string]string{"write_request_timeout": "2s", "cas_contention_timeout": "2s", "hinted_handoff_enabled": "false"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Wipe()) })
	admin := gocql.NewCluster(c.ContactPoints()...)
	admin.Timeout, admin.ConnectTimeout = time.Minute, time.Minute
	s, err := admin.CreateSession()
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Query("CREATE KEYSPACE peek WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}").Exec())
	for _, n := range c.Nodes() { // its tables, before messages are lost
		client, err := New(Options{Hosts: []string{n.Addr()}, Keyspace: "peek"})
		require.NoError(t, err)
		client.Close()
	}
	return c
}
