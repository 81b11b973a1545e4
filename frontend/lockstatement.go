package frontend

import (
	"bytes"
	"slices"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// lockStatement is a statement that has to do with a lock, read whole: LOCK, UNLOCK or LIST LOCKS,
// or an operation under a lock.
type lockStatement struct {
	statement *rewrite.Statement
	text      []byte // as the client wrote it
	table     *catalog.Table
	critical  *catalog.Critical
	prepared  *preparedLockStatement // where it came by EXECUTE
	metadata  []byte                 // the result metadata id that the client knows (v5), likewise
	values    [][]byte               // bound, in wire form
	names     [][2]string            // of a batch's text, the tables of its statements; of plain, its tables
	plain     []byte                 // of a BATCH's statement that no lock concerns, as it came: kind, and text or id
	fixed     bool                   // fixKey has written it anew
	until     time.Time              // of a write that has waited for its table: its client's driver waits no longer
}

// severalKeys reports whether the statement is a LOCK or UNLOCK that names its keys by IN.
func (s *lockStatement) severalKeys() bool {
	if s.statement.Verb != rewrite.Lock && s.statement.Verb != rewrite.Unlock {
		return false
	}
	return slices.ContainsFunc(s.critical.Key, func(column catalog.Column) bool {
		r := s.restriction(s.statement, column)
		return r != nil && r.Op == rewrite.OpIn
	})
}

// written returns the columns that the statement names as written; of INSERT, those of the key too.
func (s *lockStatement) written() []rewrite.Name {
	written := s.statement.Sets
	if s.statement.Verb == rewrite.Insert {
		for _, r := range s.statement.Where {
			written = append(written, r.Column)
		}
	}
	return written
}

// name returns a name of the statement as Cassandra knows it.
func (s *lockStatement) name(n rewrite.Name) string { return string(n.AppendTo(nil, s.text)) }

// plainWrite reports whether the statement is a write without a lock.
func (s *lockStatement) plainWrite() bool {
	if s.statement == nil || s.statement.Lock.Kind != rewrite.NoTerm {
		return false
	}
	for i := range s.statement.Children {
		if s.statement.Children[i].Lock.Kind != rewrite.NoTerm {
			return false
		}
	}
	switch s.statement.Verb {
	case rewrite.Insert, rewrite.Update, rewrite.Delete, rewrite.Batch:
		return true
	}
	return false
}

// auto reports whether a write without a lock has a section of its own (docs/design.md 4,
// unlocked=auto).
func (s *lockStatement) auto() bool { return s.plainWrite() && s.critical.Unlocked == catalog.Auto }

// kind returns what the statement is to the core, where it has no IF.
func (s *lockStatement) kind() musiccore.Kind {
	switch {
	case s.statement.Verb == rewrite.Select:
		return musiccore.Get
	case s.statement.ReadsOld:
		return musiccore.Put
	}
	return musiccore.BlindPut
}

// isBatchOrWrite reports whether the statement is one write, or a batch's text.
func (s *lockStatement) isBatchOrWrite() bool {
	return s.isWrite() || s.statement.Verb == rewrite.Batch
}

// isWrite reports whether the statement is one write.
func (s *lockStatement) isWrite() bool {
	switch s.statement.Verb {
	case rewrite.Insert, rewrite.Update, rewrite.Delete:
		return true
	}
	return false
}

// decideLock decides about a QUERY that has to do with a lock, or is on a critical table; rest is
// what stands behind its text.
func (c *conn) decideLock(e wire.Envelope, r reading, text, rest []byte) decision {
	if r.withoutLocks() {
		return decideOrdinary(r)
	}
	if failure := c.server.Bounds.checkVerb(r.verb, text); failure != nil {
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
func (a *executeLock) String() string { return "execute: " + string(a.statement.text) }

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
	statement, err := rewrite.Parse(text)
	if err != nil {
		return s, false, wire.Invalid("MUSIC_SYNTAX: %v", err)
	}
	s = lockStatement{statement: &statement, text: text, table: r.table, critical: r.table.Critical(), names: r.names}
	if s.plainWrite() && s.critical.Unlocked == catalog.Allow {
		return s, true, nil
	}
	if r.execute && s.isBatchOrWrite() {
		s.fixKey()
	}
	switch statement.Verb {
	case rewrite.Lock, rewrite.Unlock:
		f = s.checkVerb()
	case rewrite.Select:
		if statement.Lock.Kind == rewrite.NoTerm && !statement.ForUpdate {
			return s, true, nil
		}
		f = s.checkFenced()
	case rewrite.Insert, rewrite.Update, rewrite.Delete, rewrite.Batch:
		f = s.checkFenced()
	case rewrite.Truncate:
		if s.critical.Unlocked == catalog.Allow {
			return s, true, nil
		}
		f = truncateRefused(s.table)
	default:
		f = wire.Invalid("MUSIC_REFUSED: this statement is not served on a critical table: docs/cql.md says what is")
	}
	if f == nil && s.critical.Refused != "" && !(s.followsTable() && s.critical.Passing) {
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
	statement, err := rewrite.Parse(text)
	s := lockStatement{statement: &statement}
	return err == nil && s.plainWrite()
}

// checkVerb refuses the forms of LOCK and UNLOCK that are not served.
func (s *lockStatement) checkVerb() *wire.Failure {
	st := s.statement
	switch {
	case st.Limit.Kind != rewrite.NoTerm && !s.severalKeys():
		return wire.Invalid("MUSIC_SYNTAX: LIMIT goes with several keys: LOCK %s WHERE … IN (…)", s.table)
	case st.Lock.Kind != rewrite.NoTerm && s.severalKeys():
		return wire.Invalid("MUSIC_SYNTAX: a lock_ref is of one key: USING LOCK and IN cannot stand in one statement")
	case st.Verb == rewrite.Unlock && st.Lock.Kind == rewrite.NoTerm && !st.Force:
		return wire.Invalid("MUSIC_SYNTAX: UNLOCK %s WHERE … USING LOCK <ref>", s.table)
	}
	return s.checkWhere()
}

// checkWhere refuses what LOCK, UNLOCK and LIST LOCKS would not look at: its WHERE gives each
// column of the key once, and nothing else.
func (s *lockStatement) checkWhere() *wire.Failure {
	st := s.statement
	for _, column := range s.critical.Key {
		if len(st.Where) > 0 && s.restriction(st, column) == nil {
			return s.missingColumn(column)
		}
	}
	for i := range st.Where {
		r := &st.Where[i]
		name := s.name(r.Column)
		at := slices.IndexFunc(s.critical.Key, func(c catalog.Column) bool { return c.Name == name })
		switch {
		case r.Column == (rewrite.Name{}) || r.Op != rewrite.OpEq && r.Op != rewrite.OpIn:
			return wire.Invalid("MUSIC_KEY: %s takes each column of the key as column = value", st.Verb)
		case at < 0:
			return wire.Invalid("MUSIC_KEY: %s is no column of the key: one lock covers one %s of %s", name, s.critical.Unit(), s.table)
		case s.restrictedTwice(st, s.critical.Key[at]):
			return wire.Invalid("MUSIC_KEY: %s stands twice: name it once", name)
		}
	}
	return nil
}

// checkFenced refuses what may not stand under a lock (docs/design.md 4).
func (s *lockStatement) checkFenced() *wire.Failure {
	st := s.statement
	switch {
	case st.ForUpdate:
		return nil
	case st.Lock.Kind == rewrite.NoTerm && !s.auto():
		return writeWithoutLock(s.table)
	}
	if f := s.checkOwnTerms(st); f != nil {
		return f
	}
	for i := range st.Children {
		child := &st.Children[i]
		if child.Lock.Kind != rewrite.NoTerm {
			return wire.Invalid("MUSIC_REFUSED: USING LOCK stands once, after BEGIN BATCH")
		}
		if f := s.checkOwnTerms(child); f != nil {
			return f
		}
	}
	for _, part := range s.parts() {
		if part.statement.Conditional && s.sameTable(part.statement) {
			if f := part.checkCondition(); f != nil {
				return f
			}
		}
	}
	return nil
}

// checkOwnTerms refuses a read with a timestamp, and a key that cannot be read.
func (s *lockStatement) checkOwnTerms(st *rewrite.Statement) *wire.Failure {
	switch {
	case st.Verb == rewrite.Select && st.Timestamp.Kind != rewrite.NoTerm:
		return wire.Invalid("MUSIC_SYNTAX: SELECT takes USING LOCK only, no TIMESTAMP")
	case st.JSON && st.Verb == rewrite.Insert:
		return wire.Invalid("MUSIC_KEY: the key cannot be read from INSERT JSON: name the columns")
	}
	return nil
}

// execute executes a lockStatement with the parameters of its request.
func (c *conn) execute(e wire.Envelope, s lockStatement, p wire.Parameters) error {
	if p.Names != nil {
		if f := byPosition(&p, s.statement, s.text); f != nil {
			return c.answer(e, f)
		}
	}
	s.values = p.Values
	if len(s.values) != s.statement.Markers {
		return c.answer(e, wire.Invalid("MUSIC_SYNTAX: %d bind markers, %d values (gocql sends no values for LOCK: write SELECT LOCK … or SELECT UNLOCK …)", s.statement.Markers, len(s.values)))
	}
	a := lockExecution{conn: c, envelope: e, lock: s, parameters: p, inPlace: true}
	if s.followsTable() && !s.served() {
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
	a.lock.text, a.lock.metadata = bytes.Clone(a.lock.text), bytes.Clone(a.lock.metadata)
	a.parameters = a.parameters.Clone()
	a.lock.values = a.parameters.Values
	a.envelope.Raw = nil
	a.inPlace = false
	return a
}

// run does what the statement says where the client may, which Cassandra is asked first.
func (a *lockExecution) run() *wire.Failure {
	need := a.lock.permissions()
	if a.conn.missingPermission(a.lock.table, need) == 0 {
		return a.runPermitted()
	}
	later := a.detached()
	return a.conn.whenPermitted(a.envelope.Header, &later.lock, need, a.conn.sender(a.inPlace), later.runPermitted)
}

// runPermitted reads key and reference and does what the statement says.
func (a *lockExecution) runPermitted() *wire.Failure {
	if f := a.conn.checkWaits(); f != nil {
		if a.lock.plainWrite() {
			f.Code = primitive.ErrorCodeOverloaded
		}
		return f
	}
	if a.lock.statement.Verb == rewrite.ListLocks {
		return a.list()
	}
	if f := checkNow(&a.parameters, a.lock.table); f != nil {
		return f
	}
	several, f := a.lock.severalSections()
	switch {
	case f != nil:
		return f
	case several:
		return a.inSections()
	}
	if f := a.lock.checkTimestamps(); f != nil {
		return f
	}
	if a.lock.severalKeys() {
		return a.several()
	}
	k, f := a.lock.key()
	if f != nil {
		return f
	}
	n, f := a.lock.ref()
	if f != nil {
		return f
	}
	ref, f := a.conn.readReference(a.lock.critical, a.lock.table, k, n)
	if f != nil {
		return f
	}
	switch a.lock.statement.Verb {
	case rewrite.Lock, rewrite.Unlock:
		return a.verb(k, ref)
	}
	if a.lock.statement.ForUpdate {
		return a.forUpdate(k)
	}
	if a.lock.conditional() {
		return a.writeIf(k, ref)
	}
	if a.lock.auto() {
		return a.writeInOwnSection(k)
	}
	return a.conn.fence(a.envelope.Header, &a.lock, lockedRequest{key: k, ref: ref, parameters: a.parameters}, a.inPlace)
}

// sameTable reports whether a batch's statement is on the lockStatement's table. Its keyspace may
// be left out only where all leave it out, which the caller has looked up.
func (s *lockStatement) sameTable(st *rewrite.Statement) bool {
	if string(st.Table.AppendTo(nil, s.text)) != s.table.Name {
		return false
	}
	return st.Keyspace.Start == st.Keyspace.End || string(st.Keyspace.AppendTo(nil, s.text)) == s.table.Keyspace
}
