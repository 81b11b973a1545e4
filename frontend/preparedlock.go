package frontend

import (
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/frontend/relay"
	"music/frontend/statement"
	"music/frontend/traffic"
	"music/frontend/wire"
	"music/rewrite"
)

// preparedLockStatement is a lockStatement that was prepared. Once it is in the cache only simple
// and made change.
type preparedLockStatement struct {
	id        preparedID // the id that the client knows; Cassandra has another for the text without lock clauses
	text      []byte
	statement *rewrite.Statement
	table     *catalog.Table

	backendID []byte                    // Cassandra's id; nil for LOCK and UNLOCK
	columns   []*message.ColumnMetadata // for FOR UPDATE: the columns of the answer …
	version   byte                      // … in the types of this version of the protocol: an earlier one does not have all
	names     [][2]string               // for a batch: the names of its statements' tables …
	tables    []*catalog.Table          // … and these tables
	of        []preparedTable           // the tables that it names, as they were when it was prepared
	hasTerms  bool                      // it has terms to evaluate at each EXECUTE, see fixTerms
	refused   bool                      // it was refused when it was prepared: it is checked again at each EXECUTE

	simple atomic.Pointer[simpleStatement] // for the state in which its table was last
	made   madeStatements                  // for a write with IF
}

// simpleStatement is what follows from a statement and one state of its table. It is found out once,
// not at each EXECUTE, which would take longer than the rest of an operation under a lock.
type simpleStatement struct {
	critical   *catalog.Critical // the state
	keyMarkers []int             // nil: the statement is not simple, see statement.KeyMarkers
	need       permission
}

// asSimple returns what follows from the statement in the present state of its table; nil if it is
// not simple, or cannot be carried out in that state.
func (p *preparedLockStatement) asSimple(s *lockStatement) *simpleStatement {
	if s.Critical == nil || s.Critical.Refused != "" || p.refused || p.hasTerms {
		return nil
	}
	known := p.simple.Load()
	if known == nil || known.critical != s.Critical {
		known = &simpleStatement{critical: s.Critical, need: s.permissions()}
		if !p.remade() && (!s.PlainWrite() || s.servedInSection()) {
			known.keyMarkers = s.KeyMarkers()
		}
		p.simple.Store(known)
	}
	if known.keyMarkers == nil {
		return nil
	}
	return known
}

// decidePrepareLock decides about the PREPARE of a statement with a lock clause or on a critical
// table. rest is the body after its text.
func (c *conn) decidePrepareLock(r classify.Result, text, rest []byte, own string) decision {
	if failure := c.server.Limits().checkText(text); failure != nil {
		return refused(failure)
	}
	if locksOrdinary(r) {
		return decideOrdinary(r, text)
	}
	s, pass, failure := readLockStatement(r, text, false)
	truncate := r.Verb == rewrite.Truncate
	switch {
	case pass && !s.PlainWrite() && !truncate:
		return watched(&watch{kind: watchPrepare, preparing: &preparing{body: unqualifiedBody(&r, text, rest)}}) // a read without a lock
	case truncate, s.PlainWrite() && !s.Auto():
		// It may be prepared whatever the table's policy is: a driver prepares once, and the policy
		// may change.
		p := &preparing{preparedStatement: preparedStatement{kind: classify.Writes, truncate: truncate}, names: c.written(text, r, own), body: unqualifiedBody(&r, text, rest)}
		return watched(&watch{kind: watchPrepare, preparing: p})
	case failure != nil && !s.Auto():
		return refused(failure)
	}
	p := &preparedLockStatement{id: ownID(c.keyspaceHere(own), text), text: slices.Clone(text), statement: s.Parsed, table: s.Table, names: s.Names, refused: failure != nil, hasTerms: s.Evaluates()}
	s.Text, s.prepared, p.of = p.text, p, c.preparedTables(&s)
	switch s.Parsed.Verb {
	case rewrite.Lock, rewrite.Unlock, rewrite.ListLocks:
		return intercepted(&describeLock{s})
	}
	q := &preparing{preparedStatement: preparedStatement{kind: classify.Critical, lock: p}, body: unqualifiedBody(&r, rewrite.Apply(nil, p.text, s.Parsed.Cut), rest)}
	if s.PlainWrite() {
		q.kind, q.names = classify.Writes, c.written(text, r, own)
	}
	return intercepted(&prepareLocked{preparing: q, rest: rest})
}

// prepareLocked is the action that has Cassandra prepare an operation under a lock, without its
// lock clauses.
type prepareLocked struct {
	preparing *preparing
	rest      []byte // the body after the text
}

// String implements action.
func (a *prepareLocked) String() string {
	return "prepare without its lock clauses: " + string(a.preparing.lock.text)
}

// perform implements action.
func (a *prepareLocked) perform(c *conn, e wire.Envelope) error {
	p := a.preparing.lock
	edited := longString(rewrite.Apply(nil, p.text, p.statement.Cut))
	return c.forwardEdited(e, &watch{kind: watchPrepare, preparing: a.preparing}, append(edited, a.rest...))
}

