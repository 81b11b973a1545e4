package frontend

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"music/frontend/catalog"
	"music/frontend/wire"
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
		return s, false, wire.Invalid("MUSIC_REFUSED: the table is not critical any more")
	}
	statement, err := rewrite.Parse(text)
	if err != nil {
		return s, false, wire.Invalid("MUSIC_SYNTAX: %v", err)
	}
	s = lockStatement{statement: &statement, text: text, table: r.table, critical: r.table.Critical()}
	if s.plainWrite() && s.critical.Unlocked == catalog.Allow {
		return s, true, nil
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
		f = truncateRefused(s.table)
	default:
		f = wire.Invalid("MUSIC_REFUSED: this statement is not served yet")
	}
	if f == nil && s.critical.Refused != "" {
		f = cannotLock(s.table, s.critical)
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
			return wire.Invalid("MUSIC_KEY: %s stands twice", name)
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

// checkOwnTerms refuses a timestamp beside that of the lock, and a key that cannot be read.
func (s *lockStatement) checkOwnTerms(st *rewrite.Statement) *wire.Failure {
	switch {
	case st.Timestamp.Start != st.Timestamp.End:
		return wire.Invalid("MUSIC_REFUSED: %s is critical: the lock gives the timestamp, USING TIMESTAMP cannot stand beside it", s.table)
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
	a := lockExecution{conn: c, envelope: e, lock: s, parameters: p, emit: c.up.Emit}
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
	emit       func(raw []byte) // sends a request to Cassandra
	warnings   []string         // of clauses that ask for more than there is
}

// detached returns the execution in memory of its own, for when Cassandra has answered.
func (a lockExecution) detached() lockExecution {
	a.lock.text = bytes.Clone(a.lock.text)
	a.parameters = a.parameters.Clone()
	a.lock.values = a.parameters.Values
	a.envelope.Raw = nil
	a.emit = a.conn.send
	return a
}

// run does what the statement says where the client may, which Cassandra is asked first.
func (a *lockExecution) run() *wire.Failure {
	need := a.lock.permissions()
	if a.conn.missingPermission(a.lock.table, need) == 0 {
		return a.runPermitted()
	}
	later := a.detached()
	return a.conn.whenPermitted(a.envelope.Header, &later.lock, need, a.emit, later.runPermitted)
}

// runPermitted reads key and reference and does what the statement says.
func (a *lockExecution) runPermitted() *wire.Failure {
	if f := a.conn.checkWaits(); f != nil {
		return f
	}
	if a.lock.statement.Verb == rewrite.ListLocks {
		return a.list()
	}
	if f := checkNow(&a.parameters, a.lock.table); f != nil {
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
	return a.conn.fence(a.envelope.Header, a.lock, lockedRequest{key: k, ref: ref, parameters: a.parameters}, a.emit)
}

// sameTable reports whether a batch's statement is on the lockStatement's table. Its keyspace may
// be left out only where all leave it out, which the caller has looked up.
func (s *lockStatement) sameTable(st *rewrite.Statement) bool {
	if string(st.Table.AppendTo(nil, s.text)) != s.table.Name {
		return false
	}
	return st.Keyspace.Start == st.Keyspace.End || string(st.Keyspace.AppendTo(nil, s.text)) == s.table.Keyspace
}

// checkTTL refuses a row that lives by its key alone and is to die: CQL shows no time to live of
// it, so a synchronise would make it immortal (docs/protocol.md 3.9, Synch).
func (s *lockStatement) checkTTL(st *rewrite.Statement) *wire.Failure {
	if st.Verb != rewrite.Insert || st.TTL.Kind == rewrite.NoTerm && !s.critical.Mortal {
		return nil
	}
	if st.TTL.Kind == rewrite.TermInteger && string(s.text[st.TTL.Start:st.TTL.End]) == "0" {
		return nil
	}
	for _, r := range st.Where {
		if !slices.Contains(s.critical.Primary, string(r.Column.AppendTo(nil, s.text))) && !s.isNull(r.Value) {
			return nil
		}
	}
	return wire.Invalid("MUSIC_REFUSED: %s is critical: a row with a time to live needs a value beside its key", s.table)
}

// isNull reports whether a value is none: null, or bound null or not set.
func (s *lockStatement) isNull(t rewrite.Term) bool {
	if t.Kind == rewrite.TermMarker {
		_, ok := s.bound(t)
		return !ok
	}
	return t.Kind == rewrite.TermNull
}

// checkStatic refuses to write a static column under a lock that covers a row: it is of all rows of
// the partition.
func (s *lockStatement) checkStatic(st *rewrite.Statement) *wire.Failure {
	one := *s
	one.statement = st
	for _, column := range one.written() {
		if name := s.name(column); s.critical.Row && slices.Contains(s.critical.Static, name) {
			return wire.Invalid("MUSIC_REFUSED: %s is static, and one lock covers one row of %s", name, s.table)
		}
	}
	return nil
}

// ref returns the lock reference that the statement gives, as its client sees it; 0 where it gives
// none.
func (s *lockStatement) ref() (int64, *wire.Failure) {
	t := s.statement.Lock
	if t.Kind == rewrite.NoTerm {
		return 0, nil
	}
	n, f := s.integer(t, "USING LOCK")
	if f == nil && n <= 0 {
		f = wire.Invalid("MUSIC_NOT_HELD: %d is no lock reference", n)
	}
	return n, f
}

// integer returns a literal or bound whole number: a bigint, or an int.
func (s *lockStatement) integer(t rewrite.Term, what string) (int64, *wire.Failure) {
	if t.Kind != rewrite.TermMarker {
		n, err := rewrite.Int(s.text, t)
		if err != nil {
			return 0, wire.Invalid("MUSIC_SYNTAX: %s: %v", what, err)
		}
		return n, nil
	}
	value, ok := s.bound(t)
	switch {
	case ok && len(value) == 8:
		return wholeNumber(binary.BigEndian.Uint64(value), what)
	case ok && len(value) == 4:
		return int64(int32(binary.BigEndian.Uint32(value))), nil
	}
	return 0, wire.Invalid("MUSIC_SYNTAX: the value bound to %s must be a bigint, not null or unset", what)
}

// wholeNumber returns a bound bigint. No number that means anything here is as large as the bits of
// a double from 1 on: such bits are of a driver that does not know the type of the marker, as the
// one for Node.js where a statement is not prepared.
func wholeNumber(bits uint64, what string) (int64, *wire.Failure) {
	if n := math.Float64frombits(bits); n >= 1 && n == math.Trunc(n) && !math.IsInf(n, 0) {
		return 0, wire.Invalid("MUSIC_SYNTAX: the value bound to %s is the double %v: prepare the statement, or bind a bigint (in Node.js a Long)", what, n)
	}
	return int64(bits), nil
}
