package integration

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// systemQueries returns queries of the nodes of the cluster, in which the proxy must translate
// addresses. %d is the third part of the address of a node, or its proxy: 127.0.%d.k.
func systemQueries() []string {
	return []string{
		"SELECT * FROM system.local", "SELECT * FROM system.local WHERE key='local'", "select rpc_address as a, broadcast_port from SYSTEM.local",
		"SELECT count(*) FROM system.local", "SELECT cluster_name FROM system.local", "SELECT toTimestamp(now()) > 0 FROM system.local",
		"SELECT * FROM system.peers", "SELECT * FROM system.peers_v2", "SELECT peer, data_center FROM system.peers LIMIT 1",
		"SELECT count(*) FROM system.peers", "SELECT COUNT(1) AS n FROM system.peers_v2", "SELECT DISTINCT peer FROM system.peers_v2",
		"SELECT native_address AS rack, rack AS native_address FROM system.peers_v2", "SELECT tokens, schema_version FROM system.peers",
		"SELECT rack, count(*) FROM system.peers_v2 GROUP BY peer", "SELECT blobAsText(textAsBlob(rack)) FROM system.peers",
		"SELECT * FROM system.peers WHERE peer = '127.0.%d.2'", "SELECT * FROM system.peers_v2 WHERE peer = '127.0.%d.3'",
		"SELECT * FROM system.peers WHERE peer = '127.0.%d.9'", "SELECT * FROM system.peers WHERE peer IN ('127.0.%[1]d.3', '127.0.%[1]d.2', '127.0.%[1]d.1')",
		"SELECT count(*) FROM system.peers WHERE peer IN ('127.0.%[1]d.3', '127.0.%[1]d.2')", "SELECT rack FROM system.peers WHERE rpc_address = '127.0.%d.3' ALLOW FILTERING",
		"SELECT rack FROM system.peers WHERE data_center = 'dc1' ALLOW FILTERING", "SELECT * FROM system.peers WHERE peer = 'nonsense'",
		"SELECT nothing FROM system.peers", "SELECT * FROM system.peers WHERE rack = 'r1'", "SELECT * FROM system.peers WHERE peer = 7",
		"SELECT * FROM system.peers WHERE peer = ?",
	}
}

// asProxies returns what a proxy should answer, given the answer of its node.
func asProxies(body []byte) []byte {
	body = bytes.ReplaceAll(body, []byte{127, 0, 7}, []byte{127, 0, 6})
	return bytes.ReplaceAll(body, []byte{0, 0, 7000 >> 8, 7000 & 0xff}, []byte{0, 0, 9042 >> 8, 9042 & 0xff})
}

// A proxy answers every query of the nodes as its node does, byte for byte, except for the
// addresses.
func TestTopologyIsThatOfTheNodes(t *testing.T) {
	all := threeProxies(t)
	for k, node := range threeNodes(t).Nodes() {
		for _, version := range []primitive.ProtocolVersion{primitive.ProtocolVersion3, primitive.ProtocolVersion4, primitive.ProtocolVersion5} {
			t.Run(fmt.Sprintf("node %d v%d", k+1, version), func(t *testing.T) {
				direct := openWire(t, node.Addr(), version, primitive.CompressionNone)
				proxied := openWire(t, all[k].address, version, primitive.CompressionNone)
				compareTopology(t, direct, proxied)
			})
		}
		t.Run(fmt.Sprintf("node %d lz4", k+1), func(t *testing.T) {
			direct := openWire(t, node.Addr(), primitive.ProtocolVersion4, primitive.CompressionNone)
			for _, version := range []primitive.ProtocolVersion{primitive.ProtocolVersion4, primitive.ProtocolVersion5} {
				proxied := openWire(t, all[k].address, version, primitive.CompressionLz4)
				for _, text := range systemQueries() {
					compareDecoded(t, text, direct, proxied)
				}
			}
		})
	}
}

// compareTopology sends the queries in every way that a driver might.
func compareTopology(t *testing.T, direct, proxied *wire) {
	t.Helper()
	for _, text := range systemQueries() {
		nodes, proxies := place(text, 7), place(text, 6)
		for _, options := range []*message.QueryOptions{{}, {SkipMetadata: true, PageSize: 100}} {
			compareAnswers(t, text, direct, proxied, &message.Query{Query: nodes, Options: options}, &message.Query{Query: proxies, Options: options})
		}
		ofNode, ofProxy := prepareWire(t, direct, nodes), prepareWire(t, proxied, proxies)
		if ofNode == nil || ofProxy == nil {
			assert.Equal(t, ofNode == nil, ofProxy == nil, "PREPARE %s", text)
			continue
		}
		for _, skip := range []bool{false, true} {
			compareAnswers(t, "EXECUTE "+text, direct, proxied, executeOf(ofNode, skip, 7), executeOf(ofProxy, skip, 6))
		}
	}
	for _, values := range []func(third byte) *message.QueryOptions{
		func(third byte) *message.QueryOptions {
			return &message.QueryOptions{PositionalValues: []*primitive.Value{inetValue(third), primitive.NewValue(portOf(third))}}
		},
		func(third byte) *message.QueryOptions {
			return &message.QueryOptions{NamedValues: map[string]*primitive.Value{"address": inetValue(third), "port": primitive.NewValue(portOf(third))}}
		},
	} {
		text := "SELECT * FROM system.peers_v2 WHERE peer = :address AND peer_port = :port"
		compareAnswers(t, text, direct, proxied, &message.Query{Query: text, Options: values(7)}, &message.Query{Query: text, Options: values(6)})
	}
}

