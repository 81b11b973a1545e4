// Package statement interprets a statement on a critical table, with the values of its request: its
// key, its lock reference, why it must be refused, and the texts that are sent to Cassandra in its
// place. It does no I/O.
package statement

import (
	"slices"

	"music/frontend/catalog"
	"music/musiccore"
	"music/rewrite"
)

// Statement is a parsed statement on a critical table, or LIST LOCKS.
type Statement struct {
	Parsed   *rewrite.Statement
	Text     []byte // as the client wrote it, unless Fixed
	Table    *catalog.Table
	Critical *catalog.Critical // the state of Table when the statement was read; nil for LIST LOCKS of all tables
	Values   [][]byte          // bound values, in wire form
	sums     []edit            // see Put
	Fixed    bool              // Text and Parsed have been rewritten: the statement that was prepared cannot be executed
	// Names are keyspace and name of the table of each statement of a BATCH text, as they were
	// looked up when it was read.
	Names     [][2]string
	elsewhere bool // a statement of a BATCH text, on another table than the batch's
}

// FollowsTable reports whether the statement is a plain write on a single table. Such a write is
// carried out by the policy that the table has at that moment.
func (s *Statement) FollowsTable() bool {
	return s.PlainWrite() && (s.Parsed.Verb != rewrite.Batch || s.onOneTable())
}

// onOneTable reports whether all statements of the batch are on its table.
func (s *Statement) onOneTable() bool {
	return !slices.ContainsFunc(s.Parts(), func(part Statement) bool { return part.elsewhere })
}

// SeveralKeys reports whether the statement is a LOCK or UNLOCK that names its keys by IN.
func (s *Statement) SeveralKeys() bool {
	if s.Parsed.Verb != rewrite.Lock && s.Parsed.Verb != rewrite.Unlock {
		return false
	}
	return slices.ContainsFunc(s.Critical.Key, func(column catalog.Column) bool {
		r := s.Restriction(s.Parsed, column)
		return r != nil && r.Op == rewrite.OpIn
	})
}

// written returns the columns that the statement writes; for INSERT also the key columns.
func (s *Statement) written() []rewrite.Name {
	written := s.Parsed.Sets
	if s.Parsed.Verb == rewrite.Insert {
		for _, r := range s.Parsed.Where {
			written = append(written, r.Column)
		}
	}
	return written
}

// name returns a name of the statement as Cassandra knows it.
func (s *Statement) name(n rewrite.Name) string { return string(n.AppendTo(nil, s.Text)) }

// PlainWrite reports whether the statement is a write without a lock reference.
func (s *Statement) PlainWrite() bool {
	if s.Parsed == nil || s.Parsed.Lock.Kind != rewrite.NoTerm {
		return false
	}
	for i := range s.Parsed.Children {
		if s.Parsed.Children[i].Lock.Kind != rewrite.NoTerm {
			return false
		}
	}
	switch s.Parsed.Verb {
	case rewrite.Insert, rewrite.Update, rewrite.Delete, rewrite.Batch:
		return true
	}
	return false
}

// Auto reports whether the statement is a plain write that is carried out in a section of its own
// (docs/design.md 4, unlocked=auto).
func (s *Statement) Auto() bool { return s.PlainWrite() && s.Critical.Unlocked == catalog.Auto }

// Kind returns the kind of operation that the statement is for the core; it must have no IF.
func (s *Statement) Kind() musiccore.Kind {
	switch {
	case s.Parsed.Verb == rewrite.Select:
		return musiccore.Get
	case s.Parsed.ReadsOld:
		return musiccore.Put
	}
	return musiccore.BlindPut
}

// IsBatchOrWrite reports whether the statement is an INSERT, UPDATE, DELETE or BATCH.
func (s *Statement) IsBatchOrWrite() bool {
	return s.IsWrite() || s.Parsed.Verb == rewrite.Batch
}

// IsWrite reports whether the statement is an INSERT, UPDATE or DELETE.
func (s *Statement) IsWrite() bool {
	switch s.Parsed.Verb {
	case rewrite.Insert, rewrite.Update, rewrite.Delete:
		return true
	}
	return false
}

// onTable reports whether statement i of a BATCH text is on the batch's table. The text alone does
// not tell: a statement without a keyspace is in the one that was in use.
func (s *Statement) onTable(i int) bool {
	return i < len(s.Names) && s.Table != nil && s.Names[i] == [2]string{s.Table.Keyspace, s.Table.Name}
}

// Parts returns the statements of a batch, or the statement itself if it is not a batch.
func (s *Statement) Parts() []Statement {
	if s.Parsed.Verb != rewrite.Batch {
		return []Statement{*s}
	}
	parts := make([]Statement, len(s.Parsed.Children))
	for i := range parts {
		parts[i] = *s
		parts[i].Parsed = &s.Parsed.Children[i]
		parts[i].elsewhere = !s.onTable(i)
	}
	return parts
}

// has reports whether what is true for the statement or, in a batch, for any of its statements. It
// does not allocate.
func (s *Statement) has(what func(*rewrite.Statement) bool) bool {
	if s.Parsed.Verb != rewrite.Batch {
		return what(s.Parsed)
	}
	for i := range s.Parsed.Children {
		if what(&s.Parsed.Children[i]) {
			return true
		}
	}
	return false
}

// Conditional reports whether the statement, or any statement of a batch, has an IF.
func (s *Statement) Conditional() bool {
	return s.has(func(st *rewrite.Statement) bool { return st.Conditional })
}

// Size returns how many bytes text and values take.
func (s *Statement) Size() int {
	q := Query{s.Text, s.Values}
	return q.size()
}
