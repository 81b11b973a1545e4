package frontend

import (
	"bytes"
	"encoding/binary"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/refusal"
	"music/frontend/wire"
	"music/musiccore"
)

// lockSubject is what a LOCK or an UNLOCK is about.
type lockSubject struct {
	table      *catalog.Table
	generation [16]byte // of the table
	key        musiccore.Key
	ref        musiccore.LockRef // that the client has named; 0 is none
	shortened  []string          // a warning for each clause that was shortened
}

// tellGrant answers LOCK and UNLOCK; inPlace says that the request is being performed.
func (o operation) tellGrant(stream int16, of lockSubject, a musiccore.Answer, inPlace bool) {
	c := o.conn
	switch {
	case a.Err != nil:
		o.answer(c.failureEnvelope(stream, refusal.OfOperation(a.Err, of.table, c.server.shown(of.generation, of.key, of.ref))))
	case inPlace && o.owed():
		c.up.Reply(func(dst []byte) []byte { return c.appendGrant(dst, stream, &of, a.Grant) })
	default:
		o.answer(c.appendGrant(nil, stream, &of, a.Grant))
	}
}

// appendGrant appends the envelope that tells of a grant, with its warnings.
func (c *conn) appendGrant(dst []byte, stream int16, of *lockSubject, g musiccore.Grant) []byte {
	start := len(dst)
	dst = of.appendGrant(dst, c.version, stream, g, c.server.shown(of.generation, of.key, g.Ref))
	if len(of.shortened) == 0 {
		return dst
	}
	return append(dst[:start], c.warned(bytes.Clone(dst[start:]), of.shortened)...)
}

// grantWidth is how many columns LOCK and UNLOCK answer.
const grantWidth = 7

// grantColumn is one of them.
type grantColumn struct {
	name string
	kind datatype.DataType
}

// grantShape returns the columns of LOCK and UNLOCK, the same for every outcome (docs/design.md 5).
func grantShape() [grantWidth]grantColumn {
	return [...]grantColumn{
		{"[applied]", datatype.Boolean}, {"lock_ref", datatype.Bigint}, {"state", datatype.Varchar}, {"position", datatype.Int},
		{"holder", datatype.Varchar}, {"lease_ms", datatype.Bigint}, {"owner_died", datatype.Boolean},
	}
}

// grantColumns returns them as columns of a table.
func grantColumns(t *catalog.Table) []*message.ColumnMetadata {
	columns := make([]*message.ColumnMetadata, 0, grantWidth)
	for _, column := range grantShape() {
		columns = append(columns, &message.ColumnMetadata{Keyspace: t.Keyspace, Table: t.Name, Name: column.name, Type: column.kind})
	}
	return columns
}

// grantRow returns the row that LOCK and UNLOCK answer; ref is the reference as the client sees it.
func grantRow(g musiccore.Grant, ref int64) message.Row {
	row := message.Row{
		boolean(g.Applied), bigint(ref), []byte(g.State.String()),
		binary.BigEndian.AppendUint32(nil, uint32(g.Position)), []byte(g.Holder), bigint(g.Lease.Milliseconds()), boolean(g.OwnerDied),
	}
	if g.Ref == 0 {
		row[1] = nil
	}
	if g.Holder == "" {
		row[4] = nil
	}
	return row
}

// appendGrant appends the envelope of the row that LOCK and UNLOCK answer: the same bytes as
// conn.rows makes of grantColumns and grantRow, without their memory (v4 spec section 4.2.5.2).
func (of *lockSubject) appendGrant(dst []byte, version byte, stream int16, g musiccore.Grant, ref int64) []byte {
	start := len(dst)
	h := wire.Header{Version: version | wire.ResponseBit, Stream: stream, OpCode: primitive.OpCodeResult}
	dst = h.AppendTo(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(primitive.ResultTypeRows))
	dst = binary.BigEndian.AppendUint32(dst, uint32(primitive.RowsFlagGlobalTablesSpec))
	dst = binary.BigEndian.AppendUint32(dst, grantWidth)
	dst = appendString(appendString(dst, of.table.Keyspace), of.table.Name)
	for _, column := range grantShape() {
		dst = binary.BigEndian.AppendUint16(appendString(dst, column.name), uint16(column.kind.Code()))
	}
	dst = binary.BigEndian.AppendUint32(dst, 1) // row
	dst = appendGrantRow(dst, g, ref)
	h.Length = uint32(len(dst) - start - wire.HeaderSize)
	h.AppendTo(dst[start:start])
	return dst
}

// appendGrantRow appends what grantRow returns, each value behind its length.
func appendGrantRow(dst []byte, g musiccore.Grant, ref int64) []byte {
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

// appendString appends a [string].
func appendString(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(s))), s...)
}

// appendText appends a value of a text.
func appendText(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// appendBigint appends a value of a bigint.
func appendBigint(dst []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(dst, 8), uint64(n))
}

// appendBoolean appends a value of a boolean.
func appendBoolean(dst []byte, b bool) []byte {
	dst = binary.BigEndian.AppendUint32(dst, 1)
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// appendNull appends the value null.
func appendNull(dst []byte) []byte { return append(dst, 0xff, 0xff, 0xff, 0xff) }
