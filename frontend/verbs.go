package frontend

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/frontend/grant"
	"music/frontend/refusal"
	"music/frontend/traffic"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// verb carries out LOCK and UNLOCK.
func (a *lockExecution) verb(k musiccore.Key, ref musiccore.LockRef) *wire.Failure {
	c, s, stream := a.conn, &a.lock, a.envelope.Stream
	q, f := a.request(ref)
	if f != nil {
		return f
	}
	force, f := s.force(c)
	if f != nil {
		return f
	}
	told := lockSubject{s.Table, s.Critical.Generation, k, ref, s.Parsed.Verb == rewrite.Lock && ref == 0 && q.Token == [16]byte{}, a.warnings}
	c.server.Stats.Count(c.id, a.envelope.OpCode, traffic.Answered)
	o := c.begin(stream)
	inPlace := a.inPlace
	tell := func(answer musiccore.Answer, atOnce bool) { o.tellGrant(stream, told, answer, inPlace && atOnce) }
	switch {
	case s.Parsed.Verb == rewrite.Lock:
		o.lock(k, q, tell)
	case force != nil:
		o.keeps(len(k.PK))
		c.server.Locks.Force(k, *force, o.finishWith(tell))
	default:
		o.unlock(k, ref, tell)
	}
	return nil
}

// lockSubject is the key and reference of a LOCK or an UNLOCK.
type lockSubject struct {
	table      *catalog.Table
	generation [16]byte // of the table
	key        musiccore.Key
	ref        musiccore.LockRef // the reference that the client has given; 0 = none
	unnamed    bool              // of a LOCK: the client can come back neither with a reference nor with a token
	shortened  []string          // a warning for each clause whose value was reduced to a limit
}

// tellGrant answers LOCK and UNLOCK. inPlace means that the request is being performed.
func (o operation) tellGrant(stream int16, of lockSubject, a musiccore.Answer, inPlace bool) {
	c := o.conn
	switch {
	case of.unnamed && o.cancelled():
		c.release(of.key, a.Grant.Ref)
	case a.Err != nil:
		o.answer(c.failureEnvelope(stream, refusal.OfOperation(a.Err, of.table, c.server.shown(of.generation, of.key, of.ref))))
	case inPlace && o.owed():
		c.up.Reply(func(dst []byte) []byte { return c.appendGrant(dst, stream, &of, a.Grant) })
	default:
		o.answer(c.appendGrant(nil, stream, &of, a.Grant))
	}
}

// appendGrant appends the envelope of the row that shows a grant, with its warnings.
func (c *conn) appendGrant(dst []byte, stream int16, of *lockSubject, g musiccore.Grant) []byte {
	start := len(dst)
	dst = grant.Append(dst, wire.Header{Version: c.version, Stream: stream}, of.table, g, c.server.shown(of.generation, of.key, g.Ref))
	if len(of.shortened) == 0 {
		return dst
	}
	return append(dst[:start], c.warned(bytes.Clone(dst[start:]), of.shortened)...)
}

// request returns the request to the core for the clauses of LOCK or FOR UPDATE, within the limits
// of the client's driver and of the table.
func (a *lockExecution) request(ref musiccore.LockRef) (musiccore.Request, *wire.Failure) {
	c, s := a.conn, &a.lock
	st := s.Parsed
	q := musiccore.Request{By: c.auditClient(), Ref: ref, NoWait: st.NoWait || st.SkipLocked, Closed: s.Critical.Closed}
	if f := s.readLockClauses(&q, c.server.Limits()); f != nil {
		return q, f
	}
	q.AtOnce = st.Wait.Kind != rewrite.NoTerm && q.Wait == 0
	if longest := c.longestWait(); q.Wait > longest {
		a.warnings = append(a.warnings, fmt.Sprintf("MUSIC: WAIT %v is longer than an answer may take: it is reduced to %v", q.Wait, longest))
		q.Wait = longest
	}
	if !s.until.IsZero() && !q.AtOnce {
		q.Wait = max(time.Millisecond, min(cmp.Or(q.Wait, c.server.MaxWait), time.Until(s.until)))
	}
	if q.Lease > s.Critical.MaxLease {
		a.warnings = append(a.warnings, fmt.Sprintf("MUSIC: LEASE %v is longer than that of %s: it is reduced to %v", q.Lease, s.Table, s.Critical.MaxLease))
	}
	q.Lease = min(q.Lease, s.Critical.MaxLease)
	return q, nil
}

// longestWait returns how long an answer to the client may take before its driver gives up.
func (c *conn) longestWait() time.Duration { return max(c.server.MaxWait, c.driverTimeout) }

