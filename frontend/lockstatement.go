package frontend

import (
	"bytes"
	"slices"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/statement"
	"music/frontend/wire"
	"music/rewrite"
)

// lockStatement is a statement that has to do with a lock, read whole: LOCK, UNLOCK or LIST LOCKS,
// or an operation under a lock.
type lockStatement struct {
	statement.Statement
	prepared *preparedLockStatement // where it came by EXECUTE
	metadata []byte                 // the result metadata id that the client knows (v5), likewise
	names    [][2]string            // of plain, its tables
	plain    []byte                 // of a BATCH's statement that no lock concerns, as it came: kind, and text or id
	until    time.Time              // of a write that has waited for its table: its client's driver waits no longer
}

// fixKey is FixKey; a statement that is written anew is not the prepared one any more.
func (s *lockStatement) fixKey() {
	if s.FixKey() {
		s.prepared = nil
	}
}

// clone returns the statement in memory of its own.
func (s lockStatement) clone() lockStatement {
	s.Statement = s.Clone()
	return s
}

// decideLock decides about a QUERY that has to do with a lock, or is on a critical table; rest is
// what stands behind its text.
func (c *conn) decideLock(e wire.Envelope, r reading, text, rest []byte) decision {
	if r.withoutLocks() {
		return decideOrdinary(r)
	}
	if failure := c.server.Limits().checkVerb(r.verb, text); failure != nil {
		return refused(failure)
	}
	r.execute = true
	s, pass, failure := readLockStatement(r, text)
	switch {
	case failure != nil:
		return refused(failure)
	case pass:
		return decision{}
	}
	cur := wire.Cursor{Body: rest}
	p := wire.ReadParameters(&cur, c.version)
	if cur.Bad {
		return c.unreadable(e, wire.ErrShort)
	}
	return held(&executeLock{s, p})
}

// executeLock executes a lockStatement that came as text.
type executeLock struct {
	statement  lockStatement
	parameters wire.Parameters
}

// String implements action.
func (a *executeLock) String() string { return "execute: " + string(a.statement.Text) }

// perform implements action.
func (a *executeLock) perform(c *conn, e wire.Envelope) error {
	return c.execute(e, a.statement, a.parameters)
}

// readLockStatement reads a statement on a critical table; pass tells that it is an ordinary read.
func readLockStatement(r reading, text []byte) (s lockStatement, pass bool, f *wire.Failure) {
	if r.verb == rewrite.ListLocks {
		return readList(r, text)
	}
	if r.table == nil || r.table.Critical() == nil {
		return s, false, wire.Invalid("MUSIC_REFUSED: the table is not critical any more: write without USING LOCK, or have it made critical")
	}
	parsed, err := rewrite.Parse(text)
	if err != nil {
		return s, false, wire.Invalid("MUSIC_SYNTAX: %v", err)
	}
	s.Statement = statement.Statement{Parsed: &parsed, Text: text, Table: r.table, Critical: r.table.Critical()}
	s.Names = r.names
	if s.PlainWrite() && s.Critical.Unlocked == catalog.Allow {
		return s, true, nil
	}
	if r.execute && s.IsBatchOrWrite() {
		s.fixKey()
	}
	switch parsed.Verb {
	case rewrite.Lock, rewrite.Unlock:
		f = s.CheckVerb()
	case rewrite.Select:
		if parsed.Lock.Kind == rewrite.NoTerm && !parsed.ForUpdate {
			return s, true, nil
		}
		f = s.CheckFenced()
	case rewrite.Insert, rewrite.Update, rewrite.Delete, rewrite.Batch:
		f = s.CheckFenced()
	case rewrite.Truncate:
		if s.Critical.Unlocked == catalog.Allow {
			return s, true, nil
		}
		f = truncateRefused(s.Table)
	default:
		f = wire.Invalid("MUSIC_REFUSED: this statement is not served on a critical table: docs/cql.md says what is")
	}
	if f == nil && s.Critical.Refused != "" && (!s.PlainWrite() || !s.Critical.Passing) {
		f = s.cannotLock()
	}
	return s, false, f
}

// cannotLock returns the error for a statement that wants a lock of a table which has none now.
func cannotLock(t *catalog.Table, now *catalog.Critical) *wire.Failure {
	if now.Passing {
		return wire.Invalid("MUSIC_UNAVAILABLE: %s: %s; nothing was done", t, now.Refused)
	}
	return wire.Invalid("MUSIC_REFUSED: %s cannot be locked: %s", t, now.Refused)
}

// allowed reports whether a statement on a critical table is a plain write that the table lets
// through.
func (r reading) allowed(text []byte) bool {
	if r.table == nil || r.table.Critical() == nil || r.table.Critical().Unlocked != catalog.Allow {
		return false
	}
	parsed, err := rewrite.Parse(text)
	s := statement.Statement{Parsed: &parsed}
	return err == nil && s.PlainWrite()
}

// execute executes a lockStatement with the parameters of its request.
func (c *conn) execute(e wire.Envelope, s lockStatement, p wire.Parameters) error {
	if p.Names != nil {
		if f := byPosition(&p, s.Parsed, s.Text); f != nil {
			return c.answer(e, f)
		}
	}
	s.Values = p.Values
	if len(s.Values) != s.Parsed.Markers {
		return c.answer(e, wire.Invalid("MUSIC_SYNTAX: %d bind markers, %d values (gocql sends no values for LOCK: write SELECT LOCK … or SELECT UNLOCK …)", s.Parsed.Markers, len(s.Values)))
	}
	a := lockExecution{conn: c, envelope: e, lock: s, parameters: p, inPlace: true}
	switch {
	case s.PlainWrite() && !s.FollowsTable():
		return c.executeSeveral(e, a)
	case s.FollowsTable() && !s.served():
		return c.executeUnlocked(e, a)
	}
	if f := a.run(); f != nil {
		return c.answer(e, f)
	}
	return nil
}

