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

func sameRows(t *testing.T, want, got message.Message) {
	t.Helper()
	g, ok := got.(*message.RowsResult)
	require.True(t, ok, "%v", got)
	w := want.(*message.RowsResult)
	assert.Equal(t, w.Data, g.Data)
	assert.Equal(t, w.Metadata.ColumnCount, g.Metadata.ColumnCount)
	assert.Empty(t, g.Metadata.PagingState)
}

// everyWay asks a SELECT in each way that a driver might, and tells that Cassandra is asked another text and the answer translated.
func everyWay(t *testing.T, client, backend *peer, text, asked string, node, want message.Message) {
	t.Helper()
	skipping := func() *message.QueryOptions {
		return &message.QueryOptions{SkipMetadata: true, PageSize: 1, PagingState: []byte("old")}
	}
	relayed(client, backend, 4, &message.Prepare{Query: text}, preparedAs(idOf(text)))
	id := []byte("result metadata!")
	for _, way := range []message.Message{
		query(text), &message.Query{Query: text, Options: skipping()}, &message.Execute{QueryId: idOf(text), ResultMetadataId: id},
		&message.Execute{QueryId: idOf(text), ResultMetadataId: id, Options: skipping()},
		&message.Execute{QueryId: idOf(text), ResultMetadataId: []byte("other"), Options: skipping()},
	} {
		client.send(5, way)
		got, ok := backend.answer(5).(*message.Query)
		require.True(t, ok)
		assert.Equal(t, asked, got.Query)
		assert.False(t, got.Options.SkipMetadata, "without columns the rows cannot be translated")
		assert.Zero(t, got.Options.PageSize)
		assert.Empty(t, got.Options.PagingState)
		backend.send(5, node.DeepCopyMessage())
		rows := client.answer(5)
		sameRows(t, want, rows)
		if bare := skips(way, client.version); bare {
			assert.Empty(t, rows.(*message.RowsResult).Metadata.Columns, "%v", way)
		} else {
			assert.Len(t, rows.(*message.RowsResult).Metadata.Columns, len(want.(*message.RowsResult).Metadata.Columns))
		}
	}
}

// skips reports whether Cassandra would leave out the columns.
func skips(m message.Message, version primitive.ProtocolVersion) bool {
	switch m := m.(type) {
	case *message.Query:
		return m.Options.SkipMetadata
	case *message.Execute:
		return m.Options != nil && m.Options.SkipMetadata && (version < v5 || string(m.ResultMetadataId) == "result metadata!")
	}
	return false
}

// The row of system.local shows the address that drivers know.
func TestTopologyOfTheLocalNode(t *testing.T) {
	columns := []string{"key", "rpc_address", "rpc_port", "broadcast_address", "broadcast_port", "listen_address", "listen_port", "native_port", "nothing"}
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		for text, asked := range map[string]string{
			"SELECT * FROM system.local":                                  "SELECT * FROM  system.local ",
			"select * from system.local where key = 'local';":             "select * from  system.local  where key = 'local';",
			"SELECT\n\t*\nFROM\n\tSYSTEM.Local":                           "SELECT\n\t*\nFROM\n\t system.local ",
			`SELECT * FROM"system"."local"WHERE key=?`:                    `SELECT * FROM system.local WHERE key=?`,
			"/* a */ SELECT -- b\n * FROM system /* c */ . local":         "/* a */ SELECT -- b\n * FROM  system.local ",
			"SELECT " + strings.Join(columns, ",") + " FROM system.local": "SELECT " + strings.Join(columns, ",") + " FROM  system.local ",
		} {
			everyWay(t, client, backend, text, asked, systemLocal(columns...), translated(columns...))
		}
		everyWay(t, client, backend, "SELECT rpc_port AS p, rpc_address AS a, data_center AS rpc_port2 FROM system.local",
			"SELECT rpc_port AS p, rpc_address AS a, data_center AS rpc_port2 FROM  system.local ",
			named(systemLocal("rpc_port", "rpc_address", "key"), "p", "a", "rpc_port2"),
			named(translated("rpc_port", "rpc_address", "key"), "p", "a", "rpc_port2"))
		everyWay(t, client, backend, "SELECT cluster_name AS rpc_port FROM system.local", "SELECT cluster_name AS rpc_port FROM  system.local ",
			named(systemLocal("cluster_name"), "rpc_port"), named(systemLocal("cluster_name"), "rpc_port"))
		everyWay(t, client, backend, "SELECT count(*) FROM system.local", "SELECT count(*) FROM  system.local ", systemLocal("count"), systemLocal("count"))
	})
}

// named renames the columns of a result.
func named(m *message.RowsResult, names ...string) *message.RowsResult {
	for i, name := range names {
		m.Metadata.Columns[i].Name = name
	}
	return m
}

// What cannot be translated is refused; what is no row of theirs goes through.
func TestTopologyThatCannotBeTranslated(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		for _, text := range []string{
			"SELECT JSON * FROM system.local", "SELECT JSON peer FROM system.peers", "SELECT blobAsText(inetAsBlob(rpc_address)) FROM system.local",
			"SELECT CAST(RPC_PORT AS text) FROM system.local", `SELECT min("peer") FROM system.peers`, "SELECT token(peer) FROM system.peers_v2",
			"SELECT rack FROM system.local WHERE rpc_address = '10.0.0.1' ALLOW FILTERING", "SELECT rack FROM system.peers WHERE peer > '10.0.0.1' ALLOW FILTERING",
			"SELECT rack FROM system.peers WHERE token(peer) > 7", "SELECT rack FROM system.peers WHERE peer = (inet) '10.0.0.1'",
			"SELECT rack FROM system.peers_v2 WHERE peer = '10.0.0.1' AND (peer_port) = (7000)", "SELECT rack FROM system.peers WHERE peer IN ('10.0.0.1', blobAsInet(0x01))",
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

// A statement that Cassandra understands and the proxy does not shows nothing.
func TestTopologyThatCannotBeRead(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		text := "SELECT peer FROM system.peers WHERE rack = ["
		client.send(1, query(text))
		assert.Equal(t, text, backend.answer(1).(*message.Query).Query)
		backend.send(1, systemLocal("peer_address"))
		assert.Equal(t, primitive.ErrorCodeInvalid, client.failure(1).GetErrorCode())
		failure := &message.SyntaxError{ErrorMessage: "no viable alternative"}
		assert.IsType(t, failure, relayed(client, backend, 1, query(text), failure))
	})
}

// With USE, and with the keyspace of a request of version 5, the table needs no qualification.
func TestTopologyWithoutQualification(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		use(client, backend, "system")
		everyWay(t, client, backend, "SELECT rpc_address FROM local", "SELECT rpc_address FROM  system.local ", systemLocal("rpc_address"), translated("rpc_address"))
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
