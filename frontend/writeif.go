package frontend

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/musiccore"
)

// writeIf carries out a write with IF.
func (a *admission) writeIf(k musiccore.Key, ref musiccore.LockRef) *Failure {
	s, c := &a.section, a.conn
	x, f := s.condition()
	if f != nil {
		return f
	}
	read := a.keptText(s.rowText(x), s.rowValues(), k, ref)
	read.header.flags &^= primitive.HeaderFlagTracing
	read.fenced.condition = x
	x.write = a.keptText(s.writeText(), s.writeValues(), k, ref)
	x.write.fenced.condition = x
	id := c.ops.add(a.envelope.stream)
	c.server.turns.take(k, func(leave func()) {
		x.leave = leave
		c.guard(func() { c.readFirst(id, read) })
		c.ops.remove(id)
		c.endIfDrained()
	})
	return nil
}

// readFirst sends the read of a conditional write whose turn has come, unless its client has gone.
func (c *conn) readFirst(id uint64, read kept) {
	begun := false
	defer func() {
		if !begun {
			read.fenced.leave()
		}
	}()
	if !c.ops.owes(id) || c.over() {
		return
	}
	if f := c.begin(read, musiccore.Get, c.send); f != nil {
		c.turnAway(read, f)
		return
	}
	begun = true
}

// keptText is a QUERY of the proxy's making, in the place of the client's request.
func (a *admission) keptText(text []byte, values [][]byte, k musiccore.Key, ref musiccore.LockRef) kept {
	h := a.envelope.header
	h.opcode = primitive.OpCodeQuery
	h.flags &^= droppedFlags
	p := parameters{consistency: a.parameters.consistency, values: values, rest: bytes.Clone(a.parameters.rest)}
	p.flags = a.parameters.flags & (primitive.QueryFlagWithKeyspace | primitive.QueryFlagNowInSeconds)
	if len(values) > 0 {
		p.flags |= primitive.QueryFlagValues
	}
	return kept{
		header: h, before: append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...),
		request: request{key: k, ref: ref, local: a.section.critical.Local, parameters: p}, fenced: fenced{table: a.section.table, key: k},
	}
}

// tryCondition goes on with what became of the read or the write of a conditional write: e is what the client may be told. It returns
// what the client is told, or nil where the write has been sent.
func (c *conn) tryCondition(e envelope, f *fenced) []byte {
	x, goesOn := f.condition, false
	defer func() {
		if !goesOn {
			x.leave()
		}
	}()
	if e.opcode != primitive.OpCodeResult {
		return e.raw
	}
	if f.ticket.Kind == musiccore.Put {
		return c.warn(c.applied(e, f.table, nil), x.warnings).raw
	}
	x.warnings = f.hurry()
	decoded, err := c.decode(e)
	if err != nil {
		c.end(err)
		return nil
	}
	rows, ok := decoded.Body.Message.(*message.RowsResult)
	switch {
	case !ok:
		return e.raw
	case !x.holds(rows.Data):
		return c.warn(c.applied(e, f.table, x.refusal(rows)), x.warnings).raw
	}
	goesOn = true
	if f := c.begin(x.write, musiccore.Put, c.send); f != nil {
		c.turnAway(x.write, f)
	}
	return nil
}

// applied is the row that Cassandra answers a conditional write with: true where refused is nil, else false with the columns behind it.
func (c *conn) applied(e envelope, t *Table, refused *message.RowsResult) envelope {
	columns := []*message.ColumnMetadata{{Keyspace: t.Keyspace, Table: t.Name, Name: "[applied]", Type: datatype.Boolean}}
	row := message.Row{boolean(refused == nil)}
	if refused != nil && len(refused.Data) > 0 {
		columns = append(columns, refused.Metadata.Columns...)
		row = append(row, refused.Data[0]...)
	}
	raw := c.rows(e.stream, columns, row)
	return envelope{header: readHeader(raw), raw: raw}
}

// refusal is what is told of the row where the condition does not hold.
func (x *conditional) refusal(rows *message.RowsResult) *message.RowsResult {
	if x.existence == exists {
		rows.Data = nil
	}
	if x.statics {
		rows.Metadata.Columns = rows.Metadata.Columns[:len(x.columns)]
	}
	for i, row := range rows.Data {
		rows.Data[i] = row[:len(rows.Metadata.Columns)]
		for j, column := range rows.Metadata.Columns {
			if slices.Contains(x.hidden, column.Name) {
				row[j] = nil
			}
		}
	}
	return rows
}

// untouchedStatics are the static columns, where an INSERT gives none of them: Cassandra then shows them as null (tried on 5.0.8).
func (s *section) untouchedStatics() (names []string) {
	for name, column := range s.critical.Columns {
		switch {
		case !column.Static:
		case s.restriction(s.statement, column) != nil:
			return nil
		default:
			names = append(names, name)
		}
	}
	return names
}

// holds tries the condition on the row that was read: at most one.
func (x *conditional) holds(rows message.RowSet) bool {
	switch x.existence {
	case exists:
		return len(rows) > 0
	case notExists:
		return len(rows) == 0
	}
	for _, t := range x.tests {
		var value []byte
		if len(rows) > 0 {
			value = rows[0][t.column]
		}
		if !t.holds(value) {
			return false
		}
	}
	return true
}

// holds compares as Cassandra does (5.0: ColumnCondition): null equals null and nothing else, and is in no order.
func (t *test) holds(value []byte) bool {
	if t.sign == "IN" {
		return slices.ContainsFunc(t.values, func(v []byte) bool { return equal(t.kind, value, v) })
	}
	other := t.values[0]
	switch t.sign {
	case "=":
		return equal(t.kind, value, other)
	case "!=":
		return !equal(t.kind, value, other)
	}
	if value == nil || other == nil {
		return false
	}
	order := comparisonOf(t.kind)(value, other)
	switch t.sign {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}

// equal tells whether two values of a type are the same.
func equal(cqlType string, a, b []byte) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return comparisonOf(cqlType)(a, b) == 0
}