// lockExecution is a lockStatement that is being executed, with all that it needs wherever it goes
// on.
type lockExecution struct {
	conn       *conn
	envelope   wire.Envelope
	lock       lockStatement
	parameters wire.Parameters
	inPlace    bool     // the request is being performed: what is sent for it goes out in its place
	warnings   []string // of clauses that ask for more than there is
}

// detached returns the execution in memory of its own, for when Cassandra has answered.
func (a lockExecution) detached() lockExecution {
	a.lock.Text, a.lock.metadata = bytes.Clone(a.lock.Text), bytes.Clone(a.lock.metadata)
	a.parameters = a.parameters.Clone()
	a.lock.Values = a.parameters.Values
	a.envelope.Raw = nil
	a.inPlace = false
	return a
}

// run does what the statement says where the client may, which Cassandra is asked first.
func (a *lockExecution) run() *wire.Failure {
	need := a.lock.permissions()
	if a.conn.missingPermission(a.lock.Table, need) == 0 {
		return a.runPermitted()
	}
	later := a.detached()
	return a.conn.whenPermitted(a.envelope.Header, &later.lock, need, a.conn.sender(a.inPlace), later.runPermitted)
}

// runPermitted reads key and reference and does what the statement says.
func (a *lockExecution) runPermitted() *wire.Failure {
	if f := a.conn.checkWaits(); f != nil {
		if a.lock.PlainWrite() {
			f.Code = primitive.ErrorCodeOverloaded
		}
		return f
	}
	if a.lock.Parsed.Verb == rewrite.ListLocks {
		return a.list()
	}
	if f := checkNow(&a.parameters, a.lock.Table); f != nil {
		return f
	}
	batch, f := a.anew()
	switch {
	case f != nil:
		return f
	case batch != nil:
		return batch.run(false)
	}
	several, f := a.lock.severalSections()
	switch {
	case f != nil:
		return f
	case several:
		return a.inSections()
	}
	if f := a.lock.CheckTimestamps(); f != nil {
		return f
	}
	if a.lock.SeveralKeys() {
		return a.several()
	}
	k, f := a.lock.Key()
	if f != nil {
		return f
	}
	n, f := a.lock.Ref()
	if f != nil {
		return f
	}
	ref, f := a.conn.readReference(a.lock.Critical, a.lock.Table, k, n)
	if f != nil {
		return f
	}
	switch a.lock.Parsed.Verb {
	case rewrite.Lock, rewrite.Unlock:
		return a.verb(k, ref)
	}
	if a.lock.Parsed.ForUpdate {
		return a.forUpdate(k)
	}
	if a.lock.Conditional() {
		return a.writeIf(k, ref)
	}
	if a.lock.Auto() {
		return a.writeInOwnSection(k)
	}
	return a.conn.fence(a.envelope.Header, &a.lock, lockedRequest{key: k, ref: ref, parameters: a.parameters}, a.inPlace)
}

// timestampWarning returns a warning for a client whose timestamps are ignored: once a connection, since drivers and mappers
// that send them do so with every statement.
func (c *conn) timestampWarning(s *lockStatement) []string {
	if !s.Timed() || c.timestampsTold.Swap(true) {
		return nil
	}
	return []string{"MUSIC: " + s.Table.String() + " is critical with timestamp=ignore: USING TIMESTAMP has no effect, the lock gives the timestamp (told once a connection)"}
}

// writeType returns what Cassandra would call the write in an error of its own, were there no lock.
func (s *lockStatement) writeType() primitive.WriteType {
	switch {
	case s.Conditional():
		return primitive.WriteTypeCas
	case s.Parsed.Verb == rewrite.Batch:
		return primitive.WriteTypeBatch
	}
	return primitive.WriteTypeSimple
}

// readJSON is ReadJSON; a statement that is written anew is not the prepared one any more.
func (s *lockStatement) readJSON() *wire.Failure {
	written, f := s.ReadJSON()
	if written {
		s.prepared = nil
	}
	return f
}

// each is Each, after readJSON.
func (s *lockStatement) each() ([]lockStatement, *wire.Failure) {
	if f := s.readJSON(); f != nil {
		return nil, f
	}
	if !s.KeysByIn() {
		return []lockStatement{*s}, nil
	}
	ones, f := s.Each()
	var all []lockStatement
	for _, one := range ones {
		part := *s
		part.Statement, part.prepared = one, nil
		all = append(all, part)
	}
	return all, f
}

// anew has a write name its one key by values: where it does not, batch is what carries it out for all of
// its keys.
func (a *lockExecution) anew() (batch *lockedBatch, f *wire.Failure) {
	s := &a.lock
	if f := s.readJSON(); f != nil || !s.KeysByIn() {
		return nil, f
	}
	if s.Auto() && s.Parsed.Verb == rewrite.Batch {
		return a.message()
	}
	all, f := s.each()
	switch {
	case f != nil:
		return nil, f
	case len(all) == 1:
		*s = all[0]
		return nil, nil
	}
	b := a.batch(rewrite.UnloggedBatch) // as Cassandra carries it out
	b.children = all
	b.count()
	return b, nil
}

// executeSeveral executes a batch's text over several tables, of writes without a lock: as the BATCH message
// that says the same.
func (c *conn) executeSeveral(e wire.Envelope, a lockExecution) error {
	b, f := a.message()
	switch {
	case f != nil:
	case b.served() && slices.ContainsFunc(b.children, func(s lockStatement) bool { return s.plain == nil }):
		f = b.run(true)
	default:
		f = b.withoutLock(e).run()
	}
	if f != nil {
		return c.answer(e, f)
	}
	return nil
}
