package integration

import (
	"fmt"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hearEvents changes the schema on one connection and returns the events that another one receives,
// up to the last change.
func hearEvents(t *testing.T, address string, version primitive.ProtocolVersion) []string {
	t.Helper()
	w, ears := openWire(t, address, version, primitive.CompressionNone), openWire(t, address, version, primitive.CompressionNone)
	_, err := w.ask(plainQuery("DROP KEYSPACE IF EXISTS events"))
	require.NoError(t, err)
	e, err := ears.ask(&message.Register{EventTypes: []primitive.EventType{
		primitive.EventTypeSchemaChange, primitive.EventTypeStatusChange, primitive.EventTypeTopologyChange,
	}})
	require.NoError(t, err)
	require.Equal(t, primitive.OpCodeReady, e.opcode())
	for _, ddl := range []string{
		"CREATE KEYSPACE events WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TYPE events.u (a int)", "CREATE TABLE events.t (k int PRIMARY KEY, v int)", "CREATE INDEX i ON events.t (v)",
		"ALTER TABLE events.t WITH comment = 'other'", "ALTER KEYSPACE events WITH durable_writes = false",
		"DROP TABLE events.t", "DROP KEYSPACE events",
	} {
		e, err := w.ask(plainQuery(ddl))
		require.NoError(t, err)
		require.Equal(t, primitive.OpCodeResult, e.opcode(), "%s: %v", ddl, e)
	}
	var all []string
	for {
		e, err := ears.receive()
		require.NoError(t, err, "after %q", all)
		require.Equal(t, primitive.OpCodeEvent, e.opcode())
		f, err := ears.decode(e)
		require.NoError(t, err)
		change, ok := f.Body.Message.(*message.SchemaChangeEvent)
		if !ok || change.Keyspace != "events" {
			continue // from before, or from the proxy's own changes
		}
		all = append(all, fmt.Sprintf("% x %v", e.header, change))
		if change.ChangeType == primitive.SchemaChangeTypeDropped && change.Target == primitive.SchemaChangeTargetKeyspace {
			return all
		}
	}
}

// A client that has registered for schema events receives the same through the proxy as at the
// node.
func TestSchemaEventsAreEqual(t *testing.T) {
	proxy := needProxy(t)
	for _, version := range []primitive.ProtocolVersion{primitive.ProtocolVersion3, primitive.ProtocolVersion4, primitive.ProtocolVersion5} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			want := hearEvents(t, needEnvironment(t).direct(), version)
			assert.Equal(t, want, hearEvents(t, proxy, version))
			assert.GreaterOrEqual(t, len(want), 7)
		})
	}
}
