package frontend

import (
	"bytes"
	"slices"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/frontend/statement"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// lockStatement is LOCK, UNLOCK or LIST LOCKS, or an operation under a lock, with the parts of its
// request that are needed to carry it out.
type lockStatement struct {
	statement.Statement
	origin         *preparedLockStatement // the prepared statement if it came by EXECUTE; else nil
	prepared       *preparedLockStatement // the same as long as the statement is not rewritten, then nil
	simple         *simpleStatement       // what is known of that in the state Critical; nil if it is not simple
	metadata       []byte                 // the result metadata id that the EXECUTE had (v5)
	unlockedTables [][2]string            // for unlockedChild: the tables that it writes
	unlockedChild  []byte                 // for a BATCH's statement that needs no lock: kind, and text or id, in wire form
	until          time.Time              // for a statement that has waited for its table: when it stops waiting
}

// fixTerms calls FixTerms. A rewritten statement is no longer the prepared one.
func (s *lockStatement) fixTerms() {
	if s.FixTerms() {
		s.prepared = nil
	}
}

// clone returns the statement in memory of its own. The text of a prepared one is not in a read buffer.
func (s lockStatement) clone() lockStatement {
	if s.prepared == nil {
		s.Text = bytes.Clone(s.Text)
	}
	s.Values = slices.Clone(s.Values)
	for i := range s.Values {
		s.Values[i] = bytes.Clone(s.Values[i])
	}
	return s
}

// decideLock decides about a QUERY with a lock clause or on a critical table. rest is the body
// after its text.
func (c *conn) decideLock(e wire.Envelope, r classify.Result, text, rest []byte) decision {
	if failure := c.server.Limits().checkVerb(r.Verb, text); failure != nil {
		return refused(failure)
	}
	if locksOrdinary(r) {
		return decideOrdinary(r, text)
	}
	s, pass, failure := readLockStatement(r, text, true)
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
	return intercepted(&executeLock{s, p})
}

// executeLock is the action that executes a lockStatement that came by QUERY.
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

// readLockStatement parses a statement on a critical table. execute means that it is to be executed,
// not prepared. pass reports whether it is to be forwarded, as a read without a lock is.
func readLockStatement(r classify.Result, text []byte, execute bool) (s lockStatement, pass bool, f *wire.Failure) {
	if r.Verb == rewrite.ListLocks {
		return readList(r, text)
	}
	if r.Table == nil || r.Table.Critical() == nil {
		return s, false, wire.Invalid("MUSIC_REFUSED: the table is not critical any more: write without USING LOCK, or have it made critical")
	}
	if r.Verb == rewrite.Select && plainRead(text) {
		return s, true, nil
	}
	parsed, err := rewrite.Parse(text)
	if err != nil {
		return s, false, classify.NotParsed(err)
	}
	s.Statement = statement.Statement{Parsed: &parsed, Text: text, Table: r.Table, Critical: r.Table.Critical()}
	s.Names = r.Names
	if s.PlainWrite() && s.Critical.Unlocked == catalog.Allow {
		return s, true, nil
	}
	if execute && s.IsBatchOrWrite() {
		s.fixTerms()
	}
	switch parsed.Verb {
	case rewrite.Lock, rewrite.Unlock:
		f = s.CheckVerb()
	case rewrite.Select, rewrite.Insert, rewrite.Update, rewrite.Delete, rewrite.Batch:
		f = s.CheckUnderLock()
	case rewrite.Truncate:
		if s.Critical.Unlocked == catalog.Allow {
			return s, true, nil
		}
		f = truncateRefused(s.Table)
	default:
		f = wire.Invalid("MUSIC_REFUSED: this kind of statement is not supported on a critical table: docs/cql.md lists those that are")
	}
	if f == nil && s.Critical.Refused != "" && !s.mayWait() {
		f = cannotLock(s.Table, s.Critical)
	}
	return s, false, f
}

// plainRead reports whether a SELECT is a read without a lock. It is forwarded whatever its size.
func plainRead(text []byte) bool {
	read, err := rewrite.Outline(text, nil)
	return err == nil && read.Lock.Kind == rewrite.NoTerm && !read.ForUpdate
}

// cannotLock returns the error for a statement that needs a lock on a table that cannot be locked
// now.
func cannotLock(t *catalog.Table, now *catalog.Critical) *wire.Failure {
	if now.Passing {
		return wire.Invalid("MUSIC_UNAVAILABLE: %s: %s; nothing was done", t, now.Refused)
	}
	return wire.Invalid("MUSIC_REFUSED: %s cannot be locked: %s", t, now.Refused)
}

// allowed reports whether a statement on a critical table is a plain write that is forwarded
// (unlocked=allow).
func allowed(r classify.Result, text []byte) bool {
	if r.Table == nil || r.Table.Critical() == nil || r.Table.Critical().Unlocked != catalog.Allow {
		return false
	}
	parsed, err := rewrite.Parse(text)
	s := statement.Statement{Parsed: &parsed}
	return err == nil && s.PlainWrite()
}

// execute executes a lockStatement with the parameters of its request.
func (c *conn) execute(e wire.Envelope, s lockStatement, p wire.Parameters) error {
	if p.Names != nil {
		if f := byPosition(&p, s.Parsed, s.Text, c.server.Limits().Frame); f != nil {
			return c.answer(e, f)
		}
	}
	s.Values = p.Values
	if len(s.Values) != s.Parsed.Markers {
		return c.answer(e, wire.Invalid("MUSIC_SYNTAX: %d bind markers, %d values (gocql sends no values for LOCK: write SELECT LOCK … or SELECT UNLOCK …)", s.Parsed.Markers, len(s.Values)))
	}
	a := lockExecution{conn: c, envelope: e, lock: s, parameters: p, inPlace: true}
	switch {
	case s.simple != nil: // its table serves it
	case s.PlainWrite() && !s.FollowsTable():
		return c.executeSeveral(e, a)
	case s.FollowsTable() && !s.servedInSection(), s.asks() && s.Critical.Refused != "":
		return c.executeLater(e, a)
	}
	if f := a.run(); f != nil {
		return c.answer(e, f)
	}
	return nil
}

// lockExecution is a lockStatement that is being executed, with its request.
type lockExecution struct {
	conn       *conn
	envelope   wire.Envelope
	lock       lockStatement
	parameters wire.Parameters
	inPlace    bool     // the request is being performed: it can be replaced by Emit
	warnings   []string // about clauses whose values were reduced to a limit
}

// detached returns the execution in memory of its own, so that it can continue later.
func (a lockExecution) detached() lockExecution {
	a.parameters = a.parameters.Clone()
	a.lock.Values, a.lock.metadata = a.parameters.Values, bytes.Clone(a.lock.metadata)
	if a.lock.prepared == nil {
		a.lock.Text = bytes.Clone(a.lock.Text)
	}
	a.envelope.Raw = nil
	a.inPlace = false
	return a
}

// asksFirst returns the request as one that waits for what the proxy asks for it.
func (a *lockExecution) asksFirst() askedFirst {
	return askedFirst{a.envelope.Header, a.conn.sender(a.inPlace), a.size()}
}

// run carries out the statement. Unless the client's permissions are known, it asks Cassandra for
// them first.
func (a *lockExecution) run() *wire.Failure {
	need := a.lock.permissions()
	if a.conn.missingPermission(a.lock.Table, need) == 0 {
		return a.runPermitted()
	}
	later := a.detached()
	return a.conn.whenPermitted(a.asksFirst(), &later.lock, need, later.runPermitted)
}

// runPermitted has Cassandra evaluate what it must, and carries out the statement.
func (a *lockExecution) runPermitted() *wire.Failure {
	if f := a.conn.checkWaits(); f != nil && a.lock.until.IsZero() { // else it has waited for its table, and has a place
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
	if a.lock.simple != nil {
		return a.runOnKey()
	}
	var q statement.Query
	if a.lock.Ask(&q) > 0 {
		later := a.detached()
		return a.conn.whenEvaluated(a.asksFirst(), q, later.runWith)
	}
	return a.runEvaluated()
}

// runEvaluated carries out a statement whose terms the proxy can read: as a batch if it writes
// several keys.
func (a *lockExecution) runEvaluated() *wire.Failure {
	batch, f := a.perKey()
	switch {
	case f != nil:
		return f
	case batch != nil:
		return batch.run(false)
	}
	if f := a.lock.CheckTimestamps(); f != nil {
		return f
	}
	if a.lock.SeveralKeys() {
		return a.lockManyKeys()
	}
	return a.runOnKey()
}

// runOnKey reads the key and the reference, and carries out the statement by its kind.
func (a *lockExecution) runOnKey() *wire.Failure {
	k, f := a.lock.key()
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
	switch st := a.lock.Parsed; {
	case a.lock.simple != nil:
	case st.Verb == rewrite.Lock || st.Verb == rewrite.Unlock:
		return a.verb(k, ref)
	case st.ForUpdate:
		return a.forUpdate(k)
	case a.lock.Conditional():
		return a.writeIf(k, ref)
	}
	if a.lock.Auto() {
		return a.writeInOwnSection(k)
	}
	return a.conn.executeUnderLock(a.envelope.Header, &a.lock, lockedRequest{key: k, ref: ref, parameters: a.parameters}, a.inPlace)
}

// key returns the key that the statement names.
func (s *lockStatement) key() (musiccore.Key, *wire.Failure) {
	if s.simple != nil {
		return s.KeyAt(s.simple.keyMarkers)
	}
	return s.Key()
}

// timestampWarning returns a warning for a client whose timestamps are ignored. It does so once per
// connection, since drivers and mappers that send timestamps do so with every statement.
func (c *conn) timestampWarning(s *lockStatement) []string {
	if !s.Timed() || c.timestampsTold.Swap(true) {
		return nil
	}
	return []string{"MUSIC: " + s.Table.String() + " is critical with timestamp=ignore: USING TIMESTAMP has no effect, the lock gives the timestamp (warned once per connection)"}
}

// writeType returns the write type that Cassandra would have in an error for the write, without the
// lock.
func (s *lockStatement) writeType() primitive.WriteType {
	switch {
	case s.Conditional():
		return primitive.WriteTypeCas
	case s.Parsed.Verb == rewrite.Batch:
		return primitive.WriteTypeBatch
	}
	return primitive.WriteTypeSimple
}

// readJSON calls ReadJSON. A rewritten statement is no longer the prepared one.
func (s *lockStatement) readJSON() *wire.Failure {
	written, f := s.ReadJSON()
	if written {
		s.prepared = nil
	}
	return f
}

// each calls readJSON, then returns one statement per key as Each does.
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

// perKey rewrites a write so that it names one key by values. If it names several keys, it returns
// the batch that carries the write out for all of them.
func (a *lockExecution) perKey() (batch *lockedBatch, f *wire.Failure) {
	s := &a.lock
	if f := s.readJSON(); f != nil {
		return nil, f
	}
	switch several, f := s.severalSections(); {
	case f != nil:
		return nil, f
	case several:
		return a.message()
	case !s.KeysByIn():
		return nil, nil
	}
	if s.PlainWrite() {
		*s = s.clone() // its values are those of all statements that are made of it
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
