package frontend

import (
	"net/netip"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/topology"
	"music/frontend/wire"
)

// twoNodes are the nodes other than the home node that have a proxy, with an IPv6 node among them.
func twoNodes() []topology.Node {
	return []topology.Node{
		{
			HostID: [16]byte{2}, Proxy: netip.MustParseAddrPort("192.0.2.2:9999"),
			Internal: netip.MustParseAddrPort("10.0.0.2:7000"), Native: netip.MustParseAddrPort("10.1.0.2:9042"),
		},
		{
			HostID: [16]byte{3}, Proxy: netip.MustParseAddrPort("192.0.2.3:9999"),
			Internal: netip.MustParseAddrPort("[fd00::3]:7001"), Native: netip.MustParseAddrPort("[fd00:1::3]:9142"),
		},
	}
}

// withTwoNodes makes a rig the proxy of one of three nodes.
func withTwoNodes(o *Options) { o.Nodes = twoNodes }

// everyNode is what is put into a statement that does not restrict the nodes itself.
const everyNode = "WHERE peer IN ('0.0.0.0', '255.255.255.255', '10.0.0.2', 'fd00::3') "

// peersRows makes rows of inet columns and of int columns, which are those called port.
func peersRows(columns []string, rows ...[]any) *message.RowsResult {
	result := &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: int32(len(columns))}, Data: message.RowSet{}}
	for i, name := range columns {
		column := &message.ColumnMetadata{Keyspace: "system", Table: "peers", Name: name, Type: datatype.Varchar}
		for _, row := range rows {
			switch row[i].(type) {
			case netip.Addr:
				column.Type = datatype.Inet
			case int:
				column.Type = datatype.Int
			case [16]byte:
				column.Type = datatype.Uuid
			}
		}
		result.Metadata.Columns = append(result.Metadata.Columns, column)
	}
	for _, row := range rows {
		var cells message.Row
		for _, value := range row {
			cells = append(cells, cellOf(value))
		}
		result.Data = append(result.Data, cells)
	}
	return result
}

func cellOf(value any) []byte {
	switch value := value.(type) {
	case netip.Addr:
		return value.AsSlice()
	case int:
		return wire.Port(uint16(value))
	case [16]byte:
		return value[:]
	case string:
		return []byte(value)
	}
	return nil
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

// The rows of system.peers and peers_v2 show proxies in the place of the nodes that they stand for.
func TestPeersShowProxies(t *testing.T) {
	v2 := []string{"peer", "peer_port", "host_id", "native_address", "native_port", "preferred_ip", "preferred_port", "rack"}
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t, withTwoNodes)
		client, backend := r.login(d)
		everyWay(t, client, backend, "SELECT * FROM system.peers_v2", "SELECT * FROM  system.peers_v2 "+everyNode,
			peersRows(v2,
				[]any{ip("10.0.0.2"), 7000, [16]byte{2}, ip("10.1.0.2"), 9042, ip("10.9.0.2"), 7009, "r2"},
				[]any{ip("10.0.0.2"), 7099, [16]byte{4}, ip("10.1.0.2"), 9142, ip("10.9.0.2"), 7009, "a node without a proxy at the same address"},
				[]any{ip("fd00::3"), 7001, [16]byte{3}, ip("fd00:1::3"), 9142, nil, nil, "r3"}),
			peersRows(v2,
				[]any{ip("192.0.2.2"), 9999, [16]byte{2}, ip("192.0.2.2"), 9999, nil, nil, "r2"},
				[]any{ip("192.0.2.3"), 9999, [16]byte{3}, ip("192.0.2.3"), 9999, nil, nil, "r3"}))
		everyWay(t, client, backend, "SELECT rpc_address AS a, rack AS peer, preferred_ip FROM system.peers LIMIT 7",
			"SELECT rpc_address AS a, rack AS peer, preferred_ip FROM  system.peers "+everyNode+" LIMIT 7",
			peersRows([]string{"a", "peer", "preferred_ip"}, []any{ip("fd00:1::3"), "r3", ip("10.9.0.3")}, []any{ip("10.1.0.7"), "r7", nil}, []any{nil, "r8", nil}),
			peersRows([]string{"a", "peer", "preferred_ip"}, []any{ip("192.0.2.3"), "r3", nil}, []any{nil, "r8", nil}))
		everyWay(t, client, backend, "SELECT count(*) FROM system.peers", "SELECT count(*) FROM  system.peers "+everyNode,
			peersRows([]string{"count"}, []any{"two"}), peersRows([]string{"count"}, []any{"two"}))
		everyWay(t, client, backend, "SELECT blobAsText(textAsBlob(rack)) FROM system.peers", "SELECT blobAsText(textAsBlob(rack)) FROM  system.peers "+everyNode,
			peersRows([]string{"f"}, []any{"two"}), peersRows([]string{"f"}, []any{"two"}))
	})
}

