package statement

import (
	"slices"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// CheckVerb refuses the forms of LOCK and UNLOCK that are not served.
func (s *Statement) CheckVerb() *wire.Failure {
	st := s.Parsed
	switch {
	case st.Limit.Kind != rewrite.NoTerm && !s.SeveralKeys():
		return wire.Invalid("MUSIC_SYNTAX: LIMIT is for LOCK with several keys: LOCK %s WHERE … IN (…)", s.Table)
	case st.Lock.Kind != rewrite.NoTerm && s.SeveralKeys():
		return wire.Invalid("MUSIC_SYNTAX: a lock_ref belongs to one key: USING LOCK and IN cannot stand in one statement")
	}
	return s.CheckWhere()
}

// CheckWhere refuses a WHERE of LOCK, UNLOCK or LIST LOCKS that does not give each column of the
// key exactly once, or gives anything else.
func (s *Statement) CheckWhere() *wire.Failure {
	st := s.Parsed
	for _, column := range s.Critical.Key {
		if len(st.Where) > 0 && s.Restriction(st, column) == nil {
			return s.missingColumn(column)
		}
	}
	for i := range st.Where {
		r := &st.Where[i]
		name := s.name(r.Column)
		at := slices.IndexFunc(s.Critical.Key, func(c catalog.Column) bool { return c.Name == name })
		switch {
		case r.Column == (rewrite.Name{}) || r.Op != rewrite.OpEq && r.Op != rewrite.OpIn:
			return wire.Invalid("MUSIC_KEY: %s takes each column of the key as column = value", st.Verb)
		case at < 0:
			return wire.Invalid("MUSIC_KEY: %s is not a column of the key: one lock covers one %s of %s: name only the columns of its key", name, s.Critical.Unit(), s.Table)
		case s.restrictedTwice(st, s.Critical.Key[at]):
			return wire.Invalid("MUSIC_KEY: %s stands twice: name it once", name)
		}
	}
	return nil
}

// CheckUnderLock refuses statements that cannot be carried out under a lock (docs/design.md 4).
func (s *Statement) CheckUnderLock() *wire.Failure {
	st := s.Parsed
	for i := range st.Children {
		if st.Children[i].Lock.Kind != rewrite.NoTerm {
			return wire.Invalid("MUSIC_REFUSED: write USING LOCK once, after BEGIN BATCH, not in the statements of the batch")
		}
	}
	switch {
	case st.ForUpdate:
		return nil
	case st.Lock.Kind == rewrite.NoTerm && !s.Auto():
		return WithoutLock(s.Table)
	}
	if st.Verb == rewrite.Select && st.Timestamp.Kind != rewrite.NoTerm {
		return wire.Invalid("MUSIC_SYNTAX: SELECT takes only USING LOCK, not TIMESTAMP")
	}
	for _, part := range s.Parts() {
		if part.Parsed.Conditional && !part.elsewhere {
			if f := part.checkCondition(); f != nil {
				return f
			}
		}
	}
	return nil
}

// CheckTimestamps refuses the client's own timestamps unless the table ignores them, and in places
// where Cassandra refuses them.
func (s *Statement) CheckTimestamps() *wire.Failure {
	if s.Timed() && !s.Critical.Ignore {
		return TimestampRefused(s.Table)
	}
	return s.CheckTimestampPlaces()
}

// CheckTimestampPlaces refuses timestamps in places where Cassandra refuses them, in its words.
func (s *Statement) CheckTimestampPlaces() *wire.Failure {
	if !s.Timed() {
		return nil
	}
	batch := s.Parsed.Verb == rewrite.Batch && s.Parsed.Timestamp.Kind != rewrite.NoTerm
	for _, part := range s.Parts() {
		own := part.Parsed.Timestamp.Kind != rewrite.NoTerm
		switch {
		case batch && own:
			return wire.Invalid("Timestamp must be set either on BATCH or individual statements")
		case batch && part.Parsed.Conditional:
			return wire.Invalid("Cannot provide custom timestamp for conditional BATCH")
		case own && part.Parsed.Conditional:
			return wire.Invalid("Cannot provide custom timestamp for conditional updates")
		}
	}
	return nil
}

// TimestampRefused returns the error for a client's own timestamp.
func TimestampRefused(t *catalog.Table) *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: %s is critical: the lock gives the timestamp, USING TIMESTAMP cannot stand beside it: leave it out, or have it ignored by timestamp=ignore in the table's @critical(…)", t)
}

// WithoutLock returns the error for a plain write on a critical table.
func WithoutLock(t *catalog.Table) *wire.Failure {
	if now := t.Critical(); now != nil && now.Refused != "" && !now.Passing {
		return wire.Invalid("MUSIC_REFUSED: %s is critical, but cannot be locked: %s", t, now.Refused)
	}
	return wire.Invalid("MUSIC_UNLOCKED: %s is critical: take a lock (LOCK %s WHERE …) and write USING LOCK <ref>", t, t)
}
