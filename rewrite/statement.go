package rewrite

import (
	"fmt"
	"slices"
)

// Statement is a whole statement as Parse read it. All spans are offsets into the text
// that Parse was given, also those of Children; nothing refers to the memory of the text.
type Statement struct {
	Verb Verb
	// AfterSelect says that SELECT is written before LOCK, UNLOCK or LIST LOCKS.
	AfterSelect     bool
	Keyspace, Table Name
	// Where has the restrictions of WHERE; for INSERT, its columns with their
	// values, as OpEq.
	Where []Relation
	// Selectors are the selection of SELECT.
	Selectors []Selector

	Assigned   // what SET assigns, or DELETE names
	JSONParts  // of INSERT JSON and SELECT JSON
	BatchParts // of a batch, and of its children
	Using      // what stands in USING
	Condition  // the IF
	Clauses    // those of LOCK, UNLOCK and FOR UPDATE

	// Cut has the spans that Cassandra does not understand, in order and disjoint.
	// Without them a statement under a lock is ordinary CQL. The Cut of a batch includes
	// those of its children. It is empty for LOCK, UNLOCK and LIST LOCKS, which
	// are not forwarded.
	Cut []Span

	// Memory is how many bytes the parts of the statement take, about.
	Memory int

	BindMarkers
}

// Assigned is what SET assigns, or DELETE names.
type Assigned struct {
	// Sets are the columns, each as often as it is named.
	Sets []Name
	// ReadsOld says that an assignment may depend on the present value: an element of
	// a list, arithmetic; for a batch, in one of its children. If it is false, Cassandra
	// executes the statement without a read, except for an IF.
	ReadsOld bool
	// Additions are the assignments that add to a column at its end.
	Additions []Addition
	// Bindings are the assignments of a bound value.
	Bindings []Binding
}

// Binding is column = ?, in SET.
type Binding struct {
	Column Name
	Marker int // its index in the whole text, from 0
}

// Addition is column = column + value, column = column -1, or column += value, in SET.
type Addition struct {
	Column Name
	Span   // of all of it
	Value  Term
}

// JSONParts are the parts of INSERT JSON.
type JSONParts struct {
	// JSON says that the statement is INSERT JSON or SELECT JSON.
	JSON bool
	// JSONClause replaces columns and VALUES; it begins with the
	// word JSON. JSONText is the object: a string, or a marker.
	JSONClause Span
	JSONText   Term
	// Unset says that columns that are not named keep their values: DEFAULT UNSET.
	Unset bool
}

// BatchParts are the parts of a batch.
type BatchParts struct {
	// Children are the statements between BEGIN BATCH and APPLY BATCH.
	Children []Statement
	// Kind is what kind of batch it is.
	Kind BatchKind
	// Whole is where a child stands.
	Whole Span
}

// BatchKind is the kind of a batch, by its number in the native protocol.
type BatchKind byte

// The kinds.
const (
	LoggedBatch BatchKind = iota
	UnloggedBatch
	CounterBatch
)

// BindMarkers are the bind markers of a statement.
type BindMarkers struct {
	// Markers counts the bind markers of the statement, those of the proxy's own
	// clauses included; of a batch, those of its children too.
	Markers int
	// MarkerNames are the names of the first of these markers, up to the last
	// that has one; an absent name stands for ?.
	MarkerNames []Name
	// MarkersAt are the offsets of the markers.
	MarkersAt []int
}

// OwnMarkers returns the bind markers in the spans that Cut removes from a statement, in the order
// of the text, without those of a batch's children.
func (s *Statement) OwnMarkers() []Term {
	var own []Term
	for _, t := range []Term{s.Lock, s.Wait, s.Lease} {
		if t.Kind == TermMarker {
			own = append(own, t)
		}
	}
	slices.SortFunc(own, func(a, b Term) int { return a.Marker - b.Marker })
	return own
}

// OwnMarker reports whether the bind marker with an index is among OwnMarkers.
func (s *Statement) OwnMarker(marker int) bool {
	return s.Lock.isMarker(marker) || s.Wait.isMarker(marker) || s.Lease.isMarker(marker)
}