// What a client compares with addresses of proxies is compared with those of their nodes.
func TestPredicatesOfPeers(t *testing.T) {
	for text, asked := range map[string]string{
		"SELECT rack FROM system.peers WHERE peer = '192.0.2.2'":                             "SELECT rack FROM  system.peers  WHERE peer = '10.0.0.2'",
		"SELECT rack FROM system.peers WHERE peer = '::ffff:192.0.2.2';":                     "SELECT rack FROM  system.peers  WHERE peer = '10.0.0.2';",
		`SELECT rack FROM system.peers_v2 WHERE "peer" = '192.0.2.3' AND peer_port=9999`:     `SELECT rack FROM  system.peers_v2  WHERE "peer" = 'fd00::3' AND peer_port=7001`,
		"SELECT rack FROM system.peers_v2 WHERE peer_port=9999 AND peer = '192.0.2.3'":       "SELECT rack FROM  system.peers_v2  WHERE peer_port=7001 AND peer = 'fd00::3'",
		"SELECT rack FROM system.peers_v2 WHERE peer = '192.0.2.3' AND peer_port=7001":       "SELECT rack FROM  system.peers_v2  WHERE peer = 'fd00::3' AND peer_port=0",
		"SELECT rack FROM system.peers WHERE peer = '10.0.0.2'":                              "SELECT rack FROM  system.peers  WHERE peer = '0.0.0.0'",
		"SELECT rack FROM system.peers WHERE peer IN ('192.0.2.3', '192.0.2.9')":             "SELECT rack FROM  system.peers  WHERE peer IN ('fd00::3', '0.0.0.0')",
		"SELECT rack FROM system.peers WHERE peer IN ()":                                     "SELECT rack FROM  system.peers  WHERE peer IN ()",
		"SELECT rack FROM system.peers WHERE peer = 'no address'":                            "SELECT rack FROM  system.peers  WHERE peer = 'no address'",
		"SELECT rack FROM system.peers WHERE peer = null":                                    "SELECT rack FROM  system.peers  WHERE peer = null",
		"SELECT rack FROM system.peers WHERE rpc_address = '192.0.2.2' ALLOW FILTERING":      "SELECT rack FROM  system.peers " + everyNode + "AND rpc_address = '10.1.0.2' ALLOW FILTERING",
		"SELECT rack FROM system.peers_v2 WHERE native_port = 9999 ALLOW FILTERING":          "SELECT rack FROM  system.peers_v2 " + everyNode + "AND native_port = 9042 ALLOW FILTERING",
		"SELECT rack FROM system.peers /* c */ WHERE preferred_ip = '1.2.3.4' /* port */":    "SELECT rack FROM  system.peers " + everyNode + "AND preferred_ip = '0.0.0.0' /* port */",
		"SELECT rack FROM system.peers WHERE rack = 'peer' ALLOW FILTERING":                  "SELECT rack FROM  system.peers " + everyNode + "AND rack = 'peer' ALLOW FILTERING",
		"SELECT rack FROM system.peers_v2 WHERE peer IN ('192.0.2.2') ORDER BY peer_port":    "SELECT rack FROM  system.peers_v2  WHERE peer IN ('10.0.0.2') ORDER BY peer_port",
		"SELECT rack, count(*) FROM system.peers WHERE rack='a' GROUP BY peer":               "SELECT rack, count(*) FROM  system.peers " + everyNode + "AND rack='a' GROUP BY peer",
		"SELECT DISTINCT rack FROM system.peers_v2 WHERE tokens CONTAINS 'x' AND rack = 'y'": "SELECT DISTINCT rack FROM  system.peers_v2 " + everyNode + "AND tokens CONTAINS 'x' AND rack = 'y'",
	} {
		r := newRig(t, withTwoNodes)
		client, backend := r.login(dialect{version: v4})
		rows := peersRows([]string{"rack"}, []any{"some"})
		everyWay(t, client, backend, text, asked, rows, rows)
	}
}

