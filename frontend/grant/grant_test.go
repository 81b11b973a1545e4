package grant

import (
	"bytes"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
)

// rows returns a few grants, and the rows that clients read of them.
func rows() map[*musiccore.Grant]message.Row {
	no, yes, zero := []byte{0}, []byte{1}, make([]byte, 8)
	ref := []byte{0, 0, 1, 0, 0, 0, 0, 0}
	return map[*musiccore.Grant]message.Row{
		{State: musiccore.StateReleased}:            {no, nil, []byte("RELEASED"), []byte{0, 0, 0, 0}, nil, zero, no},
		{State: musiccore.StateBusy, Holder: "who"}: {no, nil, []byte("BUSY"), []byte{0, 0, 0, 0}, []byte("who"), zero, no},
		{Applied: true, Ref: 7, State: musiccore.StateHeld, Holder: "ich", Lease: 29*time.Second + 999*time.Microsecond, OwnerDied: true}: {
			yes, ref, []byte("HELD"), []byte{0, 0, 0, 0}, []byte("ich"), []byte{0, 0, 0, 0, 0, 0, 0x71, 0x48}, yes,
		},
		{Ref: 1, State: musiccore.StateQueued, Position: 70_000}: {no, ref, []byte("QUEUED"), []byte{0, 1, 0x11, 0x70}, nil, zero, no},
	}
}

// Clients read the seven columns of LOCK and UNLOCK with their values, in every version of the protocol.
func TestWhatLockAnswers(t *testing.T) {
	tables := catalog.NewTables()
	for _, table := range []*catalog.Table{tables.Of("bank", "accounts"), tables.Of("Mixed Case", "ü")} {
		column := func(name string, kind datatype.DataType, index int32) *message.ColumnMetadata {
			return &message.ColumnMetadata{Keyspace: table.Keyspace, Table: table.Name, Name: name, Type: kind, Index: index}
		}
		columns := []*message.ColumnMetadata{
			column("[applied]", datatype.Boolean, 0), column("lock_ref", datatype.Bigint, 0), column("state", datatype.Varchar, 0), column("position", datatype.Int, 0),
			column("holder", datatype.Varchar, 0), column("lease_ms", datatype.Bigint, 0), column("owner_died", datatype.Boolean, 0),
		}
		assert.Equal(t, columns, Columns(table))
		for g, row := range rows() {
			assert.Equal(t, row, Row(*g, 1<<40), "%+v", g)
			for version := byte(3); version <= 5; version++ {
				raw := Append([]byte("before"), wire.Header{Version: version, Stream: -2}, table, *g, 1<<40)
				f, err := frame.NewCodec().DecodeFrame(bytes.NewReader(bytes.TrimPrefix(raw, []byte("before"))))
				require.NoError(t, err)
				assert.Equal(t, int16(-2), f.Header.StreamId)
				assert.Equal(t, primitive.ProtocolVersion(version), f.Header.Version)
				got := f.Body.Message.(*message.RowsResult)
				assert.Equal(t, columns, got.Metadata.Columns)
				assert.Equal(t, message.RowSet{row}, got.Data, "%+v", g)
			}
		}
	}
}
