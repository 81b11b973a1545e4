package proxy

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra/cassandratest"
	"music/musiccore"
)

// An LWT is committed at LOCAL_QUORUM only where the core, the table and the cluster all allow it, and the
// core is told of each one. What the core asks for at SERIAL is read at QUORUM only where no proxy can have
// committed so: the keyspace has replicas in one data centre, and has had for so long that all have heard of
// it. What this proxy sees of the nodes has no part in that.
func TestNearCommits(t *testing.T) {
	for i := range 32 {
		core, several, cluster, local, settled := i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0, i&16 != 0
		for _, one := range []bool{false, true} {
			if several && one {
				continue
			}
			t.Run(fmt.Sprintf("core %t, several centres %t, one %t, cluster %t, local %t, settled %t", core, several, one, cluster, local, settled), func(t *testing.T) {
				n, x, k := playExecutor(t, local, nil)
				table := x.tables.table(k.Table)
				table.severalCentres, table.oneCentre = several && !local, one
				x.tables.checked.Store(int64(boottime()))
				if !settled && i&1 != 0 {
					table.settledAt = boottime() + time.Hour
				} else if !settled {
					x.tables.checked.Store(int64(boottime() - replicationRelied))
				}
				x.near = &nearCommits{}
				x.near.allowed.Store(cluster)
				near := core && several && cluster && settled && !local
				commit, serial := primitive.ConsistencyLevelQuorum, primitive.ConsistencyLevelSerial
				switch {
				case local:
					commit, serial = primitive.ConsistencyLevelLocalQuorum, primitive.ConsistencyLevelLocalQuorum
				case one && settled:
					serial = primitive.ConsistencyLevelQuorum
				case near:
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
				x.do(t.Context(), musiccore.Command{Key: k, Action: musiccore.ReadRow{Quorum: true, Serial: true, Completes: true}})
				asked = n.take()
				require.Len(t, asked, 1)
				assert.Equal(t, map[bool]primitive.ConsistencyLevel{false: primitive.ConsistencyLevelSerial, true: primitive.ConsistencyLevelLocalSerial}[local], asked[0].level,
					"a commit that no quorum shows, since its sender has died, is completed by nothing else")
			})
		}
	}
}

// Where the replicas are is read from the keyspace: at once after a change of it, nobody relies on it. Where
// it cannot be read, nothing is assumed.
func TestFindReplicas(t *testing.T) {
	s := cassandratest.NewKeyspace(t, cassandratest.Version(0))
	r := &schemaReader{session: s.Session, clock: new(clock)}
	r.clock.observe(0, time.Now())
	find := func(keyspace string) *dataTable {
		table := &dataTable{keyspace: keyspace}
		r.findReplicas(t.Context(), []*dataTable{table}, nil)
		return table
	}
	for _, replication := range []string{"{'class': 'NetworkTopologyStrategy', 'dc1': 1}", "{'class': 'SimpleStrategy', 'replication_factor': 1}"} {
		s.Do("ALTER KEYSPACE KS WITH replication = " + replication)
		table := find(s.Name)
		assert.True(t, table.oneCentre, replication)
		assert.False(t, table.severalCentres, "there is one")
		assert.Greater(t, table.settledAt, boottime()+replicationSettles-10*time.Second, "it has just been changed")
		assert.LessOrEqual(t, table.settledAt, boottime()+replicationSettles)
		s.Do("CREATE TABLE KS.t (a int PRIMARY KEY)")
		s.Do("DROP TABLE KS.t")
		assert.Equal(t, table.settledAt, find(s.Name).settledAt, "Cassandra has written the keyspace anew")
	}
	assert.False(t, find("gone").oneCentre)
}

// How long a keyspace has been so is told by the clocks of the nodes that stamped it, however far ahead the proxy's own is.
func TestReplicasByAFastClock(t *testing.T) {
	cluster := time.Now().Add(-time.Hour)
	var written atomic.Int64
	written.Store(cluster.Add(-time.Second).UnixMicro())
	n := startCQLNode(t, func(asked) message.Message {
		return rowOf("keyspace_name", []byte("k"), "replication", slices.Concat(bigint(1)[4:], bigint(3)[4:], []byte("dc1"), bigint(1)[4:], []byte("3")), "writetime(replication)", bigint(written.Load()))
	})
	find := func(observed bool) time.Duration {
		r := &schemaReader{session: n.session, clock: new(clock)}
		if observed {
			r.clock.observe(0, cluster)
		}
		table := &dataTable{keyspace: "k"}
		r.findReplicas(t.Context(), []*dataTable{table}, nil)
		return table.settledAt - boottime()
	}
	assert.InDelta(t, replicationSettles, find(true), float64(2*time.Second), "it has just been changed")
	assert.InDelta(t, replicationSettles, find(false), float64(2*time.Second), "nobody knows since when")
	written.Store(cluster.Add(-time.Minute).UnixMicro())
	assert.InDelta(t, replicationSettles+musiccore.ClockGap-time.Minute, find(true), float64(2*time.Second))
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
		assert.Equal(t, c.want, inAll(centres, centresWithReplicas(c.replication)), name)
	}
}