// values are what Cassandra must be given where a client binds some.
func TestBoundPredicatesOfPeers(t *testing.T) {
	proxy2, proxy3, node2, node3 := ip("192.0.2.2").AsSlice(), ip("192.0.2.3").AsSlice(), ip("10.0.0.2").AsSlice(), ip("fd00::3").AsSlice()
	port := func(n uint16) *primitive.Value { return primitive.NewValue(wire.Port(n)) }
	value := primitive.NewValue
	list := func(all ...[]byte) *primitive.Value {
		b := wire.Port(uint16(len(all)))
		for _, one := range all {
			b = append(b, wire.Value(one)...)
		}
		return value(b)
	}
	named := func(pairs ...any) *message.QueryOptions {
		o := &message.QueryOptions{NamedValues: map[string]*primitive.Value{}}
		for i := 0; i < len(pairs); i += 2 {
			o.NamedValues[pairs[i].(string)] = pairs[i+1].(*primitive.Value)
		}
		return o
	}
	positional := func(all ...*primitive.Value) *message.QueryOptions {
		return &message.QueryOptions{PositionalValues: all}
	}
	for text, ways := range map[string][][2]*message.QueryOptions{
		"SELECT rack FROM system.peers_v2 WHERE peer = ? AND peer_port = ?": {
			{positional(value(proxy3), port(9999)), positional(value(node3), port(7001))},
			{named("peer", value(proxy3), "peer_port", port(9999)), named("peer", value(node3), "peer_port", port(7001))},
			{positional(value(node3), port(7001)), positional(value(netip.IPv4Unspecified().AsSlice()), port(0))},
			{positional(primitive.NewNullValue(), port(9999)), positional(primitive.NewNullValue(), port(0))},
			{positional(value(proxy2)), positional(value(node2))},
		},
		"SELECT rack FROM system.peers_v2 WHERE peer = :address AND peer_port = :port": {
			{named("address", value(proxy3), "port", port(9999)), named("address", value(node3), "port", port(7001))},
			{positional(value(proxy2), port(9999)), positional(value(node2), port(7000))},
			{named("other", value(proxy2)), named("other", value(proxy2))},
		},
		"SELECT rack FROM system.peers WHERE rack = ? AND peer IN ?": {
			{positional(value([]byte("r")), list(proxy3, node2, proxy2)), positional(value([]byte("r")), list(node3, netip.IPv4Unspecified().AsSlice(), node2))},
			{positional(value([]byte("r")), value([]byte("no list"))), positional(value([]byte("r")), value([]byte("no list")))},
		},
		"SELECT rack FROM system.peers WHERE peer IN (?, ?)": {{positional(value(proxy2), value(proxy3)), positional(value(node2), value(node3))}},
	} {
		for _, way := range ways {
			everyDialect(t, func(t *testing.T, d dialect) {
				r := newRig(t, withTwoNodes)
				client, backend := r.login(d)
				relayed(client, backend, 4, &message.Prepare{Query: text}, preparedAs(idOf(text)))
				for _, m := range []message.Message{
					&message.Query{Query: text, Options: way[0]}, &message.Execute{QueryId: idOf(text), ResultMetadataId: []byte("id"), Options: way[0]},
				} {
					client.send(2, m)
					asked, ok := backend.answer(2).(*message.Query)
					require.True(t, ok)
					assert.Equal(t, way[1].PositionalValues, asked.Options.PositionalValues)
					assert.Equal(t, way[1].NamedValues, asked.Options.NamedValues)
					backend.send(2, &message.VoidResult{})
					client.answer(2)
				}
			})
		}
	}
}

// A proxy that stands alone shows no peers, and asks for none.
func TestAloneThereAreNoPeers(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		none := peersRows([]string{"peer"})
		everyWay(t, client, backend, "SELECT peer FROM system.peers", "SELECT peer FROM  system.peers WHERE peer IN ('0.0.0.0', '255.255.255.255') ",
			peersRows([]string{"peer"}, []any{ip("10.0.0.2")}), peersRows([]string{"peer"}))
		everyWay(t, client, backend, "SELECT peer FROM system.peers_v2 WHERE peer = '10.0.0.2'", "SELECT peer FROM  system.peers_v2  WHERE peer = '0.0.0.0'", none, none)
	})
}

// The restriction that the proxy adds makes Cassandra warn of something else than the client has done.
func TestWarningOfACount(t *testing.T) {
	const (
		counted   = "Aggregation query used without partition key"
		countedIn = "Aggregation query used on multiple partition keys (IN restriction)"
	)
	for text, want := range map[string]string{
		"SELECT count(*) FROM system.peers":                                        counted,
		"SELECT count(*) FROM system.peers WHERE peer IN ('10.0.0.2', '10.0.0.3')": countedIn,
	} {
		r := newRig(t, withTwoNodes)
		client, backend := r.login(dialect{version: v4})
		client.send(1, query(text))
		backend.answer(1)
		backend.send(1, peersRows([]string{"count"}, []any{"two"}), func(f *frame.Frame) {
			f.Header.Flags = f.Header.Flags.Add(primitive.HeaderFlagWarning)
			f.Body.Warnings = []string{countedIn, "another"}
		})
		assert.Equal(t, []string{want, "another"}, client.next().Body.Warnings)
	}
}

// Who executes a prepared statement sees the nodes of that moment, not of the one when it was prepared.
func TestPreparedStatementSeesTheNodesOfItsTime(t *testing.T) {
	var nodes []topology.Node
	r := newRig(t, func(o *Options) { o.Nodes = func() []topology.Node { return nodes } })
	client, backend := r.login(dialect{version: v4})
	id := r.prepare(client, backend, "SELECT peer FROM system.peers")
	for _, asked := range []string{"SELECT peer FROM  system.peers WHERE peer IN ('0.0.0.0', '255.255.255.255') ", "SELECT peer FROM  system.peers " + everyNode} {
		client.send(1, execute(id, nil))
		assert.Equal(t, asked, backend.answer(1).(*message.Query).Query)
		backend.send(1, peersRows([]string{"peer"}))
		client.answer(1)
		nodes = twoNodes()
	}
}