// readLockClauses reads the clauses of LOCK.
func (s *lockStatement) readLockClauses(q *musiccore.Request, l *Limits) (f *wire.Failure) {
	st := s.Parsed
	if q.Wait, f = s.Duration(st.Wait, "WAIT"); f != nil {
		return f
	}
	if q.Lease, f = s.Duration(st.Lease, "LEASE"); f != nil {
		return f
	}
	if q.Lease == 0 && st.Lease.Kind != rewrite.NoTerm {
		return wire.Invalid("MUSIC_SYNTAX: LEASE must be longer than 0: a duration like 30s, or leave it out for that of the table")
	}
	if q.Owner, f = s.label(st.Owner, "AS", l); f != nil {
		return f
	}
	if st.Token.Kind == rewrite.NoTerm {
		return nil
	}
	token, ok := s.Bound(st.Token)
	if st.Token.Kind != rewrite.TermMarker {
		var err error
		token, err = rewrite.Encode("uuid", s.Text, st.Token)
		ok = err == nil
	}
	if ok && len(token) == len(q.Token) {
		q.Token = [16]byte(token)
	}
	if q.Token == [16]byte{} { // zeros stand for no token, and may be what an application has forgotten to set
		return wire.Invalid("MUSIC_SYNTAX: TOKEN is a uuid that is not zero, like 123e4567-e89b-12d3-a456-426614174000, without quotes")
	}
	return nil
}

// force returns who takes the lock by UNLOCK … FORCE, and why; nil if the statement has no FORCE.
func (s *lockStatement) force(c *conn) (*Force, *wire.Failure) {
	if !s.Parsed.Force {
		return nil, nil
	}
	reason, f := s.label(s.Parsed.Reason, "REASON", c.server.Limits())
	return &Force{By: c.auditClient(), Reason: reason}, f
}

// label returns the text of AS or REASON.
func (s *lockStatement) label(t rewrite.Term, what string, l *Limits) (string, *wire.Failure) {
	label, f := s.TextOf(t, what)
	if f == nil {
		f = l.checkLabel(label, what)
	}
	return label, f
}

// boolean returns the wire form of a boolean.
func boolean(b bool) []byte {
	if b {
		return []byte{1}
	}
	return []byte{0}
}

// bigint returns the wire form of a bigint.
func bigint(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// readList parses LIST LOCKS [ON ks.t [WHERE key]].
func readList(r classify.Result, text []byte) (s lockStatement, pass bool, f *wire.Failure) {
	parsed, err := rewrite.Parse(text)
	if err != nil {
		return s, false, classify.NotParsed(err)
	}
	s.Parsed, s.Text, s.Table = &parsed, text, r.Table
	if parsed.Table.Start == parsed.Table.End {
		return s, false, nil
	}
	if r.Table == nil || r.Table.Critical() == nil {
		return s, false, notCritical(r.Name)
	}
	s.Critical = r.Table.Critical()
	return s, false, s.CheckWhere()
}

// list answers LIST LOCKS. If Cassandra has roles the statement must name a table, which the client
// must be permitted to read.
func (a *lockExecution) list() *wire.Failure {
	c, s, stream := a.conn, &a.lock, a.envelope.Stream
	var only musiccore.Key
	switch {
	case s.Table == nil && c.hasRoles():
		return wire.Invalid("MUSIC_REFUSED: name a table, as is needed where Cassandra has roles: LIST LOCKS ON ks.t")
	case s.Table != nil && len(s.Parsed.Where) > 0:
		k, f := s.Key()
		if f != nil {
			return f
		}
		only = k
	case s.Table != nil:
		only.Table = s.Critical.ID
	}
	c.server.Stats.Count(c.id, a.envelope.OpCode, traffic.Answered)
	o := c.begin(stream)
	o.keeps(len(only.PK))
	o.finishLater(func() {
		c.listing <- struct{}{} // one answer at a time, and only if the client reads its answers
		defer func() { <-c.listing }()
		c.down.Out.Room(c.done)
		raw := c.listInTurn(stream, only)
		if raw == nil {
			return
		}
		c.countAnswer(len(raw))
		defer c.countAnswer(-len(raw))
		o.answer(raw)
	})
	return nil
}

// listInTurn is listEnvelope for listsAtOnce connections of the server at a time. It returns nil if the
// connection ends before its turn.
func (c *conn) listInTurn(stream int16, only musiccore.Key) []byte {
	if c.over() { // select would take either way
		return nil
	}
	select {
	case c.server.listing <- struct{}{}:
		defer func() { <-c.server.listing }()
		return c.listEnvelope(stream, only)
	case <-c.done:
		return nil
	}
}

// listColumns returns the columns of LIST LOCKS.
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

// listEnvelope returns the rows of LIST LOCKS, in the order of tables, keys and references. A
// warning names the proxies that could not be asked.
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

// compareListings orders by table, key and reference. Waiters without a reference come last.
func compareListings(tables map[[16]byte]*catalog.Table, a, b musiccore.Listing) int {
	name := func(l musiccore.Listing) string {
		if t := tables[l.Key.Table]; t != nil {
			return t.String()
		}
		return ""
	}
	return cmp.Or(cmp.Compare(name(a), name(b)), cmp.Compare(a.Key.PK, b.Key.PK), cmp.Compare(uint64(a.Ref-1), uint64(b.Ref-1)), cmp.Compare(a.Position, b.Position))
}

// listRow returns one reference as LIST LOCKS shows it.
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