// place inserts the part of the address that stands for nodes, or for proxies, into a text.
func place(text string, third int) string {
	if !bytes.Contains([]byte(text), []byte("%")) {
		return text
	}
	return fmt.Sprintf(text, third)
}

// inetValue returns the address of node 2, or of its proxy.
func inetValue(third byte) *primitive.Value { return primitive.NewValue([]byte{127, 0, third, 2}) }

// portOf returns the peer_port of nodes, or of their proxies.
func portOf(third byte) []byte {
	if third == 7 {
		return []byte{0, 0, 7000 >> 8, 7000 & 0xff}
	}
	return []byte{0, 0, 9042 >> 8, 9042 & 0xff}
}

// prepareWire prepares a statement; it returns nil if that is refused.
func prepareWire(t *testing.T, w *wire, text string) *message.PreparedResult {
	t.Helper()
	e, err := w.ask(&message.Prepare{Query: text})
	require.NoError(t, err)
	f, err := w.decode(e)
	require.NoError(t, err)
	result, _ := f.Body.Message.(*message.PreparedResult)
	return result
}

// executeOf returns an EXECUTE, with the address of node 2 if a value is needed.
func executeOf(p *message.PreparedResult, skip bool, third byte) *message.Execute {
	o := &message.QueryOptions{SkipMetadata: skip}
	if len(p.VariablesMetadata.Columns) > 0 {
		o.PositionalValues = []*primitive.Value{inetValue(third)}
	}
	return &message.Execute{QueryId: p.PreparedQueryId, ResultMetadataId: p.ResultMetadataId, Options: o}
}

// compareAnswers asks both and compares the bytes.
func compareAnswers(t *testing.T, what string, direct, proxied *wire, ofNode, ofProxy message.Message) {
	t.Helper()
	want, err := direct.ask(ofNode)
	require.NoError(t, err)
	got, err := proxied.ask(ofProxy)
	require.NoError(t, err, what)
	proxied.stream = direct.stream
	want.body = asProxies(want.body)
	assert.Equal(t, want.String(), got.String(), what)
	assert.Equal(t, want.body, got.body, what)
}

// compareDecoded asks both and compares the rows.
func compareDecoded(t *testing.T, text string, direct, proxied *wire) {
	t.Helper()
	want, err := direct.ask(&message.Query{Query: place(text, 7), Options: &message.QueryOptions{}})
	require.NoError(t, err)
	want.body = asProxies(want.body)
	f, err := direct.decode(want)
	require.NoError(t, err)
	got, err := proxied.ask(&message.Query{Query: place(text, 6), Options: &message.QueryOptions{}})
	require.NoError(t, err)
	g, err := proxied.decode(got)
	require.NoError(t, err)
	assert.Equal(t, f.Body.Message, g.Body.Message, text)
}

// The failures of protocol 5 name the replicas: a client sees the proxies there.
func TestFailuresNameTheProxiesOfReplicas(t *testing.T) {
	threeProxies(t)
	execOnNodes(t, "CREATE KEYSPACE IF NOT EXISTS everywhere WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}")
	execOnNodes(t, "CREATE TABLE IF NOT EXISTS everywhere.buried (k int PRIMARY KEY, v set<int>)")
	const n = 100_001 // one more than the tombstones that a replica reads
	set := binary.BigEndian.AppendUint32(nil, n)
	for i := range uint32(n) {
		set = binary.BigEndian.AppendUint32(append(set, 0, 0, 0, 4), i)
	}
	ask := func(address, text string, values ...*primitive.Value) message.Message {
		w := openWire(t, address, primitive.ProtocolVersion5, primitive.CompressionNone)
		q := plainQuery(text)
		q.Options.Consistency, q.Options.PositionalValues = primitive.ConsistencyLevelAll, values
		e, err := w.ask(q)
		require.NoError(t, err)
		f, err := w.decode(e)
		require.NoError(t, err)
		return f.Body.Message
	}
	eventually(t, startLimit, "a row full of tombstones", func() error {
		m := ask(proxyAddresses()[0], "UPDATE everywhere.buried SET v = v - ? WHERE k = 1", primitive.NewValue(set))
		if _, ok := m.(*message.VoidResult); !ok {
			return errorf("%v", m)
		}
		return nil
	})
	named := func(address string) (all []string) {
		eventually(t, startLimit, "the read fails", func() error {
			m := ask(address, "SELECT v FROM everywhere.buried WHERE k = 1")
			failure, ok := m.(*message.ReadFailure)
			if !ok || len(failure.FailureReasons) == 0 {
				return errorf("%v", m) // a slow node may not answer in time
			}
			for _, reason := range failure.FailureReasons {
				all = append(all, reason.Endpoint.String())
			}
			return nil
		})
		return all
	}
	for k, node := range nodeAddresses(t) {
		assert.Subset(t, []string{"127.0.7.1", "127.0.7.2", "127.0.7.3"}, named(node))
		assert.Subset(t, []string{"127.0.6.1", "127.0.6.2", "127.0.6.3"}, named(proxyAddresses()[k]))
	}
}
