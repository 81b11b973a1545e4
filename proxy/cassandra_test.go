package proxy

import (
	"fmt"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// The statements on the lock rows of many tables stay prepared: else each of them would be prepared anew whenever it is
// sent, which is a round trip more. There are five of each table, and the driver counts them for each node.
func TestStatementsOfManyTablesStayPrepared(t *testing.T) {
	const tables, statements, nodes = 1000, 5, 3
	n := startCQLNode(t, nil)
	n.saysAlways(applied(true))
	cluster := serviceCluster(config.Cassandra{ContactPoints: []string{n.address}}, nil)
	assert.GreaterOrEqual(t, cluster.MaxPreparedStmts, tables*statements*nodes)
	assert.GreaterOrEqual(t, cluster.MaxRoutingKeyInfo, tables*statements)
	cluster.HostDialer, cluster.ProtoVersion, cluster.NumConns, cluster.DisableInitialHostLookup = nil, 4, 1, true
	cluster.Metadata.CacheMode = gocql.Disabled
	session, err := cluster.CreateSession()
	require.NoError(t, err)
	t.Cleanup(session.Close)
	for _, count := range []int{220 * statements, 50} { // the oldest would be gone
		for i := range count {
			require.NoError(t, session.Query(fmt.Sprintf("UPDATE ks.t%d SET head = ? WHERE k1 = ? IF base = ?", i), int64(1), "k", int64(2)).ExecContext(t.Context()))
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	assert.Less(t, len(n.prepared), 221*statements, "the driver has a few of its own")
}
