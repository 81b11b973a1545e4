package frontend

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var inet = datatype.Inet

const (
	nodeAddress  = "\x0a\x00\x00\x01"
	proxyAddress = "\xc0\x00\x02\x07"
	nodePort     = "\x00\x00\x23\x52"
	proxyPort    = "\x00\x00\x27\x0f"
)

// systemLocal is what Cassandra answers where these columns of system.local, or others under these names, are selected.
func systemLocal(columns ...string) *message.RowsResult {
	result := &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: int32(len(columns))}, Data: message.RowSet{nil}}
	for _, name := range columns {
		var dt datatype.DataType = datatype.Varchar
		value := []byte("value of " + name)
		switch {
		case strings.Contains(name, "address"):
			dt, value = datatype.Inet, []byte(nodeAddress)
		case strings.Contains(name, "port"):
			dt, value = datatype.Int, []byte(nodePort)
		case name == "nothing":
			dt, value = datatype.Inet, nil
		}
		result.Metadata.Columns = append(result.Metadata.Columns, &message.ColumnMetadata{Keyspace: "system", Table: "local", Name: name, Type: dt})
		result.Data[0] = append(result.Data[0], value)
	}
	return result
}

// translated is systemLocal as a client must see it.
func translated(columns ...string) *message.RowsResult {
	result := systemLocal(columns...)
	for i, value := range result.Data[0] {
		switch string(value) {
		case nodeAddress:
			result.Data[0][i] = []byte(proxyAddress)
		case nodePort:
			result.Data[0][i] = []byte(proxyPort)
		}
	}
	return result
}

// somePeers is what Cassandra answers of its peers.
func somePeers() *message.RowsResult {
	result := systemLocal("peer_address", "data_center")
	result.Data = append(result.Data, result.Data[0])
	result.Metadata.PagingState = []byte("more")
	return result
}

func sameRows(t *testing.T, want, got message.Message) {
	t.Helper()
	g, ok := got.(*message.RowsResult)
	require.True(t, ok, "%v", got)
	w := want.(*message.RowsResult)
	assert.Equal(t, w.Data, g.Data)
	assert.Equal(t, w.Metadata.PagingState, g.Metadata.PagingState)
	assert.Len(t, g.Metadata.Columns, len(w.Metadata.Columns))
}

// everyWay asks a SELECT in each way that a driver might, and tells that the answer is translated.
func everyWay(t *testing.T, client, backend *peer, text string, node, want message.Message) {
	t.Helper()
	sameRows(t, want, relayed(client, backend, 3, query(text), node))
	skipping := &message.QueryOptions{SkipMetadata: true, PageSize: 5}
	ways := []message.Message{&message.Query{Query: text, Options: skipping}}
	relayed(client, backend, 4, &message.Prepare{Query: text}, preparedAs(idOf(text)))
	ways = append(ways, execute(idOf(text), []byte("local")), &message.Execute{
		QueryId: idOf(text), ResultMetadataId: []byte("result metadata!"), Options: skipping,
	})
	for _, way := range ways {
		client.send(5, way)
		asked := backend.answer(5)
		require.Equal(t, way.GetOpCode(), asked.GetOpCode())
		backend.send(5, node)
		sameRows(t, want, client.answer(5))
		switch m := asked.(type) {
		case *message.Query:
			assert.False(t, m.Options.SkipMetadata, "without columns the rows cannot be translated")
		case *message.Execute:
			assert.False(t, m.Options.SkipMetadata, "without columns the rows cannot be translated")
			assert.Equal(t, idOf(text), m.QueryId)
		}
	}
}

func TestTopologyOfTheLocalNode(t *testing.T) {
	columns := []string{"key", "rpc_address", "rpc_port", "broadcast_address", "broadcast_port", "listen_address", "listen_port", "native_port", "nothing"}
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		for _, text := range []string{
			"SELECT * FROM system.local", "select * from system.local where key = 'local';", "SELECT\n\t*\nFROM\n\tSYSTEM.Local",
			`SELECT * FROM "system"."local" WHERE key=?`, "/* a */ SELECT -- b\n * FROM system /* c */ . local", "SELECT " + strings.Join(columns, ",") + " FROM system.local",
		} {
			everyWay(t, client, backend, text, systemLocal(columns...), translated(columns...))
		}
		everyWay(t, client, backend, "SELECT rpc_port AS p, rpc_address AS a, data_center AS rpc_port2 FROM system.local",
			named(systemLocal("rpc_port", "rpc_address", "key"), "p", "a", "rpc_port2"),
			named(translated("rpc_port", "rpc_address", "key"), "p", "a", "rpc_port2"))
		everyWay(t, client, backend, "SELECT cluster_name AS rpc_port FROM system.local",
			named(systemLocal("cluster_name"), "rpc_port"), named(systemLocal("cluster_name"), "rpc_port"))
		everyWay(t, client, backend, "SELECT count(*) FROM system.local", systemLocal("count"), systemLocal("count"))
	})
}

