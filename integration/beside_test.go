package integration

import (
	"fmt"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A node accepts the statements that the proxy sends in place of a client's, with their custom
// payload, and traces them. A node ignores the payload and sends none back: that it is passed on
// both ways is shown in the frontend's tests.
func TestPayloadAndTracingAtANode(t *testing.T) {
	s := newTableFixture(t, "beside", "@critical")
	s.works(s.client, "CREATE TABLE beside.auto (id text PRIMARY KEY, n int) WITH comment = '@critical(unlocked=auto)'")
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b'"), "HELD")
	const row = "beside.accounts SET balance = 1 WHERE branch = 'b' AND id = 'x'"
	under := fmt.Sprintf("USING LOCK %d", ref)
	for _, version := range []primitive.ProtocolVersion{primitive.ProtocolVersion4, primitive.ProtocolVersion5} {
		w := openWire(t, s.address, version, primitive.CompressionNone)
		for _, text := range []string{
			"SELECT key FROM system.local", "SELECT peer FROM system.peers_v2", "UPDATE beside.accounts " + under + " SET balance = 1 WHERE branch = 'b' AND id = 'x'",
			"SELECT * FROM beside.accounts WHERE branch = 'b' " + under, "BEGIN BATCH " + under + " UPDATE " + row + " APPLY BATCH",
			"UPDATE beside.accounts " + under + " SET balance = 1 WHERE branch = 'b' AND id = 'x' IF balance = 1",
			"UPDATE beside.auto SET n = 1 WHERE id = 'x'", "UPDATE beside.auto SET n = 1 WHERE id = 'x' IF n = 1", fmt.Sprintf("SELECT * FROM beside.auto WHERE id = 'held %d' FOR UPDATE", version),
		} {
			for _, m := range []message.Message{plainQuery(text), &message.Prepare{Query: text}} {
				require.NoError(t, w.send(m, func(f *frame.Frame) {
					f.SetCustomPayload(map[string][]byte{"tenant": []byte("blue")})
					f.RequestTracingId(true)
				}))
				e, err := w.receive()
				require.NoError(t, err)
				require.Equal(t, primitive.OpCodeResult, e.opcode(), "v%v %s: %v", version, text, e)
				assert.True(t, primitive.HeaderFlag(e.header[1]).Contains(primitive.HeaderFlagTracing), "v%v %T %s", version, m, text)
			}
		}
	}
}
