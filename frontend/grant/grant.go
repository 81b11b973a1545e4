// Package grant makes the answer to LOCK and UNLOCK: one row, with the same columns for every
// outcome (docs/design.md 5).
package grant

import (
	"encoding/binary"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
)

// width is the number of columns of the row that answers LOCK and UNLOCK.
const width = 7

// column is a column of that row.
type column struct {
	name string
	kind datatype.DataType
}

// shape returns the columns in their order.
func shape() [width]column {
	return [...]column{
		{"[applied]", datatype.Boolean},
		{"lock_ref", datatype.Bigint},
		{"state", datatype.Varchar},
		{"position", datatype.Int},
		{"holder", datatype.Varchar},
		{"lease_ms", datatype.Bigint},
		{"owner_died", datatype.Boolean},
	}
}

// Columns returns the metadata of the row that answers LOCK and UNLOCK on table t.
func Columns(t *catalog.Table) []*message.ColumnMetadata {
	columns := make([]*message.ColumnMetadata, 0, width)
	for _, column := range shape() {
		columns = append(columns, &message.ColumnMetadata{Keyspace: t.Keyspace, Table: t.Name, Name: column.name, Type: column.kind})
	}
	return columns
}

// Row returns the row that answers LOCK and UNLOCK; ref is the reference as the client sees it.
func Row(g musiccore.Grant, ref int64) message.Row {
	cur, row := wire.Cursor{Body: appendRow(nil, g, ref)}, make(message.Row, width)
	for i := range row {
		row[i] = cur.Value()
	}
	return row
}

// Append appends to dst the response with that row to the request with header h (v4 spec section
// 4.2.5.2). It allocates nothing beside dst.
func Append(dst []byte, h wire.Header, t *catalog.Table, g musiccore.Grant, ref int64) []byte {
	start := len(dst)
	h = wire.Header{Version: h.Version | wire.ResponseBit, Stream: h.Stream, OpCode: primitive.OpCodeResult}
	dst = h.AppendTo(dst)
	dst = wire.AppendRows(dst, t.Keyspace, t.Name, width)
	for _, column := range shape() {
		dst = wire.AppendColumn(dst, column.name, column.kind.Code())
	}
	dst = binary.BigEndian.AppendUint32(dst, 1) // row
	dst = appendRow(dst, g, ref)
	h.Length = uint32(len(dst) - start - wire.HeaderSize)
	h.AppendTo(dst[start:start])
	return dst
}

// appendRow appends the values of the row, each with its length before it.
func appendRow(dst []byte, g musiccore.Grant, ref int64) []byte {
	dst = appendBoolean(dst, g.Applied)
	if g.Ref == 0 {
		dst = appendNull(dst)
	} else {
		dst = appendBigint(dst, ref)
	}
	dst = appendText(dst, g.State.String())
	dst = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, 4), uint32(g.Position))
	if g.Holder == "" {
		dst = appendNull(dst)
	} else {
		dst = appendText(dst, g.Holder)
	}
	dst = appendBigint(dst, g.Lease.Milliseconds())
	return appendBoolean(dst, g.OwnerDied)
}

// appendText appends a [value] of type text.
func appendText(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// appendBigint appends a [value] of type bigint.
func appendBigint(dst []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(dst, 8), uint64(n))
}

// appendBoolean appends a [value] of type boolean.
func appendBoolean(dst []byte, b bool) []byte {
	dst = binary.BigEndian.AppendUint32(dst, 1)
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// appendNull appends the [value] null.
func appendNull(dst []byte) []byte { return append(dst, 0xff, 0xff, 0xff, 0xff) }