// named renames the columns of a result.
func named(m *message.RowsResult, names ...string) *message.RowsResult {
	for i, name := range names {
		m.Metadata.Columns[i].Name = name
	}
	return m
}

func TestTopologyOfThePeers(t *testing.T) {
	none := somePeers()
	none.Data, none.Metadata.PagingState = message.RowSet{}, nil
	count := &message.RowsResult{
		Metadata: &message.RowsMetadata{ColumnCount: 1, Columns: []*message.ColumnMetadata{{Keyspace: "system", Table: "peers", Name: "count", Type: datatype.Bigint}}},
		Data:     message.RowSet{message.Row{[]byte{0, 0, 0, 0, 0, 0, 0, 2}}},
	}
	zero := &message.RowsResult{Metadata: count.Metadata, Data: message.RowSet{message.Row{make([]byte, 8)}}}
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		for _, text := range []string{
			"SELECT * FROM system.peers", "SELECT * FROM system.peers_v2", "select peer, data_center from System.PEERS where peer = '10.0.0.1'",
			`SELECT peer AS p, data_center FROM "system"."peers_v2" WHERE peer = :address AND peer_port = :port`,
			"SELECT data_center, blobAsText(textAsBlob(rack)) FROM system.peers",
		} {
			everyWay(t, client, backend, text, somePeers(), none)
		}
		for _, text := range []string{"SELECT count(*) FROM system.peers", "SELECT COUNT(1) AS n FROM system.peers_v2"} {
			everyWay(t, client, backend, text, count, zero)
		}
	})
}

// What cannot be translated is refused; what is no row of theirs goes through.
func TestTopologyThatCannotBeTranslated(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		for _, text := range []string{
			"SELECT JSON * FROM system.local", "SELECT JSON peer FROM system.peers", "SELECT blobAsText(inetAsBlob(rpc_address)) FROM system.local",
			"SELECT CAST(RPC_PORT AS text) FROM system.local",
		} {
			for _, m := range []message.Message{query(text), &message.Prepare{Query: text}} {
				client.send(1, m)
				assert.Equal(t, primitive.ErrorCodeInvalid, client.failure(1).GetErrorCode(), text)
			}
		}
		failure := &message.Unavailable{ErrorMessage: "no", Consistency: primitive.ConsistencyLevelOne, Required: 1}
		assert.IsType(t, failure, relayed(client, backend, 1, query("SELECT * FROM system.local"), failure))
		for _, text := range []string{"SELECT * FROM system.local2", "SELECT * FROM other.local", "SELECT * FROM local", "SELECT rpc_address FROM system_views.clients"} {
			sameRows(t, systemLocal("rpc_address"), relayed(client, backend, 1, query(text), systemLocal("rpc_address")))
		}
	})
}

// With USE, and with the keyspace of a request of version 5, the table needs no qualification.
func TestTopologyWithoutQualification(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		use(client, backend, "system")
		everyWay(t, client, backend, "SELECT rpc_address FROM local", systemLocal("rpc_address"), translated("rpc_address"))
		use(client, backend, "bank")
		sameRows(t, systemLocal("rpc_address"), relayed(client, backend, 1, query("SELECT rpc_address FROM local"), systemLocal("rpc_address")))
		if d.version < v5 {
			return
		}
		options := &message.QueryOptions{Keyspace: "system"}
		sameRows(t, translated("rpc_address"), relayed(client, backend, 1, &message.Query{Query: "SELECT rpc_address FROM local", Options: options}, systemLocal("rpc_address")))
		relayed(client, backend, 1, &message.Prepare{Query: "SELECT rpc_address FROM local", Keyspace: "system"}, preparedAs(idOf("own")))
		sameRows(t, translated("rpc_address"), relayed(client, backend, 1, execute(idOf("own"), nil), systemLocal("rpc_address")))
	})
}

// use sets the keyspace of a connection.
func use(client, backend *peer, keyspace string) {
	client.t.Helper()
	relayed(client, backend, 1, query("USE "+keyspace), &message.SetKeyspaceResult{Keyspace: keyspace})
}