// splice changes Cassandra's metadata to that of the client's own text: it inserts the markers of
// lock clauses, which shifts the key columns after them (docs/design.md 5, "one mechanism"), and
// for FOR UPDATE the columns of the lock.
func (p *preparedLockStatement) splice(result *message.PreparedResult) {
	v := result.VariablesMetadata
	for _, t := range p.statement.OwnMarkers() {
		at := min(t.Marker, len(v.Columns))
		v.Columns = slices.Insert(v.Columns, at, &message.ColumnMetadata{
			Keyspace: p.table.Keyspace, Table: p.table.Name, Name: p.nameOf(t), Type: datatype.Bigint,
		})
		for i, pk := range v.PkIndices {
			if int(pk) >= at {
				v.PkIndices[i]++
			}
		}
	}
	if p.statement.ForUpdate {
		p.columns = append(updateColumns(p.table), result.ResultMetadata.Columns...)
		result.ResultMetadata.Columns, result.ResultMetadata.ColumnCount = p.columns, int32(len(p.columns))
	}
}

// nameOf returns the name of a lock clause's marker in the metadata.
func (p *preparedLockStatement) nameOf(t rewrite.Term) string {
	name := "[lock]"
	switch t {
	case p.statement.Wait:
		name = "[wait]"
	case p.statement.Lease:
		name = "[lease]"
	}
	return markerName(p.text, t, name)
}

// markerName returns the name of a marker in the metadata, by which drivers bind: the marker's own
// name if it has one, else name.
func markerName(text []byte, t rewrite.Term, name string) string {
	if t.Name != (rewrite.Name{}) {
		return string(t.Name.AppendTo(nil, text))
	}
	return name
}

// executedID is the beginning of an EXECUTE: Cassandra's prepared id and, in protocol 5, the result
// metadata id that the client has.
type executedID struct{ statement, metadata []byte }

// appendTo appends the wire form.
func (id executedID) appendTo(dst []byte, version byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(id.statement)))
	dst = append(dst, id.statement...)
	if version >= byte(primitive.ProtocolVersion5) {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(id.metadata)))
		dst = append(dst, id.metadata...)
	}
	return dst
}

// describeLock is the action for the PREPARE of LOCK, UNLOCK or LIST LOCKS. A client gets an answer
// only if it may execute the statement.
type describeLock struct{ lockStatement }

// String implements action.
func (a *describeLock) String() string { return "describe: " + string(a.Text) }

// perform implements action.
func (a *describeLock) perform(c *conn, e wire.Envelope) error {
	s, h := &a.lockStatement, e.Header
	h.Payload = nil // it is not sent
	kept := (&preparedStatement{lock: s.prepared}).memory()
	if f := c.whenPermitted(askedFirst{h, c.up.Emit, kept}, s, s.permissions(), func() *wire.Failure { return c.describe(h, s) }); f != nil {
		return c.answer(e, f)
	}
	return nil
}

// describe answers with the variables that a verb takes and the columns that its EXECUTE returns.
func (c *conn) describe(h wire.Header, s *lockStatement) *wire.Failure {
	variables, f := s.variables()
	if f != nil {
		return f
	}
	c.server.prepared.add(s.prepared.id, &preparedStatement{kind: classify.Critical, lock: s.prepared}, c.share)
	columns := s.ownColumns()
	c.server.Stats.Count(c.id, h.OpCode, traffic.Answered)
	c.post(c.message(h.Stream, &message.PreparedResult{
		PreparedQueryId:   s.prepared.id[:],
		ResultMetadataId:  s.prepared.id[:],
		VariablesMetadata: variables,
		ResultMetadata:    &message.RowsMetadata{ColumnCount: int32(len(columns)), Columns: columns},
	}))
	return nil
}

// ownColumns returns the columns of the answer to LOCK, UNLOCK and LIST LOCKS.
func (s *lockStatement) ownColumns() []*message.ColumnMetadata {
	if s.Parsed.Verb == rewrite.ListLocks {
		return listColumns()
	}
	return s.grantColumns()
}