// Using has the parts of a USING clause. An absent term has Kind NoTerm.
type Using struct {
	// Lock is the lock reference: an integer of any sign, or a marker.
	Lock Term
	TTL  Term
	// Timestamp is the value of the client's own TIMESTAMP: an integer, or a marker.
	Timestamp Term
	// UsingClause is the whole clause with its keyword; for a write
	// without one it is an empty span at the place where the clause may be written.
	UsingClause Span
}

// Condition is the IF of a statement.
type Condition struct {
	// Conditional says that there is an IF; If is its span, with the keyword.
	Conditional bool
	If          Span
	// Exists says that it is IF EXISTS or IF NOT EXISTS; otherwise Conditions has
	// its conditions.
	Exists     bool
	Conditions []Relation
}

// Clauses are the clauses of LOCK, UNLOCK and FOR UPDATE. Durations and integers are literals of
// that kind or markers.
type Clauses struct {
	// ForUpdate says that SELECT ends in FOR UPDATE.
	ForUpdate bool

	Wait, Lease               Term
	Owner, Token              Term // AS 'who', TOKEN uuid
	Limit, Reason             Term
	NoWait, SkipLocked, Force bool
}

// TermKind is the kind of a value.
type TermKind byte

// Term kinds. TermOther is a value that Cassandra must evaluate: a function,
// a collection, arithmetic, a cast.
const (
	NoTerm TermKind = iota
	TermString
	TermInteger
	TermFloat
	TermBoolean
	TermUUID
	TermBlob
	TermDuration
	TermNull
	TermMarker
	TermOther
)

// Term is a value as written. The zero value is an absent one.
type Term struct {
	Kind TermKind
	Span
	// Marker is the index of the bind marker in the whole text, from 0; -1 if
	// the term is not a bind marker.
	Marker int
	// Next is, of a TermOther, the index of the first bind marker that stands in it or
	// after it.
	Next int
	// Name is that of a named marker, without its colon.
	Name Name
}

// isMarker reports whether the term is the bind marker with an index.
func (t *Term) isMarker(marker int) bool { return t.Kind == TermMarker && t.Marker == marker }

// Op is how a relation restricts its column.
type Op byte

// Ops. Only OpEq and OpIn determine the key; for OpOther only Column
// is set, and even it may be absent.
const (
	OpOther       Op = iota
	OpEq             // column = term
	OpIn             // column IN (terms) | column IN marker
	OpCompare        // column < term, and <= > >= !=
	OpToken          // TOKEN (columns) = term, or another comparison
	OpTuple          // (columns) = term, another comparison, or IN
	OpContains       // column CONTAINS term, in IF alone
	OpContainsKey    // column CONTAINS KEY term, likewise
)

// Relation is one restriction of WHERE, or one condition of IF.
type Relation struct {
	Column Name
	// Element is the term in brackets after the column, and Field the name
	// after a dot: only in conditions, where a part of
	// the column is compared.
	Element Term
	Field   Name
	Op      Op
	// Sign is the comparison of OpCompare: < <= > >= or !=.
	Sign Span
	// Behind is the part after the column of OpIn, beginning with the word IN.
	Behind Span
	// Value is the right side; Values are the terms of an IN list.
	Value  Term
	Values []Term
}

// Terms returns the values of a relation, including that of its element.
func (r *Relation) Terms() []Term {
	all := slices.Clone(r.Values)
	for _, t := range []Term{r.Element, r.Value} {
		if t.Kind != NoTerm {
			all = append(all, t)
		}
	}
	return all
}

// SelectorKind is the kind of a selector.
type SelectorKind byte

// Selector kinds.
const (
	OtherSelector  SelectorKind = iota
	StarSelector                // *
	ColumnSelector              // a column, without field or element
)

// Selector is one part of the selection of SELECT. Span is without the alias.
type Selector struct {
	Kind SelectorKind
	Span
	Column Name
}

// SyntaxError says what is wrong with a text, and where.
type SyntaxError struct {
	Span
	// Message is for the person who wrote the statement.
	Message string
	// TooLarge says that nothing is wrong but the size: see MaxMemory.
	TooLarge bool
}

// Error returns the message with the place as a byte offset.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s (at byte %d)", e.Message, e.Start)
}
