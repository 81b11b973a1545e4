package proxy

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Keyspace music gets replicas in each data centre that has a node, three at most. A node that is just joining has none yet.
func TestDefaultReplication(t *testing.T) {
	n := startCQLNode(t, func(a asked) message.Message {
		rows := rowOf("data_center", []byte("dc1"))
		if strings.Contains(a.text, "system.peers_v2") {
			rows.Data = message.RowSet{{[]byte("dc1")}, {[]byte("dc1")}, {nil}, {[]byte("d'2")}, {[]byte("dc1")}}
		}
		return rows
	})
	text, err := defaultReplication(t.Context(), n.session)
	require.NoError(t, err)
	assert.Equal(t, "{'class': 'NetworkTopologyStrategy', 'd''2': 1, 'dc1': 3}", text)
}