// variables describes the bind markers of a verb.
func (s *lockStatement) variables() (*message.VariablesMetadata, *wire.Failure) {
	v := &message.VariablesMetadata{Columns: make([]*message.ColumnMetadata, s.Parsed.Markers)}
	mark := func(t rewrite.Term, name string, dt datatype.DataType) {
		if t.Kind == rewrite.TermMarker {
			v.Columns[t.Marker] = &message.ColumnMetadata{Keyspace: s.Table.Keyspace, Table: s.Table.Name, Name: markerName(s.Text, t, name), Type: dt}
		}
	}
	st := s.Parsed
	var key []catalog.Column
	if s.Critical != nil {
		key = s.Critical.Key
	}
	for _, column := range key {
		r := s.Restriction(st, column)
		if r == nil {
			continue
		}
		dt := keyType(column.Type)
		switch {
		case r.Op == rewrite.OpIn && r.Value.Kind == rewrite.TermMarker:
			mark(r.Value, "in("+column.Name+")", datatype.NewList(dt))
		case r.Value.Kind == rewrite.TermMarker:
			mark(r.Value, column.Name, dt)
			if !column.Clustering {
				v.PkIndices = append(v.PkIndices, uint16(r.Value.Marker))
			}
		}
		for _, t := range r.Values {
			mark(t, column.Name, dt)
		}
	}
	mark(st.Lock, "[lock]", datatype.Bigint)
	mark(st.Wait, "[wait]", datatype.Bigint)
	mark(st.Lease, "[lease]", datatype.Bigint)
	mark(st.Owner, "[owner]", datatype.Varchar)
	mark(st.Token, "[token]", datatype.Uuid)
	mark(st.Limit, "[limit]", datatype.Int)
	mark(st.Reason, "[reason]", datatype.Varchar)
	if s.Critical == nil || len(v.PkIndices) != len(s.Critical.PartitionKey()) {
		v.PkIndices = nil
	}
	if slices.Contains(v.Columns, nil) {
		return nil, wire.Invalid("MUSIC_SYNTAX: a bind marker stands where no value is expected")
	}
	return v, nil
}

// keyType returns the protocol's type for the CQL type of a key column. A table whose key has
// another type cannot be locked (rewrite.Canonical).
func keyType(cql string) datatype.DataType {
	switch cql {
	case "text", "varchar":
		return datatype.Varchar
	case "ascii":
		return datatype.Ascii
	case "bigint":
		return datatype.Bigint
	case "int":
		return datatype.Int
	case "smallint":
		return datatype.Smallint
	case "tinyint":
		return datatype.Tinyint
	case "boolean":
		return datatype.Boolean
	case "uuid":
		return datatype.Uuid
	case "timeuuid":
		return datatype.Timeuuid
	case "blob":
		return datatype.Blob
	case "timestamp":
		return datatype.Timestamp
	case "date":
		return datatype.Date
	case "time":
		return datatype.Time
	case "inet":
		return datatype.Inet
	case "varint":
		return datatype.Varint
	case "decimal":
		return datatype.Decimal
	case "double":
		return datatype.Double
	case "float":
		return datatype.Float
	}
	return nil
}

// decideExecuteLock decides about the EXECUTE of a lockStatement.
func decideExecuteLock(e wire.Envelope, p *preparedStatement) decision {
	if !e.Whole() {
		return decision{route: relay.NeedWhole}
	}
	return intercepted(p.lock)
}

// String implements action.
func (p *preparedLockStatement) String() string { return "execute prepared: " + string(p.text) }

// perform implements action: it executes the statement as its table is now.
func (p *preparedLockStatement) perform(c *conn, e wire.Envelope) error {
	s, f := p.current()
	if f != nil {
		return c.answer(e, f)
	}
	body, err := c.requestBody(&e)
	if err != nil {
		return c.answerUnreadable(e, err)
	}
	cur := wire.Cursor{Body: body}
	s.metadata = c.skipIDs(&cur)
	parameters := wire.ReadParametersInto(c.values, &cur, c.version)
	defer c.reuseValues(parameters.Values)
	if cur.Bad {
		return c.answerUnreadable(e, wire.ErrShort)
	}
	return c.execute(e, s, parameters)
}

// maxValues is how many values of a request a connection keeps memory for.
const maxValues = 64

// reuseValues keeps the slice of a request's values for the next request.
func (c *conn) reuseValues(values [][]byte) {
	if cap(values) <= maxValues {
		clear(values) // so that they hold no buffer
		c.values = values[:0]
	}
}

// current returns the statement with its table as it is now, which may have changed since the
// PREPARE.
func (p *preparedLockStatement) current() (lockStatement, *wire.Failure) {
	s := lockStatement{
		Statement: statement.Statement{Parsed: p.statement, Text: p.text, Table: p.table, Names: p.names},
		origin:    p,
		prepared:  p,
	}
	if strictest, _ := catalog.Strictest(p.tables); len(p.tables) > 1 && strictest != nil {
		s.Table = strictest
	}
	if p.table == nil { // LIST LOCKS of all tables
		return s, nil
	}
	critical := s.Table.Critical()
	s.Critical = critical
	if s.simple = p.asSimple(&s); s.simple != nil {
		return s, nil
	}
	if p.remade() {
		return s, wire.Unprepared(p.id[:])
	}
	if p.hasTerms {
		s.fixTerms()
	}
	if s.PlainWrite() && !s.servedInSection() {
		return s, nil // its policy is looked up when it is carried out
	}
	if critical == nil {
		return lockStatement{}, wire.Invalid("MUSIC_REFUSED: %s is not critical any more: prepare the statement again without USING LOCK, or have the table made critical", s.Table)
	}
	if critical.Refused != "" && !s.mayWait() && p.statement.Verb != rewrite.ListLocks {
		return s, cannotLock(s.Table, critical)
	}
	if p.refused {
		return s, s.CheckUnderLock()
	}
	return s, nil
}
