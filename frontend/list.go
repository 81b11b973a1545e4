package frontend

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// readList reads LIST LOCKS [ON ks.t [WHERE key]].
func readList(r reading, text []byte) (s lockStatement, pass bool, f *wire.Failure) {
	statement, err := rewrite.Parse(text)
	if err != nil {
		return s, false, wire.Invalid("MUSIC_SYNTAX: %v", err)
	}
	s = lockStatement{statement: &statement, text: text, table: r.table}
	if statement.Table.Start == statement.Table.End {
		return s, false, nil
	}
	if r.table == nil || r.table.Critical() == nil {
		return s, false, wire.Invalid("MUSIC_REFUSED: the table is not critical: it has no locks")
	}
	s.critical = r.table.Critical()
	return s, false, s.checkWhere()
}

// list answers LIST LOCKS. Where there are roles, it shows the locks of one table, to those who may read it.
func (a *lockExecution) list() *wire.Failure {
	c, s, h := a.conn, &a.section, a.envelope.Header
	var only musiccore.Key
	switch {
	case s.table == nil && c.authenticated.Load():
		return wire.Invalid("MUSIC_REFUSED: say of which table: LIST LOCKS ON ks.t")
	case s.table != nil && len(s.statement.Where) > 0:
		k, f := s.key()
		if f != nil {
			return f
		}
		only = k
	case s.table != nil:
		only.Table = s.critical.ID
	}
	c.server.Stats.count(c, h.OpCode, Answered)
	c.answerLater(h.Stream, func() []byte {
		c.listing.Lock() // one at a time is made, and none for who does not read
		defer c.listing.Unlock()
		c.down.Out.Room(c.done)
		return c.listEnvelope(h.Stream, only)
	})
	return nil
}

// listColumns are the columns of LIST LOCKS.
func listColumns() []*message.ColumnMetadata {
	column := func(name string, dt datatype.DataType) *message.ColumnMetadata {
		return &message.ColumnMetadata{Keyspace: "music", Table: "locks", Name: name, Type: dt}
	}
	return []*message.ColumnMetadata{
		column("table_name", datatype.Varchar), column("key", datatype.Varchar), column("position", datatype.Int),
		column("lock_ref", datatype.Bigint), column("state", datatype.Varchar), column("holder", datatype.Varchar),
		column("age_ms", datatype.Bigint), column("lease_ms", datatype.Bigint),
	}
}

// listEnvelope is the rows of LIST LOCKS, in the order of tables, keys and references. A warning names the proxies that could not be
// asked.
func (c *conn) listEnvelope(stream int16, only musiccore.Key) []byte {
	columns := listColumns()
	tables := map[[16]byte]*catalog.Table{}
	c.server.Tables.Critical(func(t *catalog.Table, critical *catalog.Critical) { tables[critical.ID] = t })
	all, missing := c.server.Locks.List(only)
	slices.SortFunc(all, func(a, b musiccore.Listing) int { return compareListings(tables, a, b) })
	rows := message.RowSet{}
	for _, l := range all {
		if t := tables[l.Key.Table]; t != nil {
			rows = append(rows, listRow(t, l))
		}
	}
	raw := c.message(stream, &message.RowsResult{
		Metadata: &message.RowsMetadata{ColumnCount: int32(len(columns)), Columns: columns}, Data: rows,
	})
	return c.warned(raw, missing)
}

// compareListings orders by table, key and reference; who has no reference yet comes behind.
func compareListings(tables map[[16]byte]*catalog.Table, a, b musiccore.Listing) int {
	name := func(l musiccore.Listing) string {
		if t := tables[l.Key.Table]; t != nil {
			return t.String()
		}
		return ""
	}
	return cmp.Or(cmp.Compare(name(a), name(b)), cmp.Compare(a.Key.PK, b.Key.PK), cmp.Compare(uint64(a.Ref-1), uint64(b.Ref-1)), cmp.Compare(a.Position, b.Position))
}

// listRow is one reference as LIST LOCKS shows it.
func listRow(t *catalog.Table, l musiccore.Listing) message.Row {
	var key []catalog.Column
	if now := t.Critical(); now != nil {
		key = now.Key
	}
	row := message.Row{
		[]byte(t.String()), []byte(catalog.KeyText(key, l.Key.PK)), binary.BigEndian.AppendUint32(nil, uint32(l.Position)),
		bigint(int64(l.Ref)), []byte(l.State.String()), []byte(l.Owner), bigint(l.Age.Milliseconds()), bigint(l.Lease.Milliseconds()),
	}
	if l.Ref == 0 {
		row[3] = nil
	}
	if l.Owner == "" {
		row[5] = nil
	}
	return row
}
