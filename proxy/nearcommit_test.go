package proxy

import (
	"fmt"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

// An LWT is committed at LOCAL_QUORUM only where the core, the table and the cluster all allow it, and the
// core is told of each one. Where the table has replicas in several data centres what the core asks for at
// SERIAL is read at SERIAL, whatever is known of the nodes: another proxy may have committed so.
func TestNearCommits(t *testing.T) {
	for i := range 16 {
		core, table, cluster, local := i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0
		t.Run(fmt.Sprintf("core %t, table %t, cluster %t, local %t", core, table, cluster, local), func(t *testing.T) {
			n, x, k := playExecutor(t, local, nil)
			x.tables.table(k.Table).severalCentres = table && !local
			x.near = &nearCommits{}
			x.near.allowed.Store(cluster)
			near := core && table && cluster && !local
			commit, serial := primitive.ConsistencyLevelQuorum, primitive.ConsistencyLevelQuorum
			switch {
			case local:
				commit, serial = primitive.ConsistencyLevelLocalQuorum, primitive.ConsistencyLevelLocalQuorum
			case table:
				serial = primitive.ConsistencyLevelSerial
			}
			if near {
				commit = primitive.ConsistencyLevelLocalQuorum
			}
			n.saysAlways(applied(true))
			r := x.do(t.Context(), musiccore.Command{Key: k, Action: musiccore.Apply{Swap: everySwap()[1], Near: core}})
			assert.Equal(t, musiccore.Result{Status: musiccore.StatusDone, Near: near}, r)
			asked := n.take()
			require.Len(t, asked, 1)
			assert.Equal(t, commit, asked[0].level)
			n.saysAlways(noRow("guard", "queue", "base", "head", "dirty", "owner"))
			x.do(t.Context(), musiccore.Command{Key: k, Action: musiccore.ReadRow{Quorum: true, Serial: true}})
			asked = n.take()
			require.Len(t, asked, 1)
			assert.Equal(t, serial, asked[0].level)
		})
	}
}

// The data centres of a keyspace are counted only where its strategy names them.
func TestReplicasInEachDataCentre(t *testing.T) {
	centres := []string{"dc1", "dc2"}
	for name, c := range map[string]struct {
		replication map[string]string
		want        bool
	}{
		"both":           {map[string]string{"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3", "dc2": "1"}, true},
		"one":            {map[string]string{"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3"}, false},
		"none in one":    {map[string]string{"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3", "dc2": "0"}, false},
		"anywhere":       {map[string]string{"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "3"}, false},
		"such names":     {map[string]string{"class": "org.apache.cassandra.locator.SimpleStrategy", "dc1": "3", "dc2": "3"}, false},
		"of no keyspace": {nil, false},
	} {
		assert.Equal(t, c.want, inAll(centres, c.replication), name)
	}
}
