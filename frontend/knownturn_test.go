package frontend

import (
	"bytes"
	"net"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
)

// A client that does not read what its writes with IF are answered does not keep the answer from the one
// before it in the turn, however many writes wait.
func TestTurnPassesByAClientThatDoesNotRead(t *testing.T) {
	y := newKnownTry(t)
	y.table(func(c *catalog.Critical) { c.Columns["t"] = catalog.Column{Name: "t", Type: "text"} })
	long, other := bytes.Repeat([]byte("x"), 4000), []byte("y")
	write := func(values ...[]byte) *message.Query {
		q := query("UPDATE bank.accounts USING LOCK 9 SET t = ? WHERE id = 'x' AND c = 1 IF t = ?")
		for _, v := range values {
			q.Options.PositionalValues = append(q.Options.PositionalValues, primitive.NewValue(v))
		}
		return q
	}
	y.client.send(1, write(long, other))
	y.backend.answer(1)
	column := &message.ColumnMetadata{Keyspace: "bank", Table: "accounts", Name: "t", Type: datatype.Varchar}
	y.backend.send(1, &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: 1, Columns: []*message.ColumnMetadata{column}}, Data: message.RowSet{{other}}})
	writes(t, y.client, y.backend)

	y.client.send(1, write(long, long))
	y.backend.answer(1)
	silent, _ := y.login(dialect{version: v4})
	require.NoError(t, silent.Conn.(*net.TCPConn).SetReadBuffer(64<<10))
	const n = 1900
	for i := range int16(n) {
		silent.send(i, write(other, other))
	}
	queued := func() bool {
		y.server.turns.mu.Lock()
		defer y.server.turns.mu.Unlock()
		for _, queue := range y.server.turns.waiting {
			return len(queue) == n
		}
		return false
	}
	require.Eventually(t, queued, patience, moment)
	y.backend.send(1, &message.VoidResult{})
	require.Equal(t, boolean(true), y.client.answer(1).(*message.RowsResult).Data[0][0])
	streams := map[int16]bool{}
	for range n {
		f := silent.next()
		streams[f.Header.StreamId] = true
		require.Equal(t, boolean(false), f.Body.Message.(*message.RowsResult).Data[0][0])
	}
	require.Len(t, streams, n)
}
